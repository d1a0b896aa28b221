//! Simple and prepared statements, their values and their attributes.

use std::collections::HashMap;

use drivers_rust::{in_every_setup, in_one_setup};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use scylla::value::Unset;

#[test]
fn statement_with_literals() {
    in_every_setup(async |s| {
        let key = &s.key;
        s.exec(&format!("INSERT INTO items (key, number, note) VALUES ('{key}', 7, 'it''s')"), ())
            .await;
        let query = format!("SELECT number, note FROM items WHERE key = '{key}'");
        assert_eq!(s.row::<(i32, String)>(&query, ()).await, (7, "it's".into()));
    });
}

#[test]
fn statement_with_values() {
    in_every_setup(async |s| {
        s.exec("INSERT INTO items (key, number) VALUES (?, ?)", (&s.key, 8)).await;
        assert_eq!(s.number(&s.key).await, 8);
    });
}

#[test]
fn statement_with_named_values() {
    in_every_setup(async |s| {
        let insert =
            s.session.prepare("INSERT INTO items (key, note) VALUES (:k, :n)").await.unwrap();
        let values = HashMap::from([("n", "named"), ("k", &s.key)]);
        s.session.execute_unpaged(&insert, values).await.unwrap();
        let (note,) = s.row::<(String,)>("SELECT note FROM items WHERE key = ?", (&s.key,)).await;
        assert_eq!(note, "named");
    });
}

#[test]
fn prepared_statement() {
    in_every_setup(async |s| {
        let insert = s
            .session
            .prepare("INSERT INTO items (key, number, note) VALUES (?, ?, ?)")
            .await
            .unwrap();
        let select =
            s.session.prepare("SELECT key, number, note FROM items WHERE key = ?").await.unwrap();
        for i in 0..100 {
            let values = (format!("{}{i}", s.key), i, format!("n{i}"));
            s.session.execute_unpaged(&insert, &values).await.unwrap();
            let rows = s
                .session
                .execute_unpaged(&select, (&values.0,))
                .await
                .unwrap()
                .into_rows_result()
                .unwrap();
            assert_eq!(rows.single_row::<(String, i32, String)>().unwrap(), values);
        }
    });
}

#[test]
fn prepared_statement_tells_its_partition_key() {
    in_every_setup(async |s| {
        let update = s
            .session
            .prepare("UPDATE lines SET body = ? WHERE line = ? AND key = ?")
            .await
            .unwrap();
        let [position] = update.get_variable_pk_indexes() else { panic!() };
        assert_eq!(position.index, 2);
        assert_eq!(update.get_table_name(), Some("lines"));
        assert!(update.calculate_token(&("b", 1, &s.key)).unwrap().is_some());
    });
}

#[test]
fn statement_prepared_by_one_session_is_also_prepared_by_another() {
    in_every_setup(async |s| {
        let text = "INSERT INTO items (key, number) VALUES (?, ?) USING TTL 1000";
        s.exec(text, (&s.key, 1)).await;
        let other = s.setup.open_with_keyspace().await;
        other.query_unpaged(text, (&s.key, 2)).await.unwrap();
        assert_eq!(s.number(&s.key).await, 2);
    });
}

#[test]
fn prepared_statement_survives_its_table_being_dropped_and_created_again() {
    in_one_setup(async |s| {
        let insert =
            s.session.prepare("INSERT INTO reborn (key, number) VALUES (?, ?)").await.unwrap();
        s.session.execute_unpaged(&insert, (&s.key, 1)).await.unwrap();
        s.exec("DROP TABLE reborn", ()).await;
        s.exec("CREATE TABLE reborn (key text PRIMARY KEY, number int)", ()).await;
        s.session.execute_unpaged(&insert, (&s.key, 2)).await.unwrap();
        let (number,) = s.row::<(i32,)>("SELECT number FROM reborn WHERE key = ?", (&s.key,)).await;
        assert_eq!(number, 2);
    });
}

#[test]
fn unset_value_leaves_the_column_alone_and_null_deletes_it() {
    in_every_setup(async |s| {
        let insert = s
            .session
            .prepare("INSERT INTO items (key, number, note) VALUES (?, ?, ?)")
            .await
            .unwrap();
        let note = "SELECT note FROM items WHERE key = ?";
        s.session.execute_unpaged(&insert, (&s.key, 1, "kept")).await.unwrap();
        s.session.execute_unpaged(&insert, (&s.key, 2, Unset)).await.unwrap();
        assert_eq!(s.row::<(Option<String>,)>(note, (&s.key,)).await.0.as_deref(), Some("kept"));
        s.session.execute_unpaged(&insert, (&s.key, 3, None::<&str>)).await.unwrap();
        assert_eq!(s.row::<(Option<String>,)>(note, (&s.key,)).await.0, None);
    });
}

#[test]
fn update_and_delete() {
    in_every_setup(async |s| {
        s.exec("INSERT INTO items (key, number) VALUES (?, 1)", (&s.key,)).await;
        s.exec("UPDATE items SET number = 2 WHERE key = ?", (&s.key,)).await;
        assert_eq!(s.number(&s.key).await, 2);
        s.exec("DELETE FROM items WHERE key = ?", (&s.key,)).await;
        let rows =
            s.rows::<(Option<i32>,)>("SELECT number FROM items WHERE key = ?", (&s.key,)).await;
        assert!(rows.is_empty());
    });
}

#[test]
fn query_timestamp_reaches_the_store() {
    in_every_setup(async |s| {
        let mut insert = Statement::new("INSERT INTO items (key, number) VALUES (?, 1)");
        insert.set_timestamp(Some(123_456_789));
        s.session.query_unpaged(insert, (&s.key,)).await.unwrap();
        let query = "SELECT writetime(number) FROM items WHERE key = ?";
        assert_eq!(s.row::<(i64,)>(query, (&s.key,)).await.0, 123_456_789);
    });
}

#[test]
fn consistency_level_reaches_the_store() {
    in_every_setup(async |s| {
        let mut insert = Statement::new("INSERT INTO items (key, number) VALUES (?, 1)");
        insert.set_consistency(Consistency::All);
        s.session.query_unpaged(insert, (&s.key,)).await.unwrap();
        assert_eq!(s.number(&s.key).await, 1);
    });
}

#[test]
fn tracing_id_comes_back_with_a_traced_query() {
    in_every_setup(async |s| {
        let mut select = Statement::new("SELECT key FROM system.local");
        assert!(s.session.query_unpaged(select.clone(), ()).await.unwrap().tracing_id().is_none());
        select.set_tracing(true);
        assert!(s.session.query_unpaged(select, ()).await.unwrap().tracing_id().is_some());
    });
}

#[test]
fn trace_of_a_query_can_be_read() {
    in_every_setup(async |s| {
        let query = format!("SELECT number FROM items WHERE key = '{}'", s.key);
        let mut select = Statement::new(query.clone());
        select.set_tracing(true);
        let id = s.session.query_unpaged(select, ()).await.unwrap().tracing_id().unwrap();
        let trace = s.session.get_tracing_info(&id).await.unwrap();
        assert_eq!(trace.request.as_deref(), Some("Execute CQL3 query"));
        assert_eq!(trace.parameters.unwrap().get("query"), Some(&query));
        assert!(!trace.events.is_empty());
    });
}

#[test]
fn warnings_of_the_store_come_back() {
    in_every_setup(async |s| {
        let result = s.session.query_unpaged("SELECT count(*) FROM counts", ()).await.unwrap();
        let warnings: Vec<&str> = result.warnings().collect();
        assert!(warnings.iter().any(|warning| warning.contains("ggregation")), "{warnings:?}");
    });
}
