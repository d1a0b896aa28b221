//! New certificates of TLS to nodes: all links are renewed, one after another, and no client
//! notices. The simulated links are in clear text; the scene reports the change alone.

use shunt_bench::stub::hook::{Hook, Request};
use shunt_bench::stub::{Action, hook};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, for_seeds};
use shunt_topology::NodeId;

use super::layouts::LAYOUTS;
use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

const CORES: u64 = 2;

/// A part of the query by which a link asks its node's identity: the last step before it serves.
const IDENTITY: &[u8] = b"SELECT host_id, cluster_name FROM system.local";

/// A hook that closes links while they open, if `refuses` is true of their version.
fn refusal(refuses: impl Fn(u8) -> bool + Send + 'static) -> Option<Hook> {
    Some(Box::new(move |request: &Request<'_>| {
        let asks = request.body.windows(IDENTITY.len()).any(|part| part == IDENTITY);
        if asks && refuses(request.version) { Action::Close } else { Action::Answer }
    }))
}

fn scene(seed: u64, change: impl FnOnce(&mut SceneOptions)) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.cores = CORES as usize;
    change(&mut options);
    let mut scene = Scene::new(options);
    for (number, (version, compression)) in LAYOUTS.into_iter().enumerate() {
        scene.add_client(|client| {
            (client.version, client.compression) = (version, compression);
            client.uses_keyspace = number % 2 == 0;
            (client.outstanding, client.think_ns) = (10, MILLISECOND);
        });
    }
    scene.wait_ready(20 * SECOND);
    // The pools that clients left for those of their keyspaces end: each client has one.
    scene.world.run_for(130 * SECOND);
    scene
}

fn renewed(scene: &Scene) -> u64 {
    (0..3).map(|node| renewed_of(scene, node)).sum()
}

fn renewed_of(scene: &Scene, node: u16) -> u64 {
    scene.metrics.iter().map(|core| core.nodes.node(NodeId(node)).links_renewed.get()).sum()
}

fn links(scene: &Scene) -> (u64, u64) {
    let of_nodes = (0..3).map(|node| scene.links(node));
    of_nodes.fold((0, 0), |sum, links| (sum.0 + links.0, sum.1 + links.1))
}

fn unnoticed(scene: &Scene) {
    let tally = |scene: &Scene| {
        scene.sum(|client| {
            client.tally.refused + client.tally.losses + client.tally.handshakes_failed
        })
    };
    if tally(scene) > 0 {
        scene.show_clients();
        panic!("the clients noticed");
    }
    let lost: u64 = (0..3)
        .flat_map(|node| scene.metrics.iter().map(move |metrics| metrics.nodes.node(NodeId(node))))
        .map(|node| node.links_lost.get())
        .sum();
    assert_eq!(lost, 0);
    scene.check_memory();
}

/// Slow answers keep queries in flight on the links that are renewed.
#[test]
fn all_links_are_renewed_one_after_another_under_load() {
    for (aggregates, port) in [(false, None), (true, None), (true, Some(9142))] {
        for_seeds(2, |seed| {
            let mut scene = scene(seed, |options| {
                (options.aggregate, options.aggregate_port) = (vec![aggregates; 3], port);
            });
            for node in 0..3 {
                let slow = vec![(0.5, Action::Delay(400 * MILLISECOND))];
                scene.hook(node, Some(hook::random(seed, slow)));
            }
            let before = links(&scene);
            assert!(before.1 >= 6 && (before.0 > 0) == aggregates, "{before:?}");
            scene.mail_clients(ClientMail::More(2_000));
            scene.world.run_for(SECOND);
            assert_eq!(renewed(&scene), 0, "nothing has changed");
            scene.options.outgoing.links.advance();
            let (mut steps, mut last) = (0, 0);
            while renewed(&scene) < before.1 {
                scene.world.run_for(250 * MILLISECOND);
                steps += 1;
                let now = renewed(&scene);
                assert!((0..3).all(|node| scene.links(node).1 >= before.1 / 3), "one is away");
                assert!(now - last <= 2 * CORES, "{} at once", now - last);
                assert!(steps < 4 * before.1, "{now} of {} are renewed", before.1);
                last = now;
            }
            scene.wait_idle(600 * SECOND);
            scene.world.run_for(5 * SECOND);
            assert_eq!((renewed(&scene), links(&scene)), (before.1, before), "once each");
            unnoticed(&scene);
            scene.check_at_rest();
        });
    }
}

