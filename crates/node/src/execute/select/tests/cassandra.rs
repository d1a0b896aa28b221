//! Cases found by the differential test, where the answer differed from Cassandra 5.0.

use shunt_wire::cql::message::Consistency;

use super::Nodes;

#[test]
fn conditions_read_and_show_what_cassandra_does() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int, c int, s int static, v int, l list<int>, PRIMARY KEY (p, c))",
        "CREATE TABLE one (p int PRIMARY KEY, v int, name text)",
        "INSERT INTO t (p, c, s, v) VALUES (1, 1, 7, 5)",
        "INSERT INTO one (p, v, name) VALUES (1, 5, 'a')",
    ]);
    nodes.check(&[
        ("INSERT INTO one JSON '{\"p\": 2, \"v\": 3}' IF NOT EXISTS", "true"),
        ("INSERT INTO one JSON '{\"p\": 2, \"v\": 4}' IF NOT EXISTS", "false, 2, null, 3"),
        // The static row exists, and the first row with it.
        ("INSERT INTO t (p, s) VALUES (1, 1) IF NOT EXISTS", "false, 1, 1, 7, null, null"),
        ("INSERT INTO t (p, s) VALUES (9, 1) IF NOT EXISTS", "true"),
        // Columns in the order of the conditions, regular ones first.
        ("UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF s = 0 AND v = 5", "false, 5, 7"),
        ("UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF l <= []", "error: Invalid comparison with an empty collection for an operator that orders"),
        ("UPDATE t SET v = 1 WHERE p = 1 AND c = 1 IF v IN (4, 5)", "true"),
        // Numbers and texts are added where the row is read anyway.
        ("UPDATE one SET v = v + 2, name = name + 'b' WHERE p = 1 IF EXISTS", "true"),
        ("SELECT v, name FROM one WHERE p = 1", "7, 'ab'"),
        ("DELETE FROM t WHERE p = 1 IF s = 7", "error: DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to delete non static columns"),
        ("DELETE s FROM t WHERE p = 1 AND c = 1", "error: Invalid restrictions on clustering columns since the DELETE statement modifies only static columns"),
        (
            "BEGIN BATCH INSERT INTO t (p, c) VALUES (1, 2) IF NOT EXISTS; UPDATE t SET v = 2 WHERE p = 1 AND c = 2 IF v = 3; APPLY BATCH",
            "error: Cannot mix IF conditions and IF NOT EXISTS for the same row",
        ),
        // The deletions of a batch come before its writes.
        ("BEGIN BATCH INSERT INTO t (p, c, v) VALUES (1, 3, 3) IF NOT EXISTS; DELETE FROM t WHERE p = 1; APPLY BATCH", "true"),
        ("SELECT c, v FROM t WHERE p = 1", "3, 3"),
        ("UPDATE t USING TTL -1 SET v = 1 WHERE p = 1 AND c IN ()", ""),
        ("UPDATE t USING TTL -1 SET v = 1 WHERE p = 1 AND c IN (1)", "error: A TTL must be greater or equal to 0, but was -1"),
        // An invalid time to live does not matter if nothing is written.
        ("UPDATE one USING TTL 630720001 SET v = 1 WHERE p = 1 IF v = 99", "false, 7"),
    ]);
}

