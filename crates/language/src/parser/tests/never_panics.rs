//! No text makes the parser panic.

use proptest::prelude::*;

use crate::{parse, parse_type};

/// Pieces of statements in random order: they reach deeper into the grammar than random text.
const PIECES: &[&str] = &[
    "SELECT",
    "INSERT INTO",
    "UPDATE",
    "DELETE",
    "BEGIN BATCH",
    "APPLY BATCH",
    "CREATE TABLE",
    "ALTER TABLE",
    "DROP",
    "DESCRIBE",
    "GRANT",
    "LIST",
    "FROM",
    "WHERE",
    "SET",
    "VALUES",
    "IF",
    "EXISTS",
    "NOT",
    "IN",
    "AND",
    "USING",
    "TTL",
    "JSON",
    "DISTINCT",
    "AS",
    "LIMIT",
    "ORDER BY",
    "GROUP BY",
    "PRIMARY KEY",
    "WITH",
    "CAST",
    "TOKEN",
    "CONTAINS",
    "list<int>",
    "frozen<",
    "map<",
    "vector<",
    "t",
    "k.t",
    "\"Q\"",
    "\"\"",
    "a",
    "b",
    "f(",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ":",
    ".",
    "..",
    "?",
    ":x",
    "=",
    "<",
    ">=",
    "!=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "+=",
    "-=",
    "1",
    "-1",
    "1.5",
    "1h",
    "0xff",
    "'s'",
    "$$d$$",
    "true",
    "null",
    "NaN",
    "-Infinity",
    "P1D",
    "\n",
    "/* c */",
    "-- c\n",
    "5f9ac1c0-0000-1000-8000-000000000000",
    "é",
    "'",
    "\"",
    "$",
    "expr(",
    "CLUSTERING ORDER BY",
    "COMPACT STORAGE",
];

proptest! {
    #[test]
    fn any_text(text in ".{0,80}") {
        let _ = parse(&text);
        let _ = parse_type(&text);
    }

    #[test]
    fn pieces_of_statements(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
        blanks in any::<bool>(),
    ) {
        let text = pieces.join(if blanks { " " } else { "" });
        if let Err(error) = parse(&text) {
            prop_assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn statements_with_a_hole(cut in 0usize..200, length in 0usize..20) {
        let text = "SELECT a, f(b) AS c, writetime(d.e), g[1..2] FROM k.t WHERE a = 'x''y' AND (b, c) IN ((1, ?), (:x, 2)) \
                    ORDER BY b DESC LIMIT 5 ALLOW FILTERING";
        let cut = cut.min(text.len());
        let end = (cut + length).min(text.len());
        let _ = parse(&format!("{}{}", &text[..cut], &text[end..]));
    }
}
