//! Transactions, on the tables of `tests/drivers/fleet.py`. The driver shows no custom payloads of
//! answers.

use scylla::errors::{DbError, PrepareError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::CqlValue;

use crate::client::{Client, in_every_setup, rows, said};

const TRANSFER: &str = "BEGIN TRANSACTION
  LET payer = (SELECT balance, owner FROM driver_transactions.accounts WHERE id = ?);
  SELECT payer.balance, payer.owner;
  IF payer.balance >= ? THEN
    UPDATE driver_transactions.accounts SET balance -= ? WHERE id = ?;
    UPDATE driver_transactions.accounts SET balance = balance + ? WHERE id = ?;
    INSERT INTO driver_transactions.moves (account, number, amount) VALUES (?, ?, ?);
  END IF
COMMIT TRANSACTION";
const OF_MOVES: &str = "SELECT number, amount FROM driver_transactions.moves WHERE account = ?";

fn transaction(body: &str) -> String {
    format!("BEGIN TRANSACTION {body} COMMIT TRANSACTION")
}

/// Columns with their types.
fn columns(result: QueryResult) -> Vec<String> {
    let rows = result.into_rows_result().expect("rows");
    rows.column_specs()
        .iter()
        .map(|column| format!("{} {:?}", column.name(), column.typ()))
        .collect()
}

impl Client {
    async fn run(&self, text: &str, values: impl SerializeRow) -> QueryResult {
        self.session
            .query_unpaged(text, values)
            .await
            .unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    /// Two accounts with a balance of 10.
    async fn accounts(&self, how: &str) -> (String, String) {
        let accounts = (format!("{}-{how}", self.name), format!("{}-{how}-payee", self.name));
        for id in [&accounts.0, &accounts.1] {
            let insert = "INSERT INTO driver_transactions.accounts (id, balance, owner) VALUES (?, 10, 'ann');";
            assert!(
                !self.run(&transaction(insert), (id,)).await.is_rows(),
                "what only writes answers no rows"
            );
        }
        accounts
    }

    async fn balances(&self, accounts: &(String, String)) -> Vec<Option<i32>> {
        let look = "SELECT balance FROM driver_transactions.accounts WHERE id IN (?, ?)";
        let found = rows(self.run(look, accounts).await);
        let mut balances: Vec<_> = found.iter().map(|row| row["balance"].as_int()).collect();
        balances.sort();
        balances
    }
}

#[test]
fn a_transaction_is_carried_out_and_one_whose_condition_does_not_hold_is_not() {
    in_every_setup(async |c| {
        let prepared = c.session.prepare(TRANSFER).await.expect("PREPARE");
        for how in ["prepared by hand", "text with values", "text"] {
            let accounts = c.accounts(how).await;
            let (payer, payee) = &accounts;
            for (number, amount, before) in [(1_i64, 3, 10), (2, 8, 7)] {
                let values = (payer, amount, amount, payer, amount, payee, payer, number, amount);
                let ask = async || match how {
                    "prepared by hand" => {
                        c.session.execute_unpaged(&prepared, values).await.expect("EXECUTE")
                    }
                    // The driver prepares it.
                    "text with values" => c.run(TRANSFER, values).await,
                    _ => {
                        let texts =
                            [payer, "", "", payer, "", payee, payer].map(|text| match text {
                                "" => amount.to_string(),
                                text => format!("'{text}'"),
                            });
                        let values =
                            texts.into_iter().chain([number.to_string(), amount.to_string()]);
                        let text = values
                            .fold(TRANSFER.to_owned(), |text, value| text.replacen('?', &value, 1));
                        c.run(&text, ()).await
                    }
                };
                let found = ask().await;
                let row = &rows(found)[0];
                let shown = (
                    row["payer.balance"].as_int(),
                    row["payer.owner"].as_text().map(String::as_str),
                );
                assert_eq!(shown, (Some(before), Some("ann")), "{how}");
            }
            assert_eq!(c.balances(&accounts).await, [Some(7), Some(13)], "{how}");
            for text in [OF_MOVES, &transaction(&format!("{OF_MOVES};"))] {
                let moves = rows(c.run(text, (payer,)).await);
                assert_eq!(moves.len(), 1, "{how}: {moves:?}");
                assert_eq!(
                    (&moves[0]["number"], &moves[0]["amount"]),
                    (&CqlValue::BigInt(1), &CqlValue::Int(3))
                );
            }
        }
    });
}

#[test]
fn names_and_types_of_markers_and_columns() {
    in_every_setup(async |c| {
        let prepared = c.session.prepare(TRANSFER).await.expect("PREPARE");
        let markers = prepared.get_variable_col_specs().iter();
        let markers: Vec<_> =
            markers.map(|marker| format!("{} {:?}", marker.name(), marker.typ())).collect();
        let of = |name: &str, kind: &str| format!("{name} Native({kind})");
        let (id, balance) = (of("id", "Text"), of("balance", "Int"));
        let more = [of("account", "Text"), of("number", "BigInt"), of("amount", "Int")];
        let wanted = [&id, &balance, &balance, &id, &balance, &id, &more[0], &more[1], &more[2]];
        assert_eq!(markers.iter().collect::<Vec<_>>(), wanted);
        let (payer, _) = c.accounts("names").await;
        let values = (&payer, 11, 11, &payer, 11, &payer, &payer, 1_i64, 11);
        let wanted = [of("payer.balance", "Int"), of("payer.owner", "Text")];
        assert_eq!(
            columns(c.session.execute_unpaged(&prepared, values).await.expect("EXECUTE")),
            wanted
        );
        let select = transaction(&format!("{OF_MOVES};"));
        assert_eq!(
            columns(c.run(&select, (&payer,)).await),
            [of("number", "BigInt"), of("amount", "Int")]
        );
        // What is bound has to be of the types that PREPARE has said.
        assert!(
            c.session
                .execute_unpaged(&prepared, ("x", "y", 1, "x", 1, "x", "x", 1_i64, 1))
                .await
                .is_err()
        );
    });
}

#[test]
fn an_unsupported_transaction_is_a_driver_error() {
    in_every_setup(async |c| {
        for (body, kind) in [
            (
                "INSERT INTO driver_transactions.accounts (id) VALUES ('x') IF NOT EXISTS;",
                DbError::Invalid,
            ),
            (
                "INSERT INTO driver_transactions.accounts (id, nothing) VALUES ('x', 2);",
                DbError::Invalid,
            ),
            ("INSERT INTO driver_transactions.plain (id, v) VALUES ('x', 2);", DbError::Invalid),
            (
                "UPDATE driver_transactions.accounts SET balance = 1 WHERE id = 'x'",
                DbError::SyntaxError,
            ),
            (
                "LET a = (SELECT v FROM t WHERE k = 1); LET b = a.v; SELECT b.v;",
                DbError::SyntaxError,
            ),
        ] {
            let text = transaction(body);
            let error = c.session.query_unpaged(text.as_str(), ()).await.expect_err(body);
            assert_eq!(said(&error), Some(&kind), "{body}: {error}");
            let error = c.session.prepare(text).await.expect_err(body);
            let PrepareError::AllAttemptsFailed {
                first_attempt: RequestAttemptError::DbError(found, _),
            } = &error
            else {
                panic!("{body}: {error}");
            };
            assert_eq!(found, &kind, "{body}");
        }
        assert_eq!(c.balances(&c.accounts("after errors").await).await, [Some(10), Some(10)]);
    });
}

#[test]
fn statements_as_they_are_on_a_table_whose_mode_is_full() {
    in_every_setup(async |c| {
        let insert = "INSERT INTO driver_transactions.counted (k, v) VALUES (?, ?)";
        c.run(insert, (&c.name, 5)).await;
        c.run("UPDATE driver_transactions.counted SET v = ? WHERE k = ?", (7, &c.name)).await;
        // Only a transaction adds to a column that is no counter: that nodes do not shows that it
        // was one.
        c.run(
            &format!("UPDATE driver_transactions.counted SET v = v + 1 WHERE k = '{}'", c.name),
            (),
        )
        .await;
        let mut batch = Batch::new(BatchType::Logged);
        let (a, b) = (format!("{}-a", c.name), format!("{}-b", c.name));
        for _ in 0..2 {
            batch.append_statement(c.session.prepare(insert).await.expect("PREPARE"));
        }
        c.session.batch(&batch, ((&a, 1), (&b, 2))).await.expect("batch");
        for (key, value) in [(&c.name, 8), (&a, 1), (&b, 2)] {
            let found =
                rows(c.run("SELECT v FROM driver_transactions.counted WHERE k = ?", (key,)).await);
            assert_eq!(found[0]["v"].as_int(), Some(value), "{key}");
        }
        let error = c.session.query_unpaged(
            "UPDATE driver_transactions.counted USING TIMESTAMP 5 SET v = ? WHERE k = ?",
            (1, &c.name),
        );
        let error = error.await.expect_err("a timestamp of the client's");
        assert_eq!(said(&error), Some(&DbError::Invalid), "{error}");
    });
}
