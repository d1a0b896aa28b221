//! Aggregates of everything and of groups.

use super::Nodes;

fn sales() -> Nodes {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int, a int, b int, s int static, v int, PRIMARY KEY (k, a, b))",
        "CREATE TABLE empty (k int PRIMARY KEY, v int, w text)",
    ]);
    for (key, a, b) in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1), (2, 3, 1), (2, 3, 2)] {
        nodes.all(&[&format!(
            "INSERT INTO t (k, a, b, v) VALUES ({key}, {a}, {b}, {})",
            key * 100 + a * 10 + b
        )]);
    }
    nodes.all(&["INSERT INTO t (k, s) VALUES (3, 30)", "INSERT INTO t (k, s) VALUES (1, 10)"]);
    nodes
}

#[test]
fn aggregates_of_everything() {
    sales().check(&[
        ("SELECT count(*), count(v), count(1), min(v), max(v) FROM t", "7, 6, 7, 111, 232"),
        ("SELECT sum(v), avg(v) FROM t WHERE k = 1", "344, 114"),
        ("SELECT k, a, max(v) FROM t WHERE k = 2", "2, 1, 232"),
        ("SELECT cast(avg(v) AS text) FROM t WHERE k = 1", "'114'"),
        ("SELECT max(v) + min(v), max(-v) FROM t WHERE k = 1", "232, -111"),
        ("SELECT count(*) FROM t WHERE k = 1 LIMIT 1", "3"),
        ("SELECT k, count(*), sum(v), max(w), min(v) FROM empty", "null, 0, 0, null, null"),
        ("SELECT count(*) FROM t WHERE v > 200 ALLOW FILTERING", "3"),
        ("SELECT max(writetime(v)) FROM empty", "null"),
    ]);
}

#[test]
fn aggregates_of_distinct_partitions_count_each_once() {
    let mut nodes = sales();
    nodes.check(&[
        ("SELECT DISTINCT k, count(k) FROM t WHERE k = 1", "1, 1"),
        ("SELECT DISTINCT k, count(s) FROM t WHERE k IN (1, 2) GROUP BY k", "1, 1; 2, 0"),
        ("SELECT DISTINCT k, s, count(k) FROM t WHERE s = 10 ALLOW FILTERING", "1, 10, 1"),
        ("SELECT DISTINCT count(k) FROM t WHERE k IN (1, 2, 3, 4)", "3"),
    ]);
    nodes.check_sorted(&[("SELECT DISTINCT k, count(k) FROM t GROUP BY k", "1, 1; 2, 1; 3, 1")]);
    for page_size in 1..4 {
        let (mut rows, _) = nodes.pages("SELECT DISTINCT k, count(k) FROM t GROUP BY k", page_size);
        rows.sort();
        assert_eq!(rows, ["1, 1", "2, 1", "3, 1"], "{page_size}");
        assert_eq!(
            nodes.pages("SELECT DISTINCT k, sum(s) FROM t WHERE k IN (1, 3)", page_size).0,
            ["1, 40"]
        );
    }
}

#[test]
fn groups() {
    let mut nodes = sales();
    nodes.check(&[
        ("SELECT a, count(*), max(v) FROM t WHERE k = 1 GROUP BY k, a", "1, 2, 112; 2, 1, 121"),
        ("SELECT a, count(*) FROM t WHERE k = 1 GROUP BY a", "1, 2; 2, 1"),
        ("SELECT a, b FROM t WHERE k = 1 GROUP BY a", "1, 1; 2, 1"),
        ("SELECT a, max(b) FROM t WHERE k = 1 GROUP BY a ORDER BY a DESC", "2, 1; 1, 2"),
        ("SELECT k, count(*) FROM t WHERE k IN (2, 1, 3) GROUP BY k", "1, 3; 2, 3; 3, 1"),
        (
            "SELECT k, a, count(*) FROM t WHERE k IN (2, 1) GROUP BY k, a LIMIT 3",
            "1, 1, 2; 1, 2, 1; 2, 1, 1",
        ),
        ("SELECT k, a FROM t WHERE k IN (2, 1) GROUP BY k, a PER PARTITION LIMIT 1", "1, 1; 2, 1"),
        (
            "SELECT k, a, count(*) FROM t WHERE k IN (2, 1) GROUP BY k, a ORDER BY a DESC",
            "2, 3, 2; 1, 2, 1; 1, 1, 2; 2, 1, 1",
        ),
        ("SELECT k, sum(s) FROM t WHERE k = 1 GROUP BY k", "1, 30"),
        ("SELECT count(*) FROM t WHERE k = 7 GROUP BY k", ""),
        ("SELECT b, sum(v) FROM t WHERE k = 1 AND a = 1 GROUP BY b", "1, 111; 2, 112"),
    ]);
    nodes.check_sorted(&[("SELECT k, count(*) FROM t GROUP BY k", "1, 3; 2, 3; 3, 1")]);
    for page_size in 1..6 {
        let (rows, _) =
            nodes.pages("SELECT k, a, count(*) FROM t WHERE k IN (1, 2) GROUP BY k, a", page_size);
        assert_eq!(rows, ["1, 1, 2", "1, 2, 1", "2, 1, 1", "2, 3, 2"], "{page_size}");
        let (rows, _) = nodes.pages(
            "SELECT k, a FROM t WHERE k IN (1, 2) GROUP BY k, a PER PARTITION LIMIT 1",
            page_size,
        );
        assert_eq!(rows, ["1, 1", "2, 1"], "{page_size}");
    }
    assert_eq!(nodes.pages("SELECT count(*) FROM t", 2), (vec!["7".to_owned()], 1));
}