#[test]
fn collections_and_counters() {
    let mut nodes = Nodes::new(&[
        "CREATE TYPE two (a int, b int)",
        "CREATE TABLE t (p int, c int, s list<int> static, l list<int>, u two, PRIMARY KEY (p, c))",
        "CREATE TABLE n (p int, c int, s counter static, v counter, PRIMARY KEY (p, c))",
        // Appends of one batch are two, and so are those of two rows to a static list.
        "BEGIN BATCH UPDATE t SET l = l + [1] WHERE p = 1 AND c = 1; UPDATE t SET l = l + [2] WHERE p = 1 AND c = 1; APPLY BATCH",
        "BEGIN BATCH UPDATE t SET l = [4] + l WHERE p = 1 AND c = 1; UPDATE t SET l = [3] + l WHERE p = 1 AND c = 1; APPLY BATCH",
        "UPDATE t SET s = s + [7], l = l + [9] WHERE p = 1 AND c IN (1, 2)",
        // Overwriting with null is older than a write of the same time, and a null field changes
        // nothing.
        "INSERT INTO t (p, c, l) VALUES (2, 1, [5]) USING TIMESTAMP 10",
        "UPDATE t USING TIMESTAMP 10 SET l = null WHERE p = 2 AND c = 1",
        "UPDATE t USING TIMESTAMP 10 SET u = {a: 1, b: 2} WHERE p = 2 AND c = 1",
        "UPDATE t USING TIMESTAMP 10 SET u = {a: null, b: 3} WHERE p = 2 AND c = 1",
        "UPDATE n SET s = s + 1, v = v + 5 WHERE p = 1 AND c IN (1, 2)",
    ]);
    nodes.check(&[
        ("SELECT l, s FROM t WHERE p = 1", "[3, 4, 1, 2, 9], [7, 7]; [9], [7, 7]"),
        ("SELECT l, u FROM t WHERE p = 2", "[5], {a: 1, b: 3}"),
        ("SELECT s, v FROM n WHERE p = 1", "2, 5; 2, 5"),
        ("DELETE FROM n WHERE p = 1", ""),
        ("UPDATE n SET v = v + 1 WHERE p = 1 AND c = 2", ""),
        ("SELECT c, s, v FROM n WHERE p = 1", "2, null, 1"),
        ("DELETE FROM n WHERE p = 1 AND c > 0", ""),
        ("UPDATE n SET v = v + 2 WHERE p = 1 AND c = 2", ""),
        ("SELECT c, v FROM n WHERE p = 1", "2, 2"),
    ]);
}

#[test]
fn columns_that_were_dropped() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int PRIMARY KEY, v int, w int)",
        "UPDATE t SET v = 1 WHERE p = 1",
        "INSERT INTO t (p, v) VALUES (2, 2)",
        "ALTER TABLE t DROP v USING TIMESTAMP 8000000000000000",
    ]);
    // A row without other values is gone.
    nodes.check(&[
        ("SELECT * FROM t", "2, null"),
        (
            "ALTER TABLE t ADD v bigint",
            "error: Cannot re-add previously dropped column 'v' of type bigint, incompatible with previous type int",
        ),
        ("ALTER TABLE t ADD v int", ""),
        ("INSERT INTO t (p, v, w) VALUES (2, 3, 3)", ""),
        ("SELECT v, w FROM t WHERE p = 2", "null, 3"),
        ("INSERT INTO t (p, v) VALUES (2, 4) USING TIMESTAMP 8000000000000001", ""),
        ("SELECT v, w FROM t WHERE p = 2", "4, 3"),
    ]);
}

#[test]
fn selects() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int, l int, d decimal, s int static, m frozen<map<text, int>>, v float, PRIMARY KEY ((k, l), d))",
        "INSERT INTO t (k, l, d, s, m, v) VALUES (1, 2, 100, 9, {'it''s': 4}, 1e10)",
        "CREATE TABLE names (p int PRIMARY KEY, b int, \"Ünicode\" int, m map<text, int>)",
        "CREATE TABLE letters (p int PRIMARY KEY, \"Ünicode\" set<int>, b int, m list<int>, \"Übel\" int, a int, \"Ä\" set<int>, z set<int>)",
        "INSERT INTO names (p, \"Ünicode\", m) VALUES (1, 2, {'it''s': 3})",
    ]);
    nodes.check(&[
        ("SELECT d, v FROM t", "100, 1.0E10"),
        ("SELECT k FROM t WHERE k > 0 AND l = 2 ALLOW FILTERING", "1"),
        (
            "SELECT s FROM t WHERE k = 1 AND l = 2 AND d = 100",
            "error: Cannot restrict clustering columns when selecting only static columns",
        ),
        (
            "SELECT (k) FROM t",
            "error: Cannot infer type for term (k) in selection clause (try using a cast to force a type)",
        ),
        (
            "SELECT m FROM t WHERE m['a'] = 1 ALLOW FILTERING",
            "error: Map-entry equality predicates on frozen map column m are not supported",
        ),
        ("SELECT k % 0 FROM t", "error: the operation 'int % int' failed: / by zero"),
        ("SELECT * FROM names", "1, 2, null, {'it''s': 3}"),
        ("SELECT JSON \"Ünicode\" FROM names", "'{\"\\\"Ünicode\\\"\": 2}'"),
        ("INSERT INTO system.local (key) VALUES ('x')", "error: system keyspace is not user-modifiable."),
    ]);
    let answer = nodes.ask("SELECT * FROM letters", &super::Asked::default()).unwrap();
    assert_eq!(answer.names, ["p", "Übel", "a", "b", "Ä", "Ünicode", "m", "z"]);
    let answer = nodes.ask("SELECT m['it''s'] FROM names", &super::Asked::default()).unwrap();
    assert_eq!(answer.names, ["m['it's']"]);
}

