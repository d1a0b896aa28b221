//! `SELECT` and its parts.

use super::select;
use crate::ast::{
    CellMetadata, Comparison, LiteralKind, OrderingBy, QualifiedName, Relation, SelectClause,
    Selector, Term,
};
use crate::parse;

/// Selectors in a short form: functions and operators in prefix notation.
fn short(selector: &Selector) -> String {
    let all = |selectors: &[Selector]| selectors.iter().map(short).collect::<Vec<_>>().join(" ");
    match selector {
        Selector::Column(name) => name.clone(),
        Selector::Term(term) => term.to_string(),
        Selector::CountRows => "count-rows".to_owned(),
        Selector::Metadata(CellMetadata::WriteTime, of) => format!("writetime({})", short(of)),
        Selector::Metadata(CellMetadata::MaxWriteTime, of) => {
            format!("maxwritetime({})", short(of))
        }
        Selector::Metadata(CellMetadata::TimeToLive, of) => format!("ttl({})", short(of)),
        Selector::Cast(of, native) => format!("cast({} {native})", short(of)),
        Selector::Call { name, arguments } => format!("{name}({})", all(arguments)),
        Selector::Field(of, field) => format!("field({} {field})", short(of)),
        Selector::Element(of, key) => format!("element({} {key})", short(of)),
        Selector::Slice(of, from, to) => {
            format!("slice({} {from:?} {to:?})", short(of)).replace("Term", "")
        }
        Selector::Hint(type_name, of) => format!("hint({type_name} {})", short(of)),
        Selector::Tuple(of) => format!("tuple({})", all(of)),
        Selector::List(of) => format!("list({})", all(of)),
        Selector::Set(of) => format!("set({})", all(of)),
        Selector::Map(of) => {
            let entries = of.iter().map(|(key, value)| format!("{}:{}", short(key), short(value)));
            format!("map({})", entries.collect::<Vec<_>>().join(" "))
        }
        Selector::Negation(of) => format!("-({})", short(of)),
        Selector::Arithmetic { operator, left, right } => {
            format!("{}({} {})", operator.symbol(), short(left), short(right))
        }
    }
}

#[test]
fn selectors() {
    let cases = [
        ("a", "a"),
        ("A", "a"),
        ("\"A\"", "A"),
        ("ttl", "ttl"),
        ("count(*)", "count-rows"),
        ("count(1)", "count(1)"),
        ("COUNT(a)", "count(a)"),
        ("ks.F(a, g(b))", "ks.f(a g(b))"),
        ("token(a, b)", "\"token\"(a b)"),
        ("writetime(a)", "writetime(a)"),
        ("ttl(u.f)", "ttl(field(u f))"),
        ("maxwritetime(m['k'])", "maxwritetime(element(m 'k'))"),
        ("cast(a + 1 as text)", "cast(+(a 1) text)"),
        ("u.f.g", "field(field(u f) g)"),
        ("u.f['x']", "element(field(u f) 'x')"),
        ("(int) a", "hint(int a)"),
        ("(a, b)", "tuple(a b)"),
        ("(a)", "tuple(a)"),
        ("[a, 1]", "list(a 1)"),
        ("{a, 1}", "set(a 1)"),
        ("{a: 1}", "map(a:1)"),
        ("{}", "set()"),
        ("-a", "-(a)"),
        ("a + b * c - d", "-(+(a *(b c)) d)"),
        ("a / -b % 2", "%(/(a -(b)) 2)"),
        ("?", "?"),
        ("null", "NULL"),
    ];
    for (text, expected) in cases {
        let SelectClause::Items(items) = select(&format!("SELECT {text} FROM t")).clause else {
            panic!("{text}: no selectors");
        };
        assert_eq!(
            items.iter().map(|item| short(&item.selector)).collect::<Vec<_>>(),
            [expected],
            "{text}"
        );
    }
}

