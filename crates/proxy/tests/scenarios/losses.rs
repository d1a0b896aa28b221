//! Nodes and links that vanish. The client's requests are idempotent, so it must not notice while
//! one replica is left.

use shunt_bench::stub::{Action, hook};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};
use shunt_wire::cql::envelope::opcode;

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

/// Six busy clients, aggregated links to every second node.
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

/// Checks that every request was answered, none refused, and no connection lost.
fn unnoticed(mut scene: Scene) -> Scene {
    scene.wait_idle(60 * SECOND);
    if scene.sum(|client| client.tally.refused + client.tally.losses) > 0 {
        scene.show_clients();
        panic!("the clients noticed");
    }
    scene.check_memory();
    scene.check_at_rest();
    scene
}

#[test]
fn a_killed_node_costs_no_client_anything() {
    for_seeds(20, |seed| {
        let mut scene = busy(seed);
        scene.world.kill(scene.nodes[seed as usize % 3]);
        unnoticed(scene);
    });
}

#[test]
fn a_killed_node_that_comes_back_is_used_again() {
    for_seeds(10, |seed| {
        let mut scene = busy(seed);
        scene.world.kill(scene.nodes[1]);
        scene.world.run_for(30 * MILLISECOND);
        scene.restart_node(1);
        let mut scene = unnoticed(scene);
        scene.world.run_for(15 * SECOND);
        scene.work(50, 10 * SECOND);
        assert!(
            scene.world.host(scene.nodes[1]).counts().queries > 10,
            "the node is not used again"
        );
        unnoticed(scene);
    });
}

#[test]
fn a_reset_link_costs_no_client_anything() {
    for_seeds(20, |seed| {
        let mut scene = busy(seed);
        scene.hook(
            seed as usize % 3,
            Some(hook::once(Action::Close, |request| request.opcode == opcode::EXECUTE)),
        );
        unnoticed(scene);
    });
}

#[test]
fn a_node_that_answers_garbage_or_strangers_loses_its_link_only() {
    for_seeds(20, |seed| {
        let mut scene = busy(seed);
        let faults = [
            Action::Garbage(vec![0xA5; 64]),
            Action::UnknownStream(i16::MAX),
            Action::UnknownStream(-2),
            Action::Garbage(vec![0x84, 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff]),
        ];
        let fault = faults[seed as usize % 4].clone();
        scene.hook(0, Some(hook::once(fault, |request| request.opcode == opcode::EXECUTE)));
        let scene = unnoticed(scene);
        assert_eq!(scene.metrics[0].node_protocol_errors.get(), 1);
    });
}