#[test]
fn keys_that_are_equal_are_shown_as_they_were_first_written() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int, c decimal, v int, s list<int> static, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
        "CREATE TABLE n (p int, c decimal, d tuple<int, text>, v counter, PRIMARY KEY (p, c, d))",
        "INSERT INTO t (p, c, v) VALUES (1, 1.50, 1)",
        "INSERT INTO t (p, c, v) VALUES (1, 1.5, 2)",
        "INSERT INTO t (p, c, v) VALUES (1, 100, 3)",
        "INSERT INTO t JSON '{\"p\": 1, \"c\": \"1E+3\", \"v\": 4}'",
        "DELETE FROM t WHERE p = 2 AND c = 0.00",
        "INSERT INTO t (p, c, v) VALUES (2, 0, 5)",
        "UPDATE t SET v = 6 WHERE p = 3 AND c IN (7.0, 7, 7.00)",
        "UPDATE n SET v = v + 1 WHERE p = 1 AND c IN (1.0, 1.00) AND d = (1, null)",
    ]);
    nodes.check(&[
        ("SELECT c, v FROM t WHERE p = 1", "1E+3, 4; 100, 3; 1.50, 2"),
        ("SELECT c, v FROM t WHERE p = 1 AND c = 1.500", "1.50, 2"),
        ("SELECT c, v FROM t WHERE p = 1 AND c <= 1.5000 ORDER BY c ASC", "1.50, 2"),
        ("SELECT max(c), min(c) FROM t WHERE p = 1", "1E+3, 1.50"),
        ("SELECT c FROM t WHERE p = 2", "0.00"),
        ("SELECT c FROM t WHERE p = 3", "7.0"),
        ("SELECT c, d, v FROM n", "1.0, (1, null), 1"),
        ("INSERT INTO t (p, c) VALUES (1, 1.50000) IF NOT EXISTS", "false, 1, 1.50, null, 2"),
        ("DELETE FROM t WHERE p = 1 AND c = 1.5", ""),
        ("SELECT c, v FROM t WHERE p = 1", "1E+3, 4; 100, 3"),
        ("ALTER TABLE t DROP v USING TIMESTAMP 8000000000000000", ""),
        ("SELECT c FROM t WHERE p = 1", "1E+3; 100"),
    ]);
}

