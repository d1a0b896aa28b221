//! Terms for types: their values, and the messages for invalid ones.

use super::{Bindings, Prepared, Scope, Value, prepare};
use crate::ast::{Relation, Statement, Term};
use crate::functions::Environment;
use crate::types::CqlType;
use crate::types::tests::Types;
use crate::values::{TimeDependence, from_string, literal};

struct Fixed(Vec<Value>);

impl Environment for Fixed {
    fn now_ms(&self) -> i64 {
        86_400_000
    }

    fn timeuuid(&self) -> [u8; 16] {
        [0x11; 16]
    }

    fn random(&self) -> u128 {
        0
    }

    fn token(&self, key: &[u8]) -> i64 {
        i64::try_from(key.len()).expect("a short key")
    }
}

impl Bindings for Fixed {
    fn value(&self, index: u16) -> Value {
        self.0.get(usize::from(index)).cloned().unwrap_or(Value::Unset)
    }
}

fn term(text: &str) -> (Term, usize) {
    let parsed = crate::parse(&format!("SELECT * FROM t WHERE k = {text}")).expect(text);
    let Statement::Select(select) = parsed.statement else { panic!("{text}: no SELECT") };
    let Some(Relation::Column { value, .. }) = select.relations.into_iter().next() else {
        panic!("{text}: no term")
    };
    (value, parsed.markers.len())
}

/// Names and types of the receivers of a statement's markers.
type Markers = Vec<Option<(String, CqlType)>>;

fn prepared(text: &str, name: &str) -> Result<(Prepared, Markers), String> {
    let (term, markers) = term(text);
    let keys = [CqlType::from(crate::ast::NativeType::Int)];
    let mut scope = Scope::new(&Types, Some(&keys), 0, markers);
    let cql_type = CqlType::parse(name, &Types).expect(name);
    let prepared = prepare(&term, "c", &cql_type, &mut scope).map_err(|error| error.message)?;
    Ok((prepared, scope.markers))
}

fn evaluated(text: &str, name: &str, binds: Vec<Value>) -> Result<String, String> {
    let (prepared, _) = prepared(text, name)?;
    let cql_type = CqlType::parse(name, &Types).expect(name);
    match prepared.evaluate(&Fixed(binds)).map_err(|error| error.message)? {
        Value::Bytes(bytes) => Ok(literal(&cql_type, &bytes)),
        Value::Null => Ok("null".to_owned()),
        Value::Unset => Ok("unset".to_owned()),
    }
}