/// The node does not accept the new certificate.
#[test]
fn links_that_cannot_be_renewed_stay() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed, |_| {});
        scene.hook(0, refusal(|_| true));
        let before = links(&scene);
        scene.options.outgoing.links.advance();
        scene.work(500, 300 * SECOND);
        scene.world.run_for(60 * SECOND);
        scene.work(100, 300 * SECOND);
        let queries = |scene: &Scene| -> u64 {
            scene.metrics.iter().map(|core| core.nodes.node(NodeId(0)).queries.get()).sum()
        };
        let queries_before = queries(&scene);
        scene.work(100, 300 * SECOND);
        assert!(queries(&scene) > queries_before, "its former links serve");
        let refused = scene.links(0).1;
        assert_eq!((renewed_of(&scene, 0), renewed(&scene)), (0, before.1 - refused));
        assert_eq!(links(&scene), before);
        let tried = |scene: &Scene| -> u64 {
            scene.metrics.iter().map(|core| core.nodes.node(NodeId(0)).connect_failures.get()).sum()
        };
        let tried_before = tried(&scene);
        scene.world.run_for(60 * SECOND);
        let per_minute = tried(&scene) - tried_before;
        assert!((1..=20 * CORES).contains(&per_minute), "{per_minute} attempts in a minute");
        scene.hook(0, None);
        scene.world.run_for(60 * SECOND);
        assert_eq!((renewed(&scene), links(&scene)), (before.1, before));
        unnoticed(&scene);
    });
}

/// A node refuses one pool alone: the links of other pools to it do not wait for that one.
#[test]
fn a_link_that_cannot_be_renewed_delays_no_others() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed, |_| {});
        scene.hook(0, refusal(|version| version == 3));
        let before = links(&scene);
        scene.options.outgoing.links.advance();
        scene.mail_clients(ClientMail::More(2_000));
        let of_version = LAYOUTS.iter().filter(|(version, _)| *version == 3).count() as u64;
        let renewable = scene.links(0).1 - of_version;
        scene.world.run_for(20 * SECOND);
        assert_eq!(renewed_of(&scene, 0), renewable);
        assert_eq!(renewed(&scene), before.1 - of_version);
        scene.wait_idle(600 * SECOND);
        assert_eq!(links(&scene), before);
        unnoticed(&scene);
    });
}

/// A query that its node never answers holds up a former link until its deadline.
#[test]
fn former_links_end_with_the_deadline_of_their_last_query() {
    for_seeds(4, |seed| {
        let mut scene = scene(seed, |_| {});
        let before = links(&scene);
        scene.mail_clients(ClientMail::More(2_000));
        scene.world.run_for(SECOND);
        for node in 0..3 {
            scene.hook(node, Some(hook::random(seed, vec![(0.02, Action::Silence)])));
        }
        scene.options.outgoing.links.advance();
        let all_renewed = |scene: &Scene| renewed(scene) == before.1;
        for _ in 0..4 * before.1 {
            scene.world.run_for(250 * MILLISECOND);
            if all_renewed(&scene) {
                break;
            }
        }
        assert!(all_renewed(&scene), "{} of {}", renewed(&scene), before.1);
        (0..3).for_each(|node| scene.hook(node, None));
        scene.world.run_for(scene.options.config.query_timeout_ms * MILLISECOND + SECOND);
        assert_eq!(links(&scene), before, "the former ones have ended");
        scene.wait_idle(600 * SECOND);
        scene.check_memory();
    });
}