/// Cassandra's limits on bytes of clustering columns, for each and in total. Longer values cannot
/// be written, and reads of them find nothing.
#[test]
fn long_clustering_keys() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int, c text, v int, PRIMARY KEY (p, c))",
        "CREATE TABLE two (p int, c blob, d blob, v int, PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY (c DESC)",
    ]);
    let refused =
        |bytes: usize| format!("error: Key length of {bytes} is longer than maximum of 65535");
    for bytes in [65_532, 65_533, 65_535] {
        let key = "c".repeat(bytes);
        let (put, get) =
            (format!("INSERT INTO t (p, c, v) VALUES (1, '{key}', 7)"), format!("'{key}'"));
        assert_eq!(nodes.rows(&put), "", "{bytes} bytes");
        assert_eq!(
            nodes.rows(&format!("SELECT v FROM t WHERE p = 1 AND c = {get}")),
            "7",
            "{bytes} bytes"
        );
        assert_eq!(
            nodes.rows(&format!("SELECT v FROM t WHERE p = 1 AND c >= {get} LIMIT 1")),
            "7",
            "{bytes} bytes"
        );
        assert_eq!(
            nodes.rows(&format!("UPDATE t SET v = 8 WHERE p = 1 AND c = {get} IF v = 7")),
            "true"
        );
        assert_eq!(
            nodes.rows(&format!("DELETE FROM t WHERE p = 1 AND c = {get}")),
            "",
            "{bytes} bytes"
        );
    }
    let key = format!("'{}'", "c".repeat(65_536));
    for statement in [
        format!("INSERT INTO t (p, c, v) VALUES (1, {key}, 7)"),
        format!("INSERT INTO t (p, c, v) VALUES (1, {key}, 7) IF NOT EXISTS"),
        format!("INSERT INTO t JSON '{{\"p\": 1, \"c\": {}}}'", key.replace('\'', "\"")),
        format!("UPDATE t SET v = 8 WHERE p = 1 AND c IN ('c', {key})"),
        format!("DELETE FROM t WHERE p = 1 AND c = {key}"),
    ] {
        assert_eq!(nodes.rows(&statement), refused(65_536), "{}", &statement[..40]);
    }
    for condition in [
        format!("c = {key}"),
        format!("c IN ({key}, 'c')"),
        format!("c > {key}"),
        format!("c >= {key}"),
    ] {
        let found = nodes.rows(&format!("SELECT v FROM t WHERE p = 1 AND {condition}"));
        assert_eq!(found, "", "{}", &condition[..10]);
    }
    // Zeros take the most room in storage.
    let zeros = |bytes: usize| format!("0x{}", "00".repeat(bytes));
    for (first, second, expected) in [
        (32_768, 32_767, String::new()),
        (65_535, 0, String::new()),
        (32_768, 32_768, refused(65_536)),
    ] {
        let (c, d) = (zeros(first), zeros(second));
        let found =
            nodes.rows(&format!("INSERT INTO two (p, c, d, v) VALUES (1, {c}, {d}, {first})"));
        assert_eq!(found, expected, "{first} and {second} bytes");
    }
    nodes.check(&[("SELECT v FROM two WHERE p = 1", "65535; 32768")]);
    let condition = format!("p = 1 AND c = {}", zeros(65_535));
    assert_eq!(nodes.rows(&format!("SELECT v FROM two WHERE {condition}")), "65535");
    assert_eq!(nodes.rows(&format!("DELETE FROM two WHERE {condition}")), "");
    nodes.check(&[("SELECT v FROM two WHERE p = 1", "32768")]);
}

