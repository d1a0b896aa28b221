//! Conditional statements.

use drivers_rust::{Scenario, in_every_setup};
use futures::future::join_all;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

const INSERT: &str = "INSERT INTO items (key, number) VALUES (?, ?) IF NOT EXISTS";

/// Runs an INSERT .. IF NOT EXISTS; whether it was applied, and the number of the row that was there.
async fn insert(s: &Scenario, number: i32) -> (bool, Option<i32>) {
    let insert = s.session.prepare(INSERT).await.unwrap();
    let rows = s.session.execute_unpaged(&insert, (&s.key, number)).await.unwrap().into_rows_result().unwrap();
    if rows.column_specs().len() == 1 {
        return (rows.single_row::<(bool,)>().unwrap().0, None);
    }
    let (applied, _key, _note, number) =
        rows.single_row::<(bool, Option<String>, Option<String>, Option<i32>)>().unwrap();
    (applied, number)
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
        let mut select = Statement::new("SELECT number FROM items WHERE key = ?");
        select.set_consistency(Consistency::Serial);
        let rows = s.session.query_unpaged(select, (&s.key,)).await.unwrap().into_rows_result().unwrap();
        assert_eq!(rows.single_row::<(i32,)>().unwrap(), (11,));
    });
}

#[test]
fn one_of_many_racers_wins() {
    in_every_setup(async |s| {
        let racers = join_all((0..10).map(|number| insert(s, number))).await;
        assert_eq!(racers.iter().filter(|(applied, _)| *applied).count(), 1);
    });
}
