//! No text makes the parser of transactions panic, and its output can be parsed again.

use proptest::prelude::*;

use super::check_standalone;
use crate::transaction::{mode, parse};

/// Pieces of transactions in random order.
const PIECES: &[&str] = &[
    "BEGIN TRANSACTION",
    "COMMIT TRANSACTION",
    "LET a = (",
    "LET b = (SELECT * FROM t WHERE k = ?);",
    "SELECT a.v, b.w;",
    "SELECT v, m FROM t WHERE k = 1",
    "IF a.v = ?",
    "IF a IS NULL",
    "AND :x < b.m['k']",
    "THEN",
    "END IF",
    "UPDATE t SET v = a.v",
    "UPDATE t SET v += 1, w = b.w[?]",
    ", m['a'] = a.v",
    ", v = v - ?",
    "WHERE k = ?",
    "INSERT INTO t (k, v) VALUES (1, b.v)",
    "INSERT INTO t (k, v) VALUES (",
    "DELETE v FROM t WHERE k = 1",
    "LIMIT 1",
    "APPLY BATCH",
    ");",
    ")",
    "(",
    "[",
    "]",
    ";",
    ",",
    ".",
    "?",
    ":n",
    "a",
    "b.v",
    "\"Q\"",
    "1",
    "'s'",
    "{'a': 1}",
    "-- c\n",
    "/* c */",
    "+",
    "-1",
    "=",
    "é",
    "'",
    "ALTER TABLE t WITH transactional_mode =",
];

proptest! {
    #[test]
    fn any_text(text in ".{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("BEGIN TRANSACTION {text} COMMIT TRANSACTION"));
        let _ = mode::parse(&text);
    }

    #[test]
    fn pieces_of_transactions(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30),
        around in any::<bool>(),
    ) {
        let text = pieces.join(" ");
        let text = if around { format!("BEGIN TRANSACTION {text} COMMIT TRANSACTION") } else { text };
        match parse(&text) {
            Ok(found) => check_standalone(&found, &text),
            Err(error) => prop_assert!(!error.message().is_empty()),
        }
        let _ = mode::parse(&text);
    }

    /// Lists of whole parts, which are mostly transactions.
    #[test]
    fn whole_parts(
        lets in prop::collection::vec(prop::sample::select(&["SELECT v, w, m FROM t WHERE k = ?", "SELECT * FROM t WHERE k = :k LIMIT ?"][..]), 1..4),
        conditions in prop::collection::vec(prop::sample::select(&["r0.v = ?", "? < r0.m[?]", "r0 IS NULL", "r0.w.f IS NOT NULL"][..]), 0..4),
        writes in prop::collection::vec(prop::sample::select(&[
            "UPDATE t SET v = v + ?, w = r0.m[:k], x -= r0.v WHERE k = ?",
            "UPDATE t SET l = l + [?], m[?] = r0.w, f.g = r0.v WHERE k = 'é?'",
            "INSERT INTO t (k, v, w) VALUES (?, r0.v, r0.w.f)",
            "DELETE v FROM t WHERE k = ? -- one\n",
        ][..]), 1..5),
    ) {
        let lets: String = lets.iter().enumerate().map(|(row, select)| format!("LET r{row} = ({select}); ")).collect();
        let writes: String = writes.iter().map(|write| format!("{write}; ")).collect();
        let (before, after) = match conditions.is_empty() {
            true => (String::new(), ""),
            false => (format!("IF {} THEN ", conditions.join(" AND ")), "END IF"),
        };
        let text = format!("BEGIN TRANSACTION {lets} SELECT r0.v, r0.m[?]; {before}{writes}{after} COMMIT TRANSACTION");
        let found = parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        check_standalone(&found, &text);
    }

    #[test]
    fn transactions_with_a_hole(cut in 0usize..400, length in 0usize..20) {
        let text = "BEGIN TRANSACTION LET a = (SELECT v, m FROM ks.t WHERE k = 'x''y' AND c = :c LIMIT 1); SELECT a.v, a.m[?]; \
                    IF a IS NOT NULL AND ? <= a.v THEN UPDATE t SET v += a.v, n = n - ? WHERE k = 1; \
                    INSERT INTO u (k, v) VALUES (?, a.m['q']); END IF COMMIT TRANSACTION; APPLY BATCH;";
        let cut = cut.min(text.len());
        let end = (cut + length).min(text.len());
        let text = format!("{}{}", &text[..cut], &text[end..]);
        if let Ok(found) = parse(&text) {
            check_standalone(&found, &text);
        }
    }
}