#[test]
fn levels_that_a_statement_cannot_have() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int PRIMARY KEY, v int)",
        "CREATE TABLE n (p int PRIMARY KEY, v counter)",
    ]);
    const PLAIN: &str = "error: You must use conditional updates for serializable writes";
    const COUNTER: &str = "error: Counter operations are inherently non-serializable";
    for (text, level, serial, expected) in [
        ("INSERT INTO t (p, v) VALUES (1, 1)", Consistency::SERIAL, None, PLAIN),
        ("UPDATE t SET v = 2 WHERE p = 1", Consistency::LOCAL_SERIAL, None, PLAIN),
        ("DELETE FROM t WHERE p = 1", Consistency::SERIAL, None, PLAIN),
        ("INSERT INTO t (p, v) VALUES (1, 1)", Consistency::ANY, None, ""),
        (
            "SELECT v FROM t",
            Consistency::ANY,
            None,
            "error: ANY ConsistencyLevel is only supported for writes",
        ),
        ("SELECT v FROM t", Consistency::SERIAL, None, "1"),
        ("SELECT v FROM t WHERE p = 1", Consistency::LOCAL_SERIAL, None, "1"),
        (
            "UPDATE n SET v = v + 1 WHERE p = 1",
            Consistency::ANY,
            None,
            "error: Consistency level ANY is not yet supported for counter table n",
        ),
        ("UPDATE n SET v = v + 1 WHERE p = 1", Consistency::SERIAL, None, COUNTER),
        ("DELETE FROM n WHERE p = 1", Consistency::LOCAL_SERIAL, None, COUNTER),
        (
            "UPDATE t SET v = 2 WHERE p = 1 IF v = 1",
            Consistency::ONE,
            Some(Consistency::QUORUM),
            "error: Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ),
        (
            "UPDATE t SET v = 2 WHERE p = 1 IF v = 1",
            Consistency::SERIAL,
            None,
            "error: SERIAL is not supported as conditional update commit consistency. Use ANY if you mean \"make sure \
             it is accepted but I don't care how many replicas commit it for non-SERIAL reads\"",
        ),
        (
            "UPDATE t SET v = 2 WHERE p = 1 IF v = 1",
            Consistency::EACH_QUORUM,
            None,
            "error: consistency level EACH_QUORUM not compatible with replication strategy \
             (org.apache.cassandra.locator.SimpleStrategy)",
        ),
        (
            "UPDATE t SET v = 2 WHERE p = 1 IF v = 1",
            Consistency::ANY,
            Some(Consistency::LOCAL_SERIAL),
            "true",
        ),
        // The other level does not matter without a condition.
        ("UPDATE t SET v = 3 WHERE p = 1", Consistency::ONE, Some(Consistency::QUORUM), ""),
        (
            "BEGIN BATCH UPDATE t SET v = 4 WHERE p = 1 IF v = 3; APPLY BATCH",
            Consistency::ONE,
            None,
            "true",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 4 WHERE p = 1 IF v = 3; APPLY BATCH",
            Consistency::ONE,
            Some(Consistency::ONE),
            "error: Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ),
        // For a batch without conditions Cassandra uses the level only to count replicas.
        ("BEGIN BATCH UPDATE t SET v = 5 WHERE p = 1; APPLY BATCH", Consistency::SERIAL, None, ""),
        ("SELECT v FROM t", Consistency::ONE, None, "5"),
        ("SELECT v FROM n", Consistency::ONE, None, ""),
    ] {
        let asked = super::Asked { level: Some(level), serial, ..super::Asked::default() };
        let found = match nodes.ask(text, &asked) {
            Ok(answer) => answer.rows.join("; "),
            Err(message) => format!("error: {message}"),
        };
        assert_eq!(found, expected, "{text} at {level}");
    }
}

/// A column added again has only the values written after the time of its drop.
#[test]
fn a_column_that_comes_back_has_what_is_newer_than_its_drop() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (p int PRIMARY KEY, v int, w int, l list<int>, f frozen<list<int>>)",
        "INSERT INTO t (p, v, l) VALUES (1, 1, [1]) USING TIMESTAMP 1000",
        "UPDATE t USING TIMESTAMP 1500 SET v = 2, l = [2] WHERE p = 2",
        "UPDATE t USING TIMESTAMP 2000 SET v = 3, l = [3], f = [3] WHERE p = 3",
        "UPDATE t USING TIMESTAMP 1400 SET l = l + [4] WHERE p = 3",
        "UPDATE t USING TIMESTAMP 1200 SET v = 4 WHERE p = 4",
        "UPDATE t USING TIMESTAMP 2000 SET w = 4 WHERE p = 4",
        "ALTER TABLE t DROP (v, l, f) USING TIMESTAMP 1500",
    ]);
    // Rows with only dropped values do not exist.
    nodes.check_sorted(&[("SELECT * FROM t", "1, null; 4, 4")]);
    nodes.check(&[("ALTER TABLE t ADD (v int, l list<int>, f frozen<list<int>>)", "")]);
    nodes.check_sorted(&[
        (
            "SELECT p, v, l, f, w FROM t",
            "1, null, null, null, null; 3, 3, [3], [3], null; 4, null, null, null, 4",
        ),
        ("SELECT v, writetime(v) FROM t WHERE p = 3", "3, 2000"),
        ("SELECT v FROM t WHERE p = 1", "null"),
        ("SELECT v FROM t WHERE p = 2", ""),
        ("SELECT count(*) FROM t", "3"),
        ("SELECT count(v) FROM t", "1"),
        ("SELECT p FROM t WHERE v > 0 ALLOW FILTERING", "3"),
    ]);
    nodes.check(&[
        ("INSERT INTO t (p, v) VALUES (2, 5) IF NOT EXISTS", "true"),
        ("UPDATE t SET v = 9 WHERE p = 1 IF v = 1", "false, null"),
        ("UPDATE t SET v = 9 WHERE p = 3 IF v = 3", "true"),
        (
            "UPDATE t SET l[0] = 7 WHERE p = 1",
            "error: Attempted to set an element on a list which is null",
        ),
        ("UPDATE t SET l[0] = 7 WHERE p = 3", ""),
        ("SELECT v, l FROM t WHERE p = 3", "9, [7]"),
        // Again, with a time between the later writes.
        ("INSERT INTO t (p, v) VALUES (6, 6) USING TIMESTAMP 3000", ""),
        ("INSERT INTO t (p, v) VALUES (7, 7) USING TIMESTAMP 3001", ""),
        ("ALTER TABLE t DROP v USING TIMESTAMP 3000", ""),
        ("ALTER TABLE t ADD v int", ""),
        ("SELECT v FROM t WHERE p = 6", "null"),
        ("SELECT v FROM t WHERE p = 7", "7"),
        ("SELECT v FROM t WHERE p = 3", "9"),
    ]);
}

