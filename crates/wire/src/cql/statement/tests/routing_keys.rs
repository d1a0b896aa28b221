//! From statement and values to the serialized partition key.

use crate::cql::statement::{classify, routing_key};
use crate::cql::types::Column;

/// Bind values: positional by number, and named.
const POSITIONAL: [Option<&[u8]>; 3] = [Some(b"zero"), Some(b"one"), None];
const NAMED: [(&str, &[u8]); 2] = [("b", b"by column"), ("Name", b"by name")];

fn key(text: &str, named: bool, columns: &[(&str, &str)]) -> Option<Vec<u8>> {
    let columns: Vec<_> = columns.iter().map(|(name, kind)| Column::new(*name, kind)).collect();
    let mut out = b"left over".to_vec();
    let value = |bind: crate::cql::statement::Bind<'_>| {
        if named {
            NAMED.iter().find(|(name, _)| bind.name.matches(name)).map(|(_, value)| *value)
        } else {
            POSITIONAL.get(usize::from(bind.index)).copied().flatten()
        }
    };
    let found = routing_key(&classify(text), &columns, value, &mut out);
    assert!(found || out.is_empty(), "{text}");
    found.then_some(out)
}

#[test]
fn single_column() {
    let a = &[("a", "text")];
    let list: &[(&str, Option<&[u8]>)] = &[
        ("SELECT * FROM t WHERE a = 'x''y'", Some(b"x'y")),
        ("SELECT * FROM t WHERE b = ? AND A = ?", Some(b"one")),
        ("INSERT INTO t (b, a) VALUES (?, ?)", Some(b"one")),
        ("INSERT INTO t (a, b) VALUES (?, ?)", Some(b"zero")),
        ("INSERT INTO t (\"A\", b) VALUES (?, ?)", None),
        ("UPDATE t SET x = ?, y = ? WHERE a = ?", None),
        ("UPDATE t SET x = 1 WHERE a = ?", Some(b"zero")),
        ("DELETE FROM t WHERE a = 'k'", Some(b"k")),
        ("SELECT * FROM t WHERE a = 5", None),
        ("SELECT * FROM t WHERE a = null", None),
        ("SELECT * FROM t WHERE a IN ('x')", None),
        ("SELECT * FROM t WHERE b = 'x'", None),
        ("SELECT * FROM t", None),
        ("INSERT INTO t JSON '{\"a\": \"x\"}'", None),
        ("DROP TABLE t", None),
        ("BEGIN BATCH INSERT INTO t (a) VALUES ('k') APPLY BATCH", Some(b"k")),
    ];
    for (text, expected) in list {
        assert_eq!(key(text, false, a).as_deref(), *expected, "{text}");
    }
    assert_eq!(key("SELECT * FROM t WHERE a = 'x'", false, &[]), None);
}

#[test]
fn several_columns_are_encoded_in_the_order_of_the_key() {
    let columns = &[("a", "int"), ("b", "text")];
    let expected: &[u8] = b"\0\x04\0\0\0\x05\0\0\x04zero\0";
    for text in [
        "SELECT * FROM t WHERE a = 5 AND b = ?",
        "SELECT * FROM t WHERE b = ? AND a = 5",
        "INSERT INTO t (x, b, a) VALUES (1, ?, 5)",
    ] {
        assert_eq!(key(text, false, columns).as_deref(), Some(expected), "{text}");
    }
    assert_eq!(key("SELECT * FROM t WHERE a = 5", false, columns), None);
}

#[test]
fn named_values_are_found_by_marker_or_column() {
    let b = &[("b", "text")];
    let list: &[(&str, Option<&[u8]>)] = &[
        ("SELECT * FROM t WHERE b = ?", Some(b"by column")),
        ("SELECT * FROM t WHERE B = :\"Name\"", Some(b"by name")),
        ("SELECT * FROM t WHERE b = :Name", None),
        ("SELECT * FROM t WHERE b = :b", Some(b"by column")),
    ];
    for (text, expected) in list {
        assert_eq!(key(text, true, b).as_deref(), *expected, "{text}");
    }
}

#[test]
fn a_key_of_many_columns_is_found_and_one_of_more_is_not_looked_for() {
    let names: Vec<String> = (0..33).map(|index| format!("c{index}")).collect();
    let columns: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "int")).collect();
    let terms: Vec<String> = names.iter().rev().map(|name| format!("{name} = 7")).collect();
    let text = format!("SELECT * FROM t WHERE {}", terms.join(" AND "));
    let expected: Vec<u8> = [0, 4, 0, 0, 0, 7, 0].repeat(32);
    assert_eq!(key(&text, false, &columns[..32]), Some(expected));
    assert_eq!(key(&text, false, &columns), None);
}

#[test]
fn the_first_of_two_terms_for_a_column_counts() {
    assert_eq!(
        key("SELECT * FROM t WHERE a = 'x' AND a = 'y'", false, &[("a", "text")]).as_deref(),
        Some(&b"x"[..])
    );
}
