//! Every protocol version, compression and framing works on both sides: without faults nothing is
//! refused, and queries with a key go to a node that has it.

use shunt_bench::stub::AggregateLimits;
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};
use shunt_wire::cql::compression::Algorithm;

use super::support::client::ClientOptions;
use super::support::scene::{Scene, SceneOptions};

pub const LAYOUTS: [(u8, Option<Algorithm>); 8] = [
    (3, None),
    (3, Some(Algorithm::Lz4)),
    (3, Some(Algorithm::Snappy)),
    (4, None),
    (4, Some(Algorithm::Lz4)),
    (4, Some(Algorithm::Snappy)),
    (5, None),
    (5, Some(Algorithm::Lz4)),
];

fn all_layouts(seed: u64, network: Options, change: impl Fn(&mut SceneOptions)) -> Scene {
    let mut options = SceneOptions::new(seed, network);
    change(&mut options);
    let mut scene = Scene::new(options);
    for (version, compression) in LAYOUTS {
        for uses_keyspace in [false, true] {
            scene.add_client(|client: &mut ClientOptions| {
                (client.version, client.compression, client.uses_keyspace) =
                    (version, compression, uses_keyspace);
            });
        }
    }
    scene.wait_ready(20 * SECOND);
    scene
}

fn serves_everybody(mut scene: Scene, each: u64) -> Scene {
    scene.work(each, 300 * SECOND);
    assert_eq!(scene.sum(|client| client.tally.right), each * scene.clients.len() as u64);
    assert_eq!(
        scene.sum(|client| client.tally.refused
            + client.tally.losses
            + client.tally.handshakes_failed),
        0
    );
    scene.check_memory();
    scene.check_at_rest();
    scene
}

#[test]
fn ordinary_links() {
    for_seeds(4, |seed| drop(serves_everybody(all_layouts(seed, Options::calm(), |_| {}), 60)));
}

#[test]
fn encrypted_connections() {
    let (mut queries, mut frames) = (0, 0);
    for_seeds(4, |seed| {
        let network = Options::calm().sealed();
        let scene = all_layouts(seed, network, |options| options.aggregate = vec![true; 3]);
        let scene = serves_everybody(scene, 60);
        let counts = scene.world.host(scene.nodes[0]).counts();
        queries += counts.aggregated_queries;
        frames += counts.aggregated_frames;
    });
    assert!(queries > frames, "{queries} aggregated queries in {frames} frames");
}

#[test]
fn aggregated_links() {
    for_seeds(4, |seed| {
        let scene = all_layouts(seed, Options::calm(), |options| options.aggregate = vec![true; 3]);
        let scene = serves_everybody(scene, 60);
        let counts = scene.world.host(scene.nodes[0]).counts();
        assert!(counts.aggregated_queries > counts.aggregated_frames, "{counts:?}");
    });
}

#[test]
fn frames_gather_while_others_are_unanswered_and_not_without_end() {
    for_seeds(4, |seed| {
        let queries_per_frame = |gather_us: u64| {
            // The distance is such that many more queries come before one is answered.
            let network = Options { latency_ns: MILLISECOND / 2..MILLISECOND, ..Options::calm() };
            let mut options = SceneOptions::new(seed, network);
            (options.aggregate, options.config.gather_us) = (vec![true; 3], gather_us);
            let mut scene = Scene::new(options);
            for _ in 0..32 {
                scene.add_client(|client| {
                    (client.think_ns, client.keyed_only) = (MILLISECOND, true)
                });
            }
            scene.wait_ready(20 * SECOND);
            let scene = serves_everybody(scene, 100);
            let counts = scene.nodes.iter().map(|node| scene.world.host(*node).counts());
            let (queries, frames) = counts.fold((0, 0), |sum, counts| {
                (sum.0 + counts.aggregated_queries, sum.1 + counts.aggregated_frames)
            });
            queries as f64 / frames as f64
        };
        // The time exceeds the query's deadline of 2 s: a held frame must leave when the awaited
        // answer comes.
        let (at_once, briefly, long) =
            (queries_per_frame(0), queries_per_frame(1_000), queries_per_frame(10_000_000));
        assert!(at_once * 1.2 < briefly && at_once * 1.2 < long, "{at_once} {briefly} {long}");
    });
}

#[test]
fn bytes_in_crumbs_on_both_sides() {
    for_seeds(4, |seed| {
        let network = Options { window_bytes: 200..4000, ..Options::crumbs() };
        let scene = all_layouts(seed, network, |options| {
            options.aggregate = vec![true, false, true];
            // Slow crumbs are no test of deadlines.
            options.config.query_timeout_ms = 60_000;
            options.config.connect_timeout_ms = 10_000;
        });
        serves_everybody(scene, 15);
    });
}

#[test]
fn values_larger_than_segments_and_frames() {
    for_seeds(1, |seed| {
        for aggregate in [false, true] {
            let mut options =
                SceneOptions::new(seed, Options { partial_read: 0.3, ..Options::calm() });
            options.aggregate = vec![aggregate; 3];
            options.aggregate_limits = AggregateLimits { count_max: 8, bytes_max: 20_000 };
            let mut scene = Scene::new(options);
            for (version, compression) in LAYOUTS {
                scene.add_client(|client| {
                    (client.version, client.compression, client.value_bytes) =
                        (version, compression, 300_000);
                });
            }
            scene.wait_ready(20 * SECOND);
            serves_everybody(scene, 15);
        }
    });
}

#[test]
fn queries_with_a_key_go_to_a_replica() {
    for_seeds(4, |seed| {
        let mut scene = Scene::new(SceneOptions::new(seed, Options::calm()));
        for (version, compression) in LAYOUTS {
            scene.add_client(|client| {
                (client.version, client.compression, client.keyed_only) =
                    (version, compression, true);
            });
        }
        scene.wait_ready(20 * SECOND);
        let scene = serves_everybody(scene, 100);
        for node in &scene.nodes {
            let counts = scene.world.host(*node).counts();
            assert!(counts.misrouted == 0 && counts.queries > 100, "{counts:?}");
        }
    });
}

#[test]
fn thousands_of_requests_in_flight_on_one_connection() {
    let mut scene = Scene::new(SceneOptions::new(1, Options::calm()));
    scene.add_client(|client| (client.outstanding, client.think_ns) = (5_000, 0));
    scene.add_client(|client| {
        (client.outstanding, client.think_ns, client.version) = (5_000, 10, 5)
    });
    scene.add_client(|client| client.think_ns = MILLISECOND);
    scene.wait_ready(20 * SECOND);
    serves_everybody(scene, 6_000);
}
