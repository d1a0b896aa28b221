//! Nodes that take aggregated frames on a separate port: links move there when it works, and
//! whatever happens to that port, no client notices.

use std::net::SocketAddr;

use shunt_bench::stub::hook::Request;
use shunt_bench::stub::{Action, Ring, Stub, StubOptions};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};

use super::layouts::LAYOUTS;
use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

const PORT: u16 = 9142;

fn scene(seed: u64, change: impl FnOnce(&mut SceneOptions)) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.aggregate = vec![true; 3];
    options.aggregate_port = Some(PORT);
    change(&mut options);
    let with_login = !options.credentials.is_empty();
    let mut scene = Scene::new(options);
    for (number, (version, compression)) in LAYOUTS.into_iter().enumerate() {
        scene.add_client(|client| {
            (client.version, client.compression) = (version, compression);
            client.uses_keyspace = number % 2 == 0;
            client.login = with_login.then_some(("ann", "secret"));
            client.think_ns = 10 * MILLISECOND;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene
}

fn port_of(node: usize) -> SocketAddr {
    SocketAddr::new([10, 1, 0, node as u8 + 1].into(), PORT)
}

/// The scene works through some load and no client notices anything.
fn serves_everybody(scene: &mut Scene) {
    let before = scene.sum(|client| client.tally.right);
    scene.work(60, 300 * SECOND);
    assert_eq!(scene.sum(|client| client.tally.right) - before, 60 * scene.clients.len() as u64);
    unnoticed(scene);
}

fn unnoticed(scene: &Scene) {
    if scene
        .sum(|client| client.tally.refused + client.tally.losses + client.tally.handshakes_failed)
        > 0
    {
        scene.show_clients();
        panic!("the clients noticed");
    }
    scene.check_memory();
}

/// Checks that all links to a node carry aggregated frames, or that none does.
fn assert_links(scene: &Scene, node: usize, aggregated: bool) {
    let (frames, all) = scene.links(node);
    assert!(all > 0, "no link to node {node}");
    assert_eq!(frames, if aggregated { all } else { 0 }, "of {all} links to node {node}");
}

#[test]
fn links_move_to_the_port_that_a_node_names() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed, |_| {});
        serves_everybody(&mut scene);
        scene.world.run_for(2 * SECOND);
        serves_everybody(&mut scene);
        (0..3).for_each(|node| assert_links(&scene, node, true));
        let counts = scene.world.host(scene.nodes[0]).counts();
        assert!(counts.aggregated_queries > 0, "{counts:?}");
        scene.check_at_rest();
    });
}

#[test]
fn a_login_holds_on_both_ports() {
    for_seeds(4, |seed| {
        let mut scene =
            scene(seed, |options| options.credentials = vec![("ann".into(), "secret".into())]);
        scene.world.run_for(2 * SECOND);
        serves_everybody(&mut scene);
        (0..3).for_each(|node| assert_links(&scene, node, true));
    });
}

#[test]
fn a_port_that_cannot_be_reached_costs_nobody_anything() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed, |_| {});
        for node in 0..3 {
            scene.world.stop_listening(scene.nodes[node], port_of(node));
        }
        scene.world.run_for(60 * SECOND);
        serves_everybody(&mut scene);
        for node in 0..3 {
            scene.world.listen(scene.nodes[node], port_of(node));
        }
        scene.world.run_for(400 * SECOND);
        serves_everybody(&mut scene);
        (0..3).for_each(|node| assert_links(&scene, node, true));
    });
}

#[test]
fn another_program_on_the_port_costs_nobody_anything() {
    for_seeds(4, |seed| {
        let mut options = SceneOptions::new(seed, Options::calm());
        options.aggregate = vec![true; 3];
        options.aggregate_port = Some(PORT);
        let mut scene = Scene::new(options);
        let ring = Ring::even(&[port_of(0)], 4);
        let stranger = Stub::new(StubOptions { listeners: vec![0], ..StubOptions::new(ring) });
        let stranger = scene.world.add("stranger", stranger);
        scene.world.stop_listening(scene.nodes[0], port_of(0));
        scene.world.listen(stranger, port_of(0));
        for version in 3..=5 {
            scene.add_client(|client| client.version = version);
        }
        scene.wait_ready(20 * SECOND);
        scene.world.run_for(5 * SECOND);
        serves_everybody(&mut scene);
        assert_links(&scene, 0, false);
        assert_links(&scene, 1, true);
        assert_eq!(scene.world.host(stranger).counts().queries, 0);
    });
}

#[test]
fn frames_that_something_on_the_way_does_not_let_through_are_not_sent_for_ever() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed, |options| options.aggregate_port = None);
        serves_everybody(&mut scene);
        (0..3).for_each(|node| assert_links(&scene, node, true));
        for node in 0..3 {
            let refuses = |request: &Request<'_>| {
                if request.aggregated { Action::Close } else { Action::Answer }
            };
            scene.hook(node, Some(Box::new(refuses)));
        }
        // Requests in a frame may be lost with its link.
        scene.work(60, 300 * SECOND);
        scene.world.run_for(400 * SECOND);
        let lost = |scene: &Scene| scene.sum(|client| client.tally.refused + client.tally.losses);
        for _ in 0..5 {
            scene.work(20, 300 * SECOND);
        }
        let (before, queries) = (lost(&scene), scene.sum(|client| client.tally.right));
        scene.work(60, 20 * SECOND);
        let tried = 3 * LAYOUTS.len() as u64;
        assert!(lost(&scene) - before <= tried, "{} lost", lost(&scene) - before);
        assert!(
            scene.sum(|client| client.tally.right) - queries
                >= 60 * scene.clients.len() as u64 - tried
        );
        (0..3).for_each(|node| scene.hook(node, None));
        scene.world.run_for(700 * SECOND);
        (0..3).for_each(|node| assert_links(&scene, node, true));
        scene.check_memory();
    });
}

#[test]
fn frames_are_taken_later_than_queries_and_given_up_again() {
    for_seeds(2, |seed| {
        let mut scene = scene(seed, |options| options.aggregate = vec![false; 3]);
        serves_everybody(&mut scene);
        for round in 0..3 {
            let on = round % 2 == 0;
            scene.mail_clients(ClientMail::More(1000));
            scene.world.run_for(50 * MILLISECOND);
            // One after the other: a query is repeated once.
            for node in 0..3 {
                scene.offer_aggregates(node, on);
                scene.world.run_for(SECOND);
            }
            scene.wait_idle(60 * SECOND);
            scene.world.run_for(400 * SECOND);
            unnoticed(&scene);
            (0..3).for_each(|node| assert_links(&scene, node, on));
        }
    });
}
