//! The choice of ring and datacentre.

use super::super::access::Access;
use super::super::client::{AsyncClient, Server};
use super::fake::FakeRing;
use super::*;

/// A ring of nodes 1 to `dc1 + dc2`, the last ones in dc2.
async fn two_datacentres(dc1: u128, dc2: usize) -> FakeRing {
    let ring = FakeRing::start(dc1 + dc2 as u128).await;
    ring.edit(|state| {
        state.nodes.iter_mut().rev().take(dc2).for_each(|node| node.datacentre = "dc2")
    });
    ring
}

/// A ring with these host ids and this name.
async fn another(name: &'static str, host_ids: &[u128]) -> FakeRing {
    let mut ring = FakeRing::start(0).await;
    for host_id in host_ids {
        ring.add_node(*host_id, "127.0.0.1:0").await;
    }
    ring.edit(|state| state.cluster_name = name);
    ring
}

/// The datacentre chosen with these contact points.
async fn chosen(contact_points: &[SocketAddr]) -> String {
    Bench::start(contact_points, |_| {}).cluster_where(|_| true).await.datacentre.clone()
}

#[tokio::test]
async fn a_local_datacentre_that_the_ring_does_not_have_ends_the_start() {
    let ring = two_datacentres(2, 1).await;
    let bench =
        Bench::start(&[ring.address(1)], |config| config.local_datacentre = Some("DC1".to_owned()));
    let why = bench.unfit().await;
    assert!(
        why.contains("DC1") && why.contains("dc1 (2 nodes)") && why.contains("dc2 (1 node)"),
        "{why}"
    );
}

#[tokio::test]
async fn a_host_that_says_nothing_keeps_no_command_from_the_next() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let ring = FakeRing::start(1).await;
    let addresses = [silent.local_addr().expect("address"), ring.address(1)];
    let servers = addresses.map(|address| Server { address, name: None }).into();
    let access = Access::plain(None, 2 * GUARD);
    let connected = timeout(GUARD, AsyncClient::connect_first(servers, &access)).await;
    assert!(connected.expect("it waits for the silent one").is_ok());
    let nobody = Server { address: "127.0.0.1:1".parse().expect("address"), name: None };
    let nobody = AsyncClient::connect_first(vec![nobody], &access).await;
    assert_eq!(nobody.err().map(|failed| failed.len()), Some(1));
    assert!(AsyncClient::connect_first(Vec::new(), &access).await.is_err());
}

/// A proxy that is its own contact point would wait for itself, or be taken for a node.
#[tokio::test]
async fn a_contact_point_that_is_the_proxy_itself_ends_the_start() {
    let own = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let own = own.local_addr().expect("address");
    let ring = FakeRing::start(1).await;
    for contact_points in [&[own][..], &[ring.address(1), own], &[own, ring.address(1)]] {
        let why =
            Bench::start(contact_points, |config| config.listen.tcp = vec![own]).unfit().await;
        assert!(why.contains(&own.to_string()) && why.contains("listens itself"), "{why}");
    }
}

/// The result does not depend on who is up or reached first.
#[tokio::test]
async fn the_datacentre_of_the_contact_points_is_chosen() {
    let mut ring = two_datacentres(2, 2).await;
    let of_dc2 = [ring.address(3), ring.address(4)];
    let all = [chosen(&of_dc2).await, chosen(&[of_dc2[1], of_dc2[0]]).await];
    assert_eq!(all, ["dc2", "dc2"]);
    ring.kill(4);
    assert_eq!(chosen(&of_dc2).await, "dc2");
    // A contact point that has left the ring has no say.
    assert_eq!(chosen(&[ring.address(1), "127.0.0.1:1".parse().expect("address")]).await, "dc1");
}

#[tokio::test]
async fn contact_points_in_several_datacentres_choose_none() {
    let mut ring = two_datacentres(1, 1).await;
    let both = [ring.address(1), ring.address(2)];
    for down in [None, Some(1)] {
        if let Some(node) = down {
            ring.kill(node);
        }
        let why = Bench::start(&both, |_| {}).unfit().await;
        for part in ["local_datacentre", "dc1", "dc2", &both[0].to_string(), &both[1].to_string()] {
            assert!(why.contains(part), "{part}: {why}");
        }
        let mut set =
            Bench::start(&both, |config| config.local_datacentre = Some("dc1".to_owned()));
        assert_eq!(set.cluster_where(|_| true).await.datacentre, "dc1");
    }
}

/// A name that cannot be looked up might lie in the other datacentre.
#[tokio::test]
async fn a_contact_point_without_an_address_leaves_the_choice_open() {
    let ring = two_datacentres(1, 1).await;
    let unknown = |config: &mut Config| config.contact_points.push("nobody.invalid".to_owned());
    let why = Bench::start(&[ring.address(1)], unknown).unfit().await;
    assert!(why.contains("nobody.invalid") && why.contains("local_datacentre"), "{why}");
    // With one datacentre the choice is clear.
    ring.edit(|state| state.nodes[1].datacentre = "dc1");
    assert_eq!(
        Bench::start(&[ring.address(1)], unknown).cluster_where(|_| true).await.datacentre,
        "dc1"
    );
}

