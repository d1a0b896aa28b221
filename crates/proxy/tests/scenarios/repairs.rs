//! Prepared statements that a node does not know: prepared again without the client noticing.

use shunt_bench::stub::{Action, StubMail, hook};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};
use shunt_wire::cql::message::error_code;

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

fn scene(seed: u64, keyspace: bool, aggregate: bool) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.aggregate = vec![aggregate; 3];
    options.cores = 2;
    let mut scene = Scene::new(options);
    for number in 0..6 {
        scene.add_client(|client| {
            client.version = 3 + number % 3;
            client.outstanding = 10;
            client.think_ns = MILLISECOND;
            client.uses_keyspace = keyspace && number % 2 == 0;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene
}

#[test]
fn forgotten_statements_are_prepared_again() {
    for_seeds(20, |seed| {
        let mut scene = scene(seed, seed % 2 == 0, seed % 3 == 0);
        scene.mail_clients(ClientMail::More(300));
        for round in 0..5 {
            scene.world.run_for(20 * MILLISECOND);
            let node = round % 3;
            scene.world.post(scene.nodes[node], StubMail::ForgetStatements(node));
        }
        scene.wait_idle(60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.right), 6 * 300);
        let repaired: u64 = scene
            .metrics
            .iter()
            .map(|metrics| metrics.outcomes.of(shunt_proxy::metrics::Outcome::Reprepared).get())
            .sum();
        assert!(repaired > 0, "nothing had to be repaired");
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn a_node_that_forgets_all_the_time_is_outlasted() {
    for_seeds(10, |seed| {
        let mut scene = scene(seed, true, false);
        scene.hook(
            0,
            Some(hook::random(
                seed,
                vec![(if seed % 2 == 0 { 1.0 } else { 0.3 }, Action::Unprepared)],
            )),
        );
        scene.work(200, 60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.right), 6 * 200);
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn a_node_that_dies_while_a_statement_is_repaired() {
    for_seeds(20, |seed| {
        let mut scene = scene(seed, true, seed % 2 == 0);
        scene.mail_clients(ClientMail::More(300));
        scene.world.run_for(20 * MILLISECOND);
        scene.hook(0, Some(hook::random(seed, vec![(0.5, Action::Unprepared)])));
        scene.world.run_for(5 * MILLISECOND);
        scene.world.kill(scene.nodes[0]);
        scene.wait_idle(60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.right), 6 * 300, "{}", scene.log_of_metrics());
        scene.check_memory();
        scene.check_at_rest();
    });
}

#[test]
fn a_node_that_turns_queries_away_is_not_the_clients_business() {
    for_seeds(10, |seed| {
        let mut scene = scene(seed, seed % 2 == 0, seed % 3 == 0);
        let code =
            if seed % 2 == 0 { error_code::OVERLOADED } else { error_code::IS_BOOTSTRAPPING };
        scene.hook(0, Some(hook::random(seed, vec![(1.0, Action::Error(code))])));
        scene.work(200, 60 * SECOND);
        assert_eq!(scene.sum(|client| client.tally.right), 6 * 200, "{}", scene.log_of_metrics());
        scene.check_memory();
        scene.check_at_rest();
    });
}

/// An error comes sooner than an answer, so a node that answers with errors has the fewest queries
/// in flight.
#[test]
fn a_node_that_fails_fast_does_not_draw_the_traffic() {
    for_seeds(6, |seed| {
        let mut scene = scene(seed, false, seed % 2 == 0);
        let codes =
            [error_code::SERVER_ERROR, error_code::OVERLOADED, error_code::IS_BOOTSTRAPPING];
        scene.hook(
            0,
            Some(hook::random(seed, vec![(1.0, Action::Error(codes[seed as usize % 3]))])),
        );
        for node in 1..3 {
            scene.hook(node, Some(hook::random(seed, vec![(1.0, Action::Delay(5 * MILLISECOND))])));
        }
        let asked =
            |scene: &Scene, node: usize| scene.world.host(scene.nodes[node]).counts().queries;
        let before: Vec<u64> = (0..3).map(|node| asked(&scene, node)).collect();
        scene.work(500, 60 * SECOND);
        let now: Vec<u64> = (0..3).map(|node| asked(&scene, node) - before[node]).collect();
        assert!(now[0] < (now[1] + now[2]) / 4, "queries by node: {now:?}");
        // It gets queries again once it can serve.
        scene.hook(0, None);
        scene.world.run_for(10 * SECOND);
        let before = asked(&scene, 0);
        scene.work(100, 60 * SECOND);
        assert!(asked(&scene, 0) - before > 60, "{}", asked(&scene, 0) - before);
        scene.check_memory();
        scene.check_at_rest();
    });
}

/// Hundreds of sessions prepare the same statements; each is spread once.
#[test]
fn a_statement_that_is_known_is_not_spread_again() {
    let mut scene = scene(1, false, false);
    let prepares = |scene: &Scene| -> u64 {
        scene.nodes.iter().map(|node| scene.world.host(*node).counts().prepares).sum()
    };
    scene.work(10, 20 * SECOND);
    let before = prepares(&scene);
    let of_one_client = 6;
    for _ in 0..10 {
        scene.add_client(|client| client.version = 4);
    }
    scene.wait_ready(20 * SECOND);
    scene.work(10, 20 * SECOND);
    let more = prepares(&scene) - before;
    assert!(more > 0 && more <= 10 * of_one_client, "{more} PREPAREs");
}
