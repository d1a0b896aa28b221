//! The `column = term` pairs found, and the numbering of bind markers.

use super::repeatability::Known;
use crate::cql::statement::{Repeatable, Term, classify, repeatable};

fn terms(text: &str) -> String {
    let terms = classify(text).key_terms().map(|found| match found.term {
        Term::Literal(text) => format!("{}={text}", found.column),
        Term::Marker(index) => format!("{}=#{index}", found.column),
        Term::NamedMarker { name, index } => format!("{}=:{name}#{index}", found.column),
    });
    terms.collect::<Vec<_>>().join(" ")
}

#[test]
fn terms_of_where() {
    let list = [
        ("SELECT * FROM t", ""),
        ("SELECT * FROM t WHERE a = ?", "a=#0"),
        ("SELECT * FROM t WHERE a = ? AND b = 'x' AND c IN (?, ?) AND d = ?", "a=#0 b='x' d=#3"),
        ("SELECT f(?), (int) ?, m[?] FROM t WHERE a = ? LIMIT ?", "a=#3"),
        ("SELECT * FROM t WHERE a IN (1)", ""),
        ("SELECT * FROM t WHERE a IN ? AND b = ?", "b=#1"),
        ("SELECT * FROM t WHERE a = :Name AND \"B\" = :\"Name\"", "a=:name#0 B=:Name#1"),
        ("SELECT * FROM t WHERE token(a) > ? AND token(a) <= token(?) AND b = 1", "b=1"),
        ("SELECT * FROM t WHERE token(a, b) = 5", ""),
        ("SELECT * FROM t WHERE (a, b) = (1, 2) AND c = 3", "c=3"),
        ("SELECT * FROM t WHERE a = (1, ?) AND c = ?", "c=#1"),
        ("SELECT * FROM t WHERE a > 1 AND a < ? AND b = ?", "b=#1"),
        ("SELECT * FROM t WHERE m['x'] = ? AND m CONTAINS KEY ? AND b = ?", "b=#2"),
        ("SELECT * FROM t WHERE a BETWEEN ? AND ? AND b = ?", "b=#2"),
        ("SELECT * FROM t WHERE a IS NOT NULL AND b LIKE 'x%' AND c = 1 ALLOW FILTERING", "c=1"),
        (
            "SELECT * FROM t WHERE per = 1 AND group = 2 GROUP BY x PER PARTITION LIMIT 3",
            "per=1 group=2",
        ),
        ("SELECT * FROM t WHERE a = now() AND b = (int) 5 AND c = 1 + 1 AND d = 1", "d=1"),
        ("SELECT * FROM t WHERE a = 1 ORDER BY v ANN OF [1.0, ?] LIMIT 2", "a=1"),
        ("SELECT * FROM t WHERE a = 1 OR b = 2", ""),
        ("SELECT * FROM t WHERE a = 1 garbage", ""),
        ("SELECT * FROM t WHERE a = 'open", ""),
        ("SELECT * FROM t WHERE a = 1 /* open", ""),
        ("SELECT * FROM t WHERE a = 1AND b = 2", ""),
        ("SELECT * FROM t WHERE a =", ""),
        ("SELECT * FROM t WHERE a = 1; x", ""),
        (
            "UPDATE t USING TTL ? SET b = ?, c = {'k': ?, :x : :y} WHERE a = ? AND d = ? IF b = ?",
            "a=#5 d=#6",
        ),
        ("DELETE b[?] FROM t USING TIMESTAMP ? WHERE a = ?", "a=#2"),
        ("DELETE FROM t WHERE a = 1 IF b = 2 AND c = 3", "a=1"),
    ];
    for (text, expected) in list {
        assert_eq!(terms(text), expected, "{text}");
    }
}

