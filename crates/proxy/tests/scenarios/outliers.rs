//! Nodes that are slower than the others: they get fewer queries for a while and come back slowly,
//! and no client notices more than the slowness. Whatever happens, queries have a node.

use shunt_bench::stub::{Action, Hook};
use shunt_proxy::config::Config;
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};
use shunt_topology::NodeId;
use shunt_wire::cql::message::error_code;

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

/// The hold of a first ejection.
const HOLD_NS: u64 = 5 * SECOND;
/// The interval between judgements.
const INTERVAL_NS: u64 = 2 * SECOND;

/// Six clients, before this many nodes, that have much to do.
fn busy(seed: u64, nodes: usize) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.nodes = nodes;
    options.aggregate = vec![false; nodes];
    options.config.outlier_interval_ms = INTERVAL_NS / MILLISECOND;
    options.config.outlier_hold_ms = HOLD_NS / MILLISECOND;
    options.config.slow_start_ms = 5_000;
    let mut scene = Scene::new(options);
    for _ in 0..6 {
        scene.add_client(|client| {
            client.outstanding = 10;
            client.think_ns = 10 * MILLISECOND;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene.mail_clients(ClientMail::More(1_000_000));
    scene
}

fn delayed(by_ns: u64) -> Option<Hook> {
    Some(Box::new(move |_| Action::Delay(by_ns)))
}

fn failing() -> Option<Hook> {
    Some(Box::new(|_| Action::Error(error_code::SERVER_ERROR)))
}

fn queries(scene: &Scene, node: usize) -> u64 {
    scene.world.host(scene.nodes[node]).counts().queries
}

/// Queries that each node gets while time passes.
fn queries_during(scene: &mut Scene, time_ns: u64) -> Vec<u64> {
    let nodes = scene.nodes.len();
    let before: Vec<u64> = (0..nodes).map(|node| queries(scene, node)).collect();
    scene.world.run_for(time_ns);
    (0..nodes).map(|node| queries(scene, node) - before[node]).collect()
}

fn is_ejected(scene: &Scene, node: usize) -> bool {
    scene.metrics[0].nodes.node(NodeId(node as u16)).ejected.get() > 0
}

fn withheld(scene: &Scene, node: usize) -> u64 {
    scene.metrics[0].nodes.node(NodeId(node as u16)).withheld_percent.get()
}

fn ejections(scene: &Scene) -> u64 {
    let nodes = 0..scene.nodes.len();
    nodes.map(|node| scene.metrics[0].nodes.node(NodeId(node as u16)).ejections.get()).sum()
}

fn wait(scene: &mut Scene, what: &str, is_met: impl Fn(&Scene) -> bool) {
    for _ in 0..600 {
        if is_met(scene) {
            return;
        }
        scene.world.run_for(100 * MILLISECOND);
    }
    scene.show_clients();
    panic!("{what}");
}

/// No client has noticed anything but time.
fn check(scene: &Scene) {
    if scene.sum(|client| client.tally.refused + client.tally.losses) > 0 {
        scene.show_clients();
        panic!("the clients noticed");
    }
    scene.check_memory();
}

#[test]
fn a_slow_node_gets_nothing_that_others_can_take_and_comes_back_slowly() {
    for_seeds(3, |seed| {
        let (mut scene, slow) = (busy(seed, 3), seed as usize % 3);
        scene.hook(slow, delayed(200 * MILLISECOND));
        wait(&mut scene, "the slow node is not ejected", |scene| is_ejected(scene, slow));
        scene.world.run_for(SECOND);
        let counts = queries_during(&mut scene, 2 * SECOND);
        assert_eq!(counts[slow], 0, "{counts:?}");
        assert!(counts.iter().enumerate().all(|(node, count)| node == slow || *count > 500));
        scene.hook(slow, None);
        wait(&mut scene, "its hold does not end", |scene| !is_ejected(scene, slow));
        let first = queries_during(&mut scene, SECOND);
        let others = first.iter().sum::<u64>() - first[slow];
        assert!(first[slow] > 0, "{first:?}");
        assert!(first[slow] * 4 < others, "at first it has a small share: {first:?}");
        wait(&mut scene, "its share does not grow", |scene| withheld(scene, slow) == 0);
        let last = queries_during(&mut scene, 2 * SECOND);
        assert!(last[slow] * 4 > last.iter().sum(), "its share is as before: {last:?}");
        assert_eq!(ejections(&scene), 1, "it is healthy");
        check(&scene);
    });
}

#[test]
fn a_node_that_stays_slow_is_ejected_again_for_longer() {
    let (mut scene, slow) = (busy(1, 3), 1);
    scene.hook(slow, delayed(200 * MILLISECOND));
    let mut held_ns = Vec::new();
    for _ in 0..3 {
        wait(&mut scene, "it is not ejected", |scene| is_ejected(scene, slow));
        let since_ns = scene.world.now_ns();
        wait(&mut scene, "its hold does not end", |scene| !is_ejected(scene, slow));
        held_ns.push(scene.world.now_ns() - since_ns);
    }
    for (held_ns, times) in held_ns.iter().zip(1..) {
        assert!(held_ns.abs_diff(times * HOLD_NS) < SECOND, "{held_ns}, {times}");
    }
    check(&scene);
}

#[test]
fn a_node_that_fails_is_ejected_and_nodes_that_all_fail_are_not() {
    let mut scene = busy(6, 3);
    let config = Config { outlier_interval_ms: 10_000, ..scene.options.config.clone() };
    scene.reload_as(config);
    scene.hook(1, failing());
    wait(&mut scene, "the failing node is not ejected", |scene| is_ejected(scene, 1));
    assert_eq!(ejections(&scene), 1);
    scene.hook(1, None);
    wait(&mut scene, "its share does not grow", |scene| withheld(scene, 1) == 0);
    (0..3).for_each(|node| scene.hook(node, failing()));
    scene.world.run_for(25 * SECOND);
    assert_eq!(ejections(&scene), 1);
    scene.check_memory();
}

#[test]
fn nodes_that_are_all_slow_are_all_used() {
    let mut scene = busy(2, 3);
    (0..3).for_each(|node| scene.hook(node, delayed(200 * MILLISECOND)));
    scene.world.run_for(5 * INTERVAL_NS);
    assert_eq!(ejections(&scene), 0);
    check(&scene);
}

#[test]
fn of_one_or_two_nodes_none_is_ejected() {
    for nodes in [1, 2] {
        let mut scene = busy(3, nodes);
        scene.hook(0, delayed(200 * MILLISECOND));
        let counts = queries_during(&mut scene, 5 * INTERVAL_NS);
        assert!(ejections(&scene) == 0 && counts[0] > 0, "{counts:?}");
        check(&scene);
    }
}

/// Slow statements make a node slow only for those who send them: they are not the median. Those
/// that are eject a third of the nodes at most.
#[test]
fn a_hostile_client_ejects_nobody_with_some_slow_statements() {
    let mut scene = busy(4, 3);
    for node in 0..3 {
        let mut number = 0u64;
        let hook: Hook = Box::new(move |_| {
            number += 1;
            let is_slow = number.is_multiple_of(3) && node == 0;
            if is_slow { Action::Delay(100 * MILLISECOND) } else { Action::Answer }
        });
        scene.hook(node, Some(hook));
    }
    scene.world.run_for(5 * INTERVAL_NS);
    assert_eq!(ejections(&scene), 0, "a third of the node's queries are slow");
    (0..2).for_each(|node| scene.hook(node, delayed(100 * MILLISECOND)));
    scene.world.run_for(5 * INTERVAL_NS);
    let ejected = (0..3).filter(|node| is_ejected(&scene, *node)).count();
    assert!(ejected <= 1, "{ejected}");
    check(&scene);
}

#[test]
fn an_ejected_node_serves_alone_when_the_others_die() {
    for_seeds(3, |seed| {
        let (mut scene, slow) = (busy(seed, 3), seed as usize % 3);
        scene.hook(slow, delayed(50 * MILLISECOND));
        wait(&mut scene, "the slow node is not ejected", |scene| is_ejected(scene, slow));
        for other in (0..3).filter(|other| *other != slow) {
            scene.world.kill(scene.nodes[other]);
            // A request is repeated once: what was under way at the first must be over.
            scene.world.run_for(500 * MILLISECOND);
        }
        wait(&mut scene, "it is still ejected", |scene| !is_ejected(scene, slow));
        let before = queries(&scene, slow);
        scene.world.run_for(2 * SECOND);
        assert!(queries(&scene, slow) > before + 100);
        check(&scene);
    });
}

#[test]
fn a_node_that_was_away_begins_with_a_small_share() {
    let mut scene = busy(5, 3);
    scene.world.run_for(SECOND);
    scene.world.kill(scene.nodes[0]);
    scene.world.run_for(2 * SECOND);
    scene.restart_node(0);
    wait(&mut scene, "it gets no link", |scene| scene.links(0).1 > 0);
    let first = queries_during(&mut scene, SECOND);
    assert!(first[0] * 4 < first[1] + first[2], "{first:?}");
    wait(&mut scene, "its share does not grow", |scene| withheld(scene, 0) == 0);
    let last = queries_during(&mut scene, SECOND);
    assert!(last[0] * 4 > last.iter().sum(), "{last:?}");
    assert_eq!(ejections(&scene), 0);
    check(&scene);
}
