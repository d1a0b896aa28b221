//! Types to text, to wire format and back.

use std::sync::Arc;

use super::{CqlType, TypeLookup, UserType};
use crate::ast::NativeType;

/// A keyspace `ks` with the types `ty` and `Ty`.
pub(crate) struct Types;

impl TypeLookup for Types {
    fn keyspace(&self) -> Option<&str> {
        Some("ks")
    }

    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>> {
        let fields = vec![
            ("a".to_owned(), CqlType::Native(NativeType::Int)),
            ("Bc".to_owned(), CqlType::Native(NativeType::Text)),
        ];
        let definition = UserType { keyspace: keyspace.to_owned(), name: name.to_owned(), fields };
        let known =
            name.eq_ignore_ascii_case("ty") || ["int", "ttl", "set", "date"].contains(&name);
        (keyspace == "ks" && known).then(|| Arc::new(definition))
    }
}

#[test]
fn text_as_the_schema_tables_have_it() {
    let cases = [
        ("int", "int"),
        ("varchar", "text"),
        ("list<int>", "list<int>"),
        ("frozen<list<list<int>>>", "frozen<list<frozen<list<int>>>>"),
        ("list<frozen<list<int>>>", "list<frozen<list<int>>>"),
        ("map<text, frozen<set<int>>>", "map<text, frozen<set<int>>>"),
        ("tuple<int, list<text>>", "frozen<tuple<int, frozen<list<text>>>>"),
        ("ty", "ty"),
        ("frozen<ks.ty>", "frozen<ty>"),
        ("\"Ty\"", "\"Ty\""),
        ("\"int\"", "\"int\""),
        ("list<frozen<ks.\"int\">>", "list<frozen<\"int\">>"),
        ("\"ttl\"", "\"ttl\""),
        ("\"set\"", "\"set\""),
        ("\"date\"", "\"date\""),
        ("vector<float, 2>", "vector<float, 2>"),
        ("'org.apache.cassandra.db.marshal.Int32Type'", "int"),
        ("'org.example.Odd'", "'org.example.Odd'"),
    ];
    for (text, expected) in cases {
        let resolved = CqlType::parse(text, &Types).expect(text);
        assert_eq!(resolved.to_string(), expected, "{text}");
        assert_eq!(CqlType::parse(expected, &Types), Ok(resolved), "{text}");
    }
}

#[test]
fn class_names_as_cassandra_has_them() {
    let m = "org.apache.cassandra.db.marshal";
    let cases = [
        ("counter", format!("{m}.CounterColumnType")),
        ("list<int>", format!("{m}.ListType({m}.Int32Type)")),
        (
            "frozen<map<text, int>>",
            format!("{m}.FrozenType({m}.MapType({m}.UTF8Type,{m}.Int32Type))"),
        ),
        ("tuple<int, text>", format!("{m}.TupleType({m}.Int32Type,{m}.UTF8Type)")),
        (
            "frozen<ty>",
            format!("{m}.FrozenType({m}.UserType(ks,7479,61:{m}.Int32Type,4263:{m}.UTF8Type))"),
        ),
        ("vector<float, 2>", format!("{m}.VectorType({m}.FloatType , 2)")),
    ];
    for (text, class) in cases {
        assert_eq!(CqlType::parse(text, &Types).expect(text).class_name(), class);
    }
}

#[test]
fn classes_of_classes_take_no_room_on_the_stack() {
    let class = format!("{}FloatType{}", "VectorType(".repeat(100_000), ",2)".repeat(100_000));
    assert_eq!(CqlType::from_class_name(&class), CqlType::Custom(class.as_str().into()));
    let vector = CqlType::Vector { element: Arc::new(NativeType::Float.into()), dimension: 2 };
    assert_eq!(CqlType::from_class_name("VectorType(FloatType , 2)"), vector);
    assert_eq!(CqlType::from_class_name(&vector.class_name()), vector);
}

#[test]
fn options_are_read_back() {
    let mut texts: Vec<String> = NativeType::all().map(|native| native.to_string()).collect();
    let others = [
        "list<int>",
        "set<text>",
        "map<int, frozen<list<text>>>",
        "tuple<int, text>",
        "ty",
        "vector<int, 5>",
    ];
    texts.extend(others.map(str::to_owned));
    for text in &texts {
        let cql_type = CqlType::parse(text, &Types).expect(text);
        for version in [3, 4, 5] {
            let option = cql_type.option(version);
            let mut input = &option[..];
            let found = CqlType::read_option(&mut input);
            assert_eq!(found.as_ref(), Some(&cql_type), "{text} in version {version}");
            assert!(input.is_empty());
        }
    }
    assert_eq!(CqlType::from(NativeType::Duration).option(5), [0, 0x15]);
    assert_eq!(CqlType::from(NativeType::Duration).option(4)[..2], [0, 0]);
}

#[test]
fn impossible_types_are_refused() {
    let cases = [
        (
            "list<list<int>>",
            "Non-frozen collections are not allowed inside collections: list<list<int>>",
        ),
        ("map<int, ty>", "Non-frozen UDTs are not allowed inside collections: map<int, ty>"),
        ("set<counter>", "Counters are not allowed inside collections: set<counter>"),
        ("set<duration>", "Durations are not allowed inside sets: set<duration>"),
        ("map<duration, int>", "Durations are not allowed as map keys: map<duration, int>"),
        ("unknown", "Unknown type ks.unknown"),
        ("vector<float, 0>", "vectors may only have positive dimensions; given 0"),
        (
            "other.ty",
            "Statement on keyspace ks cannot refer to a user type in keyspace other; \
             user types can only be used in the keyspace they are defined in",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(CqlType::parse(text, &Types).expect_err(text).message, message);
    }
}
