//! Statements that are a transaction by themselves.

use super::super::{Returned, parse_alone};
use super::check_standalone;

#[test]
fn a_statement_is_a_transaction_of_it_alone() {
    for (text, statements, markers) in [
        ("UPDATE t SET a = a + ?, b = :b WHERE k = ?;", 1, 3),
        ("INSERT INTO t (k, a) VALUES (?, 1)", 1, 1),
        ("DELETE a FROM t WHERE k = 1", 1, 0),
        ("BEGIN BATCH UPDATE t SET a = ? WHERE k = 1; DELETE FROM t WHERE k = ? APPLY BATCH;", 2, 2),
        ("begin unlogged batch insert into t (k) values (?) insert into t (k) values (?) apply batch", 2, 2),
    ] {
        let transaction = parse_alone(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(transaction.statements.len(), statements, "{text}");
        assert_eq!((transaction.markers.len(), &transaction.returned), (markers, &Returned::Nothing), "{text}");
        check_standalone(&transaction, text);
    }
    let text = "SELECT a, b FROM t WHERE k = ? LIMIT 10";
    let transaction = parse_alone(text).expect("a read");
    assert_eq!((transaction.markers.len(), &transaction.returned), (1, &Returned::Select));
    check_standalone(&transaction, text);
}

#[test]
fn what_cannot_be_one_is_refused_with_its_place() {
    for (text, shown) in [
        (
            "UPDATE t SET a = 1 WHERE k = 1 IF a = 2",
            "UPDATE at [1:1]: Updates within transactions may not specify their own conditions",
        ),
        ("UPDATE t USING TTL 3 SET a = 1 WHERE k = 1", "custom ttls"),
        ("BEGIN BATCH USING TIMESTAMP 3 UPDATE t SET a = 1 WHERE k = 1 APPLY BATCH", "USING"),
        ("BEGIN COUNTER BATCH UPDATE t SET a = a + 1 WHERE k = 1 APPLY BATCH", "COUNTER"),
        ("BEGIN BATCH SELECT * FROM t WHERE k = 1 APPLY BATCH", "SELECT"),
        ("BEGIN BATCH APPLY BATCH", "no reads or writes"),
        ("BEGIN UNLOGGED", ""),
        ("UPDATE t SET a = v.a WHERE k = 1", "Cannot resolve reference to tuple 'v'"),
        ("TRUNCATE t", "TRUNCATE"),
        ("SELECT count(*) FROM t WHERE k = 1", "No aggregation functions"),
        ("UPDATE t SET a = 1 WHERE k = 1; UPDATE t SET a = 1 WHERE k = 1", ""),
        ("", ""),
    ] {
        let error = parse_alone(text).expect_err(text);
        assert!(error.to_string().contains(shown), "{text}: {error}");
    }
}
