//! Tokens of texts, one case per line.

use super::{Kind, tokens};

fn kinds(text: &str) -> Vec<(Kind, &str)> {
    let found = tokens(text).expect("a text that can be cut");
    let inner = &found[..found.len() - 1];
    inner.iter().map(|token| (token.kind, &text[token.start..token.end])).collect()
}

#[test]
fn one_token_each() {
    let cases = [
        ("select", Kind::Word),
        ("\"a\"\"b\"", Kind::QuotedName),
        ("\"\"", Kind::EmptyName),
        ("\"\"\"\"", Kind::QuotedName),
        ("''", Kind::String),
        ("'it''s'", Kind::String),
        ("$$it's$$", Kind::String),
        ("-12", Kind::Integer),
        ("1.", Kind::Float),
        ("1.5e-3", Kind::Float),
        ("1E5", Kind::Float),
        ("-Infinity", Kind::Float),
        ("-nan", Kind::Float),
        ("1h30m", Kind::Duration),
        ("-5µs", Kind::Duration),
        ("2MO3ms4ns", Kind::Duration),
        ("PT5S", Kind::Duration),
        ("-P1Y2M3DT4H5M6S", Kind::Duration),
        ("P3W", Kind::Duration),
        ("P0001-02-03T04:05:06", Kind::Duration),
        ("P1Yx", Kind::Word),
        ("P", Kind::Word),
        ("0x", Kind::Hex),
        ("0xAf0", Kind::Hex),
        ("abcdef01-0000-1000-8000-00805f9b34fb", Kind::Uuid),
        ("12345678-0000-1000-8000-00805f9b34fb", Kind::Uuid),
        ("+=", Kind::Punctuation),
        ("..", Kind::Punctuation),
    ];
    for (text, kind) in cases {
        assert_eq!(kinds(text), [(kind, text)], "{text}");
    }
}

#[test]
fn several_tokens() {
    let texts = |text| kinds(text).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(texts("a-1"), ["a", "-1"]);
    assert_eq!(texts("a - 1"), ["a", "-", "1"]);
    assert_eq!(texts("[1..3]"), ["[", "1", "..", "3", "]"]);
    assert_eq!(texts("[1...3]"), ["[", "1.", "..", "3", "]"]);
    assert_eq!(texts("a/* b */c -- d\n// e\re"), ["a", "c", "e"]);
    assert_eq!(texts("k>=?"), ["k", ">=", "?"]);
    assert_eq!(texts("t.c"), ["t", ".", "c"]);
}

#[test]
fn an_error_names_the_place_of_a_bad_token() {
    let message = |text| tokens(text).expect_err("a text that cannot be cut").message;
    assert_eq!(message("SELECT a ^ 1"), "line 1:9 no viable alternative at character '^'");
    assert_eq!(message("\n k = 'x"), "line 2:7 mismatched character '<EOF>' expecting '''");
    assert_eq!(message("a -- b"), "line 1:6 mismatched character '<EOF>' expecting set null");
    assert_eq!(message("a /* b"), "line 1:6 mismatched character '<EOF>' expecting '*'");
}
