//! Texts without values.

use super::super::redact;

const MUCH: usize = 1 << 20;

#[test]
fn literals_of_every_kind_are_hidden_and_names_stay() {
    for (text, shown) in [
        ("SELECT a FROM k.t WHERE id = 7", "SELECT a FROM k.t WHERE id = ?"),
        (
            "select * from \"K\".t where a='it''s' and b=$$x$$;",
            "select * from \"K\".t where a=? and b=?;",
        ),
        ("UPDATE t SET a = -1.5e-3, b = 0xff WHERE c = ?", "UPDATE t SET a = ?, b = ? WHERE c = ?"),
        (
            "INSERT INTO t (a, b, c) VALUES (1, 'x', true)",
            "INSERT INTO t (a, b, c) VALUES (?, …, true)",
        ),
        ("SELECT a FROM t WHERE id IN (1,2 , 3)", "SELECT a FROM t WHERE id IN (?, …)"),
        ("SELECT a FROM t WHERE id IN (:a, :b)", "SELECT a FROM t WHERE id IN (:?, :?)"),
        (
            "INSERT INTO t (a) VALUES ([1, 2, now(), 3])",
            "INSERT INTO t (a) VALUES ([?, …, now(), ?])",
        ),
        ("SELECT a -- 'secret'\n  FROM /* 1 */ t", "SELECT a FROM t"),
        ("ALTER ROLE r WITH PASSWORD = 'secret'", "ALTER ROLE r WITH PASSWORD = ?"),
        ("SELECT 123e4567-e89b-12d3-a456-426614174000 FROM t", "SELECT ? FROM t"),
        ("SELECT a FROM t USING TTL 1h30m", "SELECT a FROM t USING TTL ?"),
        (
            "UPDATE t SET c = now() WHERE a = :key AND b IN (?, ?)",
            "UPDATE t SET c = now() WHERE a = :? AND b IN (?, ?)",
        ),
        (
            "SELECT a FROM t WHERE token(id) > token(5) LIMIT 10",
            "SELECT a FROM t WHERE token(id) > token(?) LIMIT ?",
        ),
        (
            "SELECT v FROM t WHERE a > 3 AND b < 4 ALLOW FILTERING",
            "SELECT v FROM t WHERE a > ? AND b < ? ALLOW FILTERING",
        ),
        ("", ""),
    ] {
        assert_eq!(redact(text, MUCH), shown, "{text}");
    }
}

/// Valid CQL: durations of ISO 8601 are words. Not valid: texts in no quotes or the wrong ones,
/// which stand in logs of time-outs all the same.
#[test]
fn words_in_the_place_of_a_value_are_hidden() {
    for (text, shown) in [
        ("UPDATE t SET d = P1Y2M3DT4H WHERE k = 1", "UPDATE t SET d = ? WHERE k = ?"),
        ("INSERT INTO t (d) VALUES (-PT5S)", "INSERT INTO t (d) VALUES (-?)"),
        ("SELECT d FROM t WHERE d > P3W AND k = 1", "SELECT d FROM t WHERE d > ? AND k = ?"),
        ("SELECT d FROM t WHERE d = P0001-02-03T04:05:06", "SELECT d FROM t WHERE d = ?…"),
        ("SELECT a FROM t WHERE b = \"secret\"", "SELECT a FROM t WHERE b = ?"),
        ("SELECT a FROM t WHERE b = `secret`", "SELECT a FROM t WHERE b = `?`"),
        ("SELECT a FROM t WHERE b = john@x.org", "SELECT a FROM t WHERE b = ?@?.?"),
        ("UPDATE t SET m = {a: secret, b: [secret]}", "UPDATE t SET m = {?: ?, …: [?]}"),
    ] {
        assert_eq!(redact(text, MUCH), shown, "{text}");
    }
}

/// Not valid either, and in logs of refused statements: a password, or a text behind an operator
/// that is a word.
#[test]
fn words_behind_an_operator_that_is_a_word_are_hidden() {
    for (text, shown) in [
        ("CREATE USER ann WITH PASSWORD \"hunter2\"", "CREATE USER ann WITH PASSWORD ?"),
        ("CREATE USER ann WITH PASSWORD hunter2", "CREATE USER ann WITH PASSWORD ?"),
        ("create user ann with password my.hunter2;", "create user ann with password ?.?;"),
        (
            "ALTER USER ann WITH PASSWORD hunter2 NOSUPERUSER",
            "ALTER USER ann WITH PASSWORD ? NOSUPERUSER",
        ),
        (
            "CREATE ROLE ann WITH HASHED PASSWORD hunter2 AND LOGIN = true",
            "CREATE ROLE ann WITH HASHED PASSWORD ? AND LOGIN = true",
        ),
        ("SELECT a FROM t WHERE name LIKE \"smith\"", "SELECT a FROM t WHERE name LIKE ?"),
        (
            "SELECT a FROM t WHERE b CONTAINS \"smith\" AND c = 1",
            "SELECT a FROM t WHERE b CONTAINS ? AND c = ?",
        ),
        (
            "SELECT a FROM t WHERE b CONTAINS KEY \"smith\" ALLOW FILTERING",
            "SELECT a FROM t WHERE b CONTAINS KEY ? ALLOW FILTERING",
        ),
        (
            "SELECT a FROM t WHERE b BETWEEN \"ann\" AND \"bob\" AND c CONTAINS KEY carl",
            "SELECT a FROM t WHERE b BETWEEN ? AND ? AND c CONTAINS KEY ?",
        ),
    ] {
        assert_eq!(redact(text, MUCH), shown, "{text}");
    }
}

