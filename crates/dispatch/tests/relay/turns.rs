//! Answers that share a control connection with less bandwidth than their clients have.

use shunt_reactor::sim::{MILLISECOND, Options, SECOND};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::Scene;
use crate::shares::{add_slow, download};

/// Uploads that are under way.
const EARLY: usize = 30;
/// Answers of one client that are under way, and those of another that begin later.
const MANY: usize = 56;
const LATE: usize = 8;

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

/// Clients share the connection, however many answers each has.
#[test]
fn answers_that_begin_late_on_a_full_connection_get_their_clients_share() {
    let mut scene = Scene::with_connections(31, narrow(), Vec::new(), 2 * MANY);
    scene.wait_for_backends();
    scene.world.set_options(wide());
    let hosts = [MANY, LATE].map(|count| {
        let host = add_slow(&mut scene, vec![download(8 << 20)], 0);
        scene.world.with(host, |host, _| host.count = count);
        host
    });
    scene.world.post(hosts[0], ());
    scene.world.run_for(3 * SECOND);
    scene.world.post(hosts[1], ());
    let bytes = |scene: &Scene| hosts.map(|host| scene.world.host(host).bytes);
    let before = bytes(&scene)[0];
    scene.world.run_for(8 * SECOND);
    let [early, late] = bytes(&scene);
    let early = early - before;
    assert!(early + late > 24 << 20, "the connection is in use: {early} + {late} bytes");
    assert!(
        late > (early + late) / 5,
        "{late} bytes for {LATE} answers of one client, {early} for {MANY} of another"
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

/// A request that only reads waits for its turn on the connection to an agent that is lost then.
/// The next agent gets its body.
#[test]
fn a_body_that_waits_for_a_lost_agent_goes_to_the_next_one() {
    let mut plans = vec![vec![Request::Upload(1 << 20)]; 2 * EARLY];
    plans.push(vec![Request::WithBody(1_000)]);
    let mut scene = Scene::new(33, Options::calm(), 2, plans);
    let clients = std::mem::take(&mut scene.clients);
    scene.wait_for_backends();
    let dispatcher = scene.dispatcher;
    let is_up = |scene: &mut Scene, count: usize| {
        scene.world.run_until(20 * SECOND, |world| world.host(dispatcher).backends_up() == count)
    };
    scene.kill_agent(1);
    assert!(is_up(&mut scene, 1));
    scene.world.freeze(scene.agents[0]);
    let (last, uploads) = clients.split_last().expect("clients");
    uploads.iter().for_each(|client| scene.world.post(*client, ()));
    scene.world.run_for(SECOND);
    scene.world.post(*last, ());
    scene.world.run_for(SECOND);
    scene.restart_agent(1);
    assert!(is_up(&mut scene, 2));
    scene.kill_agent(0);
    scene.world.run_for(5 * SECOND);
    assert_eq!(scene.counted().repeated, 1);
    let outcomes = &scene.world.host(*last).outcomes;
    assert!(matches!(outcomes[..], [Outcome::Whole { status: 200, .. }]), "{outcomes:?}");
}
