//! A proxy that drains closes its clients evenly, none of them with a query in flight, until an
//! operator takes the drain back.

use shunt_bench::stub::{Action, hook};
use shunt_proxy::control::state::CoreMail;
use shunt_reactor::sim::{HostId, Options, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;

use super::support::scene::{Scene, SceneOptions};

const CLIENTS: usize = 100;
const SELECT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

/// Clients that have logged in, at a proxy that takes ten seconds to close them.
fn scene() -> (Scene, Vec<HostId<simulated::Client>>) {
    let mut options = SceneOptions::new(1, Options::calm());
    (options.nodes, options.aggregate) = (1, vec![false]);
    options.config.drain_close_ms = 10_000;
    options.config.query_timeout_ms = 60_000;
    let mut scene = Scene::new(options);
    let clients = (0..CLIENTS).map(|_| client(&mut scene)).collect();
    scene.world.run_for(SECOND);
    (scene, clients)
}

fn client(scene: &mut Scene) -> HostId<simulated::Client> {
    let client = scene.world.add("client", simulated::Client::new(scene.proxy));
    send(scene, client, &bytes::startup(4, None));
    client
}

fn send(scene: &mut Scene, client: HostId<simulated::Client>, bytes: &[u8]) {
    scene.world.with(client, |client, io| client.send(io, bytes));
}

fn close_idle(scene: &mut Scene, closes: bool) {
    scene.world.post(scene.cores[0], CoreMail::CloseIdle(closes));
}

fn closed(scene: &Scene, clients: &[HostId<simulated::Client>]) -> usize {
    clients.iter().filter(|client| scene.world.host(**client).is_closed()).count()
}

/// True if the client gets an answer to a query.
fn is_served(scene: &mut Scene, client: HostId<simulated::Client>) -> bool {
    send(scene, client, &bytes::query(4, 7, SELECT));
    let is_result = |answer: &shunt_testing::Answer| answer.header.opcode == opcode::RESULT;
    scene.world.run_until(60 * SECOND, |world| {
        world.host(client).on(7).is_some_and(is_result) || world.host(client).is_closed()
    });
    scene.world.host(client).on(7).is_some_and(is_result)
}

#[test]
fn idle_clients_are_closed_evenly() {
    let (mut scene, clients) = scene();
    close_idle(&mut scene, true);
    for second in 1..=10 {
        scene.world.run_for(SECOND);
        let closed = closed(&scene, &clients);
        assert!(closed.abs_diff(second * CLIENTS / 10) <= 3, "{closed} after {second} s");
    }
    scene.world.run_for(SECOND / 10);
    assert_eq!(closed(&scene, &clients), CLIENTS);
    let late = client(&mut scene);
    assert!(is_served(&mut scene, late), "the process has not ended");
}

#[test]
fn a_client_with_a_query_in_flight_is_closed_after_its_answer() {
    let (mut scene, clients) = scene();
    let (busy, idle) = clients.split_at(10);
    scene.hook(0, Some(hook::random(1, vec![(1.0, Action::Delay(20 * SECOND))])));
    for client in busy {
        send(&mut scene, *client, &bytes::query(4, 1, SELECT));
    }
    scene.world.run_for(SECOND);
    close_idle(&mut scene, true);
    scene.world.run_for(12 * SECOND);
    assert_eq!((closed(&scene, busy), closed(&scene, idle)), (0, idle.len()));
    scene.world.run_for(10 * SECOND);
    for client in busy {
        let client = scene.world.host(*client);
        let answer = client.on(1).expect("an answer");
        assert_eq!((answer.header.opcode, client.is_closed()), (opcode::RESULT, true));
    }
}

#[test]
fn a_drain_that_is_taken_back_closes_no_more() {
    let (mut scene, clients) = scene();
    close_idle(&mut scene, true);
    scene.world.run_for(5 * SECOND);
    close_idle(&mut scene, false);
    scene.world.run_for(SECOND / 10);
    let before = closed(&scene, &clients);
    assert!((1..CLIENTS).contains(&before), "{before}");
    scene.world.run_for(20 * SECOND);
    assert_eq!(closed(&scene, &clients), before);
    for client in clients {
        assert!(scene.world.host(client).is_closed() || is_served(&mut scene, client));
    }
    // Another drain closes the rest.
    close_idle(&mut scene, true);
    scene.world.run_for(11 * SECOND);
    assert_eq!(scene.metrics[0].clients.get(), 0);
}

/// The process may end before all are closed: the rest follows at once.
#[test]
fn the_end_of_the_process_closes_the_rest() {
    let (mut scene, clients) = scene();
    close_idle(&mut scene, true);
    scene.world.run_for(3 * SECOND);
    scene.world.post(scene.cores[0], CoreMail::Drain);
    let core = scene.cores[0];
    assert!(scene.world.run_until(5 * SECOND, |world| !world.is_running(core)));
    assert_eq!(closed(&scene, &clients), CLIENTS);
}
