//! Clients that take their answers slowly.

use shunt_reactor::sim::{Options, SECOND};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::Scene;

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
