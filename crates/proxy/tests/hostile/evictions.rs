//! Clients that an operator closes: each of their requests in flight gets an error that drivers act
//! upon rightly, and other clients notice nothing.

use std::sync::Arc;

use shunt_bench::stub::Action;
use shunt_proxy::control::CoreMail;
use shunt_proxy::metrics::FinalError;
use shunt_proxy::selection::Selection;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{OVERLOADED, WRITE_TIMEOUT};
use tokio::sync::mpsc;

use super::lock_ring::LockTestbed;
use super::locks::take;
use super::support::scene::Scene;
use super::testbed::Testbed;

/// Closes all clients; returns how many.
fn close_all(scene: &mut Scene) -> u64 {
    let (sender, mut answers) = mpsc::channel(1);
    let everyone = Arc::new(Selection::default());
    scene.world.post(scene.cores[0], CoreMail::Kick(everyone, sender));
    scene.world.run_for(100 * MILLISECOND);
    answers.try_recv().expect("an answer").closed
}

fn errors(answers: &[Answer]) -> Vec<(i16, i32)> {
    let mut errors: Vec<(i16, i32)> =
        answers.iter().map(|answer| (answer.header.stream, answer.error().0)).collect();
    errors.sort_unstable();
    errors
}

fn busy(testbed: &mut Testbed, version: u8) -> HostId<simulated::Client> {
    let client = testbed.started_offender(version);
    testbed.send(client, &bytes::insert(version, 1, "opens links", 9));
    testbed.answered(client, 1);
    testbed.take_answers(client);
    testbed.hook_all(|| {
        Box::new(|request| match request.opcode {
            opcode::QUERY => Action::Silence,
            _ => Action::Answer,
        })
    });
    testbed.send(client, &bytes::query(version, 2, "SELECT v FROM bench.kv WHERE k = 'a'"));
    testbed.send(client, &bytes::insert(version, 3, "in doubt", 9));
    testbed.run_for(10 * MILLISECOND);
    client
}

#[test]
fn requests_in_flight_get_an_error_that_says_what_is_known() {
    for version in [3, 4] {
        let mut testbed = Testbed::bare(|_| {});
        let client = busy(&mut testbed, version);
        assert_eq!(close_all(&mut testbed.scene), 1);
        testbed.closed(client);
        let answers = testbed.take_answers(client);
        assert_eq!(errors(&answers), [(2, OVERLOADED), (3, WRITE_TIMEOUT)], "version {version}");
        assert!(answers.iter().all(|answer| answer.error().1.contains("an operator has closed")));
        let counted = &testbed.scene.metrics[0].final_errors;
        let counts = [FinalError::Overloaded, FinalError::WriteTimeout];
        assert_eq!(counts.map(|error| counted.of(error).get()), [1, 1]);
    }
}

/// Late answers of nodes are nobody's, and the streams of the link are free again.
#[test]
fn answers_to_a_closed_client_are_dropped_and_counted_once() {
    let mut testbed = Testbed::bare(|options| options.config.query_timeout_ms = 2_000);
    let client = busy(&mut testbed, 4);
    close_all(&mut testbed.scene);
    testbed.closed(client);
    testbed.run_for(5 * SECOND);
    let metrics = &testbed.scene.metrics[0];
    assert_eq!((metrics.in_flight.get(), metrics.clients.get()), (0, 0));
}

#[test]
fn a_client_without_a_request_in_flight_is_only_closed() {
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.started_offender(4);
    assert_eq!(close_all(&mut testbed.scene), 1);
    testbed.closed(client);
    assert_eq!(testbed.take_answers(client).len(), 0);
}

#[test]
fn a_client_that_waits_for_a_lock_hears_that_it_may_have_it() {
    let mut ring = LockTestbed::new(|_| {});
    let [holder, waiter] = [0; 2].map(|_| ring.client(None));
    assert!(ring.applies(holder, &take("fast_locks", "a", "me")));
    let waits = "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES ('a', 'other', 1500) \
        IF NOT EXISTS USING TTL 20";
    ring.testbed.send(waiter, &bytes::query(4, 7, waits));
    ring.testbed.run_for(SECOND / 2);
    close_all(&mut ring.testbed.scene);
    ring.testbed.closed(waiter);
    assert_eq!(errors(&ring.testbed.take_answers(waiter)), [(7, WRITE_TIMEOUT)]);
}
