//! Selection and order of rows.

use shunt_language::values::split;

use super::{Asked, Nodes};

/// Partitions 1 to 3 with rows of mixed order, a partition with only static content.
fn mixed() -> Nodes {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int, a int, b int, s text static, v text, PRIMARY KEY (k, a, b)) \
                                  WITH CLUSTERING ORDER BY (a ASC, b DESC)",
    ]);
    for key in 1..=3 {
        for a in 0..3 {
            for b in 0..3 {
                let text =
                    format!("INSERT INTO t (k, a, b, v) VALUES ({key}, {a}, {b}, '{key}{a}{b}')");
                nodes.all(&[&text]);
            }
        }
    }
    nodes.all(&[
        "INSERT INTO t (k, s) VALUES (1, 'one')",
        "INSERT INTO t (k, s) VALUES (9, 'alone')",
    ]);
    nodes
}

#[test]
fn rows_of_one_partition() {
    mixed().check(&[
        (
            "SELECT v FROM t WHERE k = 1",
            "'102'; '101'; '100'; '112'; '111'; '110'; '122'; '121'; '120'",
        ),
        ("SELECT * FROM t WHERE k = 1 AND a = 1 AND b = 2", "1, 1, 2, 'one', '112'"),
        ("SELECT * FROM t WHERE k = 1 AND a = 7 AND b = 2", ""),
        ("SELECT v FROM t WHERE k = 1 AND a = 1", "'112'; '111'; '110'"),
        ("SELECT v FROM t WHERE k = 1 AND a = 1 AND b > 0", "'112'; '111'"),
        ("SELECT v FROM t WHERE k = 1 AND a = 1 AND b >= 1 AND b < 2", "'111'"),
        ("SELECT v FROM t WHERE k = 1 AND a > 0 AND a < 2", "'112'; '111'; '110'"),
        ("SELECT v FROM t WHERE k = 1 AND a >= 2", "'122'; '121'; '120'"),
        ("SELECT v FROM t WHERE k = 1 AND a IN (2, 0, 2) AND b = 1", "'101'; '121'"),
        (
            "SELECT v FROM t WHERE k = 1 AND a IN (2, 0) AND b IN (1, 2)",
            "'102'; '101'; '122'; '121'",
        ),
        ("SELECT v FROM t WHERE k = 1 AND a IN (2, 0) AND b < 1", "'100'; '120'"),
        ("SELECT v FROM t WHERE k = 1 AND a IN ()", ""),
        ("SELECT v FROM t WHERE k = 1 AND (a, b) = (1, 1)", "'111'"),
        ("SELECT v FROM t WHERE k = 1 AND (a, b) IN ((2, 1), (0, 1))", "'101'; '121'"),
        ("SELECT v FROM t WHERE k = 1 AND (a, b) > (1, 1)", "'112'; '122'; '121'; '120'"),
        ("SELECT v FROM t WHERE k = 1 AND (a, b) >= (1, 1) AND (a) < (2)", "'112'; '111'"),
        ("SELECT v FROM t WHERE k = 1 AND (a, b) > (0, 1) AND (a, b) <= (1, 0)", "'102'; '110'"),
        ("SELECT v FROM t WHERE k = 1 AND a = 0 LIMIT 2", "'102'; '101'"),
        (
            "SELECT v FROM t WHERE k = 1 ORDER BY a DESC, b ASC LIMIT 4",
            "'120'; '121'; '122'; '110'",
        ),
        ("SELECT v FROM t WHERE k = 1 AND a = 1 ORDER BY b", "'110'; '111'; '112'"),
        ("SELECT v FROM t WHERE k = 1 AND a IN (1) ORDER BY b", "'110'; '111'; '112'"),
        ("SELECT v FROM t WHERE k IN (1) AND (a) IN ((1)) ORDER BY b", "'110'; '111'; '112'"),
        ("SELECT v FROM t WHERE k = 1 AND (a) IN ((1)) ORDER BY b DESC", "'112'; '111'; '110'"),
        (
            "SELECT a, count(*) FROM t WHERE k = 1 AND (a) IN ((1)) GROUP BY k, b",
            "1, 1; 1, 1; 1, 1",
        ),
        (
            "SELECT v FROM t WHERE k = 1 AND a IN (0, 2) ORDER BY a DESC, b ASC",
            "'120'; '121'; '122'; '100'; '101'; '102'",
        ),
        ("SELECT v FROM t WHERE k = 1 AND (a, b) > (1, 1) ORDER BY a DESC LIMIT 2", "'120'; '121'"),
        ("SELECT v FROM t WHERE k = 1 AND b = 2 ALLOW FILTERING", "'102'; '112'; '122'"),
        ("SELECT v FROM t WHERE k = 1 AND a > 0 AND v = '121' ALLOW FILTERING", "'121'"),
        ("SELECT v FROM t WHERE k = 1 AND v IN ('121', '100') ALLOW FILTERING", "'100'; '121'"),
        ("SELECT k, s, a FROM t WHERE k = 9", "9, 'alone', null"),
        ("SELECT k, s, a FROM t WHERE k = 9 AND a > 0", ""),
        ("SELECT k FROM t WHERE k = 9 AND s = 'alone' ALLOW FILTERING", "9"),
    ]);
}

