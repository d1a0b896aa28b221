//! A request that its client has given up never goes to a node: a process that was paused first
//! finds answers that would make it retry, and its own deadline only after them.

use std::sync::{Arc, Mutex};

use shunt_bench::stub::Action;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::ResultMessage;
use shunt_wire::cql::message::error_code::{IS_BOOTSTRAPPING, OVERLOADED, UNPREPARED};

use super::testbed::Testbed;

/// Requests of one kind that reached nodes, and the handling of the first.
#[derive(Default)]
struct Came {
    requests: usize,
    prepares: usize,
}

/// Pauses the process from the time nodes have answered, for longer than the deadline; returns the
/// answer to the client's request.
fn late(
    testbed: &mut Testbed,
    client: HostId<simulated::Client>,
    request: &[u8],
    has_come: impl Fn() -> bool,
) -> Answer {
    testbed.send(client, request);
    assert!(testbed.scene.world.run_until(SECOND, |_| has_come()), "no node was asked");
    let core = testbed.scene.cores[0];
    testbed.scene.world.freeze(core);
    testbed.run_for(4 * SECOND);
    testbed.scene.world.thaw(core);
    testbed.run_for(2 * SECOND);
    testbed.take_answers(client).remove(0)
}

fn hooked(testbed: &mut Testbed, came: &Arc<Mutex<Came>>, opcode: u8, first: fn() -> Action) {
    testbed.hook_all(|| {
        let came = Arc::clone(came);
        Box::new(move |request| {
            let mut came = came.lock().unwrap();
            came.prepares += usize::from(request.opcode == opcode::PREPARE);
            let is_ours =
                request.opcode == opcode && request.body.windows(4).any(|found| found == b"late");
            came.requests += usize::from(is_ours);
            if is_ours && came.requests == 1 { first() } else { Action::Answer }
        })
    });
}

#[test]
fn a_late_refused_request_goes_to_no_other_node() {
    let (mut testbed, came) = (Testbed::bare(|_| {}), Arc::<Mutex<Came>>::default());
    hooked(&mut testbed, &came, opcode::QUERY, || Action::Error(IS_BOOTSTRAPPING));
    let client = testbed.started_offender(4);
    let answer = late(&mut testbed, client, &bytes::insert(4, 1, "late", 9), || {
        came.lock().unwrap().requests > 0
    });
    assert_eq!((answer.error().0, came.lock().unwrap().requests), (OVERLOADED, 1));
}

#[test]
fn a_late_repaired_statement_is_not_sent_again() {
    let (mut testbed, came) = (Testbed::bare(|_| {}), Arc::<Mutex<Came>>::default());
    hooked(&mut testbed, &came, opcode::EXECUTE, || Action::Unprepared);
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::prepare(4, 1, "INSERT INTO bench.kv (k, v) VALUES (?, ?)"));
    testbed.answered(client, 1);
    let id = match ResultMessage::decode(4, &testbed.take_answers(client)[0].body) {
        Ok(ResultMessage::Prepared(prepared)) => prepared.id.to_vec(),
        other => panic!("{other:?}"),
    };
    testbed.run_for(SECOND);
    came.lock().unwrap().prepares = 0;
    // The process is paused while the statement is being prepared.
    let answer =
        late(&mut testbed, client, &bytes::execute(4, 1, &id, &[b"late", b"value"]), || {
            came.lock().unwrap().prepares > 0
        });
    assert_eq!((answer.error().0, came.lock().unwrap().requests), (UNPREPARED, 1));
}
