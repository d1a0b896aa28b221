//! Statements that may be sent twice, and above all those that may not.

use crate::cql::statement::repeat::{Repeatable, repeatable};
use crate::cql::statement::{Bind, Cells, ColumnKind, Identifier, Setting};

/// Keyspace `ks` with table `t`; `ttl`, the same without counters but with a time to live; and `n`
/// with counters. Markers from the fourth on and `:unset` have no value.
#[derive(Debug)]
pub(super) struct Known([(&'static str, Cells); 3]);

impl Known {
    pub(super) fn new() -> Known {
        let types = "k int, v text, w int, f float, b blob, a int, c int, d int, e int, u frozen<u>, x udt, fl frozen<list<int>>, \
                     l list<int>, s set<int>, m map<text, int>, C int, vec vector<float, 2>, tuple tuple<list<int>>, \
                     classy 'org.apache.cassandra.db.marshal.ListType(x.Y)'";
        let columns = |types: &str| -> Vec<(String, ColumnKind)> {
            let split = types.split(", ").filter_map(|column| column.trim().split_once(' '));
            split.map(|(name, cql_type)| (name.to_owned(), ColumnKind::of(cql_type))).collect()
        };
        Known([
            ("t", Cells::new(columns(types), false)),
            ("ttl", Cells::new(columns(types), true)),
            ("n", Cells::new(columns("k int, c counter"), false)),
        ])
    }
}

impl Setting for Known {
    fn table(&self, keyspace: Option<&Identifier<'_>>, table: &Identifier<'_>) -> Option<&Cells> {
        let found = self.0.iter().find(|(name, _)| table.matches(name));
        found
            .filter(|_| keyspace.is_none_or(|keyspace| keyspace.matches("ks")))
            .map(|(_, cells)| cells)
    }

    fn has_value(&self, marker: &Bind<'_>) -> bool {
        marker.index < 3 && !marker.name.matches("unset")
    }
}

fn judge(text: &str) -> Repeatable {
    repeatable(text, &Known::new())
}

/// Executing any of these twice can differ from once, or they are not understood.
const DANGEROUS: &[&str] = &[
    // Counters.
    "UPDATE t SET c = c + 1 WHERE k = 1",
    "UPDATE t SET c = c - 1 WHERE k = 1",
    "UPDATE t SET c = c -1 WHERE k = 1",
    "UPDATE t SET c=c-1 WHERE k = 1",
    "UPDATE t SET c = c + ? WHERE k = ?",
    "UPDATE t SET c = c + :x WHERE k = ?",
    "UPDATE t SET c += 1 WHERE k = 1",
    "UPDATE t SET c -= ? WHERE k = 1",
    "UPDATE t SET C = \"c\" + 1 WHERE k = 1",
    "UPDATE t SET a = 1, c = c/**/+/**/1 WHERE k = 1",
    "UPDATE t SET c = c --\n + 1 WHERE k = 1",
    "UPDATE t SET c = (c) -1 WHERE k = 1",
    "BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 1; APPLY BATCH",
    "BEGIN COUNTER BATCH APPLY BATCH",
    // Lists.
    "UPDATE t SET l = l + [1] WHERE k = 1",
    "UPDATE t SET l = [1] + l WHERE k = 1",
    "UPDATE t SET l = ? + l WHERE k = 1",
    "UPDATE t SET l += [1] WHERE k = 1",
    "UPDATE t SET l += ? WHERE k = 1",
    "UPDATE t SET s = {1} + s WHERE k = 1",
    "UPDATE t SET l = [1, 2] WHERE k = 1",
    "UPDATE t SET l = ? WHERE k = ?",
    "UPDATE t SET l = :l WHERE k = ?",
    "UPDATE t SET v = 'a', l = [] WHERE k = 1",
    "UPDATE t SET \"l\" = [1] WHERE k = 1",
    "UPDATE t SET classy = [1] WHERE k = 1",
    "UPDATE t USING TIMESTAMP 7 SET l = ? WHERE k = 1",
    "INSERT INTO t (k, l) VALUES (1, [1, -2])",
    "INSERT INTO t (l, k) VALUES (?, ?)",
    "INSERT INTO ks.t (k, L) VALUES (:k, :l) USING TIMESTAMP 7",
    "UPDATE t SET l = l - [1] WHERE k = 1",
    "UPDATE t SET l[0] = 'x' WHERE k = 1",
    "UPDATE t SET l['0'] = 'x' WHERE k = 1",
    "UPDATE t SET v[0] = 'x' WHERE k = 1",
    "UPDATE t SET l[0] = null WHERE k = 1",
    "UPDATE t SET l[0] = ? WHERE k = 1",
    "UPDATE t SET l[?] = ? WHERE k = 1",
    "UPDATE t SET l[0] = (int) null WHERE k = 1",
    "UPDATE t SET l[0] = null + 1 WHERE k = 1",
    "DELETE l[0] FROM t WHERE k = 1",
    "DELETE l[?] FROM t WHERE k = 1",
    "DELETE a, l[:i] FROM t WHERE k = 1",
    "DELETE m['a'], l['b'] FROM t WHERE k = 1",
    // Possibly lists.
    "INSERT INTO t JSON '{\"k\": 1}'",
    "INSERT INTO t JSON ? DEFAULT UNSET USING TIMESTAMP 7",
    "INSERT INTO t (k, v) VALUES (1, fromJson('[1]'))",
    "INSERT INTO t (k, unknown) VALUES (1, 2)",
    "INSERT INTO t (k, \"Vv\") VALUES (1, 2)",
    "UPDATE t SET unknown = 1 WHERE k = 1",
    "DELETE unknown[1] FROM t WHERE k = 1",
    "INSERT INTO unknown (k) VALUES (1)",
    "INSERT INTO elsewhere.t (k) VALUES (1)",
    "UPDATE unknown SET v = 1 WHERE k = 1",
    "DELETE FROM unknown WHERE k = 1",
    // A table of counters.
    "UPDATE n SET c = c + 1 WHERE k = 1",
    "DELETE FROM n WHERE k = 1",
    "DELETE c FROM n WHERE k = 1",
    // A time to live starts when a node executes the write.
    "INSERT INTO t (k, v) VALUES (1, 'a') USING TTL 10",
    "INSERT INTO t (k, v) VALUES (1, 'a') USING TIMESTAMP 7 AND TTL ?",
    "UPDATE t USING TTL :t AND TIMESTAMP 7 SET v = 'a' WHERE k = 1",
    "INSERT INTO ttl (k, v) VALUES (1, 'a')",
    "UPDATE ttl SET v = 'a' WHERE k = 1",
    "BEGIN BATCH USING TTL 5 INSERT INTO t (k) VALUES (1); APPLY BATCH",
    // Functions.
    "INSERT INTO t (k, v) VALUES (1, now())",
    "INSERT INTO t (k, v) VALUES (uuid(), 1)",
    "INSERT INTO t (k, v) VALUES (1, [now()])",
    "INSERT INTO t (k, v) VALUES (1, {'a': {uuid()}})",
    "INSERT INTO t (k, v) VALUES (1, (now(), 1))",
    "INSERT INTO t (k, v) VALUES (1, (timeuuid) now())",
    "INSERT INTO t (k, v) VALUES (1, (f(1)) 1)",
    "INSERT INTO t (k, v) VALUES (1, ks.f ( 1 ))",
    "INSERT INTO t (k, v) VALUES (1, ks.\"F\"(1))",
    "INSERT INTO t (k, v) VALUES (1, \"now\"/**/())",
    "INSERT INTO t (k, v) VALUES (1, toTimestamp(now()))",
    "INSERT INTO t (k, v) VALUES (1, 1 + f(2))",
    "INSERT INTO t (k, v) VALUES (1, -f(2))",
    "INSERT INTO t (k, v) VALUES (1, null(2))",
    "UPDATE t SET v = currentTimestamp() WHERE k = 1",
    "UPDATE t SET s = s + {now()} WHERE k = 1",
    "UPDATE t SET m[now()] = 1 WHERE k = 1",
    "UPDATE t SET m['a'] = uuid() WHERE k = 1",
    "UPDATE t SET v = 1 WHERE k = now()",
    "UPDATE t SET v = 1 WHERE k IN (1, uuid())",
    "DELETE FROM t WHERE k = 1 AND c > maxTimeuuid('2020-01-01')",
    "DELETE m[uuid()] FROM t WHERE k = 1",
    // Lightweight transactions.
    "INSERT INTO t (k) VALUES (1) IF NOT EXISTS",
    "INSERT INTO t JSON '{}' IF NOT EXISTS",
    "UPDATE t SET v = 1 WHERE k = 1 IF EXISTS",
    "UPDATE t SET v = 1 WHERE k = 1 IF v = 2",
    "DELETE FROM t WHERE k = 1 if exists",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1) IF NOT EXISTS; APPLY BATCH",
    "UPDATE t SET v = 1 WHERE k = 2IF EXISTS",
    // A batch is as bad as its worst statement.
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); UPDATE t SET l = l + [1] WHERE k = 1; APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (uuid()); APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); UPDATE t SET l = [1] WHERE k = 1; APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k, l) VALUES (1, ?); INSERT INTO t (k) VALUES (1); APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); INSERT INTO unknown (k) VALUES (1); APPLY BATCH",
    // Not data, or not understood.
    "USE ks",
    "TRUNCATE t",
    "CREATE TABLE t (k int PRIMARY KEY)",
    "DROP TABLE t",
    "GRANT SELECT ON t TO r",
    "",
    "INSERT",
    "INSERT INTO t (a) VALUES (1",
    "INSERT INTO t (a) VALUES (b)",
    "INSERT INTO t (a, b) VALUES (1)",
    "INSERT INTO t JSON now()",
    "INSERT INTO t (a) VALUES ({(int) :x})",
    "UPDATE t SET a = b WHERE k = 1",
    "UPDATE t SET a = b + {1} WHERE k = 1",
    "UPDATE t SET a = 1",
    "UPDATE t SET a = 'x WHERE k = 1",
    "DELETE FROM t",
    "SELECT * FROM t; INSERT INTO t (k) VALUES (1)",
    "INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (2)",
    "INSERT INTO t (k) VALUES (1) /* IF NOT EXISTS",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1)",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); SELECT * FROM t; APPLY BATCH",
    "BEGIN TRANSACTION UPDATE t SET c += 1 WHERE k = 1; COMMIT TRANSACTION",
    "SELECT",
    "SELECT * FROM t WHERE a = 1 UNION",
];

