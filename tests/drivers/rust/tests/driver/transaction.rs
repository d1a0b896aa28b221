//! Conditional statements.

use drivers_rust::{Scenario, in_every_setup};
use futures::future::join_all;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError, WriteType};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

const INSERT: &str = "INSERT INTO items (key, number) VALUES (?, ?) IF NOT EXISTS";

/// Runs an INSERT .. IF NOT EXISTS. Returns true if it was applied, and the number of the row that
/// was there.
async fn insert(s: &Scenario, number: i32) -> (bool, Option<i32>) {
    try_insert(s, number).await.unwrap()
}

async fn try_insert(s: &Scenario, number: i32) -> Result<(bool, Option<i32>), ExecutionError> {
    let insert = s.session.prepare(INSERT).await.unwrap();
    let rows =
        s.session.execute_unpaged(&insert, (&s.key, number)).await?.into_rows_result().unwrap();
    if rows.column_specs().len() == 1 {
        return Ok((rows.single_row::<(bool,)>().unwrap().0, None));
    }
    let (applied, _key, _note, number) =
        rows.single_row::<(bool, Option<String>, Option<String>, Option<i32>)>().unwrap();
    Ok((applied, number))
}

/// Column `number` as read at consistency SERIAL.
async fn stored(s: &Scenario) -> i32 {
    let mut select = Statement::new("SELECT number FROM items WHERE key = ?");
    select.set_consistency(Consistency::Serial);
    let rows =
        s.session.query_unpaged(select, (&s.key,)).await.unwrap().into_rows_result().unwrap();
    rows.single_row::<(i32,)>().unwrap().0
}

#[test]
fn insert_if_not_exists_applies_once_and_then_shows_the_existing_row() {
    in_every_setup(async |s| {
        assert_eq!(insert(s, 1).await, (true, None));
        assert_eq!(insert(s, 2).await, (false, Some(1)));
    });
}

#[test]
fn update_if_compares_the_current_value() {
    in_every_setup(async |s| {
        insert(s, 1).await;
        let update = "UPDATE items SET number = ? WHERE key = ? IF number = ?";
        assert_eq!(s.row::<(bool,)>(update, (2, &s.key, 1)).await, (true,));
        assert_eq!(s.row::<(bool, i32)>(update, (3, &s.key, 1)).await, (false, 2));
    });
}

#[test]
fn serial_read_sees_the_last_transaction() {
    in_every_setup(async |s| {
        insert(s, 11).await;
        assert_eq!(stored(s).await, 11);
    });
}

#[test]
fn one_of_many_racers_wins() {
    in_every_setup(async |s| {
        let racers = join_all((0..10).map(|number| try_insert(s, number))).await;
        let (mut winners, mut unknown) = (Vec::new(), Vec::new());
        for (number, outcome) in (0..).zip(racers) {
            match outcome {
                Ok((true, _)) => winners.push(number),
                Ok((false, _)) => {}
                // Under contention the store may give up and say so; the proposal may have been
                // accepted.
                Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(
                    DbError::WriteTimeout { write_type: WriteType::Cas, .. },
                    _,
                ))) => unknown.push(number),
                Err(error) => panic!("{error:?}"),
            }
        }
        let stored = stored(s).await;
        if winners.is_empty() {
            assert!(unknown.contains(&stored), "{stored}");
        } else {
            assert_eq!(winners, [stored]);
        }
    });
}
