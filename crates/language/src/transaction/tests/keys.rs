//! Statements against the keys of their tables.

use super::transaction;
use crate::ast::QualifiedName;
use crate::transaction::{OneRow, TableKeys, Tables};

/// `t (k, c, v, PRIMARY KEY (k, c))`, `s` with an additional static column, `u (k PRIMARY KEY, v)`,
/// and a table of counters.
struct Known;

impl Tables for Known {
    fn keys(&self, name: &QualifiedName) -> Option<TableKeys<'_>> {
        let clustering = if name.name == "u" { Vec::new() } else { vec!["c"] };
        let keys = TableKeys { partition_key: vec!["k"], clustering, ..TableKeys::default() };
        match name.name.as_str() {
            "t" | "u" => Some(keys),
            "s" => Some(TableKeys { statics: vec!["s"], ..keys }),
            "counters" => Some(TableKeys { has_counters: true, ..keys }),
            _ => None,
        }
    }
}

fn checked(body: &str) -> Result<Vec<OneRow>, String> {
    let text = format!("BEGIN TRANSACTION\n  {body}\nCOMMIT TRANSACTION");
    transaction(&text).check(&text, &Known).map_err(|error| error.message)
}

#[test]
fn statements_about_one_row_are_accepted() {
    for body in [
        "LET a = (SELECT * FROM t WHERE k = 1 AND c = ?); SELECT a.v;",
        "LET a = (SELECT * FROM t WHERE k = 1 AND (c) = (2)); SELECT a.v;",
        "LET a = (SELECT * FROM t WHERE k = 1 LIMIT 1); SELECT a.v;",
        "LET a = (SELECT * FROM t WHERE k = 1 AND c > 3 LIMIT 1); SELECT a.v;",
        "LET a = (SELECT * FROM u WHERE k = 1 LIMIT 7); SELECT a.v;",
        "SELECT * FROM t WHERE k = 1;",
        "SELECT * FROM t WHERE k = 1 AND c IN (1, 2) LIMIT 5;",
        "INSERT INTO t (k, c, v) VALUES (1, 2, 3);",
        "INSERT INTO s (k, s) VALUES (1, 3);",
        "UPDATE t SET v = 1 WHERE k = 1 AND c = 2;",
        "UPDATE s SET s = 1 WHERE k = 1;",
        "DELETE FROM t WHERE k = 1 AND c = 2;",
        "DELETE FROM u WHERE k = 1;",
        "DELETE s FROM s WHERE k = 1;",
    ] {
        assert_eq!(checked(body), Ok(Vec::new()), "{body}");
    }
}

#[test]
fn a_limit_that_is_a_marker_is_left_to_the_client() {
    let text = "BEGIN TRANSACTION LET a = (SELECT * FROM u WHERE k = ?); LET b = (SELECT * FROM t WHERE k = ? LIMIT ?); \
                SELECT a.v; COMMIT TRANSACTION";
    let found = transaction(text);
    let one_row = OneRow { statement: 1, marker: 2 };
    assert_eq!(found.check(text, &Known), Ok(vec![one_row]));
    let message = found.not_one_row(one_row, text).message;
    assert!(message.starts_with("LET b at [1:67]: SELECT must specify"), "{message}");
}

#[test]
fn other_statements_are_refused() {
    let cases = [
        (
            "LET a = (SELECT * FROM t WHERE k = 1 LIMIT 2); SELECT a.v;",
            "LET a at [2:12]: SELECT must specify either all",
        ),
        (
            "LET a = (SELECT * FROM t WHERE k = 1); SELECT a.v;",
            "LET a at [2:12]: SELECT must specify either all",
        ),
        (
            "LET a = (SELECT * FROM t WHERE k IN (0, 1) LIMIT 1); SELECT a.v;",
            "LET a at [2:12]: SELECT must specify either",
        ),
        (
            "LET a = (SELECT * FROM t WHERE k > 1 AND k < 9 LIMIT 1); SELECT a.v;",
            "LET a at [2:12]: Range queries are not",
        ),
        (
            "LET a = (SELECT * FROM u WHERE token(k) > token(123) LIMIT 1); SELECT a.v;",
            "Range queries are not allowed",
        ),
        (
            "SELECT k, v FROM u LIMIT 1;",
            "SELECT at [2:3]: SELECT must specify all partition key elements.",
        ),
        (
            "SELECT * FROM t WHERE k IN (0, 1);",
            "SELECT at [2:3]: SELECT must specify all partition key elements.",
        ),
        (
            "UPDATE t SET c = 1 WHERE k = 1 AND c = 2;",
            "UPDATE at [2:3]: PRIMARY KEY part c found in SET part",
        ),
        (
            "UPDATE t SET v = 1 WHERE k = 1;",
            "UPDATE at [2:3]: Some clustering keys are missing: c;",
        ),
        (
            "UPDATE t SET v = 1 WHERE k IN (1, 2) AND c = 1;",
            "Some partition key parts are missing: k;",
        ),
        ("UPDATE s SET s = 1, v = 2 WHERE k = 1;", "Some clustering keys are missing: c;"),
        (
            "INSERT INTO t (c, v) VALUES (1, 2);",
            "INSERT at [2:3]: Some partition key parts are missing: k;",
        ),
        ("INSERT INTO t (k) VALUES (1);", "INSERT at [2:3]: Some clustering keys are missing: c;"),
        ("DELETE FROM t WHERE k = 1;", "DELETE at [2:3]: Some clustering keys are missing: c;"),
        (
            "DELETE FROM t WHERE k = 1 AND c > 3;",
            "DELETE at [2:3]: Some clustering keys are missing: c;",
        ),
        ("DELETE FROM s WHERE k = 1;", "DELETE at [2:3]: Some clustering keys are missing: c;"),
        ("DELETE FROM nowhere WHERE k = 1;", "DELETE at [2:3]: table nowhere does not exist"),
        (
            "UPDATE counters SET v += 1 WHERE k = 1;",
            "UPDATE at [2:3]: Counter columns cannot be accessed within a transaction",
        ),
        (
            "LET a = (SELECT * FROM u WHERE k = 1); INSERT INTO t (k, c, v) VALUES (a.k, 1, 1);",
            "a.k at [2:74]: Value reference a.k cannot be used to insert PRIMARY KEY column k",
        ),
        (
            "LET a = (SELECT * FROM u WHERE k = 1); INSERT INTO t (k, c, v) VALUES (1, a.k, 1);",
            "a.k at [2:77]: Value reference a.k cannot be used to insert PRIMARY KEY column c",
        ),
    ];
    for (body, message) in cases {
        let error = checked(body).expect_err(body);
        assert!(error.contains(message), "{body}: {error}");
    }
}