#[test]
fn names_like_these_operators_stay_and_so_do_names_behind_them() {
    for text in [
        "SELECT key, password FROM k.t",
        "SELECT key, password, name FROM k.t WHERE password = ? AND key = ?",
        "SELECT password AS p FROM password WHERE key IN (?, ?) ORDER BY key DESC",
        "INSERT INTO k.password (key, password) VALUES (?, ?)",
        "UPDATE k.t SET password = ?, name = ? WHERE key BETWEEN ? AND ? AND name = ?",
        "CREATE TABLE k.t (key int, password text, name text, PRIMARY KEY (key, password))",
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE key IS NOT NULL PRIMARY KEY (key, a)",
        "ALTER ROLE ann WITH PASSWORD = ? AND SUPERUSER = true",
        "SELECT a FROM t WHERE b CONTAINS KEY ? AND name = ?",
    ] {
        assert_eq!(redact(text, MUCH), text);
    }
}

/// Texts joined by hand: a quote in a value was not doubled.
#[test]
fn what_touches_a_value_is_hidden_with_all_that_follows() {
    for (text, shown) in [
        ("INSERT INTO t (a) VALUES ('O'Brien', 'my password', 5)", "INSERT INTO t (a) VALUES (?…"),
        (r"SELECT a FROM t WHERE b = 'it\'s secret'", "SELECT a FROM t WHERE b = ?…"),
        ("SELECT a FROM t WHERE b = 0xabZsecret", "SELECT a FROM t WHERE b = ?…"),
    ] {
        assert_eq!(redact(text, MUCH), shown, "{text}");
    }
}

#[test]
fn brackets_within_brackets_are_followed_to_a_depth_and_hidden_beyond() {
    let deep = "(".repeat(100_000);
    let shown = redact(&format!("SELECT {deep}secret FROM t"), 200);
    assert!(shown.len() <= 203 && !shown.contains("secret"), "{shown}");
    let nested = format!("SELECT a FROM t WHERE b IN {}secret{}", "(".repeat(100), ")".repeat(100));
    assert!(!redact(&nested, MUCH).contains("secret"));
}

#[test]
fn texts_that_are_no_cql_show_nothing_from_there_on() {
    for (text, shown) in [
        ("SELECT 'secret", "SELECT …"),
        ("SELECT $$secret", "SELECT …"),
        ("SELECT a /* secret", "SELECT a …"),
        ("SELECT a\0secret", "SELECT a…"),
        ("INSERT INTO t (a) VALUES (1, 'secret", "INSERT INTO t (a) VALUES (?, …"),
    ] {
        assert_eq!(redact(text, MUCH), shown, "{text}");
    }
}

#[test]
fn the_length_is_bounded_at_a_whole_character() {
    let text = format!("SELECT \"{}\" FROM t", "é".repeat(50));
    for bytes_max in 0..140 {
        let shown = redact(&text, bytes_max);
        assert!(shown.len() <= bytes_max + '…'.len_utf8(), "{bytes_max}: {shown}");
        assert!(shown == redact(&text, MUCH) || shown.ends_with('…'), "{bytes_max}: {shown}");
    }
}

/// A value that begins before the bound and ends behind it is not shown either.
#[test]
fn a_text_of_megabytes_is_read_to_a_bound() {
    for (start, many) in [("SELECT '", "secret"), ("SELECT a FROM t WHERE id IN (", "1234567, ")] {
        let shown = redact(&format!("{start}{}", many.repeat(1 << 20)), MUCH);
        assert!(
            !shown.contains("secret") && !shown.contains("1234") && shown.len() < 100,
            "{shown}"
        );
        assert!(shown.ends_with('…'), "{shown}");
    }
    let ids = "abcdef12-e89b-12d3-a456-426614174000, ".repeat(5_000);
    let shown = redact(&format!("SELECT a FROM t WHERE id IN ({ids}"), MUCH);
    assert_eq!(shown, "SELECT a FROM t WHERE id IN (?, …");
    let names = format!("SELECT {} FROM t", "a, ".repeat(1 << 20));
    let shown = redact(&names, MUCH);
    assert!(shown.len() <= (64 << 10) + 8 && shown.ends_with('…'), "{}", shown.len());
}