#[test]
fn values() {
    let cases = [
        ("int", "5", "5"),
        ("bigint", "-5", "-5"),
        ("double", "5", "5.0"),
        ("float", "1e3", "1000.0"),
        ("decimal", "1.50", "1.50"),
        ("double", "NaN", "NaN"),
        ("text", "'it''s'", "'it''s'"),
        ("timestamp", "'2020-01-01 12:00+0100'", "'2020-01-01T11:00:00.000Z'"),
        ("timestamp", "5", "'1970-01-01T00:00:00.005Z'"),
        ("date", "'2020-02-29'", "'2020-02-29'"),
        ("time", "'1:2:3.5'", "'01:02:03.500000000'"),
        ("inet", "'::1'", "'0:0:0:0:0:0:0:1'"),
        ("blob", "0xCAFE", "0xcafe"),
        ("duration", "PT1H30M", "1h30m"),
        ("boolean", "TRUE", "true"),
        ("uuid", "5F9AC1C0-0000-1000-8000-000000000000", "5f9ac1c0-0000-1000-8000-000000000000"),
        ("int", "null", "null"),
        ("list<int>", "[3, 1, 3]", "[3, 1, 3]"),
        ("set<int>", "{3, 1, 3}", "{1, 3}"),
        ("map<text, int>", "{'b': 1, 'a': 2, 'b': 3}", "{'a': 2, 'b': 3}"),
        ("map<text, int>", "{}", "{}"),
        ("set<int>", "{}", "{}"),
        ("tuple<int, text>", "(1, null)", "(1, null)"),
        ("ty", "{a: 1}", "{a: 1, \"Bc\": null}"),
        ("ty", "{\"Bc\": 'x', a: 1}", "{a: 1, \"Bc\": 'x'}"),
        ("vector<float, 2>", "[1, 2.5]", "[1.0, 2.5]"),
        ("frozen<list<frozen<set<int>>>>", "[{2, 1}, {}]", "[{1, 2}, {}]"),
        ("int", "(int) 5", "5"),
        ("varint", "(int) 5", "5"),
        ("int", "1 + 2 * 3", "7"),
        ("bigint", "1 + 2", "3"),
        ("int", "-(5)", "-5"),
        ("double", "1 / 2.0", "0.5"),
        ("decimal", "(decimal) 1 / (decimal) 3", "0.33333333333333333333333333333333"),
        ("text", "cast(5 as text)", "'5'"),
        ("text", "cast(0xff as text)", "'-1'"),
        ("tinyint", "0x05", "5"),
        ("tuple<int, tuple<text, int>>", "'5:a'", "(5, ('a', null))"),
        ("tuple<frozen<list<int>>, ty>", "'000000010000000400000007:@'", "([7], null)"),
        ("tuple<frozen<ty>>", "'7'", "({a: 7, \"Bc\": null})"),
        ("tuple<int>", "0x0000000400000005", "(5)"),
        ("blob", "int_as_blob(1)", "0x00000001"),
        ("blob", "textAsBlob('a')", "0x61"),
        ("int", "blob_as_int(0x00000007)", "7"),
        ("date", "to_date(current_timestamp())", "'1970-01-02'"),
        ("timestamp", "toTimestamp(now())", "'-"),
        ("bigint", "token(1)", "4"),
        ("date", "(date) '2020-01-31' + 1mo", "'2020-02-29'"),
        ("list<int>", "from_json('[1, 2]')", "[1, 2]"),
        ("text", "to_json((int) 5)", "'5'"),
        ("int", "abs(-5)", "5"),
    ];
    for (name, text, expected) in cases {
        let found = evaluated(text, name, Vec::new());
        if expected == "'-" {
            assert!(found.is_ok(), "{text}: {found:?}");
            continue;
        }
        assert_eq!(found.as_deref(), Ok(expected), "{name}: {text}");
    }
}

#[test]
fn impossible_terms_are_refused_as_by_cassandra() {
    let cases = [
        ("int", "'a'", "Invalid STRING constant (a) for \"c\" of type int"),
        ("text", "5", "Invalid INTEGER constant (5) for \"c\" of type text"),
        ("int", "5.0", "Invalid FLOAT constant (5.0) for \"c\" of type int"),
        ("int", "99999999999", "Unable to make int from '99999999999'"),
        ("list<int>", "5", "Invalid INTEGER constant (5) for \"c\" of type list<int>"),
        ("int", "[1]", "Invalid list literal for c of type int"),
        ("list<int>", "['a']", "Invalid list literal for c: value 'a' is not of type int"),
        ("set<int>", "[1]", "Invalid list literal for c of type set<int>"),
        ("map<text, int>", "{1: 1}", "Invalid map literal for c: key 1 is not of type text"),
        ("map<text, int>", "{'a': 'b'}", "Invalid map literal for c: value 'b' is not of type int"),
        ("list<int>", "[null]", "null is not supported inside collections"),
        (
            "list<int>",
            "[?]",
            "Invalid list literal for c: bind variables are not supported inside collection literals",
        ),
        ("ty", "{x: 1}", "Unknown field 'x' in value of user defined type ty"),
        ("ty", "{a: 'b'}", "Invalid user type literal for c: field a is not of type int"),
        (
            "tuple<int, text>",
            "(1, 2)",
            "Invalid tuple literal for c: component 1 is not of type text",
        ),
        (
            "vector<float, 2>",
            "[1]",
            "Invalid vector literal for c of type vector<float, 2>; expected 2 elements, but given 1",
        ),
        ("int", "(text) 'a'", "Cannot assign value (text)'a' to c of type int"),
        ("int", "(int) 'a'", "Cannot cast value 'a' to type int"),
        (
            "int",
            "now()",
            "Type error: cannot assign result of function system.now (type timeuuid) to c (type int)",
        ),
        (
            "counter",
            "token(1)",
            "Type error: cannot assign result of function system.token (type bigint) to c (type counter)",
        ),
        ("tinyint", "0x0102", "0x0102 is no value of type tinyint"),
        ("tuple<frozen<list<int>>>", "5", "cannot parse '5' as hex bytes"),
        (
            "tuple<frozen<list<int>>>",
            "2147483648",
            "'2147483648' is no value of type frozen<list<int>>",
        ),
        ("tuple<int>", "0x01", "0x01 is no value of type frozen<tuple<int>>"),
        ("int", "nothing()", "Unknown function nothing called"),
        ("int", "1 / 0", "the operation 'int / int' failed: / by zero"),
        ("int", "1 + 'a'", "the '+' operation is not supported between 1 and 'a'"),
        ("timestamp", "'yesterday'", "Unable to parse a date/time from 'yesterday'"),
        (
            "timeuuid",
            "5f9ac1c0-0000-4000-8000-000000000000",
            "TimeUUID supports only version 1 UUIDs",
        ),
    ];
    for (name, text, message) in cases {
        assert_eq!(evaluated(text, name, Vec::new()), Err(message.to_owned()), "{name}: {text}");
    }
}

