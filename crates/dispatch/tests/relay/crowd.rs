//! Many clients at once, each within its own bounds.

use shunt_reactor::sim::{MILLISECOND, Options, SECOND};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::Scene;

/// Limit on the bytes of all clients.
const ALL_BYTES_MAX: usize = 1 << 20;
const MANY: usize = 20;

#[test]
fn clients_that_read_nothing_and_hold_the_most_are_cut_off() {
    // Pipelined requests for answers so small that the connection to the server is soon free again.
    let ahead = "GET /length/60000 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(8);
    let mut plans = vec![vec![Request::Raw(ahead)]; MANY];
    plans.push(vec![Request::Length(1_000); 5]);
    let options = Options { window_bytes: 65_536..65_537, ..Options::calm() };
    let mut scene = Scene::new(1, options, 1, plans);
    let dispatcher = scene.dispatcher;
    scene.world.with(dispatcher, |dispatcher, _| dispatcher.set_clients_bytes_max(ALL_BYTES_MAX));
    let other = scene.clients.pop().expect("the last one");
    scene.wait_for_backends();
    for client in scene.clients.clone() {
        assert!(scene.world.run_until(SECOND, |world| world.host(client).conn().is_some()));
        scene.world.with(client, |client, io| {
            client.conn().into_iter().for_each(|conn| io.pause_reading(conn))
        });
    }
    let mut most = 0;
    for _ in 0..200 {
        scene.world.run_for(10 * MILLISECOND);
        most = most.max(scene.world.held(dispatcher).backlog);
    }
    assert!(most > ALL_BYTES_MAX / 2 && most <= ALL_BYTES_MAX * 3 / 2, "{most} bytes");
    let cut = scene.counted().cut as usize;
    assert!(cut > 0 && cut < MANY, "{cut} are cut off");
    scene.world.post(other, ());
    assert!(scene.world.run_until(10 * SECOND, |world| world.host(other).is_done()));
    let outcomes = &scene.world.host(other).outcomes;
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Whole { status: 200, .. })),
        "{outcomes:?}"
    );
}

/// The keys of TLS, and records that never end, take memory as unread answers do.
#[test]
fn the_encryption_of_clients_counts() {
    for (sealed, cut) in [(false, 0), (true, MANY)] {
        let options = Options { sealed, ..Options::calm() };
        let mut scene = Scene::new(1, options, 1, vec![vec![Request::Raw(String::new())]; MANY]);
        let dispatcher = scene.dispatcher;
        scene.world.with(dispatcher, |dispatcher, _| dispatcher.set_clients_bytes_max(1));
        scene.clients.iter().for_each(|client| scene.world.post(*client, ()));
        scene.world.run_for(5 * SECOND);
        assert_eq!(scene.counted().clients as usize, MANY);
        assert_eq!(scene.counted().cut as usize, cut, "encrypted: {sealed}");
    }
}