#[test]
fn rows_of_several_partitions() {
    let mut nodes = mixed();
    nodes.check(&[
        ("SELECT v FROM t WHERE k IN (3, 1, 3) AND a = 0 AND b = 0", "'100'; '300'"),
        (
            "SELECT v FROM t WHERE k IN (3, 1) AND a = 0 ORDER BY a DESC, b ASC",
            "'100'; '300'; '101'; '301'; '102'; '302'",
        ),
        (
            "SELECT v FROM t WHERE k IN (3, 1, 2) AND a = 0 ORDER BY a, b DESC LIMIT 4",
            "'102'; '202'; '302'; '101'",
        ),
        ("SELECT v FROM t WHERE k IN (1, 2, 3) PER PARTITION LIMIT 1", "'102'; '202'; '302'"),
        (
            "SELECT v FROM t WHERE k IN (1, 2, 3) PER PARTITION LIMIT 2 LIMIT 3",
            "'102'; '101'; '202'",
        ),
        ("SELECT DISTINCT k, s FROM t WHERE k IN (1, 2, 9, 77)", "1, 'one'; 2, null; 9, 'alone'"),
        ("SELECT count(*) FROM t WHERE k IN (1, 2)", "18"),
    ]);
    nodes.check_sorted(&[
        ("SELECT DISTINCT k FROM t", "1; 2; 3; 9"),
        ("SELECT DISTINCT k, s FROM t WHERE s = 'one' ALLOW FILTERING", "1, 'one'"),
        ("SELECT v FROM t PER PARTITION LIMIT 1", "'102'; '202'; '302'; null"),
        ("SELECT v FROM t WHERE a = 1 AND b = 1 ALLOW FILTERING", "'111'; '211'; '311'"),
        ("SELECT v FROM t WHERE b = 1 AND k = 2 ALLOW FILTERING", "'201'; '211'; '221'"),
        ("SELECT v FROM t WHERE v = '222' ALLOW FILTERING", "'222'"),
        ("SELECT count(*) FROM t", "28"),
        (
            "SELECT k, v FROM t WHERE s = 'one' AND a = 0 ALLOW FILTERING",
            "1, '100'; 1, '101'; 1, '102'",
        ),
    ]);
}