#[test]
fn literals_are_cut_out_whole() {
    let list = [
        ("-12", "-12"),
        ("1.5e-10", "1.5e-10"),
        ("1E+5", "1E+5"),
        ("'it''s'", "'it''s'"),
        ("''", "''"),
        ("''''", "''''"),
        ("$$it's $ $$", "$$it's $ $$"),
        ("0xCAFE", "0xCAFE"),
        ("0x", "0x"),
        ("f47ac10b-58cc-4372-a567-0e02b2c3d479", "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
        ("12345678-58cc-4372-a567-0e02b2c3d479", "12345678-58cc-4372-a567-0e02b2c3d479"),
        ("True", "True"),
        ("NULL", "NULL"),
        ("'-- no comment /*'", "'-- no comment /*'"),
        ("- 5", ""),
        ("-NaN", ""),
        ("[1, [2, 3]]", ""),
        ("{'a': {1, 2}, 'b': {}}", ""),
        ("{street: 'x', zip: ?}", ""),
        ("(1, 'a', null)", ""),
        ("ks.f(1, g(2))", ""),
    ];
    for (written, expected) in list {
        let wanted =
            if expected.is_empty() { "z=1".to_owned() } else { format!("a={expected} z=1") };
        let select = format!("SELECT * FROM t WHERE a = {written} AND z = 1");
        let insert = format!("INSERT INTO t (a, z) VALUES ({written}, 1)");
        assert_eq!(terms(&select), wanted, "{select}");
        assert_eq!(terms(&insert), wanted, "{insert}");
    }
}

#[test]
fn terms_of_insert() {
    let list = [
        ("INSERT INTO t (a, b) VALUES (?, ?)", "a=#0 b=#1"),
        ("INSERT INTO t (a, \"B\") VALUES (1, 'x') USING TTL ?", "a=1 B='x'"),
        ("INSERT INTO t(a,b,c)VALUES([?,?],?,f(?))", "b=#2"),
        ("INSERT INTO t (c, a) VALUES ({'x': ?}, :v) IF NOT EXISTS", "a=:v#1"),
        ("INSERT INTO t (a, b) VALUES (1)", ""),
        ("INSERT INTO t (a) VALUES (1, 2)", ""),
        ("INSERT INTO t VALUES (1, 2)", ""),
        ("INSERT INTO t JSON '{\"a\": 1}'", ""),
        ("INSERT INTO t JSON ?", ""),
        ("INSERT INTO t (a) VALUES (1) garbage", ""),
    ];
    for (text, expected) in list {
        assert_eq!(terms(text), expected, "{text}");
    }
}

#[test]
fn a_batch_has_the_terms_of_its_first_statement() {
    let list = [
        (
            "BEGIN BATCH USING TIMESTAMP ? INSERT INTO t (a) VALUES (?); DELETE FROM u WHERE b = ?; APPLY BATCH",
            "a=#1",
        ),
        (
            "BEGIN BATCH UPDATE t SET x = ? WHERE a = ? INSERT INTO t (a) VALUES (?) APPLY BATCH",
            "a=#1",
        ),
        ("BEGIN BATCH SELECT * FROM t WHERE a = 1; APPLY BATCH", ""),
        ("BEGIN BATCH INSERT INTO t (a) VALUES (1);", ""),
    ];
    for (text, expected) in list {
        assert_eq!(terms(text), expected, "{text}");
    }
}

#[test]
fn markers_are_counted_over_the_whole_statement() {
    let list = [
        ("SELECT * FROM t", 0),
        ("SELECT f(?), {?: :a} FROM t WHERE a = ? AND b IN (?, ?) LIMIT ?", 7),
        ("INSERT INTO t JSON ?", 1),
        ("UPDATE t USING TTL ? AND TIMESTAMP :ts SET a[?] = ?, b = b + ? WHERE k = ? IF c = ?", 7),
        ("DELETE FROM t WHERE (a IN :x) AND (b CONTAINS :y AND c = {d::x, key:1}) AND e = ?", 4),
        ("SELECT '?', \"?\" FROM t WHERE a = $$?$$ -- ?\n AND b = /* ? */ ?", 1),
        ("BEGIN BATCH INSERT INTO t (a) VALUES (?) DELETE b[?] FROM t WHERE a = ? APPLY BATCH", 3),
    ];
    for (text, expected) in list {
        assert_eq!(classify(text).markers, expected, "{text}");
    }
}

#[test]
fn more_markers_than_a_message_can_carry_are_not_understood() {
    let list = vec!["?"; 70_000].join(",");
    let text = format!("SELECT * FROM t WHERE a IN ({list}) AND k = ?");
    let statement = classify(&text);
    assert_eq!(repeatable(&text, &Known::new()), Repeatable::Never);
    assert_eq!(statement.key_terms().count(), 0);
}