#[test]
fn slices_have_one_or_both_ends() {
    let SelectClause::Items(items) = select("SELECT a[1..2], a[..2] AS x, a[1..] FROM t").clause
    else {
        panic!("no selectors");
    };
    let ends = items.iter().map(|item| match &item.selector {
        Selector::Slice(_, from, to) => (from.is_some(), to.is_some()),
        other => panic!("no slice: {other:?}"),
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(true, true), (false, true), (true, false)]);
    assert_eq!(items[1].alias.as_deref(), Some("x"));
}

#[test]
fn json_and_distinct_are_keywords_or_columns() {
    let cases = [
        ("json a", (true, false)),
        ("json *", (true, false)),
        ("json distinct a", (true, true)),
        ("distinct a", (false, true)),
        ("json", (false, false)),
        ("json, a", (false, false)),
        ("json AS x", (false, false)),
        ("distinct", (false, false)),
        ("json distinct", (true, false)),
    ];
    for (text, expected) in cases {
        let select = select(&format!("SELECT {text} FROM t"));
        assert_eq!((select.json, select.distinct), expected, "{text}");
    }
}

#[test]
fn every_clause() {
    let text = "SELECT * FROM \"K\".t WHERE a = 1 AND b IN (1, ?) AND c IN :x AND (d, e) >= (1, ?) \
                AND token(p) < 5 AND m['k'] = 2 AND n CONTAINS KEY 3 AND f LIKE 'a%' AND g IS NOT NULL \
                AND (h, i) IN ((1, 2), (3, 4)) AND (j) IN ? AND (k, l) IN (?, ?) AND (o = 1) \
                GROUP BY a, b ORDER BY d DESC, e PER PARTITION LIMIT 2 LIMIT ? ALLOW FILTERING;";
    let parsed = parse(text).expect("a statement");
    assert_eq!(parsed.markers.len(), 7);
    assert_eq!(parsed.markers[1].as_deref(), Some("x"));
    let select = select(text);
    assert_eq!(
        select.table,
        QualifiedName { keyspace: Some("K".to_owned()), name: "t".to_owned() }
    );
    assert_eq!(select.relations.len(), 13);
    assert_eq!((select.group_by.len(), select.order_by.len()), (2, 2));
    assert_eq!(select.order_by[0].by, OrderingBy::Column("d".to_owned()));
    assert!(select.order_by[0].descending && !select.order_by[1].descending);
    assert_eq!(select.limit, Some(Term::Marker(6)));
    assert_eq!(select.per_partition_limit.map(|limit| limit.to_string()).as_deref(), Some("2"));
    assert!(select.allow_filtering);
    let relations = select.relations;
    assert!(matches!(&relations[2], Relation::InMarker { column, marker: 1 } if column == "c"));
    assert!(matches!(
        &relations[3],
        Relation::Tuple { comparison: Comparison::GreaterOrEqual, .. }
    ));
    assert!(matches!(&relations[4], Relation::Token { comparison: Comparison::Less, .. }));
    assert!(matches!(&relations[5], Relation::Element { .. }));
    assert!(matches!(&relations[9], Relation::TupleIn { values, .. } if values.len() == 2));
    assert!(matches!(&relations[10], Relation::TupleInMarker { marker: 3, .. }));
    assert!(matches!(&relations[12], Relation::Column { column, .. } if column == "o"));
}

