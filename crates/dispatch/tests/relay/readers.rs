//! Clients that take their answers slowly.

use shunt_reactor::LoopOptions;
use shunt_reactor::sim::{Options, SECOND};

use crate::client::{Client, Outcome};
use crate::requests::Request;
use crate::scene::{Scene, address};

/// The slow readers use all of the agent's connections to the server.
#[test]
fn slow_readers_keep_no_connection_from_others_for_long() {
    let mut plans = vec![vec![Request::Length(32 << 20)]; 2];
    plans.push(vec![Request::Length(1_000); 30]);
    let mut scene = Scene::new(6, Options::calm(), 1, plans);
    let other = scene.clients.pop().expect("the last one");
    scene.wait_for_backends();
    let slow = scene.clients.clone();
    assert!(
        scene
            .world
            .run_until(SECOND, |world| slow.iter().all(|client| world.host(*client).has_begun()))
    );
    slow.iter().for_each(|client| scene.world.freeze(*client));
    scene.world.post(other, ());
    scene.world.run_for(10 * SECOND);
    assert_eq!(scene.world.host(other).outcomes.len(), 30);
    assert_eq!(scene.counted().cut, 1, "the other half is theirs");
    slow.iter().for_each(|client| scene.world.thaw(*client));
    scene.world.run_for(60 * SECOND);
    let outcomes = slow.iter().flat_map(|client| &scene.world.host(*client).outcomes);
    let whole =
        outcomes.filter(|outcome| matches!(outcome, Outcome::Whole { status: 200, .. })).count();
    assert!(whole >= 1, "{whole}");
    scene.is_at_rest();
}

/// The upload is larger than what an agent takes in of one that waits.
#[test]
fn slow_readers_keep_no_connection_from_an_upload_for_long() {
    let mut plans = vec![vec![Request::Length(32 << 20)]; 2];
    plans.push(vec![Request::Upload(1 << 20)]);
    let mut scene = Scene::new(8, Options::calm(), 1, plans);
    let other = scene.clients.pop().expect("the last one");
    scene.wait_for_backends();
    let slow = scene.clients.clone();
    assert!(
        scene
            .world
            .run_until(SECOND, |world| slow.iter().all(|client| world.host(*client).has_begun()))
    );
    slow.iter().for_each(|client| scene.world.freeze(*client));
    scene.world.post(other, ());
    scene.world.run_for(10 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(matches!(outcomes[..], [Outcome::Whole { status: 200, .. }]), "{outcomes:?}");
}

/// No other request waits for a connection.
#[test]
fn slow_readers_go_on_where_nobody_waits() {
    let mut scene = Scene::new(7, Options::calm(), 1, vec![vec![Request::Length(4 << 20)]; 2]);
    scene.wait_for_backends();
    let slow = scene.clients.clone();
    assert!(
        scene
            .world
            .run_until(SECOND, |world| slow.iter().all(|client| world.host(*client).has_begun()))
    );
    slow.iter().for_each(|client| scene.world.freeze(*client));
    scene.world.run_for(20 * SECOND);
    slow.iter().for_each(|client| scene.world.thaw(*client));
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(scene.counted().cut, 0);
}

/// The end of the answer has left the agent, and the client's window has no room for all of it. The
/// client has as much time for it as one that keeps its direction open.
#[test]
fn a_client_that_has_ended_its_direction_has_time_for_the_end_of_its_answer() {
    let mut scene = Scene::new(9, Options::calm(), 1, Vec::new());
    let options = LoopOptions { linger_ns: 300 * SECOND, ..LoopOptions::default() };
    let plan = vec![Request::Length(500_000)];
    let client = scene.world.add_with("client", options, Client::new(address(1, 80), plan, 1));
    scene.wait_for_backends();
    scene.world.post(client, ());
    let dispatcher = scene.dispatcher;
    assert!(scene.world.run_until(SECOND, |world| world.host(dispatcher).exchanges() == 1));
    scene.world.with(client, |client, io| io.close(client.conn().expect("it has sent")));
    scene.world.freeze(client);
    scene.world.run_for(10 * SECOND);
    let clients = |scene: &Scene| scene.world.host(dispatcher).metrics().clients.get();
    assert_eq!((scene.counted().answers, clients(&scene)), (1, 1), "it has not taken all");
    scene.world.thaw(client);
    assert!(
        scene.world.run_until(10 * SECOND, |world| {
            world.host(dispatcher).metrics().clients.get() == 0
        })
    );
    assert_eq!(scene.counted().cut, 0);
    scene.is_at_rest();
}
