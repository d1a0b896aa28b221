//! The proxy's own life: before the ring is known, logins, a ring that changes, and the end.

use shunt_bench::stub::{Action, hook};
use shunt_proxy::control::state::CoreMail;
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, World, for_seeds};

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

fn scene(seed: u64, change: impl FnOnce(&mut SceneOptions)) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.cores = 2;
    change(&mut options);
    Scene::new(options)
}

fn add_clients(scene: &mut Scene, count: u8) {
    for number in 0..count {
        scene.add_client(|client| {
            client.version = 3 + number % 3;
            client.outstanding = 10;
            client.think_ns = MILLISECOND;
        });
    }
}

#[test]
fn draining_answers_what_is_in_flight_and_stops() {
    for_seeds(20, |seed| {
        let mut scene = scene(seed, |_| {});
        add_clients(&mut scene, 8);
        scene.wait_ready(20 * SECOND);
        for node in 0..3 {
            scene.hook(
                node,
                Some(hook::random(seed, vec![(1.0, Action::Delay(300 * MILLISECOND))])),
            );
        }
        scene.mail_clients(ClientMail::More(10));
        scene.world.run_for(100 * MILLISECOND);
        let in_flight: u64 = scene.metrics.iter().map(|metrics| metrics.in_flight.get()).sum();
        assert!(in_flight > 20, "{in_flight} in flight");
        scene.mail_clients(ClientMail::Stop);
        scene.world.run_for(10 * MILLISECOND);
        for core in scene.cores.clone() {
            scene.world.post(core, CoreMail::Drain);
        }
        let cores = scene.cores.clone();
        let gone = |world: &mut World| cores.iter().all(|core| !world.is_running(*core));
        assert!(scene.world.run_until(5 * SECOND, gone), "the cores did not stop");
        scene.world.run_for(SECOND);
        assert_eq!(scene.sum(|client| client.tally.refused), 0);
        assert_eq!(
            scene.sum(|client| client.tally.right),
            scene.sum(|client| u64::from(client.asked()))
        );
        scene.check_memory();
    });
}

#[test]
fn clients_that_come_before_the_ring_is_known_are_served_once_it_is() {
    for_seeds(10, |seed| {
        let mut scene = scene(seed, |options| options.knows_ring = false);
        add_clients(&mut scene, 6);
        scene.world.run_for(4 * SECOND);
        assert_eq!(scene.sum(|client| u64::from(client.is_ready())), 0);
        scene.post_cluster();
        scene.wait_ready(10 * SECOND);
        scene.work(50, 10 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.losses + client.tally.refused), 0);
    });
}

#[test]
fn a_ring_that_stays_unknown_is_told_to_clients() {
    let mut scene = scene(1, |options| options.knows_ring = false);
    add_clients(&mut scene, 6);
    scene.world.run_for(15 * SECOND);
    let failed = scene.sum(|client| client.tally.handshakes_failed);
    assert!(failed >= 6, "{failed} of 6 were told");
    let said = &scene.world.host(scene.clients[0]).last_error;
    assert!(said.contains("has not reached any node"), "{said}");
}

#[test]
fn roles_log_in_with_their_own_password_only() {
    for_seeds(10, |seed| {
        let mut scene = scene(seed, |options| {
            options.credentials =
                vec![("ann".into(), "secret".into()), ("bob".into(), "other".into())];
        });
        let logins =
            [("ann", "secret"), ("bob", "other"), ("ann", "other"), ("eve", "secret"), ("bob", "")];
        for (number, login) in logins.into_iter().enumerate() {
            scene.add_client(|client| {
                client.login = Some(login);
                client.version = 3 + number as u8 % 3;
            });
        }
        scene.mail_clients(ClientMail::More(50));
        scene.world.run_for(10 * SECOND);
        for (client, (right, told)) in
            scene.clients.iter().zip([(50, 0), (50, 0), (0, 3), (0, 3), (0, 3)])
        {
            let client = scene.world.host(*client);
            assert_eq!(
                client.tally.right, right,
                "{:?}: {}",
                client.options.login, client.last_error
            );
            assert!(client.tally.handshakes_failed >= told);
            assert!(told == 0 || client.last_error.contains("incorrect"), "{}", client.last_error);
        }
        scene.check_memory();
    });
}

