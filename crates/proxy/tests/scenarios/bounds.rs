//! Deadlines and limits: an answer comes in time whatever the nodes do, and memory does not grow
//! with load.

use shunt_bench::stub::{Action, hook};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

fn scene(seed: u64, change: impl FnOnce(&mut SceneOptions)) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    change(&mut options);
    let mut scene = Scene::new(options);
    for number in 0..8 {
        scene.add_client(|client| {
            client.version = 3 + number % 3;
            client.outstanding = 20;
            client.think_ns = MILLISECOND;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene
}

#[test]
fn queries_that_nodes_swallow_are_answered_at_their_deadline() {
    for_seeds(10, |seed| {
        let mut scene = scene(seed, |_| {});
        for node in 0..3 {
            scene.hook(node, Some(hook::random(seed, vec![(0.1, Action::Silence)])));
        }
        scene.work(100, 60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.right + client.tally.refused), 8 * 100);
        assert_eq!(scene.sum(|client| client.tally.losses + client.tally.out_of_patience), 0);
        for client in &scene.clients {
            let slowest_ns = scene.world.host(*client).tally.slowest_ns;
            // The deadline is two seconds, checked four times a second.
            assert!(slowest_ns < 2_400 * MILLISECOND, "{} ms", slowest_ns / MILLISECOND);
        }
        for node in 0..3 {
            scene.hook(node, None);
        }
        scene.world.run_for(3 * SECOND);
        let refused = scene.sum(|client| client.tally.refused);
        scene.work(100, 60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.refused), refused);
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn slow_nodes_fill_links_and_hold_clients_back() {
    for_seeds(10, |seed| {
        let mut scene = scene(seed, |options| options.config.in_flight_max = 8);
        for node in 0..3 {
            scene.hook(
                node,
                Some(hook::random(seed, vec![(1.0, Action::Delay(100 * MILLISECOND))])),
            );
        }
        scene.mail_clients(ClientMail::More(60));
        for _ in 0..50 {
            scene.world.run_for(20 * MILLISECOND);
            scene.check_bounds();
            assert!(
                scene.metrics[0].in_flight.get() <= 8 * 3 * 4,
                "more in flight than the links may have"
            );
        }
        scene.wait_idle(120 * SECOND);
        assert!(scene.metrics[0].client_pauses.get() > 0, "nobody was held back");
        assert_eq!(scene.sum(|client| client.tally.right + client.tally.refused), 8 * 60);
        assert_eq!(scene.sum(|client| client.tally.losses + client.tally.out_of_patience), 0);
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn clients_that_read_slowly_are_not_read_from_and_get_everything() {
    for_seeds(10, |seed| {
        let mut options =
            SceneOptions::new(seed, Options { window_bytes: 2000..4000, ..Options::calm() });
        options.config.client_backlog_bytes = 8 << 10;
        let mut scene = Scene::new(options);
        for number in 0..6 {
            scene.add_client(|client| {
                client.version = 3 + number % 3;
                (client.outstanding, client.think_ns, client.value_bytes) = (100, 0, 3000);
                client.dawdles = 0.05;
            });
        }
        scene.wait_ready(20 * SECOND);
        scene.work(300, 200 * SECOND);
        assert!(scene.metrics[0].client_pauses.get() > 0, "nobody was held back");
        assert_eq!(scene.sum(|client| client.tally.right), 6 * 300);
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn no_node_at_all_means_overloaded_within_seconds() {
    for_seeds(5, |seed| {
        let mut scene = scene(seed, |_| {});
        for node in scene.nodes.clone() {
            scene.world.power_off(node);
        }
        scene.work(10, 200 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.losses + client.tally.out_of_patience), 0);
        for client in &scene.clients {
            let slowest_ns = scene.world.host(*client).tally.slowest_ns;
            assert!(slowest_ns < 8 * SECOND, "{} ms", slowest_ns / MILLISECOND);
        }
    });
}

#[test]
fn clients_beyond_the_limit_are_turned_away() {
    let mut scene = scene(1, |options| options.config.clients_max = 8);
    scene.add_client(|_| {});
    scene.world.run_for(5 * SECOND);
    let late = scene.world.host(scene.clients[8]);
    assert!(
        !late.is_ready() && late.tally.handshakes_failed > 3 && late.tally.losses == 0,
        "{:?}",
        late.tally
    );
    let clients = scene.clients[..8].to_vec();
    assert!(clients.iter().all(|client| scene.world.host(*client).is_ready()));
}
