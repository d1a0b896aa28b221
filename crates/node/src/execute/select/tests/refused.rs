//! Statements refused by Cassandra are refused with its messages.

use super::{Asked, Nodes};

pub(super) const FILTERING: &str = "error: Cannot execute this query as it might involve data filtering and thus may have \
                         unpredictable performance. If you want to execute this query despite the performance \
                         unpredictability, use ALLOW FILTERING";

#[test]
fn statements_that_cannot_be() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int, a int, b int, s int static, v int, m map<int, int>, PRIMARY KEY (k, a, b))",
        "CREATE TABLE two (k int, l int, v int, PRIMARY KEY ((k, l)))",
    ]);
    nodes.check(&[
        ("SELECT x FROM t", "error: Undefined column name x in table k.t"),
        ("SELECT * FROM t WHERE x = 1", "error: Undefined column name x in table k.t"),
        ("SELECT * FROM t WHERE v = 1", FILTERING),
        ("SELECT * FROM t WHERE a = 1", FILTERING),
        ("SELECT * FROM t WHERE token(k) > 1 AND a = 1", FILTERING),
        ("SELECT * FROM two WHERE k = 1", FILTERING),
        ("SELECT * FROM t WHERE k = 1 AND v = 1", FILTERING),
        (
            "SELECT * FROM t WHERE k = 1 AND b = 1",
            "error: PRIMARY KEY column \"b\" cannot be restricted as preceding column \"a\" is not restricted",
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND a > 1 AND b = 1",
            "error: Clustering column \"b\" cannot be restricted (preceding column \"a\" is restricted by a non-EQ relation)",
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND (a, b) > (1, 1) AND a < 3",
            "error: Column \"a\" cannot be restricted by both a tuple notation inequality and a single column \
             inequality: a",
        ),
        (
            "SELECT * FROM t WHERE m = {1: 1} ALLOW FILTERING",
            "error: Collection column 'm' (map<int, int>) cannot be restricted by a '=' relation",
        ),
        (
            "SELECT * FROM t ORDER BY a",
            "error: ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ),
        (
            "SELECT * FROM t WHERE k = 1 ORDER BY v",
            "error: Order by is currently only supported on the clustered columns of the PRIMARY KEY, got v",
        ),
        (
            "SELECT * FROM t WHERE k = 1 ORDER BY b",
            "error: Order by currently only supports the ordering of columns following their declared order in the \
             PRIMARY KEY",
        ),
        ("SELECT * FROM t WHERE k = 1 ORDER BY a, b DESC", "error: Unsupported order by relation"),
        (
            "SELECT * FROM t WHERE k = 1 AND (a) IN ((1), (2)) ORDER BY b",
            "error: Order by currently only supports the ordering of columns following their declared order in the \
             PRIMARY KEY",
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND a > 1 AND a IN (2)",
            "error: Column \"a\" cannot be restricted by both an equality and an inequality relation",
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND a IN (1, 2) AND a > 1",
            "error: a cannot be restricted by more than one relation if it includes a IN",
        ),
        (
            "SELECT * FROM t WHERE k = 1 AND a = 1 AND (a) IN ((1))",
            "error: a cannot be restricted by more than one relation if it includes an Equal",
        ),
        (
            "SELECT v FROM t GROUP BY v",
            "error: Group by is currently only supported on the columns of the PRIMARY KEY, got v",
        ),
        (
            "SELECT v FROM t GROUP BY k, b",
            "error: Group by currently only support groups of columns following their declared order in the PRIMARY KEY",
        ),
        ("SELECT v FROM two GROUP BY k", "error: Group by is not supported on only a part of the partition key"),
        (
            "SELECT DISTINCT v FROM t",
            "error: SELECT DISTINCT queries must only request partition key columns and/or static columns (not v)",
        ),
        (
            "SELECT DISTINCT s FROM t",
            "error: SELECT DISTINCT queries must request all the partition key columns (missing k)",
        ),
        (
            "SELECT DISTINCT k FROM t PER PARTITION LIMIT 1",
            "error: PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ),
        (
            "SELECT count(*) FROM t PER PARTITION LIMIT 1",
            "error: PER PARTITION LIMIT is not allowed with aggregate queries.",
        ),
        (
            "SELECT max(count(v)) FROM t",
            "error: aggregate functions cannot be used as arguments of aggregate functions",
        ),
        ("SELECT writetime(a) FROM t", "error: Cannot use selection function writetime on PRIMARY KEY part a"),
        (
            "SELECT 5 FROM t",
            "error: Cannot infer type for term 5 in selection clause (try using a cast to force a type)",
        ),
        ("SELECT v.x FROM t", "error: Invalid field selection: v of type int is not a user type"),
        ("SELECT v[1] FROM t", "error: Invalid element selection: v is of type int is not a collection"),
        ("SELECT * FROM t WHERE k = 1 LIMIT 0", "error: LIMIT must be strictly positive"),
        ("SELECT * FROM t WHERE k = null", "error: Invalid null value in condition for column k"),
        ("SELECT * FROM t WHERE v = null ALLOW FILTERING", "error: Unsupported null value for column v"),
    ]);
    let asked = Asked { page_size: Some(5), ..Asked::default() };
    let message = nodes.ask("SELECT * FROM t WHERE k IN (1, 2) ORDER BY a", &asked).unwrap_err();
    assert!(
        message.starts_with("Cannot page queries with both ORDER BY and a IN restriction"),
        "{message}"
    );
    // If an IN names no row, static columns are still wanted; without those there is nothing to
    // page.
    let nothing = "FROM t WHERE k IN (1, 2) AND a = 1 AND b IN () ORDER BY a";
    assert!(nodes.ask(&format!("SELECT v {nothing}"), &asked).is_ok());
    assert!(nodes.ask(&format!("SELECT s, v {nothing}"), &asked).is_err());
    let many: Vec<String> = (0..101).map(|value| value.to_string()).collect();
    let many = many.join(", ");
    let text = format!("SELECT * FROM two WHERE k IN ({many}) AND l IN ({many})");
    assert!(nodes.rows(&text).starts_with("error: IN relations with more than 10000"), "{text}");
}

/// Rows held for sorting are also limited by their bytes.
#[test]
fn rows_held_for_sorting_are_bounded_in_bytes() {
    let mut nodes = Nodes::new(&["CREATE TABLE wide (p int, c int, v text, PRIMARY KEY (p, c))"]);
    let value = "v".repeat(4 << 20);
    for p in 0..17 {
        nodes.all(&[&format!("INSERT INTO wide (p, c, v) VALUES ({p}, 1, '{value}')")]);
    }
    let keys: Vec<String> = (0..17).map(|p| p.to_string()).collect();
    let text = format!("SELECT v FROM wide WHERE p IN ({}) ORDER BY c", keys.join(", "));
    let refused = nodes.ask(&text, &Asked::default()).err();
    assert!(refused.as_ref().is_some_and(|why| why.contains("67108864 bytes")), "{refused:?}");
    let text = format!("SELECT c FROM wide WHERE p IN ({}) ORDER BY c", keys.join(", "));
    assert_eq!(nodes.ask(&text, &Asked::default()).expect("little").rows.len(), 17);
}

/// Relations on a column outside the primary key that Cassandra does not combine.
#[test]
fn relations_that_do_not_go_together() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int, c int, s text static, i int, m map<text, int>, fl frozen<list<int>>, \
         PRIMARY KEY (p, c))",
        "INSERT INTO t (p, c, s, i, m) VALUES (1, 1, 'a', 1, {'a': 1, 'b': 2})",
        "INSERT INTO t (p, c, s, i) VALUES (1, 2, 'a', 2)",
    ]);
    let equal = "cannot be restricted by more than one relation if it includes an Equal";
    let is_in = "cannot be restricted by more than one relation if it includes a IN";
    let both = "cannot be restricted by both an equality and an inequality relation";
    let elements = "can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality";
    let several = "More than one restriction was found for the";
    for (condition, expected) in [
        ("i = 1 AND i = 1", format!("i {equal}")),
        ("i = 1 AND i IN (1, 2)", format!("i {equal}")),
        ("i IN (1, 2) AND i = 1", format!("i {is_in}")),
        ("i IN (1) AND i > 0", format!("i {equal}")),
        ("i > 0 AND i = 1", format!("Column \"i\" {both}")),
        ("i > 0 AND i IN (1, 2)", format!("Column \"i\" {both}")),
        ("i > 0 AND i >= 1", format!("{several} start bound on i")),
        ("i < 0 AND i <= 1", format!("{several} end bound on i")),
        ("s = 'a' AND s = 'a'", format!("s {equal}")),
        ("fl = [1] AND fl CONTAINS 1", format!("fl {equal}")),
        ("fl CONTAINS 1 AND fl = [1]", format!("Collection column fl {elements}")),
        ("fl > [0] AND fl CONTAINS 1", format!("Column \"fl\" {both}")),
        ("m['a'] > 1", "Only EQ relations are supported on map entries".to_owned()),
    ] {
        let text = format!("SELECT c FROM t WHERE {condition} ALLOW FILTERING");
        assert_eq!(nodes.rows(&text), format!("error: {expected}"), "{text}");
    }
    nodes.check(&[
        ("SELECT c FROM t WHERE i > 0 AND i < 2 ALLOW FILTERING", "1"),
        ("SELECT c FROM t WHERE m['a'] = 1 AND m CONTAINS 2 AND m CONTAINS KEY 'b' ALLOW FILTERING", "1"),
    ]);
}
