//! Rows of durable locks whose reads and writes are slower than the demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_proxy::config::Secret;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, OVERLOADED, WRITE_TIMEOUT};

use super::lock_ring::{self, LockTestbed, Tables, Writes};
use super::locks::take;

/// One role asks for more writes than possible. Another's rows have room, and so have reads.
#[test]
fn rows_of_one_role_that_are_not_answered_leave_room_for_those_of_others() {
    let mut ring = LockTestbed::new(|options| {
        options.credentials = [("ann", "secret"), ("bob", "secret")]
            .map(|(role, word)| (role.into(), word.into()))
            .to_vec();
        options.config.username = Some("bob".to_owned());
        options.config.password = Some(Secret::new("secret"));
        options.config.query_timeout_ms = 10_000;
    });
    ring.tables.lock().unwrap().writes = Writes::UnansweredOf("greedy");
    let [ann, bob] = ["ann", "bob"].map(|role| ring.client(Some((role, "secret"))));
    let wanted: Vec<u8> = (0..20_000)
        .flat_map(|stream| bytes::query(4, stream, &take("locks", &stream.to_string(), "greedy")))
        .collect();
    ring.testbed.send(ann, &wanted);
    ring.testbed.run_for(SECOND);
    let refused = ring.testbed.take_answers(ann);
    assert!(
        refused.len() > 10_000 && refused.iter().all(|answer| answer.error().0 == OVERLOADED),
        "{}",
        refused.len()
    );
    assert!(ring.applies(bob, &take("locks", "another", "me")));
    assert!(ring.applies(bob, "DELETE FROM shunt.locks WHERE name = 'another' IF owner = 'me'"));
}

/// Asks for each of 40,000 locks; returns the numbers of those refused.
fn ask_all(
    ring: &mut LockTestbed,
    client: HostId<simulated::Client>,
    text: &dyn Fn(u32) -> String,
) -> Vec<u32> {
    let mut refused = Vec::new();
    for first in (0..40_000).step_by(2_000) {
        let all: Vec<u8> =
            (0..2_000).flat_map(|at| bytes::query(4, at as i16, &text(first + at))).collect();
        ring.testbed.send(client, &all);
        ring.testbed.answered(client, 2_000);
        for answer in ring.testbed.take_answers(client) {
            if answer.opcode() == opcode::ERROR {
                assert_eq!(answer.error().0, OVERLOADED);
                refused.push(first + u32::from(answer.header.stream.unsigned_abs()));
            } else {
                assert_eq!(answer.rows()[0][0].as_deref(), Some(&[1][..]));
            }
        }
    }
    refused
}

fn take_for_long(number: u32) -> String {
    format!(
        "INSERT INTO shunt.locks (name, owner) VALUES ('{number}', 'me') IF NOT EXISTS USING TTL 3600"
    )
}

fn release(number: u32) -> String {
    format!("DELETE FROM shunt.locks WHERE name = '{number}' IF owner = 'me'")
}

/// A burst of releases fills the share of its role, and no more. Every lock that was released has
/// its row, whoever released it: `bob` is an operator.
#[test]
fn one_role_that_releases_very_many_locks_keeps_nobody_else_from_it() {
    let mut ring = LockTestbed::new(|options| {
        options.credentials = [("ann", "secret"), ("bob", "secret")]
            .map(|(role, word)| (role.into(), word.into()))
            .to_vec();
        options.config.username = Some("bob".to_owned());
        options.config.password = Some(Secret::new("secret"));
        options.config.query_timeout_ms = 10_000;
    });
    let [ann, bob] = ["ann", "bob"].map(|role| ring.client(Some((role, "secret"))));
    assert_eq!(ask_all(&mut ring, ann, &take_for_long), [0; 0]);
    for number in 50_000..50_100 {
        assert!(ring.applies(bob, &take_for_long(number)));
    }
    ring.tables.lock().unwrap().writes = Writes::UnansweredOf("");
    let refused = ask_all(&mut ring, ann, &release);
    assert!((18_000..24_000).contains(&refused.len()), "{}", refused.len());
    for number in (50_000..50_100).chain(refused[..100].iter().copied()) {
        assert!(ring.applies(bob, &release(number)), "{number}");
    }
    let freed = |ring: &LockTestbed| ring.tables.lock().unwrap().freed.len();
    assert!(freed(&ring) < 10_000, "{}", freed(&ring));
    ring.tables.lock().unwrap().writes = Writes::Acknowledged;
    ring.testbed.run_for(30 * SECOND);
    assert_eq!(freed(&ring), 40_000 - refused.len() + 200);
}

