//! Rows that expire while a statement waits for nodes: it is decided by the row as it is then.

use std::sync::Arc;

use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};

use super::transaction_ring::{Bank, TransactionTestbed};

const INSERT: &str = "INSERT INTO bank.t (id, v) VALUES (1, 1) IF NOT EXISTS USING TTL 10";
const UPDATE: &str = "UPDATE bank.t SET v = 2 WHERE id = 1 IF v = 1";
/// Time for which the proxy decides by the row of [`INSERT`] without reading it: two seconds less
/// than its TTL.
const KNOWN_NS: u64 = 8 * SECOND;
/// Time from a statement's beginning to the row's limit: shorter than that after which the proxy
/// asks another node for the version of the schema.
const BEFORE_NS: u64 = 100 * MILLISECOND;

/// A proxy that knows a row with the value 1. It may decide by it up to the returned time. The
/// nodes have no row, as after its TTL.
fn testbed() -> (TransactionTestbed, HostId<simulated::Client>, u64) {
    let bank = Bank::with(&[("bank", "t")]);
    {
        let mut bank = bank.lock().unwrap();
        (bank.mode, bank.schema_versions) = (Some("conditional"), vec![[1; 16]]);
    }
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    ring.send(client, &bytes::query(4, 1, INSERT));
    let bank = Arc::clone(&ring.bank);
    let world = &mut ring.ring.testbed.scene.world;
    let is_written = world.run_until(30 * SECOND, |_| !bank.lock().unwrap().written.is_empty());
    assert!(is_written, "the row is not written");
    let until_ns = world.now_ns() + KNOWN_NS;
    ring.ring.testbed.answered(client, 1);
    assert_eq!(ring.answers(client)[0].rows()[0][0].as_deref(), Some(&[1][..]));
    (ring, client, until_ns)
}

/// Runs until this time.
fn run_up_to(ring: &mut TransactionTestbed, end_ns: u64) {
    let now_ns = ring.ring.testbed.scene.world.now_ns();
    ring.run_for(end_ns.checked_sub(now_ns).expect("a later time"));
}

fn rows_read(ring: &TransactionTestbed) -> usize {
    ring.bank.lock().unwrap().rows_read
}

/// True if the statement is applied. It begins while the row is known, and a node names the version
/// of the schema only when the row may have expired.
fn is_applied_after_the_row(text: &str) -> bool {
    let (mut ring, client, until_ns) = testbed();
    let (bank, nodes) = (Arc::clone(&ring.bank), 0..ring.ring.testbed.scene.nodes.len());
    let before = rows_read(&ring);
    // A version that was named then is too old for the statement.
    run_up_to(&mut ring, until_ns - 3 * SECOND);
    for refused in [UPDATE.replace("IF v = 1", "IF v = 3").as_str(), INSERT] {
        let answer = ring.ask(client, refused);
        assert_eq!(answer.rows()[0][0].as_deref(), Some(&[0][..]), "{refused}: {answer:?}");
    }
    assert_eq!(rows_read(&ring), before, "the row is known");
    run_up_to(&mut ring, until_ns - BEFORE_NS);
    bank.lock().unwrap().versions_unanswered = nodes.collect();
    let asked = bank.lock().unwrap().versions_asked;
    ring.send(client, &bytes::query(4, 1, text));
    let world = &mut ring.ring.testbed.scene.world;
    let is_asked = |bank: &Bank| bank.versions_asked > asked;
    assert!(
        world.run_until(SECOND, |_| is_asked(&bank.lock().unwrap())) && world.now_ns() < until_ns,
        "the statement did not begin before the row's limit"
    );
    run_up_to(&mut ring, until_ns);
    assert_eq!(
        (ring.answers(client).len(), rows_read(&ring)),
        (0, before),
        "it waits for the version"
    );
    bank.lock().unwrap().versions_unanswered.clear();
    ring.ring.testbed.answered(client, 1);
    assert_eq!(rows_read(&ring), before + 1, "the row is read again");
    ring.answers(client)[0].rows()[0][0].as_deref() == Some(&[1])
}

#[test]
fn a_condition_on_a_value_that_has_expired_meanwhile_does_not_hold() {
    assert!(!is_applied_after_the_row(UPDATE));
}

#[test]
fn a_row_that_has_expired_meanwhile_does_not_exist() {
    assert!(is_applied_after_the_row(INSERT));
}

/// A proxy that knows no row, at nodes with the value 1 in its last second.
fn last_second() -> (TransactionTestbed, HostId<simulated::Client>) {
    let bank = Bank::with(&[("bank", "t")]);
    {
        let mut bank = bank.lock().unwrap();
        (bank.mode, bank.schema_versions) = (Some("conditional"), vec![[1; 16]]);
        (bank.valued_us, bank.value_ttl) = (Some(1), Some(1));
    }
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    // The plan and the version of the schema are known.
    let answer = ring.ask(client, &UPDATE.replace("IF v = 1", "IF v = 3"));
    assert_eq!(answer.rows()[0][0].as_deref(), Some(&[0][..]));
    (ring, client)
}

/// True if the statement is applied. The row is read while its value is there, and a node names the
/// version of the schema only when the value has expired.
fn is_applied_after_the_value(text: &str) -> bool {
    let (mut ring, client) = last_second();
    let (bank, nodes) = (Arc::clone(&ring.bank), 0..ring.ring.testbed.scene.nodes.len());
    // The version that was named then is too old for the statement.
    ring.run_for(2 * SECOND);
    bank.lock().unwrap().versions_unanswered = nodes.collect();
    let before = rows_read(&ring);
    ring.send(client, &bytes::query(4, 1, text));
    let world = &mut ring.ring.testbed.scene.world;
    assert!(world.run_until(SECOND, |_| bank.lock().unwrap().rows_read > before), "it is not read");
    ring.run_for(BEFORE_NS);
    assert_eq!(ring.answers(client).len(), 0, "it waits for the version");
    {
        let mut bank = bank.lock().unwrap();
        bank.versions_unanswered.clear();
        bank.valued_us = None;
    }
    ring.ring.testbed.answered(client, 1);
    assert_eq!(rows_read(&ring), before + 2, "the row is read again");
    ring.answers(client)[0].rows()[0][0].as_deref() == Some(&[1])
}

#[test]
fn a_condition_on_a_value_that_has_expired_since_it_was_read_does_not_hold() {
    assert!(!is_applied_after_the_value(UPDATE));
}

#[test]
fn a_row_that_has_expired_since_it_was_read_does_not_exist() {
    assert!(is_applied_after_the_value(INSERT));
}

#[test]
fn a_value_in_its_last_second_is_read_once_if_nodes_answer_at_once() {
    let (mut ring, client) = last_second();
    let before = rows_read(&ring);
    let answer = ring.ask(client, UPDATE);
    assert_eq!(answer.rows()[0][0].as_deref(), Some(&[1][..]), "{answer:?}");
    assert_eq!(rows_read(&ring), before + 1);
}
