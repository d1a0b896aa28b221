//! SELECT with secondary indexes: answers and refusals of Cassandra 5.0, statement by statement.

use super::refused::FILTERING;
use super::{Asked, Nodes};

const ROWS: [&str; 7] = [
    "CREATE TABLE t (p1 int, p2 int, c1 int, c2 int, s text static, i int, j int, v text, m map<text, int>, \
     st set<int>, fl frozen<list<int>>, z int, PRIMARY KEY ((p1, p2), c1, c2))",
    "INSERT INTO t (p1, p2, c1, c2, s, i, j, v, m, st, fl, z) \
     VALUES (1, 1, 1, 1, 'a', 1, 1, 'x', {'a': 1, 'b': 2}, {1, 2}, [1], 1)",
    "INSERT INTO t (p1, p2, c1, c2, s, i, j, v, m, st, fl, z) VALUES (1, 1, 1, 2, 'a', 2, 1, 'y', {'a': 2}, {2}, [2], 2)",
    "INSERT INTO t (p1, p2, c1, c2, s, i, j, v, m, st, fl, z) VALUES (1, 1, 2, 1, 'a', 1, 2, '', {'b': 1}, {3}, [1], 3)",
    "INSERT INTO t (p1, p2, c1, c2, s, i, j, v, m, st, fl, z) \
     VALUES (1, 2, 1, 1, 'b', 1, 3, 'x', {'c': 1}, {1}, [1, 2], 4)",
    "INSERT INTO t (p1, p2, c1, c2, s, i, j, v, m, st, fl, z) VALUES (2, 1, 1, 1, 'a', 3, 1, 'z', {'a': 1}, {4}, [], 5)",
    "INSERT INTO t (p1, p2, s) VALUES (3, 3, 'a')",
];

/// The table with an index on every column but one, of either kind.
fn nodes(class: &str) -> Nodes {
    let targets =
        ["i", "j", "v", "s", "keys(m)", "m", "entries(m)", "st", "full(fl)", "c1", "c2", "p2"];
    let indexes: Vec<String> =
        targets.iter().map(|target| format!("CREATE INDEX ON t ({target}){class}")).collect();
    let statements: Vec<&str> =
        ROWS.into_iter().chain(indexes.iter().map(String::as_str)).collect();
    Nodes::new(&statements)
}

const IN_KEY: &str =
    "error: Select on indexed columns and with IN clause for the PRIMARY KEY are not supported";
const ORDER: &str = "error: ORDER BY with 2ndary indexes is not supported, except for ANN queries.";
const TUPLES: &str = "error: Multi-column slice restrictions cannot be used for filtering.";
const ENTRIES: &str = "error: Only EQ relations are supported on map entries";

/// The condition of a statement, and its answer with the older indexes and with storage-attached
/// ones.
const CASES: &[(&str, &str, &str)] = &[
    ("i = 1", "4; 1; 3", "4; 1; 3"),
    ("i = 1 LIMIT 2", "4; 1", "4; 1"),
    ("i = 1 PER PARTITION LIMIT 1", "4; 1", "4; 1"),
    ("i IN (1)", "4; 1; 3", "4; 1; 3"),
    ("i IN (1, 2)", FILTERING, FILTERING),
    ("i > 1", FILTERING, "5; 2"),
    ("i >= 1 AND i < 3", FILTERING, "4; 1; 2; 3"),
    ("i > 1 ALLOW FILTERING", "5; 2", "5; 2"),
    ("i = 1 AND j = 1", FILTERING, "1"),
    ("i = 1 AND j > 1", FILTERING, "4; 3"),
    ("i = 1 AND z = 1", FILTERING, FILTERING),
    ("i = 1 AND z = 1 ALLOW FILTERING", "1", "1"),
    ("z = 1", FILTERING, FILTERING),
    ("v = 'x'", "4; 1", "4; 1"),
    ("v = ''", "3", "3"),
    ("v > 'x'", FILTERING, FILTERING),
    ("s = 'a'", "null; 5; 1; 2; 3", "null; 5; 1; 2; 3"),
    ("s = 'a' AND i = 1", FILTERING, "1; 3"),
    ("m CONTAINS KEY 'a'", "5; 1; 2", "5; 1; 2"),
    ("m CONTAINS 1", "5; 4; 1; 3", "5; 4; 1; 3"),
    ("m CONTAINS 1 AND m CONTAINS 2", FILTERING, "1"),
    ("m CONTAINS 1 AND m CONTAINS KEY 'a'", FILTERING, "5; 1"),
    ("m['a'] = 1", "5; 1", "5; 1"),
    ("m['a'] = 1 AND m['b'] = 2", FILTERING, "1"),
    ("m['a'] > 1", ENTRIES, ENTRIES),
    ("m['a'] > 1 ALLOW FILTERING", ENTRIES, ENTRIES),
    ("st CONTAINS 1", "4; 1", "4; 1"),
    ("fl = [1]", "1; 3", "1; 3"),
    ("fl = []", "5", "5"),
    ("fl > [1]", FILTERING, FILTERING),
    ("fl CONTAINS 1", FILTERING, FILTERING),
    ("c1 = 1", "5; 4; 1; 2", "5; 4; 1; 2"),
    ("c1 > 1", FILTERING, "3"),
    ("c2 = 1", "5; 4; 1; 3", "5; 4; 1; 3"),
    (
        "c2 > 1",
        "error: PRIMARY KEY column \"c2\" cannot be restricted as preceding column \"c1\" is not restricted",
        "2",
    ),
    ("c1 = 1 AND c2 = 1", FILTERING, "5; 4; 1"),
    ("(c1, c2) = (1, 1)", FILTERING, "5; 4; 1"),
    ("(c1, c2) > (1, 1)", FILTERING, TUPLES),
    ("(c1, c2) IN ((1, 1))", FILTERING, "5; 4; 1"),
    ("(c1, c2) IN ((1, 1), (1, 2))", FILTERING, FILTERING),
    ("c1 = 1 AND i = 1", FILTERING, "4; 1"),
    ("p2 = 1", "5; 1; 2; 3", "5; 1; 2; 3"),
    ("p2 = 3", "null", "null"),
    ("p1 = 1", FILTERING, FILTERING),
    ("p2 = 1 AND i = 1", FILTERING, "1; 3"),
    ("p1 = 1 AND i = 1", FILTERING, FILTERING),
    ("p1 = 1 AND p2 = 1 AND i = 1", "1; 3", "1; 3"),
    ("p1 = 1 AND p2 = 1 AND i > 1", FILTERING, "2"),
    ("p1 = 1 AND p2 = 1 AND c1 > 0 AND i = 1", "1; 3", "1; 3"),
    ("p1 = 1 AND p2 = 1 AND c1 = 1 AND c2 = 1 AND i = 1", "1", "1"),
    ("p1 = 1 AND p2 = 1 AND c2 = 1 AND i = 1", FILTERING, "1; 3"),
    ("p1 = 1 AND p2 = 1 AND c2 = 1", "1; 3", "1; 3"),
    ("p1 = 1 AND p2 IN (1, 2) AND i = 1", IN_KEY, IN_KEY),
    ("p1 = 1 AND p2 IN (1, 2) AND i = 1 ALLOW FILTERING", IN_KEY, IN_KEY),
    ("p1 = 1 AND p2 IN (1) AND i = 1", "1; 3", "1; 3"),
    ("p1 = 1 AND p2 IN (1, 2)", "1; 2; 3; 4", "1; 2; 3; 4"),
    ("p1 = 1 AND p2 = 1 AND i = 1 ORDER BY c1 DESC", ORDER, ORDER),
    ("i = 1 ORDER BY c1 DESC", ORDER, ORDER),
    ("token(p1, p2) > 0 AND i = 1", "4; 1; 3", "4; 1; 3"),
    ("token(p1, p2) > 0 AND c1 = 1", "5; 4; 1; 2", "5; 4; 1; 2"),
    (
        "expr(t_i_idx, '1')",
        "error: Only CUSTOM indexes may be used in custom index expressions, t_i_idx is not valid",
        "error: Index t_i_idx does not support custom expressions",
    ),
    (
        "expr(nope, '1')",
        "error: Invalid index expression, index nope not found for k.t",
        "error: Invalid index expression, index nope not found for k.t",
    ),
];