#[test]
fn an_empty_text_is_an_empty_tuple() {
    let (empty, _) = prepared("''", "tuple<int>").expect("a tuple");
    assert_eq!(empty.evaluate(&Fixed(Vec::new())), Ok(Value::Bytes(Vec::new())));
}

#[test]
fn markers_know_what_they_are_for() {
    let (_, markers) = prepared("(?, ?)", "tuple<int, text>").expect("a tuple");
    let shown: Vec<_> =
        markers.iter().flatten().map(|(name, cql_type)| format!("{name} {cql_type}")).collect();
    assert_eq!(shown, ["c[0] int", "c[1] text"]);
    let five = Value::Bytes(5i32.to_be_bytes().to_vec());
    assert_eq!(evaluated("?", "int", vec![five.clone()]).as_deref(), Ok("5"));
    assert_eq!(evaluated("?", "int", vec![Value::Unset]).as_deref(), Ok("unset"));
    assert_eq!(
        evaluated("?", "int", vec![Value::Bytes(vec![1])]),
        Err("Expected 4 or 0 byte int (1)".to_owned())
    );
    assert_eq!(evaluated("(?, 'a')", "tuple<int, text>", vec![five]).as_deref(), Ok("(5, 'a')"));
}

#[test]
fn a_long_sum_is_checked_quickly() {
    let text = format!("1{}", " + 1".repeat(40));
    assert_eq!(evaluated(&text, "int", Vec::new()).as_deref(), Ok("41"));
    let nested = format!("{}1{}", "abs(".repeat(20), ")".repeat(20));
    assert_eq!(evaluated(&nested, "int", Vec::new()).as_deref(), Ok("1"));
}

#[test]
fn literals_of_values_are_those_values() {
    let cases = [
        ("text", "it's"),
        ("ascii", "a"),
        ("blob", "00ff"),
        ("timestamp", "2020-01-01T10:11:12.345Z"),
        ("date", "1600-02-29"),
        ("time", "23:59:59.999999999"),
        ("duration", "1y2mo3d4h5m6s7ms8us9ns"),
        ("inet", "2001:db8::1"),
        ("varint", "-123456789012345678901234567890"),
        ("decimal", "-1.5E-20"),
        ("double", "1.0E-5"),
        ("float", "-3.4028235E38"),
        ("boolean", "true"),
        ("tinyint", "-128"),
        ("uuid", "5f9ac1c0-0000-4000-8000-000000000000"),
    ];
    for (name, text) in cases {
        let native = crate::ast::NativeType::by_name(name).expect(name);
        let bytes = from_string(native, text, 0).expect(text);
        let written = literal(&native.into(), &bytes);
        let (again, _) = prepared(&written, name).expect(&written);
        assert_eq!(again, Prepared::Constant(Some(bytes)), "{name} {written}");
    }
}

#[test]
fn literals_have_the_types_that_cassandra_prefers() {
    let cases = [
        ("'abc'", "ascii"),
        ("'é'", "text"),
        ("5", "int"),
        ("5000000000", "bigint"),
        ("50000000000000000000000", "varint"),
        ("1.5", "double"),
        ("1.12345678901234567890123", "decimal"),
        ("NaN", "double"),
        ("true", "boolean"),
        ("1h", "duration"),
        ("5f9ac1c0-0000-1000-8000-000000000000", "timeuuid"),
        ("5f9ac1c0-0000-4000-8000-000000000000", "uuid"),
        ("0xff", "tinyint"),
    ];
    for (text, name) in cases {
        let Term::Literal(literal) = term(text).0 else { panic!("{text}: no literal") };
        assert_eq!(super::preferred_type(&literal).name(), name, "{text}");
    }
}

