//! Batches of every kind.

use drivers_rust::{Scenario, in_every_setup};
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::Counter;

async fn inserts_lines(s: &Scenario, kind: BatchType) {
    let insert =
        s.session.prepare("INSERT INTO lines (key, line, body) VALUES (?, ?, ?)").await.unwrap();
    let mut batch = Batch::new(kind);
    let mut values = Vec::new();
    for i in 0..30 {
        batch.append_statement(insert.clone());
        values.push((format!("{}{}", s.key, i % 3), i, format!("body {i}")));
    }
    s.session.batch(&batch, &values).await.unwrap();
    for partition in 0..3 {
        let query = "SELECT line, body FROM lines WHERE key = ?";
        let rows = s.rows::<(i32, String)>(query, (format!("{}{partition}", s.key),)).await;
        assert_eq!(rows.len(), 10);
        assert!(rows.iter().all(|(line, body)| *body == format!("body {line}")));
    }
}

#[test]
fn logged_batch_over_several_partitions() {
    in_every_setup(async |s| inserts_lines(s, BatchType::Logged).await);
}

#[test]
fn unlogged_batch_over_several_partitions() {
    in_every_setup(async |s| inserts_lines(s, BatchType::Unlogged).await);
}

#[test]
fn batch_of_text_and_prepared_statements() {
    in_every_setup(async |s| {
        let update = s.session.prepare("UPDATE items SET note = ? WHERE key = ?").await.unwrap();
        let mut batch = Batch::new(BatchType::Logged);
        batch.append_statement(
            format!("INSERT INTO items (key, number) VALUES ('{}', 5)", s.key).as_str(),
        );
        batch.append_statement(update);
        s.session.batch(&batch, ((), ("five", &s.key))).await.unwrap();
        let query = "SELECT number, note FROM items WHERE key = ?";
        assert_eq!(s.row::<(i32, String)>(query, (&s.key,)).await, (5, "five".into()));
    });
}

#[test]
fn counter_batch() {
    in_every_setup(async |s| {
        let add =
            s.session.prepare("UPDATE counts SET hits = hits + ? WHERE key = ?").await.unwrap();
        let mut batch = Batch::new(BatchType::Counter);
        batch.append_statement(add.clone());
        batch.append_statement(add);
        for _ in 0..2 {
            s.session.batch(&batch, ((Counter(2), &s.key), (Counter(40), &s.key))).await.unwrap();
        }
        let (hits,) = s.row::<(Counter,)>("SELECT hits FROM counts WHERE key = ?", (&s.key,)).await;
        assert_eq!(hits.0, 84);
    });
}

#[test]
fn batch_timestamp_reaches_the_store() {
    in_every_setup(async |s| {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.append_statement("INSERT INTO items (key, number) VALUES (?, 1)");
        batch.set_timestamp(Some(987_654));
        s.session.batch(&batch, ((&s.key,),)).await.unwrap();
        let query = "SELECT writetime(number) FROM items WHERE key = ?";
        assert_eq!(s.row::<(i64,)>(query, (&s.key,)).await.0, 987_654);
    });
}

#[test]
fn conditional_batch_applies_as_a_whole_or_not_at_all() {
    in_every_setup(async |s| {
        let insert = "INSERT INTO lines (key, line, body) VALUES (?, ?, 'x') IF NOT EXISTS";
        let insert = s.session.prepare(insert).await.unwrap();
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.append_statement(insert.clone());
        batch.append_statement(insert);
        s.session.batch(&batch, ((&s.key, 1), (&s.key, 2))).await.unwrap();
        s.session.batch(&batch, ((&s.key, 2), (&s.key, 3))).await.unwrap();
        let lines = s.rows::<(i32,)>("SELECT line FROM lines WHERE key = ?", (&s.key,)).await;
        assert_eq!(lines, [(1,), (2,)]);
    });
}
