//! The fleet as the driver sees it.

use std::collections::HashSet;
use std::time::Instant;

use scylla::cluster::metadata::{ColumnType, NativeType};

use crate::client::{PATIENCE, RELEASE, in_every_setup, proxies};

#[test]
fn every_proxy_is_a_host_that_takes_requests() {
    in_every_setup(async |c| {
        let hosts: HashSet<String> = c
            .session
            .get_cluster_state()
            .get_nodes_info()
            .iter()
            .map(|node| node.address.to_string())
            .collect();
        let proxies: HashSet<String> = proxies().into_iter().collect();
        assert_eq!(hosts, proxies);
        let (mut asked, begun) = (HashSet::new(), Instant::now());
        while asked != proxies {
            assert!(begun.elapsed() < PATIENCE, "only {asked:?} are asked");
            let result = c
                .session
                .query_unpaged("SELECT owner FROM shunt.locks WHERE name = 'n'", ())
                .await
                .unwrap();
            asked.insert(result.request_coordinator().connection_address().to_string());
        }
    });
}

#[test]
fn the_driver_knows_the_tables() {
    in_every_setup(async |c| {
        let state = c.session.get_cluster_state();
        let shunt = state.get_keyspace("shunt").expect("keyspace shunt");
        let tables = [
            ("locks", 1),
            ("fast_locks", 1),
            ("rwlocks", 2),
            ("fast_rwlocks", 2),
            ("lock_queue", 3),
        ];
        for (name, key) in tables {
            let table = shunt.tables.get(name).unwrap_or_else(|| panic!("there is no {name}"));
            assert_eq!(table.partition_key, ["name"], "{name}");
            assert_eq!(table.clustering_key.len() + 1, key, "{name}");
            assert_eq!(
                table.columns["fence"].typ,
                ColumnType::Native(NativeType::BigInt),
                "{name}"
            );
        }
    });
}

#[test]
fn the_keyspace_of_a_session() {
    in_every_setup(async |c| {
        c.session.use_keyspace("shunt", false).await.unwrap();
        let insert = "INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 300";
        assert!(c.ask(insert, (&c.name, "ann")).await.applied);
        let unqualified =
            c.session.prepare("DELETE FROM locks WHERE name = ? IF owner = ?").await.unwrap();
        let gone = c.session.execute_unpaged(&unqualified, (&c.name, "ann")).await.unwrap();
        assert!(crate::client::answers(gone)[0].applied);
        assert!(!c.ask(RELEASE, (&c.name, "ann")).await.applied);
    });
}
