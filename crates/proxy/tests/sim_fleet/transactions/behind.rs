//! Proxies whose wall clocks are behind: earlier writes of ordinary clients, by right clocks, hide
//! no write that a transaction reported.

use shunt_proxy::weakened::Weakened;
use shunt_reactor::sim::{Clock, MILLISECOND, SECOND};

use super::{Scene, Settings, check, come_to_rest};

const BEHIND_US: i64 = 120_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// Proxies whose wall clocks are so far ahead of the world's time; nodes, which say what they do.
fn scene(ahead_us: i64, nodes_off_us: [Option<i64>; 3], weakened: Weakened) -> Scene {
    let settings = Settings { transactors: 4, weakened, ..crate::settings(1) };
    let mut scene = Scene::new(settings);
    scene.ring.lock().unwrap().clocks_off_us = nodes_off_us;
    set_proxies(&mut scene, ahead_us);
    scene
}

fn set_proxies(scene: &mut Scene, ahead_us: i64) {
    let wall_offset_us = Clock::default().wall_offset_us + ahead_us;
    for host in scene.proxies.iter().flat_map(|proxy| proxy.cores.clone()).collect::<Vec<_>>() {
        let clock = scene.world.clock(host);
        scene.world.set_clock(host, Clock { wall_offset_us, ..clock });
    }
}

/// An ordinary client has just written all rows.
fn write_all(scene: &mut Scene) {
    let now_us = Clock::default().wall_offset_us + (scene.world.now_ns() / 1_000).cast_signed();
    scene.ring.lock().unwrap().tables.fill(now_us);
}

fn applied(scene: &Scene) -> usize {
    scene.history.borrow().counts().applied
}

#[test]
fn proxies_whose_clocks_are_behind_write_nothing_until_these_are_right() {
    let mut scene = scene(-BEHIND_US, [Some(0); 3], Weakened::default());
    write_all(&mut scene);
    scene.run_for(8 * SECOND);
    let counts = scene.history.borrow().counts();
    assert!(counts.applied == 0 && counts.not_done > 50, "{counts:?}");
    assert!(counts.read > 5, "what writes nothing is carried out: {counts:?}");
    set_proxies(&mut scene, 0);
    scene.run_for(8 * SECOND);
    come_to_rest(&mut scene);
    check(&scene);
    assert!(applied(&scene) > 100, "{:?}", scene.history.borrow().counts());
}

#[test]
fn without_a_look_at_the_clock_what_is_told_as_written_is_hidden() {
    let weakened = Weakened { clock: true, ..Weakened::default() };
    let mut scene = scene(-BEHIND_US, [Some(0); 3], weakened);
    write_all(&mut scene);
    scene.run_for(8 * SECOND);
    come_to_rest(&mut scene);
    let violation = scene.witness.borrow_mut().violation.take();
    assert!(violation.is_some(), "nobody notices");
}

#[test]
fn a_clock_that_jumps_back_is_seen_at_once() {
    let mut scene = scene(0, [Some(0); 3], Weakened::default());
    scene.run_for(8 * SECOND);
    assert!(applied(&scene) > 100);
    set_proxies(&mut scene, -BEHIND_US);
    // Earlier decisions are answered by then.
    scene.run_for(500 * MILLISECOND);
    let before = applied(&scene);
    scene.run_for(3 * SECOND);
    assert_eq!(applied(&scene), before);
    set_proxies(&mut scene, 0);
    scene.run_for(3 * SECOND);
    assert!(applied(&scene) > before);
    come_to_rest(&mut scene);
    check(&scene);
}

#[test]
fn one_node_with_a_wrong_clock_stops_nobody_nor_do_nodes_that_say_nothing() {
    for nodes_off_us in
        [[Some(0), Some(HOUR_US), None], [None, Some(0), None], [Some(-HOUR_US), Some(0), Some(0)]]
    {
        let mut scene = scene(0, nodes_off_us, Weakened::default());
        scene.run_for(8 * SECOND);
        come_to_rest(&mut scene);
        check(&scene);
        assert!(applied(&scene) > 100, "{nodes_off_us:?}: {:?}", scene.history.borrow().counts());
    }
}
