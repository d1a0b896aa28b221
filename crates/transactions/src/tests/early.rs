//! Transactions of which clients are told before their writes are there.

use shunt_locks::{Now, Written};

use super::shards::{Said, serving};
use crate::engine::types::{
    Begin, Decision, Limits, Mode, Outcome, Partition, Ticket, TransactionId,
};
use crate::{Refused, Transactions, no_lease};

const NOW: Now = Now { boot_ns: 0, wall_us: 0 };
const LATE: Now = Now { boot_ns: 2_000_000_000, wall_us: 0 };

/// One that has its partition, or waits for it.
fn begin(transactions: &mut Transactions, key: u128, said: &mut Said) -> TransactionId {
    let partitions = [(Partition(key), Mode::Exclusive)];
    let asked = Begin { ticket: Ticket(0), shard: 1, partitions: &partitions, deadline_ms: 1_000 };
    transactions.begin(NOW, &asked, said).expect("room")
}

/// One whose record is under way.
fn record(
    transactions: &mut Transactions,
    key: u128,
    decision: Decision,
    said: &mut Said,
) -> TransactionId {
    let id = begin(transactions, key, said);
    transactions.decided(NOW, id, decision, said);
    id
}

fn is_committed(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Committed { .. }))
}

#[test]
fn an_early_answer_follows_the_record_and_the_locks_last_until_the_writes() {
    let mut said = Said::default();
    let mut transactions = serving(Limits::default(), &mut said);
    let first = record(&mut transactions, 7, Decision::WriteAndTell(2), &mut said);
    let second = begin(&mut transactions, 7, &mut said);
    assert_eq!(
        (said.locked.len(), said.replies.len()),
        (1, 0),
        "nothing is told before the record is there"
    );
    transactions.appended(NOW, first, Written::Acknowledged, &mut said);
    assert!(said.replies.len() == 1 && is_committed(said.replies.first()));
    transactions.applied(NOW, first, 0, Ok(Written::Acknowledged), &mut said);
    assert_eq!((said.locked.len(), transactions.is_idle(1)), (1, false));
    transactions.applied(NOW, first, 1, Ok(Written::Acknowledged), &mut said);
    assert_eq!((said.locked.last(), said.replies.len()), (Some(&second), 1), "it is told once");
    assert_eq!((transactions.counters().told_early, transactions.counters().committed), (1, 1));
}

#[test]
fn without_a_lease_it_is_in_doubt_and_a_record_that_is_not_there_is_told_to_nobody() {
    for (now, written, replies) in [
        (no_lease(NOW), Written::Acknowledged, &[Outcome::InDoubt][..]),
        (NOW, Written::Unknown, &[]),
    ] {
        let mut said = Said::default();
        let mut transactions = serving(Limits::default(), &mut said);
        let id = record(&mut transactions, 7, Decision::WriteAndTell(1), &mut said);
        transactions.appended(now, id, written, &mut said);
        assert_eq!(said.replies, replies);
    }
}

#[test]
fn no_more_are_told_early_than_there_may_be_and_the_others_when_all_is_there() {
    let mut said = Said::default();
    let limits = Limits { told_early: 1, ..Limits::default() };
    let mut transactions = serving(limits, &mut said);
    let [first, second] =
        [1, 2].map(|key| record(&mut transactions, key, Decision::WriteAndTell(1), &mut said));
    let waits = record(&mut transactions, 3, Decision::Write(1), &mut said);
    for id in [first, second, waits] {
        transactions.appended(NOW, id, Written::Acknowledged, &mut said);
    }
    assert!(said.replies.len() == 1 && is_committed(said.replies.first()), "{:?}", said.replies);
    transactions.applied(NOW, second, 0, Ok(Written::Acknowledged), &mut said);
    assert!(said.replies.len() == 2 && is_committed(said.replies.last()), "{:?}", said.replies);
    // What nodes refuse ends as well, and makes room.
    transactions.applied(NOW, first, 0, Err(Refused::ForGood), &mut said);
    let next = record(&mut transactions, 4, Decision::WriteAndTell(1), &mut said);
    transactions.appended(NOW, next, Written::Acknowledged, &mut said);
    assert_eq!((said.replies.len(), transactions.counters().told_early), (3, 2));
    // Whoever waits too long is told as ever.
    transactions.tick(LATE, &mut said);
    assert!(said.replies.len() == 4 && is_committed(said.replies.last()), "{:?}", said.replies);
    for id in [waits, next] {
        transactions.applied(NOW, id, 0, Ok(Written::Acknowledged), &mut said);
    }
    assert_eq!(said.replies.len(), 4, "each once: {:?}", said.replies);
}

#[test]
fn a_client_hears_no_success_while_nodes_refuse_a_write() {
    for (refused_then, outcome) in
        [(false, Outcome::Committed { timestamp_us: 0 }), (true, Outcome::InDoubt)]
    {
        let mut said = Said::default();
        let mut transactions = serving(Limits::default(), &mut said);
        let id = record(&mut transactions, 7, Decision::Write(2), &mut said);
        transactions.appended(NOW, id, Written::Acknowledged, &mut said);
        transactions.applied(NOW, id, 0, Ok(Written::Acknowledged), &mut said);
        let attempt = if refused_then { Err(Refused::ForNow) } else { Ok(Written::Unknown) };
        transactions.applied(NOW, id, 1, attempt, &mut said);
        assert_eq!(said.replies, []);
        transactions.tick(LATE, &mut said);
        let [told] = said.replies[..] else { panic!("{:?}", said.replies) };
        assert_eq!(is_committed(Some(&told)), outcome != Outcome::InDoubt, "{told:?}");
    }
}

#[test]
fn a_client_hears_success_if_a_refused_write_is_made_in_time() {
    let mut said = Said::default();
    let mut transactions = serving(Limits::default(), &mut said);
    let id = record(&mut transactions, 7, Decision::Write(1), &mut said);
    transactions.appended(NOW, id, Written::Acknowledged, &mut said);
    transactions.applied(NOW, id, 0, Err(Refused::ForNow), &mut said);
    let soon = Now { boot_ns: NOW.boot_ns + 500_000_000, ..NOW };
    transactions.tick(soon, &mut said);
    transactions.applied(soon, id, 0, Ok(Written::Acknowledged), &mut said);
    assert!(said.replies.len() == 1 && is_committed(said.replies.first()), "{:?}", said.replies);
}
