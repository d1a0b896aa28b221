//! Connecting, and what the driver then believes about the cluster.

use std::collections::HashSet;

use drivers_rust::{KEYSPACE, contact, in_every_setup, single_host_expected};
use scylla::routing::Token;

use crate::sockets;

#[test]
fn sees_the_contact_point_as_the_only_host() {
    if !single_host_expected() {
        return;
    }
    in_every_setup(async |s| {
        let state = s.session.get_cluster_state();
        let [node] = state.get_nodes_info() else { panic!("{:?}", state.get_nodes_info()) };
        assert_eq!((node.address.ip(), node.address.port()), (contact().ip(), contact().port()));
        assert!(node.datacenter.is_some() && node.rack.is_some());
        assert!(node.is_connected());
    });
}

#[test]
fn token_map_names_nobody_but_the_contact_point() {
    if !single_host_expected() {
        return;
    }
    in_every_setup(async |s| {
        let state = s.session.get_cluster_state();
        for token in (0..64).map(|i| Token::new(i64::MIN + (i << 57))) {
            let replicas = state.get_token_endpoints(KEYSPACE, "items", token);
            assert!(!replicas.is_empty());
            assert!(replicas.iter().all(|(node, _)| node.address.port() == contact().port()));
            assert!(replicas.iter().all(|(node, _)| node.address.ip() == contact().ip()));
        }
    });
}

#[test]
fn every_query_is_coordinated_by_the_contact_point() {
    if !single_host_expected() {
        return;
    }
    in_every_setup(async |s| {
        let insert =
            s.session.prepare("INSERT INTO items (key, number) VALUES (?, ?)").await.unwrap();
        assert!(insert.is_token_aware());
        for i in 0..50 {
            let result =
                s.session.execute_unpaged(&insert, (format!("{}{i}", s.key), i)).await.unwrap();
            assert_eq!(result.request_coordinator().connection_address(), contact());
        }
    });
}

#[test]
fn opens_sockets_to_the_contact_point_only() {
    if !single_host_expected() {
        return;
    }
    in_every_setup(async |s| {
        s.exec("SELECT key FROM items LIMIT 1", ()).await;
        assert_eq!(sockets::remote_addresses(), HashSet::from([contact()]));
    });
}

#[test]
fn learns_the_cluster_name() {
    in_every_setup(async |s| assert!(!s.session.get_cluster_state().cluster_name().is_empty()));
}

#[test]
fn opens_and_closes_sessions_one_after_the_other() {
    in_every_setup(async |s| {
        for _ in 0..5 {
            let own = s.setup.open().await;
            let rows =
                own.query_unpaged("SELECT release_version FROM system.local", ()).await.unwrap();
            let (release,) = rows.into_rows_result().unwrap().single_row::<(String,)>().unwrap();
            assert!(!release.is_empty());
        }
    });
}