/// Cassandra 5 turns `{'a': 1, 'a': 2, 'a': 3}` into 1, 2 or 3, varying with each preparation.
#[test]
fn literals_that_name_one_thing_twice_are_ambiguous() {
    for (text, name, is_ambiguous) in [
        ("{'a': 1, 'a': 2}", "map<text, int>", true),
        ("{'a': 1, 'b': 2, 'a': 1}", "map<text, int>", false),
        ("{1.0: 1, 1.00: 1}", "map<decimal, int>", true),
        ("{1.0, 2, 1.00}", "set<decimal>", true),
        ("{1, 2, 1}", "set<decimal>", false),
        ("[1.0, 1.00]", "list<decimal>", false),
        ("[{1: 1}, {1: 1, 1: 2}]", "list<frozen<map<int, int>>>", true),
        ("{}", "set<int>", false),
    ] {
        let (term, markers) = term(text);
        let mut scope = Scope::new(&Types, None, 0, markers);
        prepare(&term, "c", &CqlType::parse(name, &Types).expect(name), &mut scope).expect(text);
        assert_eq!(scope.is_ambiguous, is_ambiguous, "{text}");
    }
}

/// A node takes the time zone of its machine, and `'now'` when it prepares a statement.
#[test]
fn times_without_a_zone_are_noticed_wherever_they_are() {
    use TimeDependence::{Nothing, Now, Zone};
    for (text, name, wanted) in [
        ("'2024-01-31 12:00:00+0000'", "timestamp", Nothing),
        ("'2024-01-31+0100'", "timestamp", Nothing),
        ("'2024-01-31T12:00:00.5Z'", "timestamp", Nothing),
        ("1706702400000", "timestamp", Nothing),
        ("'-1'", "timestamp", Nothing),
        ("'2024-01-31 12:00:00'", "timestamp", Zone),
        ("'2024-01-31'", "timestamp", Zone),
        ("'NOW'", "timestamp", Now),
        ("'now'", "text", Nothing),
        ("'2024-01-31'", "date", Nothing),
        ("('now', '2024-01-31 12:00Z')", "tuple<text, timestamp>", Nothing),
        ("('a', 'now')", "tuple<text, timestamp>", Now),
        ("'a:now'", "tuple<text, timestamp>", Now),
        ("{'2024-01-31': 'now'}", "map<date, text>", Nothing),
        ("{1: '2024-01-31'}", "map<int, timestamp>", Zone),
        ("to_date('now')", "date", Now),
        ("to_date('2024-01-31 00:30+0000')", "date", Nothing),
        ("to_unix_timestamp((timestamp) '2024-01-31 12:00')", "bigint", Zone),
        ("min_timeuuid('2024-01-31 12:00')", "timeuuid", Zone),
        ("cast((timestamp) 'now' AS date)", "date", Now),
        ("from_json('\"now\"')", "timestamp", Now),
        ("from_json('\"now\"')", "text", Nothing),
        ("from_json('{\"now\": 1}')", "map<text, int>", Nothing),
        ("from_json('{\"2024-01-31\": 1}')", "map<timestamp, int>", Zone),
        ("from_json('[\"2024-01-31 12:00\"]')", "list<timestamp>", Zone),
        ("from_json('\"[\\\"now\\\"]\"')", "list<timestamp>", Now),
        ("from_json('[\"2024-01-31 12:00Z\", \"x\"]')", "tuple<timestamp, text>", Nothing),
        ("from_json(?)", "timestamp", Zone),
        ("from_json(?)", "map<int, frozen<list<timestamp>>>", Zone),
        ("from_json(?)", "map<int, text>", Nothing),
        ("?", "timestamp", Nothing),
    ] {
        let (term, markers) = term(text);
        let mut scope = Scope::new(&Types, None, 0, markers);
        prepare(&term, "c", &CqlType::parse(name, &Types).expect(name), &mut scope).expect(text);
        assert_eq!(scope.time_dependence, wanted, "{text} as {name}");
    }
    // A zone that is unknown here may be known to nodes.
    let (term, _) = term("'2024-01-31 12:00 CET'");
    let mut scope = Scope::new(&Types, None, 0, 0);
    let cql_type = CqlType::parse("timestamp", &Types).expect("a type");
    assert!(prepare(&term, "c", &cql_type, &mut scope).is_err());
    assert_eq!(scope.time_dependence, Zone);
}