#[test]
fn clients_held_back_by_a_full_link_do_not_wait_for_it_after_its_death() {
    for_seeds(10, |seed| {
        let mut options = SceneOptions::new(seed, Options::calm());
        options.config.in_flight_max = 4;
        let mut scene = Scene::new(options);
        for _ in 0..6 {
            scene.add_client(|client| (client.outstanding, client.think_ns) = (30, 0));
        }
        scene.wait_ready(20 * SECOND);
        for node in 0..3 {
            scene.hook(node, Some(hook::random(seed, vec![(0.5, Action::Delay(2 * MILLISECOND))])));
        }
        scene.mail_clients(ClientMail::More(400));
        scene.world.run_for(50 * MILLISECOND);
        scene.world.kill(scene.nodes[0]);
        scene.wait_idle(60 * SECOND);
        assert!(scene.metrics[0].client_pauses.get() > 0, "nobody was held back");
        for client in &scene.clients {
            let slowest_ns = scene.world.host(*client).tally.slowest_ns;
            assert!(slowest_ns < SECOND, "{} ms", slowest_ns / MILLISECOND);
        }
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn all_nodes_gone_gives_errors_and_recovery_not_silence() {
    for_seeds(10, |seed| {
        let mut scene = busy(seed);
        for node in scene.nodes.clone() {
            scene.world.kill(node);
        }
        scene.world.run_for(3 * SECOND);
        for node in 0..3 {
            scene.restart_node(node);
        }
        scene.wait_idle(60 * SECOND);
        assert_eq!(
            scene.sum(|client| client.tally.losses + client.tally.out_of_patience),
            0,
            "connections were lost"
        );
        scene.world.run_for(15 * SECOND);
        let refused = scene.sum(|client| client.tally.refused);
        scene.work(50, 10 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.refused), refused);
        scene.check_memory();
    });
}

#[test]
fn a_stopped_node_delays_only_what_it_had() {
    for_seeds(10, |seed| {
        let mut scene = busy(seed);
        scene.world.freeze(scene.nodes[2]);
        scene.wait_idle(60 * SECOND);
        // Its requests timed out; later ones went elsewhere once it was found silent.
        let refused = scene.sum(|client| client.tally.refused);
        assert!(refused <= 6 * 10 * 3, "{refused} requests were refused");
        assert!(scene.sum(|client| client.tally.right) + refused == 6 * 400);
        assert_eq!(scene.sum(|client| client.tally.losses + client.tally.out_of_patience), 0);
        for client in &scene.clients {
            assert!(scene.world.host(*client).tally.slowest_ns < 3 * SECOND);
        }
        scene.world.run_for(15 * SECOND);
        scene.work(50, 10 * SECOND);
        assert_eq!(
            scene.sum(|client| client.tally.refused),
            refused,
            "a node known to be dead was asked"
        );
        scene.world.thaw(scene.nodes[2]);
        scene.world.run_for(15 * SECOND);
        scene.work(50, 10 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.refused), refused);
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn a_half_open_link_is_found_out() {
    for_seeds(10, |seed| {
        let mut scene = busy(seed);
        let (core, node) = (scene.cores[0], scene.nodes[1]);
        scene.world.cut(core, node);
        scene.wait_idle(60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.losses + client.tally.out_of_patience), 0);
        scene.world.run_for(10 * SECOND);
        let refused = scene.sum(|client| client.tally.refused);
        scene.work(50, 10 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.refused), refused);
        scene.world.join(core, node);
        scene.world.run_for(30 * SECOND);
        scene.work(50, 10 * SECOND);
        scene.check_memory();
        scene.check_at_rest();
    });
}

/// Queries that a node lost for good count as in flight on it, and would keep others away from it.
#[test]
fn a_node_that_lost_some_queries_gets_its_share_again() {
    for_seeds(5, |seed| {
        let mut scene = busy(seed);
        let mut left = 10;
        let lost: shunt_bench::stub::Hook = Box::new(move |request| {
            if request.opcode != opcode::EXECUTE || left == 0 {
                return Action::Answer;
            }
            left -= 1;
            Action::Silence
        });
        scene.hook(0, Some(lost));
        scene.wait_idle(60 * SECOND);
        let refused = scene.sum(|client| client.tally.refused);
        assert!(refused > 0, "nothing was lost");
        scene.hook(0, None);
        scene.world.run_for(120 * SECOND);
        let asked = |scene: &Scene| scene.world.host(scene.nodes[0]).counts().queries;
        let before = asked(&scene);
        scene.work(100, 60 * SECOND);
        assert!(asked(&scene) - before > 100, "{before} {}", asked(&scene));
        assert_eq!(scene.sum(|client| client.tally.refused), refused);
        scene.check_memory();
        scene.check_at_rest();
    });
}

/// A link that opens and breaks with its first query is worth nothing, however often it opens.
#[test]
fn a_node_that_breaks_each_link_is_tried_ever_more_rarely() {
    for_seeds(5, |seed| {
        let mut scene = busy(seed);
        scene.wait_idle(60 * SECOND);
        let connects = |scene: &Scene| scene.world.host(scene.nodes[0]).counts().options;
        scene.hook(0, Some(hook::random(seed, vec![(1.0, Action::Close)])));
        let before = connects(&scene);
        for _ in 0..60 {
            scene.mail_clients(ClientMail::More(20));
            scene.world.run_for(SECOND);
        }
        let tried = connects(&scene) - before;
        assert!((3..40).contains(&tried), "tried {tried} times in a minute");
        scene.hook(0, None);
        scene.wait_idle(60 * SECOND);
    });
}
