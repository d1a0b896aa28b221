//! A node that sends more than a node of Cassandra does.

use std::time::Instant;

use shunt_wire::cql::envelope::{EVENT_STREAM, Header, opcode};
use shunt_wire::cql::message::{Event, Reader, SchemaChange, encode, put};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::super::access::Access;
use super::super::connection::Connection;
use super::super::error::ControlError;
use super::super::ring_bounds;
use super::fake::{FakeNode, FakeRing};
use super::*;

/// The body of an event about a function with this many arguments.
fn function_event(arguments: usize) -> Vec<u8> {
    let mut list = Vec::new();
    put::string_list(&mut list, (0..arguments).map(|_| "frozen<an_argument_of_some_length>"));
    let arguments = Reader::new(&list).string_list("arguments").expect("a list");
    let change = SchemaChange {
        change: "CREATED",
        target: "FUNCTION",
        keyspace: "k",
        name: Some("f"),
        arguments: Some(arguments),
    };
    let mut body = Vec::new();
    encode::event(&mut body, &Event::SchemaChange(change));
    body
}

/// Waits until the plane follows the ring, on a connection that has registered.
async fn settled(bench: &Bench, refreshes: u64) {
    eventually(|| bench.metrics.refreshes.get() > refreshes).await;
}

#[tokio::test]
async fn an_event_that_no_node_of_cassandra_sends_ends_the_connection() {
    let ring = FakeRing::start(1).await;
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    settled(&bench, 0).await;
    let mut with_a_tail = function_event(2);
    with_a_tail.extend([0; 40]);
    for (lost, body) in [(1, function_event(1_000)), (2, with_a_tail)] {
        let refreshes = bench.metrics.refreshes.get();
        ring.send_event(body);
        eventually(|| bench.metrics.connections_lost.get() == lost).await;
        settled(&bench, refreshes).await;
    }
    let proper = function_event(100);
    ring.send_event(proper.clone());
    loop {
        if let CoreMail::SchemaEvent(received) = bench.next_mail().await {
            break assert_eq!(&received[..], proper);
        }
    }
}

/// Pages of such a table are always empty, so that no bound on rows ends the read.
#[tokio::test]
async fn a_node_whose_table_has_no_last_page_is_left_for_another() {
    let ring = FakeRing::start(2).await;
    ring.edit(|state| state.endless = Some(1));
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    bench.cluster_where(|_| true).await;
    assert_eq!(bench.metrics.connections_lost.get(), 1);
}

/// A server that answers nothing and sends as many events as the peer takes.
async fn flooding() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let body = function_event(2);
    let mut header = Header::response(4, EVENT_STREAM, opcode::EVENT);
    header.length = body.len() as u32;
    let event = [&header.to_bytes()[..], &body].concat();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let events = event.repeat(1_000);
        while stream.write_all(&events).await.is_ok() {}
    });
    address
}

#[tokio::test]
async fn a_request_expires_while_events_come_faster_than_they_are_read() {
    let access = Access::plain(None, GUARD);
    let mut connection = Connection::open(flooding().await, 4, &access).await.expect("it listens");
    let limit = Duration::from_millis(300);
    let answer = connection.request(opcode::OPTIONS, &[], "OPTIONS", limit).await;
    assert!(matches!(answer, Err(ControlError::TimedOut("OPTIONS"))), "{answer:?}");
}

#[tokio::test]
async fn a_node_that_goes_up_and_down_is_published_about_once_a_second() {
    const CHANGES: u64 = 40;
    let ring = FakeRing::start(3).await;
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    settled(&bench, 0).await;
    let (before, begun) = (bench.view.get().expect("view").generation, Instant::now());
    let events = bench.metrics.events.get();
    for number in 1..=CHANGES {
        let change = if number % 2 == 0 { "UP" } else { "DOWN" };
        ring.event(&Event::StatusChange { change, address: ring.address(3) });
        eventually(|| bench.metrics.events.get() == events + number).await;
    }
    ring.event(&Event::StatusChange { change: "DOWN", address: ring.address(3) });
    ring.event(&Event::StatusChange { change: "DOWN", address: ring.address(2) });
    let state = bench.cluster_where(|state| !is_up(state, 2) && !is_up(state, 3)).await;
    let published = state.generation - before;
    let most = 2 + begun.elapsed().as_secs();
    assert!(published <= most, "{published} states, at most {most} expected");
}

/// The change of an event that is lost may be in the lists that are read at that time, or only in
/// later ones.
#[tokio::test]
async fn a_change_whose_event_is_lost_in_a_flood_is_told_all_the_same() {
    const EVENTS: usize = 1_100;
    for is_version_early in [true, false] {
        let ring = FakeRing::start(1).await;
        let mut bench = Bench::start(&[ring.address(1)], |_| {});
        settled(&bench, 0).await;
        let created = |keyspace: &str| {
            ring.event(&Event::SchemaChange(SchemaChange {
                change: "CREATED",
                target: "KEYSPACE",
                keyspace,
                name: None,
                arguments: None,
            }));
        };
        let change_version =
            || ring.edit(|state| state.nodes.iter_mut().for_each(|node| node.schema_version = 78));
        ring.edit(|state| state.columns_after = EVENTS);
        if is_version_early {
            change_version();
        }
        created("first");
        eventually(|| ring.state.lock().expect("lock").is_holding).await;
        ring.add_keyspace("late");
        change_version();
        (2..EVENTS).for_each(|number| created(&format!("k{number}")));
        created("late");
        loop {
            if let CoreMail::SchemaEvent(body) = bench.next_mail().await
                && let Ok(Event::SchemaChange(found)) = Event::decode(&body)
                && found.keyspace == "late"
            {
                break;
            }
        }
    }
}

