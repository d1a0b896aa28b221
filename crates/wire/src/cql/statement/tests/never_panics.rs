//! Arbitrary text never panics.

use proptest::prelude::*;

use super::repeatability::Known;
use crate::cql::statement::{Kind, Repeatable, classify, repeatable, routing_key};
use crate::cql::types::Column;

fn exercise(text: &str) {
    let statement = classify(text);
    let verdict = repeatable(text, &Known::new());
    assert!(verdict != Repeatable::Always || statement.kind != Kind::Other, "{text}");
    let terms = statement.key_terms().count();
    assert!(terms <= text.len());
    assert!(statement.selected_columns().count() <= text.len() + 1);
    let mut out = Vec::new();
    for kind in ["text", "int", "timestamp", "decimal", "inet", "blob", "time", "date"] {
        let columns = [Column::new("a", kind), Column::new("b", kind)];
        routing_key(
            &statement,
            &columns,
            |bind| (bind.index < 2).then_some(&b"value"[..]),
            &mut out,
        );
    }
}

/// Random sequences of statement pieces reach deeper than random characters.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "SELECT",
        "*",
        "FROM",
        "t",
        "WHERE",
        "a",
        "=",
        "?",
        "AND",
        "b",
        "IN",
        "(",
        ")",
        "INSERT",
        "INTO",
        "VALUES",
        ",",
        "'x'",
        "''",
        "'",
        "\"",
        "\"q\"",
        "UPDATE",
        "SET",
        "+",
        "-",
        "-1",
        "1",
        "1.",
        "1e",
        "..",
        ".",
        "DELETE",
        "[",
        "]",
        "{",
        "}",
        ":",
        ":n",
        "BEGIN",
        "BATCH",
        "APPLY",
        ";",
        "USING",
        "TTL",
        "IF",
        "EXISTS",
        "NOT",
        "--",
        "//",
        "\n",
        "/*",
        "*/",
        "$$",
        "$",
        "0x",
        "0xf",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "now()",
        "JSON",
        "BETWEEN",
        "é",
        "\0",
        "2020-02-30",
        "token(",
        "null",
        "USE",
        "TRUNCATE",
        "LIMIT",
        "as",
        "<",
        ">",
        "!=",
    ]);
    prop::collection::vec((piece, prop::bool::weighted(0.8)), 0..40).prop_map(|pieces| {
        pieces
            .iter()
            .map(|(piece, space)| format!("{piece}{}", if *space { " " } else { "" }))
            .collect()
    })
}

proptest! {
    #[test]
    fn random_characters(text in "\\PC{0,200}") {
        exercise(&text);
    }

    #[test]
    fn random_pieces(text in pieces()) {
        exercise(&text);
    }

    #[test]
    fn a_statement_cut_anywhere_or_with_one_character_changed(
        base in prop::sample::select(vec![
            "INSERT INTO ks.t (a, b) VALUES ('x''y', {'k': ?}) IF NOT EXISTS USING TTL 5",
            "UPDATE t USING TTL ? SET a = a + 1, b['x'] = :v WHERE k = $$v$$ AND c IN (1, -2.5e3) IF d = 0xff",
            "BEGIN BATCH DELETE a[0] FROM t WHERE k = f47ac10b-58cc-4372-a567-0e02b2c3d479; APPLY BATCH",
        ]),
        at in any::<prop::sample::Index>(),
        with in any::<char>(),
    ) {
        let at = at.index(base.len());
        let (before, after) = base.split_at(at);
        exercise(before);
        exercise(&format!("{before}{with}{}", &after[1..]));
        // The first is an ordinary INSERT without its condition; the others are dangerous at any
        // length.
        prop_assert!((repeatable(before, &Known::new()) == Repeatable::Never) || base.starts_with("INSERT"), "{before}");
    }

    #[test]
    fn understood_mutations_with_a_function_anywhere_are_never_repeated(
        before in "[a-z0-9'?, ]{0,20}",
        after in "[a-z0-9'?, ]{0,20}",
    ) {
        let text = format!("INSERT INTO t (a, b) VALUES ({before} f(1) {after})");
        // Inside a string it is not a call.
        prop_assume!(!before.contains('\''));
        prop_assert_eq!(repeatable(&text, &Known::new()), Repeatable::Never, "{}", text);
    }
}

#[test]
fn deep_nesting_and_long_chains_need_no_stack() {
    for text in [
        format!("INSERT INTO t (a) VALUES ({})", "[".repeat(1_000_000)),
        format!("INSERT INTO t (a) VALUES ({}1)", "(int)".repeat(300_000)),
        format!("INSERT INTO t (a) VALUES ({}1)", "- ".repeat(300_000)),
        format!("SELECT {} FROM t", "a,".repeat(300_000)),
        format!("BEGIN BATCH {} APPLY BATCH", ";".repeat(300_000)),
    ] {
        assert_eq!(classify(&text).key_terms().count(), 0);
    }
}