#[test]
fn scans_are_in_the_order_of_tokens() {
    let mut nodes = Nodes::new(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    for key in 0..100 {
        nodes.all(&[&format!("INSERT INTO t (k, v) VALUES ({key}, {key})")]);
    }
    let tokens = |nodes: &mut Nodes, text: &str| -> Vec<i64> {
        let rows = nodes.ask(text, &Asked::default()).expect(text).rows;
        rows.iter().map(|row| row.parse().expect("a token")).collect()
    };
    let all = tokens(&mut nodes, "SELECT token(k) FROM t");
    assert_eq!(all.len(), 100);
    assert!(all.is_sorted());
    for (first, last) in [(0, 99), (10, 20), (50, 51), (99, 99)] {
        let (from, to) = (all[first], all[last]);
        let text = format!("SELECT token(k) FROM t WHERE token(k) >= {from} AND token(k) <= {to}");
        assert_eq!(tokens(&mut nodes, &text), all[first..=last], "{text}");
        let text = format!("SELECT token(k) FROM t WHERE token(k) > {from} AND token(k) < {to}");
        assert_eq!(tokens(&mut nodes, &text), all[(first + 1).min(last)..last], "{text}");
    }
    let wrapping =
        format!("SELECT token(k) FROM t WHERE token(k) > {} AND token(k) <= {}", all[89], i64::MIN);
    assert_eq!(tokens(&mut nodes, &wrapping), all[90..]);
    let backwards =
        format!("SELECT token(k) FROM t WHERE token(k) > {} AND token(k) < {}", all[9], all[3]);
    assert_eq!(tokens(&mut nodes, &backwards), [0; 0]);
    assert_eq!(
        tokens(&mut nodes, &format!("SELECT token(k) FROM t WHERE token(k) = {}", all[7])),
        [all[7]]
    );
}

#[test]
fn filters_look_into_collections() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int PRIMARY KEY, m map<text, int>, s set<int>, l list<text>, f frozen<list<int>>)",
        "INSERT INTO t (k, m, s, l, f) VALUES (1, {'a': 1, 'b': 2}, {1, 2}, ['x', 'y'], [1, 2])",
        "INSERT INTO t (k, m, s, l, f) VALUES (2, {'a': 2}, {3}, ['z'], [3])",
        "INSERT INTO t (k) VALUES (3)",
    ]);
    nodes.check(&[
        ("SELECT k FROM t WHERE m CONTAINS 1 ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE m CONTAINS KEY 'b' ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE m['a'] = 2 ALLOW FILTERING", "2"),
        ("SELECT k FROM t WHERE s CONTAINS 3 ALLOW FILTERING", "2"),
        ("SELECT k FROM t WHERE l CONTAINS 'y' ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE f = [3] ALLOW FILTERING", "2"),
        ("SELECT k FROM t WHERE f CONTAINS 2 ALLOW FILTERING", "1"),
    ]);
}

#[test]
fn composite_keys_and_system_tables() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (a int, b text, c int, PRIMARY KEY ((a, b)))",
        "INSERT INTO t (a, b, c) VALUES (1, 'x', 1)",
        "INSERT INTO t (a, b, c) VALUES (1, 'y', 2)",
        "INSERT INTO t (a, b, c) VALUES (2, '', 3)",
    ]);
    nodes.check(&[
        ("SELECT * FROM t WHERE a = 1 AND b = 'y'", "1, 'y', 2"),
        ("SELECT c FROM t WHERE a IN (2, 1) AND b IN ('', 'x', 'y')", "1; 2; 3"),
        ("SELECT b, a FROM t WHERE a = 2 AND b = ''", "'', 2"),
        ("SELECT c FROM t WHERE b = 'y' ALLOW FILTERING", "2"),
        ("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'k'", "'k'"),
        (
            "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = 'k' AND table_name = 't'",
            "'a', 'partition_key'; 'b', 'partition_key'; 'c', 'regular'",
        ),
        (
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'k' AND table_name = 't' \
             AND column_name > 'a' ORDER BY table_name DESC LIMIT 1",
            "'c'",
        ),
        ("SELECT count(*) FROM system.peers_v2", "2"),
        ("SELECT * FROM system.peers WHERE peer = '10.9.8.7'", ""),
        ("SELECT * FROM system.peers_v2 WHERE peer = '10.9.8.7' AND peer_port = 7000", ""),
        ("SELECT key FROM system.local", "'local'"),
    ]);
    let now = nodes.rows("SELECT now() FROM system.local");
    assert!(now.len() >= 16 && !now.contains("error"), "{now}");
    let (rows, pages) = nodes.pages("SELECT keyspace_name FROM system_schema.keyspaces", 2);
    assert!(rows.len() == 4 && pages > 1, "{rows:?}");
}

