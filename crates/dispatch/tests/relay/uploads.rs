//! Requests whose bodies arrive slowly.

use shunt_reactor::sim::{Options, SECOND};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::Scene;

fn is_answered(outcomes: &[Outcome], count: usize) -> bool {
    outcomes.len() == count
        && outcomes.iter().all(|outcome| matches!(outcome, Outcome::Whole { status: 200, .. }))
}

#[test]
fn uploads_waiting_for_a_connection_have_a_bound_in_bytes() {
    const MANY: usize = 8;
    const EACH: usize = 50_000;
    let begun = format!(
        "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n{}",
        "x".repeat(EACH)
    );
    let mut scene = Scene::new(3, Options::calm(), 1, vec![vec![Request::Raw(begun)]; MANY]);
    scene.world.with(scene.agents[0], |agent, _| agent.set_waiting_bytes_max(2 * EACH));
    scene.wait_for_backends();
    scene.world.run_for(SECOND);
    let outcomes = scene.clients.iter().map(|client| &scene.world.host(*client).outcomes);
    let refused = outcomes
        .filter(|outcomes| matches!(outcomes[..], [Outcome::Whole { status: 503, .. }]))
        .count();
    // One request has a connection.
    assert!((MANY - 3..MANY - 1).contains(&refused), "{refused} are refused");
}

/// More slow uploads than the agent has connections to the server.
#[test]
fn slow_uploads_keep_no_connection_from_others() {
    let slow =
        Request::Raw("PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 25\r\n\r\n".to_owned());
    let mut plans = vec![vec![slow]; 8];
    let others = [
        Request::Length(1_000),
        Request::Upload(1_000),
        Request::UploadChunked(1_000),
        Request::Length(1_000),
    ];
    plans.push(others.to_vec());
    let mut scene = Scene::new(2, Options::calm(), 1, plans);
    let other = scene.clients.pop().expect("the last one");
    scene.wait_for_backends();
    let slow = scene.clients.clone();
    assert!(
        scene.world.run_until(SECOND, |world| slow
            .iter()
            .all(|client| world.host(*client).conn().is_some()))
    );
    scene.world.post(other, ());
    for _ in 0..25 {
        scene.world.run_for(SECOND);
        for client in &slow {
            scene.world.with(*client, |client, io| {
                client.conn().into_iter().for_each(|conn| io.output(conn).extend_from_slice(b"x"));
            });
        }
    }
    scene.world.run_for(SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, others.len()), "{outcomes:?}");
    for client in slow {
        let outcomes = &scene.world.host(client).outcomes;
        assert!(is_answered(outcomes, 1), "{outcomes:?}");
    }
    scene.is_at_rest();
}
