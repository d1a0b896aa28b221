//! Texts that are not transactions or invalid ones, and their messages.

use crate::error::Refusal;
use crate::transaction::parse;

/// `S` for text that is not a transaction, `I` for an invalid one; the message; the text.
const REFUSED: &[(char, &str, &str)] = &[
    (
        'S',
        "line 1:6 mismatched input 'BATCH' expecting K_TRANSACTION (BEGIN [BATCH]...)",
        "BEGIN BATCH APPLY BATCH",
    ),
    ('S', "line 0:-1 no viable alternative at input '<EOF>'", "BEGIN TRANSACTION"),
    ('I', "Transaction contains no reads or writes", "BEGIN TRANSACTION COMMIT TRANSACTION"),
    (
        'I',
        "Transaction contains no reads or writes",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); COMMIT TRANSACTION",
    ),
    // IF and END IF.
    (
        'S',
        "mismatched input 'COMMIT' expecting K_END",
        "BEGIN TRANSACTION IF a IS NULL THEN UPDATE t SET v = 1 WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "mismatched input 'END' expecting K_COMMIT",
        "BEGIN TRANSACTION UPDATE t SET v = 1 WHERE k = 1; END IF COMMIT TRANSACTION",
    ),
    (
        'S',
        "IF at [1:19]: line 1:34 no viable alternative at input 'OR'",
        "BEGIN TRANSACTION IF a.v = 'PAID' OR a.v = 'SENT' THEN UPDATE t SET v = 1 WHERE k = 1; END IF COMMIT TRANSACTION",
    ),
    (
        'S',
        "IF at [1:19]: line 1:25 no viable alternative at input 'IN'",
        "BEGIN TRANSACTION IF a.v IN (1, 2) THEN UPDATE t SET v = 1 WHERE k = 1; END IF COMMIT TRANSACTION",
    ),
    (
        'S',
        "IF at [1:19]: line 1:27 no viable alternative at input 'b'",
        "BEGIN TRANSACTION IF a.v < b.v THEN UPDATE t SET v = 1 WHERE k = 1; END IF COMMIT TRANSACTION",
    ),
    (
        'S',
        "IF at [1:19]: line 1:25 no viable alternative at input '+'",
        "BEGIN TRANSACTION IF (1) + a.v THEN UPDATE t SET v = 1 WHERE k = 1; END IF COMMIT TRANSACTION",
    ),
    (
        'I',
        "IF at [1:73]: there is no INSERT, UPDATE or DELETE that depends on it",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); SELECT a.v; IF a.v = 1 THEN END IF COMMIT TRANSACTION",
    ),
    (
        'I',
        "IF at [1:61]: Row reference (a) can only be used with IS NULL/IS NOT NULL conditions",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); IF a = 1 THEN DELETE FROM t WHERE k = 1; END IF \
         COMMIT TRANSACTION",
    ),
    (
        'I',
        "IF at [1:61]: Row reference (a) can only be used with IS NULL/IS NOT NULL conditions",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); IF 1 = a THEN DELETE FROM t WHERE k = 1; END IF \
         COMMIT TRANSACTION",
    ),
    // LET.
    (
        'I',
        "LET a at [3:12]: The name 'a' has already been used by a LET assignment.",
        "BEGIN TRANSACTION\n  LET a = (SELECT * FROM t WHERE k = 1);\n  LET A = (SELECT * FROM t WHERE k = 1); SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "LET at [1:19]: line 1:22 'user' is a keyword and cannot be the name of a row",
        "BEGIN TRANSACTION LET user = (SELECT * FROM t WHERE k = 1); SELECT user.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "LET at [1:19]: line 1:22 'then' is a keyword and cannot be the name of a row",
        "BEGIN TRANSACTION LET then = (SELECT * FROM t WHERE k = 1); SELECT then.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "LET at [1:19]: line 1:22 no viable alternative at input 'limit'",
        "BEGIN TRANSACTION LET limit = (SELECT * FROM t WHERE k = 1); SELECT limit.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "LET at [1:19]: line 1:22 no viable alternative at input 'A'",
        "BEGIN TRANSACTION LET \"A\" = (SELECT * FROM t WHERE k = 1); SELECT \"A\".v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "LET b at [1:58]: line 1:65 mismatched input 'a' expecting '('",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = ?); LET b = a.v - 50; SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "LET a at [1:28]: line 1:42 mismatched input ')' expecting K_WHERE",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t); SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "the SELECT of a LET has no ORDER BY",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1 ORDER BY c LIMIT 1); SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "the SELECT of a LET has no GROUP BY",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1 GROUP BY c LIMIT 1); SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "the SELECT of a LET has no JSON",
        "BEGIN TRANSACTION LET a = (SELECT JSON v FROM t WHERE k = 1); SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "the SELECT of a LET has no DISTINCT",
        "BEGIN TRANSACTION LET a = (SELECT DISTINCT k FROM t WHERE k = 1); SELECT a.k; COMMIT TRANSACTION",
    ),
    (
        'S',
        "the SELECT of a LET has no AS",
        "BEGIN TRANSACTION LET a = (SELECT v AS w FROM t WHERE k = 1); SELECT a.w; COMMIT TRANSACTION",
    ),
    (
        'S',
        "the SELECT of a LET has no ALLOW FILTERING",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1 ALLOW FILTERING); SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'I',
        "LET a at [1:28]: No aggregation functions allowed within a transaction",
        "BEGIN TRANSACTION LET a = (SELECT count(v) FROM t WHERE k = 1); SELECT a.count; COMMIT TRANSACTION",
    ),
    // Results.
    (
        'I',
        "SELECT at [1:19]: No aggregation functions allowed within a transaction",
        "BEGIN TRANSACTION SELECT k, cast(system.max(v) + 1 AS text) FROM t WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "SELECT at [1:19]: No aggregation functions allowed within a transaction",
        "BEGIN TRANSACTION SELECT COUNT(*) FROM t WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "SELECT at [2:3]: No ORDER BY clause allowed within a transaction",
        "BEGIN TRANSACTION\n  SELECT * FROM t WHERE k = 0 ORDER BY v ANN OF [42] LIMIT 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "SELECT at [2:3]: No GROUP BY clause allowed within a transaction",
        "BEGIN TRANSACTION\n  SELECT * FROM t WHERE k = 0 GROUP BY c LIMIT 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "a at [1:65]: SELECT references must specify a column.",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); SELECT a; COMMIT TRANSACTION",
    ),
    (
        'S',
        "SELECT at [1:58]: line 1:68 no viable alternative at input '-'",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); SELECT a.v - 50; COMMIT TRANSACTION",
    ),
    (
        'S',
        "no viable alternative at input 'SELECT'",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); SELECT v FROM t WHERE k = 2; SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "no viable alternative at input 'SELECT'",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); DELETE FROM t WHERE k = 1; SELECT a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "line 1:86 a reference goes to an element or field of a column, and no deeper",
        "BEGIN TRANSACTION LET a = (SELECT u FROM t WHERE k = 1); SELECT a.u.f, a.u['x'], a.u.f.g; COMMIT TRANSACTION",
    ),
    (
        'S',
        "mismatched input '..' expecting ']'",
        "BEGIN TRANSACTION LET a = (SELECT m FROM t WHERE k = 1); SELECT a.m['a'..'b']; COMMIT TRANSACTION",
    ),
    // Writes.
    (
        'I',
        "INSERT at [2:3]: Updates within transactions may not specify their own conditions",
        "BEGIN TRANSACTION\n  INSERT INTO t (k, v) VALUES (0, 1) IF NOT EXISTS; COMMIT TRANSACTION",
    ),
    (
        'I',
        "DELETE at [1:53]: Updates within transactions may not specify their own conditions",
        "BEGIN TRANSACTION UPDATE t SET v = 1 WHERE k = 0;   DELETE FROM t WHERE k = 0 IF EXISTS; COMMIT TRANSACTION",
    ),
    (
        'I',
        "INSERT at [2:3]: Updates within transactions may not specify custom timestamps",
        "BEGIN TRANSACTION\n  INSERT INTO t (k, v) VALUES (0, 1) USING TIMESTAMP 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "UPDATE at [1:19]: Updates within transactions may not specify custom ttls",
        "BEGIN TRANSACTION UPDATE t USING TTL ? SET v = 1 WHERE k = 0; COMMIT TRANSACTION",
    ),
    (
        'I',
        "INSERT at [1:19]: INSERT JSON is not taken in a transaction: name the columns, so that its key can be known before \
         it is written",
        "BEGIN TRANSACTION INSERT INTO t JSON ?; COMMIT TRANSACTION",
    ),
    (
        'S',
        "UPDATE at [1:19]: Only expressions of the form X = X +<value> are supported.",
        "BEGIN TRANSACTION UPDATE t SET v = q + 1 WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "UPDATE at [1:57]: line 1:77 no viable alternative at input '+'",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1);UPDATE t SET v = a.v + 1 WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "UPDATE at [1:57]: line 1:76 no viable alternative at input '-1'",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1);UPDATE t SET v = a.v-1 WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "no viable alternative at input 'a'",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); UPDATE t SET v = v + a.v WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "no viable alternative at input 'a'",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); UPDATE t SET v = [a.v] WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "no viable alternative at input 'a'",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); UPDATE t SET v = 1 WHERE k = a.v; COMMIT TRANSACTION",
    ),
    (
        'S',
        "UPDATE at [1:58]: Normal and reference operations for m",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); UPDATE t SET m[1] = a.v, m[2] = 1 WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "UPDATE at [1:19]: Multiple incompatible setting of column v",
        "BEGIN TRANSACTION UPDATE t SET v = 1, v = 2 WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'S',
        "mismatched input 'DELETE' expecting ';'",
        "BEGIN TRANSACTION DELETE FROM t WHERE k = 1 DELETE FROM t WHERE k = 2; COMMIT TRANSACTION",
    ),
    (
        'S',
        "no viable alternative at input 'TRUNCATE'",
        "BEGIN TRANSACTION TRUNCATE t; COMMIT TRANSACTION",
    ),
    (
        'S',
        "mismatched input 'SELECT' expecting EOF",
        "BEGIN TRANSACTION DELETE FROM t WHERE k = 1; COMMIT TRANSACTION; SELECT * FROM t",
    ),
    // References.
    (
        'I',
        "a.v at [1:36]: Cannot resolve reference to tuple 'a'.",
        "BEGIN TRANSACTION UPDATE t SET v = a.v WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "b at [1:36]: Cannot resolve reference to tuple 'b'.",
        "BEGIN TRANSACTION UPDATE t SET v = b WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "b.v at [1:75]: Cannot resolve reference to tuple 'b'.",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); IF a.v = 1 AND   b.v = 2 THEN DELETE FROM t WHERE k = 1; END IF \
         COMMIT TRANSACTION",
    ),
    (
        'I',
        "a.q at [1:75]: Column 'q' does not exist in tuple 'a'.",
        "BEGIN TRANSACTION LET a = (SELECT v FROM t WHERE k = 1); UPDATE t SET v = a.q WHERE k = 1; COMMIT TRANSACTION",
    ),
    (
        'I',
        "a at [1:75]: substitution references must reference a column (a)",
        "BEGIN TRANSACTION LET a = (SELECT * FROM t WHERE k = 1); UPDATE t SET v = a WHERE k = 1; COMMIT TRANSACTION",
    ),
    // Errors of the lexer belong to no part.
    (
        'S',
        "line 0:-1 mismatched input '<EOF>' expecting ';'",
        "BEGIN TRANSACTION DELETE FROM t WHERE k = 1",
    ),
    (
        'S',
        "mismatched character '<EOF>' expecting '''",
        "BEGIN TRANSACTION DELETE FROM t WHERE k = '1",
    ),
];

#[test]
fn errors_say_what_and_where() {
    let mut wrong = Vec::new();
    for (kind, message, text) in REFUSED {
        let error = parse(text).expect_err(text);
        let found = if matches!(error, Refusal::Syntax(_)) { 'S' } else { 'I' };
        if found != *kind || !error.message().contains(message) {
            wrong.push(format!("{text}\n  {found} {error}\n  {kind} {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
