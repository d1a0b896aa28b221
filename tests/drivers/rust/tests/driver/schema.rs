//! Schema metadata as the driver exposes it, and how it learns of changes.

use std::time::{Duration, Instant};

use drivers_rust::{KEYSPACE, in_every_setup, in_one_setup, replication_factor};
use scylla::client::session::Session;
use scylla::cluster::ClusterState;
use scylla::cluster::metadata::Strategy;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

#[test]
fn metadata_shows_the_keyspace_its_tables_and_types() {
    in_every_setup(async |s| {
        s.session.refresh_metadata().await.unwrap();
        let state = s.session.get_cluster_state();
        let keyspace = state.get_keyspace(KEYSPACE).expect("keyspace");
        assert_eq!(
            keyspace.strategy,
            Strategy::SimpleStrategy { replication_factor: replication_factor() }
        );
        let lines = &keyspace.tables["lines"];
        assert_eq!(lines.partition_key, ["key"]);
        assert_eq!(lines.clustering_key, ["line"]);
        assert!(lines.columns.contains_key("body"));
        assert_eq!(keyspace.user_defined_types["address"].field_types[1].0, "number");
    });
}

#[test]
fn describe_is_answered_by_the_store() {
    in_every_setup(async |s| {
        let query = format!("DESCRIBE TABLE {KEYSPACE}.items");
        let (_, kind, name, create) = s.row::<(String, String, String, String)>(&query, ()).await;
        assert_eq!((kind.as_str(), name.as_str()), ("table", "items"));
        assert!(create.contains("CREATE TABLE"));
    });
}

/// Waits until the condition holds; events arrive when they arrive.
async fn sees(session: &Session, what: &str, condition: impl Fn(&ClusterState) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !condition(&session.get_cluster_state()) {
        assert!(Instant::now() < deadline, "never seen: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn changes_are_seen_by_another_session() {
    in_one_setup(async |s| {
        // The driver notes which keyspaces the events name and reads those again at its next
        // refresh.
        let refresh = Duration::from_millis(100);
        let other =
            s.setup.builder().cluster_metadata_refresh_interval(refresh).build().await.unwrap();
        let name = format!("watched_{}", s.setup.name);
        let table =
            |state: &ClusterState| Some(state.get_keyspace(KEYSPACE)?.tables.get(&name)?.clone());
        s.exec(&format!("CREATE TABLE {name} (key text PRIMARY KEY, number int)"), ()).await;
        assert!(s.session.check_schema_agreement().await.unwrap().is_some());
        sees(&other, "table", |state| table(state).is_some()).await;
        s.exec(&format!("ALTER TABLE {name} ADD added map<text, int>"), ()).await;
        sees(&other, "column", |state| table(state).unwrap().columns.contains_key("added")).await;
        s.exec(&format!("DROP TABLE {name}"), ()).await;
        sees(&other, "end of the table", |state| table(state).is_none()).await;
    });
}

#[test]
fn truncate_empties_a_table() {
    in_every_setup(async |s| {
        // On all replicas, or the last of them might write the row after it was emptied.
        let mut insert = Statement::new("INSERT INTO emptied (key) VALUES (?)");
        insert.set_consistency(Consistency::All);
        s.session.query_unpaged(insert, (&s.key,)).await.unwrap();
        s.exec("TRUNCATE emptied", ()).await;
        assert!(s.rows::<(String,)>("SELECT key FROM emptied", ()).await.is_empty());
    });
}
