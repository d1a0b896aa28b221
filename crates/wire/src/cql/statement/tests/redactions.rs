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
        ("SELECT a FROM t WHERE id IN (:a, :b)", "SELECT a FROM t WHERE id IN (:a, :b)"),
        (
            "INSERT INTO t (a) VALUES ([1, 2, now(), 3])",
            "INSERT INTO t (a) VALUES ([?, …, now(), ?])",
        ),
        ("SELECT a -- 'secret'\n  FROM /* 1 */ t", "SELECT a FROM t"),
        ("ALTER ROLE r WITH PASSWORD = 'secret'", "ALTER ROLE r WITH PASSWORD = ?"),
        ("SELECT 123e4567-e89b-12d3-a456-426614174000 FROM t", "SELECT ? FROM t"),
        ("SELECT a FROM t USING TTL 1h30m", "SELECT a FROM t USING TTL ?"),
        ("", ""),
    ] {
        assert_eq!(redact(text, MUCH), shown, "{text}");
    }
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
    let names = format!("SELECT {} FROM t", "a, ".repeat(1 << 20));
    let shown = redact(&names, MUCH);
    assert!(shown.len() <= (64 << 10) + 8 && shown.ends_with('…'), "{}", shown.len());
}