#[test]
fn a_node_joins_and_another_leaves_unnoticed() {
    for_seeds(20, |seed| {
        let mut scene = scene(seed, |options| {
            options.nodes = 4;
            options.aggregate = vec![seed % 2 == 0; 4];
        });
        add_clients(&mut scene, 6);
        scene.known[3] = false;
        scene.post_cluster();
        scene.wait_ready(20 * SECOND);
        scene.mail_clients(ClientMail::More(600));
        scene.world.run_for(50 * MILLISECOND);
        let before = scene.world.host(scene.nodes[3]).counts().queries;
        scene.known[3] = true;
        scene.post_cluster();
        scene.world.run_for(100 * MILLISECOND);
        scene.known[0] = false;
        scene.post_cluster();
        scene.world.run_for(50 * MILLISECOND);
        scene.world.kill(scene.nodes[0]);
        scene.wait_idle(60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.right), 6 * 600, "{}", scene.log_of_metrics());
        assert!(
            scene.world.host(scene.nodes[3]).counts().queries > before + 100,
            "the new node is not used"
        );
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn schema_events_reach_those_who_registered() {
    let mut scene = scene(1, |_| {});
    add_clients(&mut scene, 6);
    for version in 3..=5 {
        scene.add_client(|client| (client.version, client.registers) = (version, true));
    }
    scene.wait_ready(20 * SECOND);
    scene.mail_clients(ClientMail::More(100));
    for _ in 0..10 {
        scene.post_schema_event();
        scene.world.run_for(10 * MILLISECOND);
    }
    scene.wait_idle(20 * SECOND);
    let events: Vec<u64> =
        scene.clients.iter().map(|client| scene.world.host(*client).tally.events).collect();
    assert_eq!(events, [0, 0, 0, 0, 0, 0, 10, 10, 10]);
}

#[test]
fn schema_events_reach_more_clients_than_one_step_tells() {
    let mut scene = scene(1, |_| {});
    for number in 0..400_u16 {
        scene.add_client(|client| {
            (client.version, client.registers) = (3 + (number % 3) as u8, true);
        });
    }
    scene.wait_ready(20 * SECOND);
    for _ in 0..10 {
        scene.post_schema_event();
    }
    scene.world.run_for(SECOND);
    let least = scene.clients.iter().map(|client| scene.world.host(*client).tally.events).min();
    assert_eq!((least, scene.sum(|client| client.tally.events)), (Some(10), 4_000));
}

/// After a change of `local_datacentre`, for example, queries would not use these links, and USE
/// would count on them.
#[test]
fn links_to_nodes_that_are_not_local_any_more_are_closed() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed, |_| {});
        add_clients(&mut scene, 6);
        scene.work(20, 20 * SECOND);
        assert!(scene.links(0).1 > 0);
        scene.ring.nodes[0].datacentre = "elsewhere".into();
        scene.mail_clients(ClientMail::More(50));
        scene.post_cluster();
        scene.wait_idle(20 * SECOND);
        scene.world.run_for(2 * SECOND);
        assert_eq!(scene.links(0).1, 0);
        assert_eq!(scene.sum(|client| client.tally.refused + client.tally.losses), 0);
        scene.check_memory();
    });
}

/// A node of another datacentre is not used, even if there is no other.
#[test]
fn a_local_datacentre_that_vanishes_has_its_queries_refused() {
    let mut scene = scene(1, |_| {});
    add_clients(&mut scene, 3);
    scene.work(20, 20 * SECOND);
    for node in &mut scene.ring.nodes {
        node.datacentre = "elsewhere".into();
    }
    scene.post_cluster();
    scene.world.run_for(5 * SECOND);
    let served: u64 = (0..3).map(|node| scene.world.host(scene.nodes[node]).counts().queries).sum();
    scene.work(5, 60 * SECOND);
    for client in &scene.clients {
        let client = scene.world.host(*client);
        assert!(
            client.tally.refused > 0 && client.last_error.contains("datacenter1"),
            "{}",
            client.last_error
        );
    }
    let after: u64 = (0..3).map(|node| scene.world.host(scene.nodes[node]).counts().queries).sum();
    assert_eq!((served, scene.links(0).1), (after, 0));
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed, |options| options.aggregate = vec![true; 3]);
        add_clients(&mut scene, 6);
        scene.mail_clients(ClientMail::More(2000));
        for _ in 0..40 {
            scene.world.run_for(100 * MILLISECOND);
            scene.mail_clients(ClientMail::Reconnect);
        }
        scene.mail_clients(ClientMail::Stop);
        scene.wait_idle(30 * SECOND);
        scene.world.run_for(5 * SECOND);
        let clients: u64 = scene.metrics.iter().map(|metrics| metrics.clients.get()).sum();
        assert!(clients <= 6, "{clients} clients are still counted");
        scene.check_memory();
        scene.check_at_rest();
    });
}
