//! A node of three pauses for 200 ms twice a second: with hedged reads, clients wait little longer
//! than for a healthy ring. Nodes that are slow together get no more queries than before.

use shunt_bench::stub::{Action, Hook};
use shunt_proxy::config::Hedge;
use shunt_proxy::metrics::HedgeEvent;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, Random, SECOND};

use super::support::client::{Client, ClientMail};
use super::support::scene::{Scene, SceneOptions};

/// Six clients, before three nodes that answer in 1 to 3 ms, and now and then in up to 10.
fn busy(seed: u64, hedge: Hedge) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.aggregate = vec![false; 3];
    options.config.hedge = hedge;
    let mut scene = Scene::new(options);
    for node in 0..3 {
        let mut random = Random::new(seed ^ node as u64);
        let hook: Hook = Box::new(move |_| {
            let slower = if random.chance(0.05) { 7_000_000 } else { 0 };
            Action::Delay(1_000_000 + random.below(2_000_000) + random.below(slower + 1))
        });
        scene.hook(node, Some(hook));
    }
    for _ in 0..6 {
        scene.add_client(|client| {
            client.outstanding = 40;
            client.think_ns = 8 * MILLISECOND;
            client.value_bytes = 10;
            client.keyed_only = true;
        });
    }
    scene.wait_ready(20 * SECOND);
    scene.mail_clients(ClientMail::More(1_000_000));
    scene
}

/// Lets half-seconds pass, in each of which a node may pause for 200 ms.
fn pass(scene: &mut Scene, halves: u64, pauses: bool) {
    for _ in 0..halves {
        scene.world.run_for(300 * MILLISECOND);
        let node = scene.nodes[1];
        if pauses {
            scene.world.freeze(node);
        }
        scene.world.run_for(200 * MILLISECOND);
        scene.world.thaw(node);
    }
}

/// The 99.9th percentile of the times of reads, in milliseconds, while a node pauses or does not.
fn slowest_ms(hedge: Hedge, pauses: bool) -> u64 {
    let mut scene = busy(7, hedge);
    pass(&mut scene, 20, pauses);
    let clients = scene.clients.clone();
    let clear = |scene: &mut Scene, client: HostId<Client>| {
        scene.world.with(client, |client, _| std::mem::take(&mut client.read_times_ns))
    };
    clients.iter().for_each(|client| drop(clear(&mut scene, *client)));
    pass(&mut scene, 20, pauses);
    let mut times: Vec<u64> =
        clients.iter().flat_map(|client| clear(&mut scene, *client)).collect();
    times.sort_unstable();
    assert!(times.len() > 4_000, "{}", times.len());
    let hedges = &scene.metrics[0].hedges;
    let sent = hedges.of(HedgeEvent::Sent).get();
    let reads = times.len() as u64 * 2;
    assert!(sent * 100 <= reads * 3, "{sent} hedged of {reads}");
    assert!(hedge == Hedge::Off || sent > 10, "{sent}");
    assert_eq!(scene.sum(|client| client.tally.refused + client.tally.losses), 0);
    scene.check_memory();
    times[times.len() * 999 / 1000] / MILLISECOND
}

#[test]
fn a_node_that_pauses_costs_little_with_hedged_reads() {
    let healthy = slowest_ms(Hedge::Off, false);
    let paused = slowest_ms(Hedge::Off, true);
    let hedged = slowest_ms(Hedge::P99, true);
    eprintln!("healthy {healthy} ms, paused {paused} ms, hedged {hedged} ms");
    assert!(paused > 2 * healthy, "{paused} ms, healthy {healthy} ms: nothing to hedge");
    assert!(hedged <= 2 * healthy, "{hedged} ms, healthy {healthy} ms");
}

#[test]
fn nodes_that_are_slow_together_get_no_second_reads() {
    let mut scene = busy(3, Hedge::After { ms: 20 });
    scene.world.run_for(2 * SECOND);
    for node in 0..3 {
        scene.hook(node, Some(Box::new(|_| Action::Delay(100 * MILLISECOND))));
    }
    scene.world.run_for(SECOND);
    let count = |scene: &Scene, event| scene.metrics[0].hedges.of(event).get();
    let (sent, withheld) = (count(&scene, HedgeEvent::Sent), count(&scene, HedgeEvent::Withheld));
    scene.world.run_for(3 * SECOND);
    assert_eq!(count(&scene, HedgeEvent::Sent), sent);
    assert!(count(&scene, HedgeEvent::Withheld) > withheld + 500);
    assert!(sent <= 32, "{sent} hedged before it was clear");
}