/// The nodes of the chosen datacentre are gone, and nobody chose the others.
#[tokio::test]
async fn a_datacentre_that_vanishes_leaves_no_node_to_use() {
    for configured in [None, Some("dc2".to_owned())] {
        let ring = two_datacentres(2, 1).await;
        let mut bench =
            Bench::start(&[ring.address(3)], |config| config.local_datacentre = configured.clone());
        assert_eq!(bench.cluster_where(|_| true).await.routing.local_nodes().len(), 1);
        eventually(|| bench.metrics.refreshes.get() > 0).await;
        ring.edit(|state| state.nodes[2].datacentre = "dc3");
        bench.ask(ControlRequest::Refresh).await;
        let state = bench
            .cluster_where(|state| {
                state.routing.nodes().iter().any(|node| node.datacentre == "dc3")
            })
            .await;
        assert_eq!(
            (state.datacentre.as_str(), state.routing.local_nodes().len()),
            ("dc2", 0),
            "{configured:?}"
        );
        // It comes back.
        ring.edit(|state| state.nodes[2].datacentre = "dc2");
        bench.ask(ControlRequest::Refresh).await;
        let back = bench.cluster_where(|state| !state.routing.local_nodes().is_empty()).await;
        assert_eq!(back.routing.local_nodes().len(), 1);
    }
}

#[tokio::test]
async fn contact_points_of_two_rings_end_the_start() {
    let own = FakeRing::start(2).await;
    for stranger in [another("Another", &[101]).await, another("fake", &[101, 102]).await] {
        let why = Bench::start(&[own.address(1), stranger.address(101)], |_| {}).unfit().await;
        assert!(
            why.contains(&stranger.address(101).to_string())
                || why.contains(&own.address(1).to_string()),
            "{why}"
        );
        assert!(why.contains("another ring"), "{why}");
    }
}

/// A contact point that is not in the ring's list may be another way to one of its nodes.
#[tokio::test]
async fn a_contact_point_may_be_another_address_of_a_node() {
    let mut ring = FakeRing::start(2).await;
    let detour = ring.also_at(2, "127.0.0.1:0").await;
    let mut bench = Bench::start(&[ring.address(1), detour], |_| {});
    assert_eq!(bench.cluster_where(|_| true).await.routing.nodes().len(), 2);
}

/// The addresses of a ring passed to another one while there was no control connection.
#[tokio::test]
async fn another_ring_at_the_addresses_of_this_one_is_not_followed() {
    for name in ["Another", "fake"] {
        let mut own = FakeRing::start(2).await;
        let mut bench = Bench::start(&[own.address(1)], |_| {});
        let state = bench.cluster_where(|_| true).await;
        eventually(|| bench.metrics.refreshes.get() > 0).await;
        let mut stranger = FakeRing::start(0).await;
        stranger.edit(|state| state.cluster_name = name);
        let addresses = [own.address(1), own.address(2)];
        own.kill(1);
        own.kill(2);
        for (host_id, address) in [(101, addresses[0]), (102, addresses[1])] {
            stranger.add_node_soon(host_id, address).await;
        }
        eventually(|| bench.metrics.strangers.get() >= 2).await;
        let view = bench.view.get().expect("view");
        assert_eq!(view.cluster_name, state.cluster_name);
        assert!(view.routing.nodes().iter().all(|node| node.host_id < 100), "{name}");
        // One of the addresses returns to its own ring.
        stranger.kill(102);
        timeout(GUARD, own.revive(2)).await.expect("its port is free again");
        eventually(|| bench.metrics.connected.get() == 1).await;
        eventually(|| bench.metrics.refreshes.get() >= 2).await;
        assert!(
            bench.view.get().expect("view").routing.nodes().iter().all(|node| node.host_id < 100),
            "{name}"
        );
    }
}

/// A node replaced another at its address, with known peers.
#[tokio::test]
async fn a_node_that_was_replaced_at_its_address_is_followed() {
    let mut ring = FakeRing::start(2).await;
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    bench.cluster_where(|_| true).await;
    eventually(|| bench.metrics.refreshes.get() > 0).await;
    let address = ring.address(1);
    ring.kill(2);
    ring.kill(1);
    ring.edit(|state| state.nodes.retain(|node| node.host_id != 1));
    ring.add_node_soon(7, address).await;
    bench.cluster_where(|state| state.routing.nodes().iter().any(|node| node.host_id == 7)).await;
}

/// Publishes a new keyspace in the next refresh; returns the state that has it.
async fn refreshed(ring: &FakeRing, bench: &mut Bench, keyspace: &str) -> Arc<ClusterState> {
    let refreshes = bench.metrics.refreshes.get();
    ring.add_keyspace(keyspace);
    bench.ask(ControlRequest::Refresh).await;
    let state = bench.cluster_where(|state| state.routing.keyspace(keyspace).is_some()).await;
    eventually(|| bench.metrics.refreshes.get() > refreshes).await;
    state
}

/// A contact point may have come to lie in another datacentre. Operators who change the level of
/// the log do not mean to move the traffic there.
#[tokio::test]
async fn a_log_level_chooses_no_datacentre_and_reads_nothing() {
    let ring = two_datacentres(1, 1).await;
    let mut bench = Bench::start(&[ring.address(1)], |_| {});
    assert_eq!(bench.cluster_where(|_| true).await.datacentre, "dc1");
    eventually(|| bench.metrics.refreshes.get() > 0).await;
    ring.edit(|state| {
        state.nodes[0].datacentre = "dc2";
        state.nodes[1].datacentre = "dc1";
    });
    assert_eq!(refreshed(&ring, &mut bench, "first").await.datacentre, "dc1");
    let refreshes = bench.metrics.refreshes.get();
    bench.config.send_modify(|config| Arc::make_mut(config).log = "debug".to_owned());
    assert_eq!(refreshed(&ring, &mut bench, "second").await.datacentre, "dc1");
    assert_eq!(bench.metrics.refreshes.get(), refreshes + 1);
    // An address that is in no ring has no say.
    bench.config.send_modify(|config| {
        Arc::make_mut(config).contact_points.push("127.0.0.1:1".to_owned());
    });
    bench.cluster_where(|state| state.datacentre == "dc2").await;
}