#[test]
fn deleted_and_expired_rows_are_not_there() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int, c int, s int static, v int, w int, PRIMARY KEY (k, c))",
        "INSERT INTO t (k, c, v) VALUES (1, 1, 1)",
        "INSERT INTO t (k, c, v) VALUES (1, 2, 2)",
        "INSERT INTO t (k, c, v) VALUES (1, 3, 3)",
        "INSERT INTO t (k, c, v, s) VALUES (2, 1, 1, 7)",
        "DELETE FROM t WHERE k = 1 AND c >= 2",
        "DELETE FROM t WHERE k = 2 AND c = 1",
        "UPDATE t SET v = 5 WHERE k = 3 AND c = 1",
        "UPDATE t SET v = null WHERE k = 3 AND c = 1",
        "UPDATE t SET w = 5 WHERE k = 4 AND c = 1",
        "INSERT INTO t (k, c, v) VALUES (5, 1, 1) USING TTL 1000",
    ]);
    nodes.check(&[
        ("SELECT c FROM t WHERE k = 1", "1"),
        ("SELECT c FROM t WHERE k = 1 AND c = 3", ""),
        ("SELECT c, s FROM t WHERE k = 2", "null, 7"),
        ("SELECT c, s FROM t WHERE k = 2 AND c = 1", ""),
        ("SELECT c FROM t WHERE k = 3", ""),
        ("SELECT v FROM t WHERE k = 4 AND c = 1", "null"),
        ("SELECT v FROM t WHERE k = 5 AND c = 1", "1"),
    ]);
    nodes.check_sorted(&[
        ("SELECT k, c FROM t", "1, 1; 2, null; 4, 1; 5, 1"),
        ("SELECT DISTINCT k FROM t", "1; 2; 4; 5"),
    ]);
}

#[test]
fn values_that_are_bound() {
    let mut nodes = mixed();
    let ints = |values: &[i32]| -> Vec<Vec<u8>> {
        values.iter().map(|value| value.to_be_bytes().to_vec()).collect()
    };
    let (one, list) = (1_i32.to_be_bytes(), split::join_collection(2, ints(&[2, 1])));
    let tuple = split::join_tuple(ints(&[1, 1]).into_iter().map(Some));
    let tuples = split::join_collection(1, [&tuple]);
    type Case<'c> = (&'c str, Vec<Option<&'c [u8]>>, &'c str);
    let cases: [Case<'_>; 6] = [
        (
            "SELECT v FROM t WHERE k IN ? AND a = ? AND b = ?",
            vec![Some(&list), Some(&one), Some(&one)],
            "'111'; '211'",
        ),
        (
            "SELECT v FROM t WHERE k = ? AND a IN ? AND b = ?",
            vec![Some(&one), Some(&list), Some(&one)],
            "'111'; '121'",
        ),
        (
            "SELECT v FROM t WHERE k = ? AND (a, b) > ?",
            vec![Some(&one), Some(&tuple)],
            "'112'; '122'; '121'; '120'",
        ),
        ("SELECT v FROM t WHERE k = ? AND (a, b) IN ?", vec![Some(&one), Some(&tuples)], "'111'"),
        ("SELECT v FROM t WHERE k = ? LIMIT ?", vec![Some(&one), Some(&one)], "'102'"),
        (
            "SELECT v FROM t WHERE k = ? PER PARTITION LIMIT ?",
            vec![Some(&one), Some(&one)],
            "'102'",
        ),
    ];
    for (text, values, expected) in cases {
        let answer = nodes.ask(text, &Asked { values: &values, ..Asked::default() }).expect(text);
        assert_eq!(answer.rows.join("; "), expected, "{text}");
    }
    let asked = Asked { values: &[None], ..Asked::default() };
    let message = nodes.ask("SELECT v FROM t WHERE k = ?", &asked).unwrap_err();
    assert_eq!(message, "Invalid null value in condition for column k");
}