#[test]
fn batches_of_counters_have_no_timestamp() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE n (p int PRIMARY KEY, v counter)",
        "CREATE TABLE t (p int PRIMARY KEY)",
    ]);
    nodes.check(&[
        (
            "BEGIN COUNTER BATCH USING TIMESTAMP 3 UPDATE n SET v = v + 1 WHERE p = 1; APPLY BATCH",
            "error: Cannot provide custom timestamp for counter BATCH",
        ),
        (
            "BEGIN UNLOGGED BATCH USING TIMESTAMP 3 UPDATE n SET v = v + 1 WHERE p = 1; APPLY BATCH",
            "error: Cannot provide custom timestamp for a BATCH containing counters",
        ),
        ("SELECT v FROM n", ""),
        ("BEGIN COUNTER BATCH UPDATE n SET v = v + 1 WHERE p = 1; APPLY BATCH", ""),
        ("BEGIN BATCH USING TIMESTAMP 3 INSERT INTO t (p) VALUES (1); APPLY BATCH", ""),
        ("SELECT v FROM n", "1"),
    ]);
}

/// A cast to the column's type has no effect.
#[test]
fn casts_to_the_same_type_have_the_names_of_their_columns() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "INSERT INTO t (k, v) VALUES (1, 'x')",
    ]);
    let text =
        "SELECT CAST(k AS int), CAST(v AS varchar), CAST(k AS text), max(CAST(k AS int)) FROM t";
    let answer = nodes.ask(text, &super::Asked::default()).unwrap();
    assert_eq!(answer.names, ["k", "v", "cast(k as text)", "system.max(k)"]);
}

/// Condition, lock and write use the same key.
#[test]
fn functions_in_a_key_are_evaluated_once() {
    let mut nodes = Nodes::new(&[
        "CREATE TABLE t (k uuid PRIMARY KEY, v int)",
        "CREATE TABLE u (k int, c timeuuid, v int, PRIMARY KEY (k, c))",
    ]);
    for _ in 0..3 {
        nodes.check(&[
            ("INSERT INTO t (k, v) VALUES (uuid(), 1) IF NOT EXISTS", "true"),
            ("INSERT INTO u (k, c, v) VALUES (1, now(), 1) IF NOT EXISTS", "true"),
            ("UPDATE u SET v = 2 WHERE k = 1 AND c = now() IF v = 1", "false"),
        ]);
        nodes.all(&["UPDATE u SET v = 3 WHERE k IN (2, 3) AND c = now()"]);
    }
    nodes.check(&[("SELECT count(*) FROM t", "3"), ("SELECT count(*) FROM u WHERE k = 1", "3")]);
    let of = |nodes: &mut Nodes, key| nodes.rows(&format!("SELECT c FROM u WHERE k = {key}"));
    assert_eq!(of(&mut nodes, 2), of(&mut nodes, 3));
}
