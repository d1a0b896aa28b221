//! Nodes that an operator takes out of routing: they get no new queries while other nodes can take
//! them, and no client notices, whatever happens to the others.

use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

/// Six busy clients.
fn busy(seed: u64) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.aggregate = vec![true, false, true];
    let mut scene = Scene::new(options);
    for number in 0..6 {
        scene.add_client(|client| {
            client.version = 3 + number % 3;
            client.outstanding = 10;
            client.think_ns = MILLISECOND;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene.mail_clients(ClientMail::More(400));
    scene.world.run_for(20 * MILLISECOND);
    scene
}

fn drain(scene: &mut Scene, nodes: &[usize]) {
    scene.drained = nodes.to_vec();
    scene.post_cluster();
}

fn queries(scene: &Scene, node: usize) -> u64 {
    scene.world.host(scene.nodes[node]).counts().queries
}

/// Waits until every request is answered; no client has noticed anything.
fn finish(scene: &mut Scene) {
    scene.wait_idle(60 * SECOND);
    if scene.sum(|client| client.tally.refused + client.tally.losses) > 0 {
        scene.show_clients();
        panic!("the clients noticed");
    }
    scene.check_memory();
    scene.check_at_rest();
}

#[test]
fn a_drained_node_gets_no_query_until_it_is_taken_back() {
    for_seeds(20, |seed| {
        let (mut scene, node) = (busy(seed), seed as usize % 3);
        drain(&mut scene, &[node]);
        finish(&mut scene);
        let before = queries(&scene, node);
        assert!(before > 0, "the node had no queries");
        scene.work(100, 20 * SECOND);
        assert_eq!(queries(&scene, node), before);
        drain(&mut scene, &[]);
        scene.work(100, 20 * SECOND);
        assert!(queries(&scene, node) > before, "the node is not used again");
        finish(&mut scene);
    });
}

#[test]
fn a_drained_node_takes_queries_when_all_others_are_gone() {
    for_seeds(20, |seed| {
        let (mut scene, node) = (busy(seed), seed as usize % 3);
        drain(&mut scene, &[node]);
        scene.world.run_for(30 * MILLISECOND);
        for other in (0..3).filter(|other| *other != node) {
            scene.world.kill(scene.nodes[other]);
            // A request is repeated once: what was under way at the first must be over.
            scene.world.run_for(50 * MILLISECOND);
        }
        finish(&mut scene);
        let before = queries(&scene, node);
        scene.work(50, 20 * SECOND);
        assert!(queries(&scene, node) > before);
        finish(&mut scene);
    });
}

#[test]
fn a_drained_node_that_dies_costs_nobody_anything() {
    for_seeds(20, |seed| {
        let (mut scene, node) = (busy(seed), seed as usize % 3);
        drain(&mut scene, &[node]);
        scene.world.run_for(seed % 5 * MILLISECOND);
        scene.world.kill(scene.nodes[node]);
        finish(&mut scene);
        scene.work(50, 20 * SECOND);
        finish(&mut scene);
    });
}

#[test]
fn all_nodes_drained_is_as_none_drained() {
    for_seeds(5, |seed| {
        let mut scene = busy(seed);
        drain(&mut scene, &[0, 1, 2]);
        finish(&mut scene);
        scene.work(50, 20 * SECOND);
        finish(&mut scene);
    });
}
