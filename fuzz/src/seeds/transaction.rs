//! Seeds of transactions: every part of the grammar, and refused texts close to it.

use super::Add;

const TEXTS: [(&str, &str); 19] = [
    (
        "read",
        "BEGIN TRANSACTION SELECT * FROM ks.t WHERE k = ? AND c = 2 LIMIT 1; COMMIT TRANSACTION",
    ),
    (
        "write",
        "BEGIN TRANSACTION INSERT INTO t (k, c, v) VALUES (?, :c, {'a': [1]}); COMMIT TRANSACTION;",
    ),
    (
        "transfer",
        "BEGIN TRANSACTION LET sender = (SELECT balance FROM accounts WHERE id = ?); IF sender.balance >= ? THEN \
         UPDATE accounts SET balance = balance - ? WHERE id = ?; UPDATE accounts SET balance += ? WHERE id = ?; \
         END IF COMMIT TRANSACTION",
    ),
    (
        "rows",
        "BEGIN TRANSACTION LET a = (SELECT v, m FROM t WHERE k = 1 LIMIT ?); LET b = (SELECT * FROM u WHERE k = 1); \
         SELECT a.v, b.m['x'], b.u.f, a.m[?]; COMMIT TRANSACTION; APPLY BATCH;",
    ),
    (
        "conditions",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); IF a IS NOT NULL AND a.v IS NULL AND 3 < a.w AND a.x != ? \
         AND a.m[:k] <= 'z' AND a.u.f > now() AND (int) 4 = a.l[0] THEN DELETE FROM t WHERE k = 1; END IF COMMIT TRANSACTION",
    ),
    (
        "references",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); UPDATE t SET v = a.v, w += a.w, x -= ?, m['a'] = a.m[?], \
         u.f = a.\"F\", l = l + [?], n = n -3 WHERE k = 1; INSERT INTO t (k, v) VALUES (1, a.u.f); COMMIT TRANSACTION",
    ),
    (
        "deletes",
        "begin transaction delete v, m['a'], u.f from t where k = 0; -- one\n delete from t where k = 1; commit transaction",
    ),
    (
        "no_end_if",
        "BEGIN TRANSACTION IF a IS NULL THEN DELETE FROM t WHERE k = 0; COMMIT TRANSACTION",
    ),
    (
        "or",
        "BEGIN TRANSACTION IF a.v = 1 OR a.v = 2 THEN DELETE FROM t WHERE k = 0; END IF COMMIT TRANSACTION",
    ),
    (
        "arithmetic",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 0); UPDATE t SET v = a.v - 50 WHERE k = 0; COMMIT TRANSACTION",
    ),
    ("unknown_row", "BEGIN TRANSACTION UPDATE t SET v = a.v WHERE k = 0; COMMIT TRANSACTION"),
    ("nested", "BEGIN TRANSACTION BEGIN TRANSACTION COMMIT TRANSACTION COMMIT TRANSACTION"),
    (
        "lwt",
        "BEGIN TRANSACTION INSERT INTO t (k) VALUES (0) IF NOT EXISTS USING TTL 3; COMMIT TRANSACTION",
    ),
    ("mode", "ALTER TABLE IF EXISTS ks.t WITH transactional_mode = 'mixed_reads'"),
    ("mode_and_more", "ALTER TABLE t WITH transactional_mode = 'full' AND comment = ''"),
    ("batch", "BEGIN BATCH INSERT INTO t (k) VALUES (0); APPLY BATCH"),
    ("guard", "UPDATE t SET v = ? WHERE k = :k IF \"shunt:lock\" = ? AND \"shunt:fence\" = :f;"),
    (
        "fast_guard",
        "DELETE v FROM t WHERE k = 1 IF \"shunt:fence\" = -7 AND \"shunt:fast_lock\" = 'a'",
    ),
    (
        "guarded_batch",
        "BEGIN BATCH UPDATE t SET v = 1 WHERE k = ? IF \"shunt:lock\" = ? AND \"shunt:fence\" = 7 INSERT INTO t (k) VALUES (?); \
         DELETE FROM t WHERE k = 0 IF \"shunt:lock\" = 'a' AND \"shunt:fence\" = ? APPLY BATCH",
    ),
];

/// Texts, including one with the most statements allowed.
pub(super) fn transaction(add: Add<'_>) {
    for (name, text) in TEXTS {
        add("transaction", name, text.as_bytes().to_vec());
    }
    let lets: String =
        (0..49).map(|row| format!("LET r{row}=(SELECT * FROM t WHERE k=?);")).collect();
    let writes: String =
        (0..51).map(|row| format!("UPDATE t SET v=r{}.v WHERE k=?;", row % 49)).collect();
    add(
        "transaction",
        "most",
        format!("BEGIN TRANSACTION {lets}{writes} COMMIT TRANSACTION").into_bytes(),
    );
}