/// Executing these twice with one timestamp equals executing them once.
const WITH_TIMESTAMP: &[&str] = &[
    "INSERT INTO t (k, v) VALUES (?, :v)",
    "INSERT INTO t (k, v) VALUES ('now()', $$uuid()$$)",
    "INSERT INTO t (k, fl, s, m, u) VALUES (1, [1, -2], {1, 2}, {'a': [1], 'b': []}, {x: 1, \"Y\": (1, 'a')})",
    "INSERT INTO ks.t (k, vec, tuple, fl) VALUES (1, [1, 2], ([1]), ?)",
    "INSERT INTO t (k, f) VALUES ((int) ?, -NaN)",
    "INSERT INTO t (k, b) VALUES (0xff, true)",
    "UPDATE t SET v = ?, w = null WHERE k = 1 AND c IN (1, 2) AND (d, e) > (?, ?)",
    "UPDATE t SET fl = [1] WHERE k = 1",
    "UPDATE t SET s = s + {1, 2} WHERE k = 1",
    "UPDATE t SET s = s + ? WHERE k = 1",
    "UPDATE t SET s = s - {'a'} WHERE k = 1",
    "UPDATE t SET m += {'a': ?} WHERE k = 1",
    "UPDATE t SET m['a'] = ? WHERE k = 1",
    "UPDATE t SET m[?] = null WHERE k = 1",
    "UPDATE t SET x.field = 1 WHERE k = 1",
    "UPDATE t SET \"C\" = 1, c = -1 WHERE k = 1",
    "DELETE FROM t WHERE k = 1 AND c > 5",
    "DELETE a, l, m['x'], s[1], x.f FROM t WHERE k = 1",
    "DELETE FROM ttl WHERE k = 1",
    "INSERT INTO ttl (k, v) VALUES (1, 'a') USING TTL 0",
    "BEGIN UNLOGGED BATCH INSERT INTO t (k) VALUES (1); DELETE FROM t WHERE k = 2; APPLY BATCH;",
    // Statements that could have an explicit timestamp, but where some or all writes have none.
    "INSERT INTO t (k, v, w) VALUES (?, ?, ?) USING TIMESTAMP ?",
    "UPDATE t USING TIMESTAMP :unset SET v = 'a' WHERE k = 1",
    "BEGIN BATCH USING TIMESTAMP :unset DELETE FROM t WHERE k = 1; APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1) USING TIMESTAMP 7; DELETE FROM t WHERE k = 2; APPLY BATCH",
];

