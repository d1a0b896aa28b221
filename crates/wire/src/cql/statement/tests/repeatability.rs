//! What may be sent twice, and above all what may not.

use crate::cql::statement::classify;

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
    "UPDATE t SET l[0] = null WHERE k = 1",
    "UPDATE t SET l[0] = ? WHERE k = 1",
    "UPDATE t SET l[?] = ? WHERE k = 1",
    "UPDATE t SET l[0] = (int) null WHERE k = 1",
    "UPDATE t SET l[0] = null + 1 WHERE k = 1",
    "DELETE l[0] FROM t WHERE k = 1",
    "DELETE l[?] FROM t WHERE k = 1",
    "DELETE a, l[:i] FROM t WHERE k = 1",
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
    // Batches are as bad as their worst statement.
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); UPDATE t SET l = l + [1] WHERE k = 1; APPLY BATCH",
    "BEGIN BATCH INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (uuid()); APPLY BATCH",
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

const HARMLESS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT now(), f(a) FROM t WHERE a = f(1) AND token(b) > token(2) LIMIT 5;",
    "INSERT INTO t (k, v) VALUES (?, :v) USING TTL 5 AND TIMESTAMP ?",
    "INSERT INTO t (k, v) VALUES ('now()', $$uuid()$$)",
    "INSERT INTO t (k, l, s, m, u) VALUES (1, [1, -2], {1, 2}, {'a': [1], 'b': []}, {x: 1, \"Y\": (1, 'a')})",
    "INSERT INTO t (k, f) VALUES ((int) ?, -NaN)",
    "INSERT INTO t (k, b) VALUES (0xff, true)",
    "INSERT INTO t JSON '{\"k\": 1}' DEFAULT NULL",
    "UPDATE t SET v = ?, w = null WHERE k = 1 AND c IN (1, 2) AND (d, e) > (?, ?)",
    "UPDATE t SET s = s + {1, 2} WHERE k = 1",
    "UPDATE t SET s = s - {'a'} WHERE k = 1",
    "UPDATE t SET m += {'a': ?} WHERE k = 1",
    "UPDATE t SET m['a'] = ? WHERE k = 1",
    "UPDATE t SET l[0] = 'x' WHERE k = 1",
    "UPDATE t SET u.field = 1 WHERE k = 1",
    "UPDATE t SET \"C\" = 1, c = -1 WHERE k = 1",
    "DELETE FROM t WHERE k = 1 AND c > 5",
    "DELETE a, m['x'], u.f FROM t WHERE k = 1",
    "BEGIN UNLOGGED BATCH INSERT INTO t (k) VALUES (1); DELETE FROM t WHERE k = 2; APPLY BATCH;",
];

#[test]
fn dangerous_statements_are_never_repeated() {
    for text in DANGEROUS {
        assert!(!classify(text).idempotent, "{text}");
    }
}

#[test]
fn harmless_statements_may_be_repeated() {
    for text in HARMLESS {
        assert!(classify(text).idempotent, "{text}");
    }
}

#[test]
fn neither_case_nor_blanks_nor_comments_hide_the_danger() {
    for text in DANGEROUS {
        let spaced = text.replace(' ', " /* harmless */\n\t");
        for variant in [text.to_uppercase(), text.to_lowercase(), spaced, format!("-- x\n{text} ;")] {
            assert!(!classify(&variant).idempotent, "{variant}");
        }
    }
}
