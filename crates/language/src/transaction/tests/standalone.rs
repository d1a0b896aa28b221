//! Single statements as transactions.

use super::super::{ComputedMarker, Returned, parse_alone};
use super::check_standalone;

#[test]
fn a_statement_is_a_transaction_of_it_alone() {
    for (text, statements, markers) in [
        ("UPDATE t SET a = a + ?, b = :b WHERE k = ?;", 1, 3),
        ("INSERT INTO t (k, a) VALUES (?, 1)", 1, 1),
        ("DELETE a FROM t WHERE k = 1", 1, 0),
        (
            "BEGIN BATCH UPDATE t SET a = ? WHERE k = 1; DELETE FROM t WHERE k = ? APPLY BATCH;",
            2,
            2,
        ),
        (
            "begin unlogged batch insert into t (k) values (?) insert into t (k) values (?) apply batch",
            2,
            2,
        ),
    ] {
        let transaction = parse_alone(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(transaction.statements.len(), statements, "{text}");
        assert_eq!(
            (transaction.markers.len(), &transaction.returned),
            (markers, &Returned::Nothing),
            "{text}"
        );
        check_standalone(&transaction, text);
    }
    let text = "SELECT a, b FROM t WHERE k = ? LIMIT 10";
    let transaction = parse_alone(text).expect("a read");
    assert_eq!((transaction.markers.len(), &transaction.returned), (1, &Returned::Select));
    check_standalone(&transaction, text);
}

#[test]
fn unsuitable_statements_are_refused_with_their_place() {
    for (text, shown) in [
        (
            "BEGIN BATCH UPDATE t SET a = 1 WHERE k = 1 IF a = 2 APPLY BATCH",
            "UPDATE at [1:13]: Updates within transactions may not specify their own conditions",
        ),
        ("BEGIN BATCH UPDATE t USING TTL 3 SET a = 1 WHERE k = 1 APPLY BATCH", "custom ttls"),
        ("UPDATE t USING TIMESTAMP 3 SET a = 1 WHERE k = 1 IF a = 2", "custom timestamps"),
        ("BEGIN BATCH USING TIMESTAMP 3 UPDATE t SET a = 1 WHERE k = 1 APPLY BATCH", "USING"),
        ("BEGIN COUNTER BATCH UPDATE t SET a = a + 1 WHERE k = 1 APPLY BATCH", "COUNTER"),
        ("BEGIN BATCH SELECT * FROM t WHERE k = 1 APPLY BATCH", "SELECT"),
        ("BEGIN BATCH APPLY BATCH", "no reads or writes"),
        ("BEGIN UNLOGGED", ""),
        ("UPDATE t SET a = v.a WHERE k = 1", "Cannot resolve reference to tuple 'v'"),
        ("BEGIN BATCH TRUNCATE t APPLY BATCH", "TRUNCATE"),
        ("SELECT count(*) FROM t WHERE k = 1", "No aggregation functions"),
        ("UPDATE t SET a = 1 WHERE k = 1; UPDATE t SET a = 1 WHERE k = 1", ""),
        ("", ""),
    ] {
        let error = parse_alone(text).expect_err(text);
        assert!(error.to_string().contains(shown), "{text}: {error}");
    }
}

#[test]
fn a_single_statement_goes_to_nodes_without_its_condition_and_what_that_binds() {
    for (text, bare, markers) in [
        (
            "UPDATE t SET a = ? WHERE k = ? IF a = ? AND b IN (?, 3)",
            "UPDATE t SET a = ? WHERE k = ? ",
            vec![0, 1],
        ),
        (
            "UPDATE t USING TTL ? SET a = 1 WHERE k = 1 IF EXISTS",
            "UPDATE t USING TTL ? SET a = 1 WHERE k = 1 ",
            vec![0],
        ),
        (
            "INSERT INTO t (k, a) VALUES (?, ?) IF NOT EXISTS USING TTL ?;",
            "INSERT INTO t (k, a) VALUES (?, ?)  USING TTL ?",
            vec![0, 1, 2],
        ),
        ("DELETE a FROM t WHERE k = :k IF a = :a", "DELETE a FROM t WHERE k = :k ", vec![0]),
        ("DELETE FROM t WHERE k = ?", "DELETE FROM t WHERE k = ?", vec![0]),
    ] {
        let transaction = parse_alone(text).expect(text);
        let inner = transaction.lone_mutation().expect(text);
        let computed = inner.computed(text, |_| false).expect(text);
        assert_eq!(computed.text, bare);
        let markers: Vec<_> = markers.into_iter().map(ComputedMarker::Same).collect();
        assert_eq!(computed.markers, markers, "{text}");
        let has_more = text.contains("IF ") || text.contains("TTL");
        assert_eq!(transaction.check_alone(text).is_err(), has_more, "{text}");
    }
    let truncate = parse_alone("TRUNCATE TABLE ks.t").expect("one");
    assert!(truncate.lone_mutation().is_some());
    let refused = truncate.check_alone("TRUNCATE TABLE ks.t").expect_err("no transaction");
    assert!(
        refused.message.starts_with("TRUNCATE at [1:1]: it is no transaction"),
        "{}",
        refused.message
    );
    for text in ["SELECT a FROM t WHERE k = 1", "BEGIN BATCH DELETE FROM t WHERE k = 1 APPLY BATCH"]
    {
        assert!(parse_alone(text).expect(text).lone_mutation().is_none(), "{text}");
    }
}
