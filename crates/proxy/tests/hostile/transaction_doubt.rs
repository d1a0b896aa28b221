//! Statements without conditions on a table with the mode `conditional`: a write of unknown outcome
//! that comes after them must change nothing.

use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::simulated;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::WRITE_TIMEOUT;

use super::transaction_ring::{Bank, TransactionTestbed, Writes};

/// A proxy to which the rows of a table with two columns, `v` and `w`, are unknown.
fn testbed(valued_us: Option<i64>) -> (TransactionTestbed, HostId<simulated::Client>) {
    let bank = Bank::with(&[("bank", "t")]);
    {
        let mut bank = bank.lock().unwrap();
        (bank.mode, bank.has_w) = (Some("conditional"), true);
        bank.valued_us = valued_us;
    }
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    (ring, client)
}

/// The text that nodes get for a statement, and how often its row was read before.
fn written(
    ring: &mut TransactionTestbed,
    client: HostId<simulated::Client>,
    text: &str,
) -> (String, usize) {
    let before = ring.bank.lock().unwrap().rows_read;
    let answer = ring.ask(client, text);
    assert_eq!(answer.opcode(), opcode::RESULT, "{text}: {answer:?}");
    let bank = ring.bank.lock().unwrap();
    (bank.written.last().expect("a write").0.clone(), bank.rows_read - before)
}

/// The first statement may still be on its way when the second is acknowledged. Its condition would
/// not hold after that.
#[test]
fn a_column_that_a_statement_leaves_is_rewritten_after_a_write_of_unknown_outcome() {
    let (mut ring, client) = testbed(Some(1_000));
    ring.bank.lock().unwrap().writes = Writes::Unanswered;
    let answer = ring.ask(client, "UPDATE bank.t SET w = 2 WHERE id = 1 IF v = 1");
    assert_eq!(answer.error().0, WRITE_TIMEOUT, "{answer:?}");
    ring.bank.lock().unwrap().writes = Writes::Acknowledged;
    let (text, reads) = written(&mut ring, client, "UPDATE bank.t SET v = 2 WHERE id = 1");
    assert!(text.contains("AND TTL ? SET w = ?") && text.contains("SET v = 2"), "{text}");
    assert_eq!(reads, 1);
    // From now on the row is known.
    let (text, reads) = written(&mut ring, client, "UPDATE bank.t SET v = 3 WHERE id = 1");
    assert!(!text.contains("SET w") && reads == 0, "{reads} reads: {text}");
    let answer = ring.ask(client, "UPDATE bank.t SET w = 3 WHERE id = 1 IF v = 3");
    assert_eq!(answer.rows()[0][0].as_deref(), Some(&[1][..]), "{answer:?}");
}

#[test]
fn a_row_that_is_not_there_is_deleted_before_a_part_of_it_is_written() {
    let (mut ring, client) = testbed(None);
    let insert = "INSERT INTO bank.t (id, v) VALUES (1, 1)";
    let (text, reads) = written(&mut ring, client, insert);
    assert!(text.contains("DELETE FROM") && text.contains("(id, v)"), "{text}");
    assert_eq!(reads, 1);
    let answer = ring.ask(client, "UPDATE bank.t SET w = 1 WHERE id = 1 IF v = 1 AND w = null");
    assert_eq!(answer.rows()[0][0].as_deref(), Some(&[1][..]), "{answer:?}");
}

#[test]
fn a_statement_that_replaces_its_row_reads_nothing() {
    let (mut ring, client) = testbed(Some(1_000));
    for text in [
        "INSERT INTO bank.t (id, v, w) VALUES (1, 2, null)",
        "UPDATE bank.t SET v = 2, w = 2 WHERE id = 2",
        "DELETE FROM bank.t WHERE id = 3",
    ] {
        let (sent, reads) = written(&mut ring, client, text);
        assert!(!sent.contains("BATCH") && reads == 0, "{reads} reads: {sent}");
    }
    // A deletion of one column leaves the other.
    let (sent, reads) = written(&mut ring, client, "DELETE v FROM bank.t WHERE id = 4");
    assert!(sent.contains("BATCH") && reads == 1, "{reads} reads: {sent}");
}

/// Nodes acknowledge such a statement too, although the value hides it.
#[test]
fn a_row_from_the_future_is_written_and_not_known() {
    let (mut ring, client) = testbed(None);
    written(&mut ring, client, "INSERT INTO bank.t (id, v, w) VALUES (1, 1, 1)");
    {
        let mut bank = ring.bank.lock().unwrap();
        let now_us = bank.written.last().and_then(|(_, at_us)| *at_us).expect("a timestamp");
        bank.valued_us = Some(now_us + 60_000_000);
    }
    for _ in 0..2 {
        ring.run_for(SECOND);
        let (text, reads) = written(&mut ring, client, "UPDATE bank.t SET v = 2 WHERE id = 2");
        assert!(!text.contains("BATCH") && reads == 1, "{reads} reads: {text}");
    }
}