#[test]
fn statements_that_indexes_answer() {
    for (class, place) in [("", 1), (" USING 'sai'", 2)] {
        let mut nodes = nodes(class);
        for case in CASES {
            let expected = if place == 1 { case.1 } else { case.2 };
            let text = format!("SELECT z FROM t WHERE {}", case.0);
            assert_eq!(nodes.rows(&text), expected, "{text}{class}");
        }
        nodes.check(&[
            ("SELECT DISTINCT p1, p2, s FROM t WHERE s = 'a'", "3, 3, 'a'; 2, 1, 'a'; 1, 1, 'a'"),
            ("SELECT count(*) FROM t WHERE i = 1", "3"),
            (
                "SELECT z FROM t ORDER BY v ANN OF [1, 2] LIMIT 1",
                "error: ANN ordering by vector requires the column to be indexed",
            ),
            ("SELECT sum(z) FROM t WHERE i = 1 GROUP BY p1, p2", "4; 4"),
            (
                "SELECT s FROM t WHERE c1 = 1",
                "error: Cannot restrict clustering columns when selecting only static columns",
            ),
        ]);
        assert_eq!(nodes.pages("SELECT z FROM t WHERE i = 1", 1).0, ["4", "1", "3"]);
    }
}

#[test]
fn an_index_answers_from_its_creation_to_its_end() {
    let mut nodes = Nodes::new(&ROWS);
    let text = "SELECT z FROM t WHERE i = 2";
    nodes.check(&[
        (text, FILTERING),
        ("CREATE INDEX ON t (i)", ""),
        (text, "2"),
        ("DROP INDEX t_i_idx", ""),
        (text, FILTERING),
    ]);
    nodes.check(&[
        ("CREATE INDEX ON t (i)", ""),
        ("TRUNCATE t", ""),
        (text, ""),
        ("DROP TABLE t", ""),
    ]);
    nodes.check(&[
        ("SELECT index_name FROM system_schema.indexes", ""),
        ("SELECT index_name FROM system.\"IndexInfo\"", ""),
    ]);
}

/// Rare rows of a large table are found in pages of the client's size.
#[test]
fn pages_of_a_rare_value() {
    let mut nodes =
        Nodes::new(&["CREATE TABLE t (p int PRIMARY KEY, v int)", "CREATE INDEX ON t (v)"]);
    for key in 0..300 {
        nodes.all(&[&format!("INSERT INTO t (p, v) VALUES ({key}, {})", key % 100)]);
    }
    let (mut rows, _) = nodes.pages("SELECT p FROM t WHERE v = 7", 2);
    rows.sort();
    assert_eq!(rows, ["107", "207", "7"]);
    let value = 7_i32.to_be_bytes();
    let asked = Asked { values: &[Some(&value)], ..Asked::default() };
    assert_eq!(nodes.ask("SELECT count(*) FROM t WHERE v = ?", &asked).expect("rows").rows, ["3"]);
    let asked = Asked { values: &[None], ..Asked::default() };
    let refused = nodes.ask("SELECT count(*) FROM t WHERE v = ?", &asked).expect_err("null");
    assert_eq!(refused, "Unsupported null value for column v");
}
