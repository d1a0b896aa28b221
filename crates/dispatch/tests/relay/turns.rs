//! Answers that share a control connection with less bandwidth than their clients have.

use shunt_reactor::sim::{MILLISECOND, Options, SECOND};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::Scene;
use crate::shares::{add_slow, download};

/// Answers that are under way, and those that begin later.
const EARLY: usize = 30;
const LATE: usize = 4;

/// Connections take 64 KiB in 10 ms.
fn narrow() -> Options {
    Options {
        latency_ns: 5 * MILLISECOND..5 * MILLISECOND + 1,
        window_bytes: 64 << 10..(64 << 10) + 1,
        ..Options::calm()
    }
}

/// Connections take whole answers at once.
fn wide() -> Options {
    Options { window_bytes: 64 << 20..(64 << 20) + 1, ..narrow() }
}

#[test]
fn answers_that_begin_late_on_a_full_connection_get_their_share() {
    let mut scene = Scene::with_connections(31, narrow(), Vec::new(), 2 * EARLY);
    scene.wait_for_backends();
    scene.world.set_options(wide());
    let hosts = [EARLY, LATE].map(|count| {
        let host = add_slow(&mut scene, vec![download(8 << 20)], 0);
        scene.world.with(host, |host, _| host.count = count);
        host
    });
    scene.world.post(hosts[0], ());
    scene.world.run_for(3 * SECOND);
    scene.world.post(hosts[1], ());
    let bytes = |scene: &Scene| hosts.map(|host| scene.world.host(host).bytes);
    let before = bytes(&scene)[0];
    scene.world.run_for(15 * SECOND);
    let [early, late] = bytes(&scene);
    let early = early - before;
    assert!(early + late > 48 << 20, "the connection is in use: {early} + {late} bytes");
    let share = (early + late) * LATE / (EARLY + LATE);
    assert!(
        late > share / 2,
        "{late} bytes for {LATE} of {} answers, {early} for the others",
        EARLY + LATE
    );
}

#[test]
fn an_answer_of_which_nothing_more_comes_is_broken_off() {
    let plan = vec![Request::Length(8 << 20)];
    let mut scene = Scene::with_answer_timeout(32, narrow(), vec![plan], 5 * SECOND);
    scene.wait_for_backends();
    let client = scene.clients[0];
    let has_begun = |scene: &Scene| scene.world.host(client).has_begun();
    while !has_begun(&scene) {
        scene.world.run_for(10 * MILLISECOND);
    }
    scene.world.freeze(scene.origins[0]);
    scene.world.run_for(4 * SECOND);
    assert!(has_begun(&scene), "it may still go on");
    scene.world.run_for(3 * SECOND);
    assert!(scene.world.host(client).outcomes.first() == Some(&Outcome::Broken));
}
