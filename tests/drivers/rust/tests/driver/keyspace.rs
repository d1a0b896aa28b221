//! The current keyspace of a session.

use drivers_rust::{KEYSPACE, OTHER_KEYSPACE, in_every_setup};

#[test]
fn use_sets_the_keyspace_of_the_session() {
    in_every_setup(async |s| {
        let own = s.setup.open().await;
        assert!(own.query_unpaged("SELECT key FROM items LIMIT 1", ()).await.is_err());
        own.query_unpaged(format!("USE {KEYSPACE}"), ()).await.unwrap();
        assert_eq!(own.get_keyspace().as_deref().map(String::as_str), Some(KEYSPACE));
        own.query_unpaged("INSERT INTO items (key, number) VALUES (?, 1)", (&s.key,))
            .await
            .unwrap();
        assert_eq!(s.number(&s.key).await, 1);
    });
}

#[test]
fn use_in_one_session_leaves_the_others_alone() {
    in_every_setup(async |s| {
        let (first, second) = (s.setup.open().await, s.setup.open().await);
        first.use_keyspace(KEYSPACE, false).await.unwrap();
        second.use_keyspace("system", false).await.unwrap();
        for _ in 0..20 {
            first.query_unpaged("SELECT key FROM items LIMIT 1", ()).await.unwrap();
            assert!(second.query_unpaged("SELECT key FROM items LIMIT 1", ()).await.is_err());
            second.query_unpaged("SELECT key FROM local", ()).await.unwrap();
        }
    });
}

#[test]
fn use_switches_back_and_forth() {
    in_every_setup(async |s| {
        let own = s.setup.open().await;
        for _ in 0..10 {
            own.use_keyspace(KEYSPACE, false).await.unwrap();
            own.query_unpaged("SELECT key FROM items LIMIT 1", ()).await.unwrap();
            own.use_keyspace("system", false).await.unwrap();
            own.query_unpaged("SELECT key FROM local", ()).await.unwrap();
        }
    });
}

#[test]
fn use_of_an_unknown_keyspace_is_refused() {
    in_every_setup(async |s| {
        let own = s.setup.open().await;
        assert!(own.use_keyspace("nowhere_to_be_found", false).await.is_err());
    });
}

#[test]
fn same_prepared_text_in_two_keyspaces_reaches_two_tables() {
    in_every_setup(async |s| {
        let own = s.setup.open().await;
        own.use_keyspace(OTHER_KEYSPACE, false).await.unwrap();
        let insert = "INSERT INTO items (key, number) VALUES (?, ?)";
        s.exec(insert, (&s.key, 1)).await;
        own.query_unpaged(insert, (&s.key, 2)).await.unwrap();
        let there =
            own.query_unpaged("SELECT number FROM items WHERE key = ?", (&s.key,)).await.unwrap();
        assert_eq!(there.into_rows_result().unwrap().single_row::<(i32,)>().unwrap(), (2,));
        assert_eq!(s.number(&s.key).await, 1);
    });
}