/// A lock whose free row is lost stays held for the next owner of its shard. A row that cannot be
/// sent is sent later, and when very many wait locks are not released.
#[test]
fn free_rows_that_cannot_be_sent_are_sent_later_or_locks_are_not_released() {
    let mut ring = LockTestbed::new(|options| options.config.query_timeout_ms = 10_000);
    ring.tables.lock().unwrap().writes = Writes::UnansweredOf("");
    let client = ring.client(None);
    assert_eq!(ask_all(&mut ring, client, &take_for_long), [0; 0]);
    let refused = ask_all(&mut ring, client, &release);
    assert!((18_000..24_000).contains(&refused.len()), "{}", refused.len());
    let freed = |ring: &LockTestbed| ring.tables.lock().unwrap().freed.len();
    assert!(freed(&ring) < 10_000, "{}", freed(&ring));
    ring.tables.lock().unwrap().writes = Writes::Acknowledged;
    ring.testbed.run_for(30 * SECOND);
    assert_eq!(freed(&ring), 40_000 - refused.len(), "every lock that was released has its row");
    for number in refused {
        assert!(ring.applies(client, &release(number)), "{number}");
    }
    // The answer to a release leaves with its row, not after it.
    ring.testbed.run_for(SECOND);
    assert_eq!(freed(&ring), 40_000);
}

/// A partition may have very many rows, or nodes may be slow: the next read does not begin
/// meanwhile, and one that failed has to wait.
#[test]
fn partitions_are_read_ahead_one_after_the_other() {
    let tables = Tables::shared();
    tables.lock().unwrap().reads_unanswered = true;
    let mut ring =
        LockTestbed::with_tables(tables, |options| options.config.query_timeout_ms = 10_000);
    ring.testbed.run_for(60 * SECOND);
    let read = |ring: &LockTestbed| std::mem::take(&mut ring.tables.lock().unwrap().reads);
    let slow: usize = read(&ring).values().sum();
    assert!((5..=15).contains(&slow), "{slow} in 105 s");
    ring.tables.lock().unwrap().reads_unanswered = false;
    ring.testbed.run_for(60 * SECOND);
    let quick = read(&ring);
    assert!(quick.len() > 40 && quick.values().all(|times| *times == 1), "{quick:?}");
}

/// The first node has written the row and is lost; others do not know the table yet. The lock may
/// be held, so no client hears that it is not.
#[test]
fn a_lock_whose_row_a_second_node_refuses_is_in_doubt() {
    let mut ring = LockTestbed::new(|_| {});
    let columns = ["bucket", "name", "slot", "owner", "role", "mode", "fence", "ttl_ms"];
    ring.testbed.scene.add_table("shunt_meta", "lock", &columns);
    let client = ring.client(None);
    let writes = Arc::new(AtomicUsize::new(0));
    for node in 0..ring.testbed.scene.nodes.len() {
        let (writes, mut others) = (Arc::clone(&writes), lock_ring::hook(&ring.tables));
        let hook = Box::new(move |request: &Request<'_>| {
            let text = b"INSERT INTO shunt_meta.lock";
            if request.opcode != opcode::QUERY
                || !request.body.windows(text.len()).any(|part| part == text)
            {
                return others(request);
            }
            let is_first = writes.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first { Action::Close } else { Action::Error(INVALID) }
        });
        ring.testbed.scene.hook(node, Some(hook));
    }
    let answer = ring.ask(client, &take("locks", "one", "me"));
    assert_eq!(answer.error().0, WRITE_TIMEOUT);
    assert!(writes.load(Ordering::Relaxed) > 1, "it was sent again");
}
