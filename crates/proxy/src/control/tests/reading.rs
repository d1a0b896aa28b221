//! Connecting, logging in and the first read.

use shunt_language::transaction::mode::TransactionalMode;
use shunt_topology::NodeId;
use shunt_topology::schema::ColumnKind;
use shunt_transactions::catalogue::modes::Routing;
use shunt_wire::cql::statement::Identifier;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::super::access::Access;
use super::super::handshake;
use super::fake::FakeRing;
use super::*;
use crate::config::Secret;

#[tokio::test]
async fn ring_and_schema_are_read_page_by_page() {
    let ring = FakeRing::start(5).await;
    ring.add_keyspace("ks");
    let mut bench = Bench::start(&[ring.address(2)], |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert_eq!((state.protocol_version_max, state.authenticator.as_deref()), (5, None));
    assert_eq!(
        (state.cluster_name.as_str(), state.datacentre.as_str(), state.rack.as_str()),
        ("fake", "dc1", "r1")
    );
    assert_eq!((state.release_version.as_str(), state.cql_version.as_str()), ("5.0.9", "3.4.7"));
    assert_eq!(
        (state.compressions.as_slice(), state.schema_version),
        (&["snappy".to_owned(), "lz4".to_owned()][..], 77)
    );
    assert_eq!(state.routing.nodes().len(), 5);
    for node in state.routing.nodes() {
        assert_eq!(node.address, ring.address(node.host_id));
        assert_eq!((node.tokens.as_slice(), node.up), (&[node.host_id as i64 * 1000][..], true));
    }
    let table = state.routing.table("ks", "t").expect("table");
    let key: Vec<_> = table.partition_key.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(
        (key, table.cells.has_counters(), table.cells.expire()),
        (vec!["a", "b"], false, false)
    );
    let kind = |name: &str| table.cells.kind(&Identifier::exact(name));
    let kinds = ["a", "v", "l", "s", "unknown"].map(kind);
    let (single, list, keyed) = (ColumnKind::Single, ColumnKind::List, ColumnKind::Keyed);
    assert_eq!(kinds, [Some(single), Some(single), Some(list), Some(keyed), None]);
    let counters = &state.routing.table("ks", "c").expect("table").cells;
    assert!(
        counters.has_counters() && counters.expire(),
        "rows live for a time where nothing says otherwise"
    );
    let keyspace = state.routing.keyspace("ks").expect("keyspace");
    assert_eq!(state.routing.replicas(keyspace, shunt_topology::Token(1500)).nodes.len(), 1);
    assert_eq!(bench.view.get().expect("view").generation, state.generation);
    eventually(|| bench.metrics.refreshes.get() == 1).await;
    assert_eq!(bench.metrics.connected.get(), 1);
}

/// One replica may have missed a table's mode, and one node the table of modes. If none answers,
/// the rest is served all the same.
#[tokio::test]
async fn modes_that_no_quorum_has_told_are_in_doubt() {
    for (modes, is_in_doubt) in [(None, true), (Some(2), false), (Some(1), true), (Some(0), true)] {
        let ring = FakeRing::start(3).await;
        ring.edit(|state| state.modes = modes);
        let mut bench =
            Bench::start(&[ring.address(1)], |config| config.fleet = Some("main".to_owned()));
        let state = bench.cluster_where(|_| true).await;
        let read = state.modes.as_ref().expect("modes");
        assert_eq!(read.modes.are_in_doubt(), is_in_doubt, "{modes:?}");
    }
}

/// Other nodes may know that the role has the right.
#[tokio::test]
async fn modes_that_one_node_forbids_are_in_doubt() {
    let ring = FakeRing::start(3).await;
    ring.edit(|state| (state.modes, state.modes_forbidden) = (Some(2), true));
    let mut bench =
        Bench::start(&[ring.address(1)], |config| config.fleet = Some("main".to_owned()));
    let state = bench.cluster_where(|_| true).await;
    assert!(state.modes.as_ref().expect("modes").modes.are_in_doubt());
}

/// Every node may end the connection over this question, or leave it without an answer.
#[tokio::test]
async fn a_connection_lost_over_modes_does_not_keep_the_proxy_from_its_start() {
    let ring = FakeRing::start(1).await;
    ring.edit(|state| (state.modes, state.ends_at_modes) = (Some(2), true));
    let mut bench =
        Bench::start(&[ring.address(1)], |config| config.fleet = Some("main".to_owned()));
    assert!(bench.cluster_where(|_| true).await.modes.is_none());
    eventually(|| bench.metrics.refreshes.get() > 0).await;
    assert_eq!(bench.metrics.connections_lost.get(), 1);
    assert_eq!(ring.state.lock().expect("lock").mode_questions, 1);
}

/// A contact point may take long to say which ring it belongs to, and a table may get a mode
/// meanwhile. Nobody reads modes again for later states.
#[tokio::test]
async fn modes_are_as_old_as_the_last_question_before_the_cores_hear_of_the_ring() {
    let late = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let ring = FakeRing::start(1).await;
    ring.edit(|state| state.modes = Some(2));
    let contact_points = [late.local_addr().expect("address"), ring.address(1)];
    let mut bench = Bench::start(&contact_points, |config| config.fleet = Some("main".to_owned()));
    // The plane may try this one first: then it has no control connection yet, and tries the other.
    let asked = loop {
        let (stream, _) = timeout(GUARD, late.accept()).await.expect("a question").expect("accept");
        if bench.metrics.connected.get() == 1 {
            break stream;
        }
    };
    ring.edit(|state| state.mode_rows.push(["ks", "leases", "conditional"]));
    let since_ns = shunt_reactor::boot_clock_ns();
    drop(asked);
    let state = bench.cluster_where(|_| true).await;
    let read = state.modes.as_ref().expect("modes");
    let routing = read.modes.routing("ks", "leases");
    assert_eq!(routing, Some(Routing::Mode(TransactionalMode::Conditional)));
    assert!(read.asked_ns >= since_ns && read.asked_ns <= shunt_reactor::boot_clock_ns());
    eventually(|| bench.metrics.refreshes.get() > 0).await;
    ring.add_keyspace("later");
    bench.ask(ControlRequest::Refresh).await;
    assert!(bench.cluster_where(|_| true).await.modes.is_none());
}

#[tokio::test]
async fn the_version_steps_down_to_what_the_node_speaks() {
    for version in [3, 4] {
        let ring = FakeRing::start(2).await;
        ring.edit(|state| state.version_max = version);
        let mut bench = Bench::start(&[ring.address(1)], |_| {});
        assert_eq!(bench.cluster_where(|_| true).await.protocol_version_max, version);
    }
}

#[tokio::test]
async fn a_node_that_refuses_old_versions_is_there() {
    let ring = FakeRing::start(2).await;
    ring.edit(|state| state.version_min = 5);
    handshake::probe(ring.address(2), &Access::plain(None, GUARD)).await.expect("it answers");
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert!(is_up(&state, 2));
}

/// A setting for the clients' queries must not keep the proxy from its ring.
#[tokio::test]
async fn a_short_deadline_of_queries_is_not_for_the_reading_of_the_ring() {
    let ring = FakeRing::start(1).await;
    ring.edit(|state| state.delay = Duration::from_millis(100));
    let mut bench = Bench::start(&[ring.address(1)], |config| config.query_timeout_ms = 10);
    bench.cluster_where(|_| true).await;
}

#[tokio::test]
async fn the_oldest_node_sets_the_version_of_the_ring() {
    let ring = FakeRing::start(3).await;
    ring.edit(|state| state.nodes[2].release_version = "3.11.19");
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    assert_eq!(bench.cluster_where(|_| true).await.protocol_version_max, 4);
}

#[tokio::test]
async fn the_control_connection_logs_in_with_a_password_in_every_version() {
    for version in 3..=5 {
        let ring = FakeRing::start(1).await;
        ring.edit(|state| {
            (state.version_max, state.login) = (version, Some(("watcher", "secret")))
        });
        let mut bench = Bench::start(&[ring.address(1)], |config| {
            config.username = Some("watcher".to_owned());
            config.password = Some(Secret::new("secret"));
        });
        let authenticator = bench.cluster_where(|_| true).await.authenticator.clone();
        assert_eq!(
            authenticator.as_deref(),
            Some("org.apache.cassandra.auth.PasswordAuthenticator")
        );
    }
}

#[tokio::test]
async fn a_refused_login_is_tried_again_with_the_reloaded_one() {
    let ring = FakeRing::start(1).await;
    ring.edit(|state| state.login = Some(("watcher", "secret")));
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    eventually(|| bench.metrics.connect_failures.get() >= 1).await;
    assert!(bench.view.get().is_none());
    for password in ["wrong", "secret"] {
        let before = bench.metrics.connect_failures.get();
        bench.config.send_modify(|config| {
            let config = Arc::make_mut(config);
            config.username = Some("watcher".to_owned());
            config.password = Some(Secret::new(password));
        });
        if password == "wrong" {
            eventually(|| bench.metrics.connect_failures.get() > before + 1).await;
        }
    }
    bench.cluster_where(|state| state.authenticator.is_some()).await;
}

#[tokio::test]
async fn old_servers_tell_no_ports_and_wildcard_addresses() {
    let mut ring = FakeRing::start(0).await;
    let port = ring.add_node(1, "127.0.0.1:0").await.port();
    for host_id in 2..=3 {
        ring.add_node(host_id, &format!("127.0.0.{host_id}:{port}")).await;
    }
    ring.edit(|state| state.tells_ports = false);
    let mut bench = Bench::start(&[ring.address(3)], |_| {});
    let state = bench.cluster_where(|_| true).await;
    let addresses: Vec<_> =
        state.routing.nodes().iter().map(|node| (node.host_id, node.address)).collect();
    let expected: Vec<_> =
        [3, 1, 2].iter().map(|host_id| (*host_id, ring.address(*host_id))).collect();
    assert_eq!(addresses, expected);
}

#[tokio::test]
async fn a_node_that_advertises_an_unreachable_address_is_used_where_it_was_reached() {
    let ring = FakeRing::start(2).await;
    let reached = ring.address(1);
    // Nothing listens there, because the test gave the port back.
    let closed =
        TcpListener::bind("127.0.0.1:0").await.expect("bind").local_addr().expect("address");
    ring.edit(|state| state.nodes[0].address = closed);
    let mut bench = Bench::start(&[reached], |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(state.routing.node(NodeId(0)).expect("node").address, reached);
}

#[tokio::test]
async fn a_contact_point_that_answers_garbage_does_not_stop_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let garbage = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let ring = FakeRing::start(1).await;
    let mut bench = Bench::start(&[garbage, ring.address(1)], |_| {});
    assert_eq!(bench.cluster_where(|_| true).await.routing.nodes().len(), 1);
}

#[tokio::test]
async fn nodes_of_the_local_datacentre_come_first() {
    let ring = FakeRing::start(3).await;
    ring.edit(|state| state.nodes[1].datacentre = "dc2");
    let mut bench =
        Bench::start(&[ring.address(1)], |config| config.local_datacentre = Some("dc2".to_owned()));
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(state.datacentre, "dc2");
    let local: Vec<_> = state
        .routing
        .local_nodes()
        .iter()
        .map(|id| state.routing.node(*id).expect("node").host_id)
        .collect();
    assert_eq!(local, [2]);
}