/// Gives nodes of the ring this many tokens each, from a number of their own on.
fn give_tokens(ring: &FakeRing, nodes: usize, tokens: i64) {
    ring.edit(|state| {
        for (index, node) in state.nodes.iter_mut().take(nodes).enumerate() {
            let first = index as i64 * 1_000_000;
            node.tokens = (first..first + tokens).collect();
        }
    });
}

/// Adds nodes to the ring's tables at which nobody listens.
fn add_names(ring: &FakeRing, count: u128) {
    ring.edit(|state| {
        state.page_rows = 1_000;
        let node = state.nodes[0].clone();
        state.nodes.extend((0..count).map(|number| FakeNode {
            host_id: 1_000 + number,
            address: ([127, 1, (number >> 8) as u8, number as u8], 1).into(),
            tokens: vec![-1 - number as i64],
            ..node.clone()
        }));
    });
}

#[tokio::test]
async fn a_node_that_says_it_has_too_many_tokens_is_left_for_another() {
    let ring = FakeRing::start(2).await;
    give_tokens(&ring, 1, 1 + ring_bounds::NODE_TOKENS_MAX as i64);
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    eventually(|| bench.metrics.connections_lost.get() > 0).await;
    assert!(bench.view.get().is_none());
    give_tokens(&ring, 1, ring_bounds::NODE_TOKENS_MAX as i64);
    bench.cluster_where(|state| !state.routing.local_nodes().is_empty()).await;
}

/// Number of tokens of each node, by host id.
fn tokens(state: &ClusterState) -> Vec<usize> {
    let mut nodes: Vec<_> = state.routing.nodes().iter().collect();
    nodes.sort_by_key(|node| node.host_id);
    nodes.iter().map(|node| node.tokens.len()).collect()
}

#[tokio::test]
async fn another_node_with_too_many_tokens_counts_as_one_without() {
    let ring = FakeRing::start(3).await;
    give_tokens(&ring, 1, 1 + ring_bounds::NODE_TOKENS_MAX as i64);
    let mut bench = Bench::start(&[ring.address(2)], |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(tokens(&state), [0, 1, 1]);
    assert_eq!(state.routing.local_nodes().len(), 3);
}

#[tokio::test]
async fn a_ring_with_too_many_tokens_is_used_without_them() {
    const NODES: usize = 1 + ring_bounds::TOKENS_MAX / ring_bounds::NODE_TOKENS_MAX;
    let ring = FakeRing::start(1).await;
    add_names(&ring, NODES as u128 - 1);
    give_tokens(&ring, NODES, ring_bounds::NODE_TOKENS_MAX as i64);
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(tokens(&state), [0; NODES]);
    assert_eq!(state.routing.local_nodes().len(), NODES);
}

/// Rows of nodes that left long ago may stay, so their number must not cost the proxy the ring.
#[tokio::test]
async fn nodes_beyond_the_bound_are_left_out() {
    let ring = FakeRing::start(2).await;
    add_names(&ring, ring_bounds::NODES_MAX as u128 + 10);
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(state.routing.nodes().len(), ring_bounds::NODES_MAX);
    assert!(is_up(&state, 1) && is_up(&state, 2));
    assert_eq!(bench.metrics.connections_lost.get(), 0);
}

#[test]
fn the_asked_node_counts_as_one_of_the_nodes() {
    let (mut most, mut too_many) =
        (vec![(); ring_bounds::NODES_MAX - 1], vec![(); ring_bounds::NODES_MAX]);
    assert_eq!(ring_bounds::leave_out_excess(&mut most), None);
    assert!(ring_bounds::leave_out_excess(&mut too_many).is_some());
    assert_eq!((most.len(), too_many.len()), (most.len(), most.len()));
}

/// Without an inventory the proxy still follows the ring. It reads the lists again only when the
/// schema has changed.
#[tokio::test]
async fn a_schema_beyond_the_bound_of_an_inventory_keeps_the_connection() {
    let ring = FakeRing::start(1).await;
    ring.add_keyspace("k");
    let mut bench = Bench::start_prepared(
        &[ring.address(1)],
        None,
        |_| {},
        |plane| plane.inventories.bytes_max = 100,
    );
    bench.cluster_where(|state| state.routing.keyspace("k").is_some()).await;
    settled(&bench, 0).await;
    let inventories = || ring.state.lock().expect("lock").inventories;
    for (version, expected) in [(None, 1), (Some(78), 2), (None, 2)] {
        if let Some(version) = version {
            ring.edit(|state| state.nodes[0].schema_version = version);
        }
        let refreshes = bench.metrics.refreshes.get();
        bench.ask(ControlRequest::Refresh).await;
        settled(&bench, refreshes).await;
        assert_eq!(inventories(), expected);
    }
    assert_eq!(bench.metrics.connections_lost.get(), 0);
}
