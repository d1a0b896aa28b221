//! Transactions of every form in Cassandra's documents and tests.

use super::{check_standalone, transaction};
use crate::transaction::Returned;

/// The rows read; the result: `rows`, values of rows (`n values`) or nothing; numbers of
/// conditions, writes and markers; and the text.
type Case = (&'static [&'static str], &'static str, usize, usize, usize, &'static str);

const TRANSACTIONS: &[Case] = &[
    (&[], "rows", 0, 0, 0, "BEGIN TRANSACTION SELECT * FROM ks.t WHERE k = 1 AND c = 2; COMMIT TRANSACTION"),
    (&[], "", 0, 1, 3, "BEGIN TRANSACTION INSERT INTO t (k, c, v) VALUES (?, ?, ?); COMMIT TRANSACTION;"),
    (&[], "rows", 0, 1, 0, "begin transaction select a from t where k=0; delete from t where k=0; commit transaction"),
    (
        &["sender", "receiver"],
        "",
        1,
        2,
        6,
        "BEGIN TRANSACTION
           LET sender = (SELECT balance FROM accounts WHERE id = ?);
           LET receiver = (SELECT balance FROM accounts WHERE id = ?);
           IF sender.balance >= 100 THEN
             UPDATE accounts SET balance = balance - ? WHERE id = ?;
             UPDATE accounts SET balance = balance + ? WHERE id = ?;
           END IF
         COMMIT TRANSACTION",
    ),
    (
        &["user_data", "account_data"],
        "",
        2,
        1,
        3,
        "BEGIN TRANSACTION
           LET user_data = (SELECT id, balance FROM users WHERE id = ?);
           LET account_data = (SELECT account_type FROM accounts WHERE user_id = ?);
           IF user_data.balance > 100 AND account_data.account_type = 'premium' THEN
             UPDATE users SET balance = balance - 50 WHERE id = ?;
           END IF
         COMMIT TRANSACTION",
    ),
    (
        &["current_user"],
        "2 values",
        0,
        1,
        2,
        "BEGIN TRANSACTION
           LET current_user = (SELECT balance, status FROM users WHERE id = ?);
           -- Values of the row, which come before the update.
           SELECT current_user.balance, current_user.status;
           UPDATE users SET balance = balance - 50 WHERE id = ?;
         COMMIT TRANSACTION",
    ),
    (
        &["taken"],
        "",
        1,
        3,
        7,
        "BEGIN TRANSACTION
           LET taken = (SELECT user_id FROM email_index WHERE email = ? LIMIT 1);
           IF taken IS NULL THEN
             INSERT INTO users (id, email, created_at, status) VALUES (?, ?, toTimestamp(now()), 'active');
             INSERT INTO email_index (email, user_id) VALUES (?, ?);
             INSERT INTO user_profiles (user_id, display_name) VALUES (?, ?);
           END IF
         COMMIT TRANSACTION",
    ),
    (
        &["one", "name_owner"],
        "",
        3,
        3,
        8,
        "BEGIN TRANSACTION
           LET one = (SELECT username FROM users WHERE user_id = ?);
           LET name_owner = (SELECT user_id FROM username_index WHERE username = ? LIMIT 1);
           IF one IS NOT NULL
              AND one.username = ?  -- as it was
              AND name_owner IS NULL THEN
             UPDATE users SET username = ? WHERE user_id = ?;  -- as it will be
             DELETE FROM username_index WHERE username = ?;
             INSERT INTO username_index (username, user_id) VALUES (?, ?);
           END IF
         COMMIT TRANSACTION",
    ),
    (
        &["current_order"],
        "",
        2,
        2,
        4,
        "BEGIN TRANSACTION
           LET current_order = (SELECT status_code, customer_id FROM orders WHERE order_id = ?);
           IF current_order IS NOT NULL AND current_order.status_code <= 20 THEN
             UPDATE orders SET status_code = 99, updated_at = toTimestamp(now()) WHERE order_id = ?;
             INSERT INTO history (order_id, at, from_status, to_status, actor_id)
             VALUES (?, toTimestamp(now()), current_order.status_code, 99, ?);
           END IF
         COMMIT TRANSACTION",
    ),
    (
        &["row0", "row1"],
        "3 values",
        6,
        6,
        3,
        "BEGIN TRANSACTION
           LET row0 = (SELECT * FROM ks.t WHERE k = 0 AND c = 0);
           LET row1 = (SELECT m, l, u, v FROM ks.t WHERE k = 1 LIMIT 1);
           SELECT row0.v, row1.m['a'], row1.u.f;
           IF 3 < row0.v AND row1.m[?] != 4 AND row1.l[0] = ? AND row1.u.f IS NOT NULL AND :n >= row0.\"V\"
              AND (int) 4 = row1.v THEN
             UPDATE ks.t SET v = row0.v WHERE k = 1 AND c = 2;
             UPDATE ks.t SET v += row0.v, w -= row1.v WHERE k = 1 AND c = 2;
             UPDATE ks.t SET m['b'] = row0.v, u.f = row1.u.f WHERE k = 1 AND c = 2;
             UPDATE ks.t SET l = l + [1], s = s - {'a'}, n = [2] + n, i = i -3 WHERE k = 1 AND c = 2;
             INSERT INTO ks.t (k, c, v, w) VALUES (1, 2, row0.v, row1.m['c']);
             DELETE v, m['a'], u.f FROM ks.t WHERE k = 1 AND c = 2;
           END IF
         COMMIT TRANSACTION",
    ),
    (&[], "", 0, 1, 0, "BEGIN TRANSACTION DELETE FROM t WHERE k = 0; COMMIT TRANSACTION; APPLY BATCH;"),
    (&[], "", 0, 1, 0, "BEGIN TRANSACTION DELETE FROM t WHERE k = 0; COMMIT TRANSACTION APPLY BATCH"),
    (
        &["a"],
        "1 values",
        0,
        0,
        0,
        "BEGIN TRANSACTION LET A = (SELECT V FROM t WHERE k = 0); SELECT a.v; COMMIT TRANSACTION",
    ),
    (&[], "rows", 0, 0, 0, "BEGIN TRANSACTION SELECT u.f, m['from'] FROM t WHERE k = ';'; COMMIT TRANSACTION"),
    (
        &["a"],
        "1 values",
        0,
        0,
        0,
        "BEGIN TRANSACTION LET a = (SELECT \"from\" FROM t WHERE k = 0); SELECT a.\"from\"; COMMIT TRANSACTION",
    ),
];

#[test]
fn transactions_as_documents_and_tests_show_them() {
    for (rows, returned, conditions, mutations, markers, text) in TRANSACTIONS {
        let found = transaction(text);
        assert_eq!(found.lets, *rows, "{text}");
        let shown = match &found.returned {
            Returned::Nothing => String::new(),
            Returned::Select => "rows".to_owned(),
            Returned::References(references) => format!("{} values", references.len()),
        };
        assert_eq!(shown, *returned, "{text}");
        let counts = (found.conditions.len(), found.mutations().len(), found.markers.len());
        assert_eq!(counts, (*conditions, *mutations, *markers), "{text}");
        check_standalone(&found, text);
    }
}

#[test]
fn single_statements_have_no_transaction_syntax() {
    for text in [
        "BEGIN TRANSACTION DELETE FROM t WHERE k = 0; COMMIT TRANSACTION",
        "SELECT row1.v, row2.v",
        "UPDATE t SET v = row2.v WHERE k = 1",
        "INSERT INTO t (k, v) VALUES (1, row2.v)",
        "BEGIN BATCH UPDATE t SET v = row2.v WHERE k = 1 APPLY BATCH",
    ] {
        assert!(crate::parse(text).is_err(), "{text}");
    }
}