#[test]
fn terms() {
    let cases = [
        ("'it''s'", "'it''s'"),
        ("$$it's$$", "'it''s'"),
        ("-NaN", "NaN"),
        ("-infinity", "-Infinity"),
        ("(int) 5", "(int)5"),
        ("(frozen<list<int>>) [1]", "(frozen<list<int>>)[1]"),
        ("(foo) (5, 6)", "(foo)(5, 6)"),
        ("(5, 6)", "(5, 6)"),
        ("[1, [2]]", "[1, [2]]"),
        ("{1, 2}", "{1, 2}"),
        ("{'a': 1}", "{'a': 1}"),
        ("{a: 1, \"B\": 2}", "{a: 1, \"B\": 2}"),
        ("f(1, ?, :x)", "f(1, ?, ?)"),
        ("1 + 2 * - 3", "1 + 2 * -3"),
        ("- 0xCAFE", "- 0xCAFE"),
        ("- 5f9ac1c0-0000-1000-8000-000000000000", "- 5f9ac1c0-0000-1000-8000-000000000000"),
        ("- af9ac1c0-0000-1000-8000-000000000000", "-af9ac1c0-0000-1000-8000-000000000000"),
        ("- NaN", "- NaN"),
        ("- 1h2m", "-1h2m"),
        ("- f(1)", "-f(1)"),
        ("cast(5 as text)", "cast(5 as text)"),
        ("1h2m", "1h2m"),
        ("0xAB", "0xAB"),
        ("TRUE", "TRUE"),
        ("null", "NULL"),
    ];
    for (text, expected) in cases {
        let select = select(&format!("SELECT * FROM t WHERE k = {text}"));
        let [Relation::Column { value, .. }] = &select.relations[..] else {
            panic!("{text}: no relation")
        };
        assert_eq!(value.to_string(), expected, "{text}");
        // Parsing the output gives the same meaning.
        let again = super::select(&format!("SELECT * FROM t WHERE k = {expected}"));
        let [Relation::Column { value, .. }] = &again.relations[..] else {
            panic!("{expected}: no relation")
        };
        assert_eq!(value.to_string(), expected, "{text}");
    }
}

#[test]
fn constants_keep_their_kinds() {
    let cases = [
        ("1", LiteralKind::Integer),
        ("1.0", LiteralKind::Float),
        ("NaN", LiteralKind::Float),
        ("'1'", LiteralKind::String),
        ("true", LiteralKind::Boolean),
        ("P1D", LiteralKind::Duration),
        ("5f9ac1c0-0000-1000-8000-000000000000", LiteralKind::Uuid),
        ("0x", LiteralKind::Hex),
    ];
    for (text, kind) in cases {
        let select = select(&format!("SELECT * FROM t WHERE k = {text}"));
        let [Relation::Column { value: Term::Literal(literal), .. }] = &select.relations[..] else {
            panic!("{text}: no literal");
        };
        assert_eq!(literal.kind, kind, "{text}");
    }
}

#[test]
fn numbers_that_no_double_is_near_to_are_no_constants() {
    for text in ["1e309", "-1.5E+3838", "1e99999999999", "1e-99999999999"] {
        let refused = parse(&format!("SELECT * FROM t WHERE k = {text}")).expect_err(text);
        assert!(refused.message.contains("beyond what a double can be"), "{text}: {refused}");
    }
    assert!(parse("SELECT * FROM t WHERE k = 1e-400").is_ok());
}

#[test]
fn names_of_selected_values() {
    let cases = [
        ("a", "a"),
        ("\"A\"", "A"),
        ("count(*)", "count"),
        ("count(1)", "count"),
        ("count(a)", "system.count(a)"),
        ("MAX(a)", "system.max(a)"),
        ("ks.f(a, 1)", "ks.f(a, 1)"),
        ("token(a, b)", "system.token(a, b)"),
        ("writetime(a)", "writetime(a)"),
        ("ttl(m['k'])", "ttl(m['k'])"),
        ("cast(a as text)", "cast(a as text)"),
        ("u.f", "u.f"),
        ("l[1..2]", "l[1..2]"),
        ("a + 1", "a + 1"),
        ("-a", "-a"),
        ("(int) 1", "(int)1"),
        ("(a)", "a"),
        ("(a, b)", "(a, b)"),
    ];
    for (text, expected) in cases {
        let SelectClause::Items(items) = select(&format!("SELECT {text} FROM t")).clause else {
            panic!("{text}: no selectors");
        };
        assert_eq!(items[0].selector.to_string(), expected, "{text}");
    }
}