const ALWAYS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT l, ttl(v) FROM unknown",
    "SELECT now(), f(a) FROM t WHERE a = f(1) AND token(b) > token(2) LIMIT 5;",
    "INSERT INTO t (k, v) VALUES (?, ?) USING TIMESTAMP ?",
    "INSERT INTO t (k, v) VALUES (?, ?) USING TIMESTAMP :when AND TTL 0",
    "INSERT INTO t (k) VALUES (1) USING TIMESTAMP 7",
    "UPDATE t USING TIMESTAMP -7 SET m['a'] = ? WHERE k = 1",
    "DELETE l FROM t USING TIMESTAMP ? WHERE k = 1",
    "BEGIN BATCH USING TIMESTAMP 7 INSERT INTO t (k) VALUES (1); DELETE FROM t WHERE k = 2; APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1) USING TIMESTAMP 7; DELETE FROM t USING TIMESTAMP ? WHERE k = 2; APPLY BATCH",
];

#[test]
fn dangerous_statements_are_never_repeated() {
    for text in DANGEROUS {
        assert_eq!(judge(text), Repeatable::Never, "{text}");
    }
}

#[test]
fn harmless_statements_are_repeated_with_a_timestamp() {
    for text in WITH_TIMESTAMP {
        assert_eq!(judge(text), Repeatable::WithTimestamp, "{text}");
    }
    for text in ALWAYS {
        assert_eq!(judge(text), Repeatable::Always, "{text}");
    }
}

#[test]
fn neither_case_nor_blanks_nor_comments_hide_the_danger() {
    for text in DANGEROUS {
        let spaced = text.replace(' ', " /* harmless */\n\t");
        for variant in [text.to_uppercase(), text.to_lowercase(), spaced, format!("-- x\n{text} ;")]
        {
            assert_eq!(judge(&variant), Repeatable::Never, "{variant}");
        }
    }
}
