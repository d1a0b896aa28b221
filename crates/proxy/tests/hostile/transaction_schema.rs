//! Changes of the schema that a control connection does not hear of: no statement is decided by a
//! row from before.

use shunt_proxy::control::state::{ControlRequest, CoreMail};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;

use super::transaction_ring::{Bank, TransactionTestbed};

/// A proxy that decides the statements on a table whose row has the value 1, at nodes with these
/// versions of the schema.
fn testbed(versions: &[u8]) -> (TransactionTestbed, HostId<simulated::Client>) {
    let bank = Bank::with(&[("bank", "t")]);
    {
        let mut bank = bank.lock().unwrap();
        (bank.mode, bank.valued_us) = (Some("conditional"), Some(1));
        bank.schema_versions = versions.iter().map(|version| [*version; 16]).collect();
    }
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    (ring, client)
}

/// True if a statement is applied on the condition that the value is 1.
fn is_applied(ring: &mut TransactionTestbed, client: HostId<simulated::Client>) -> bool {
    let answer = ring.ask(client, "UPDATE bank.t SET v = 1 WHERE id = 1 IF v = 1");
    answer.rows()[0][0].as_deref() == Some(&[1])
}

fn rows_read(ring: &TransactionTestbed) -> usize {
    ring.bank.lock().unwrap().rows_read
}

/// Drops the column and adds it again, at all nodes.
fn empty_column(ring: &TransactionTestbed) {
    let mut bank = ring.bank.lock().unwrap();
    (bank.valued_us, bank.schema_versions) = (None, vec![[9; 16]]);
}

#[test]
fn a_row_is_read_again_a_second_after_a_change_that_nodes_alone_know_of() {
    let (mut ring, client) = testbed(&[1]);
    for _ in 0..5 {
        assert!(is_applied(&mut ring, client));
        ring.run_for(2 * SECOND);
    }
    assert_eq!(rows_read(&ring), 1, "the row is known");
    empty_column(&ring);
    for _ in 0..5 {
        assert!(!is_applied(&mut ring, client), "it was decided by a value that is gone");
        ring.run_for(2 * SECOND);
    }
    assert_eq!(rows_read(&ring), 2, "the row is known again");
}

#[test]
fn a_row_is_read_again_at_once_after_an_event() {
    let (mut ring, client) = testbed(&[1]);
    assert!(is_applied(&mut ring, client));
    empty_column(&ring);
    ring.ring.testbed.scene.post_schema_event();
    ring.run_for(MILLISECOND);
    assert!(!is_applied(&mut ring, client), "it was decided by a value that is gone");
}

#[test]
fn a_row_is_read_again_at_once_after_a_change_by_a_client() {
    let (mut ring, client) = testbed(&[1]);
    assert!(is_applied(&mut ring, client));
    empty_column(&ring);
    ring.send(client, &bytes::query(4, 1, "ALTER TABLE bank.t DROP v"));
    ring.run_for(10 * MILLISECOND);
    let scene = &mut ring.ring.testbed.scene;
    for request in scene.asked_of_control() {
        if let ControlRequest::AwaitSchemaAgreement { ticket, .. } = request {
            scene.world.post(scene.cores[0], CoreMail::SchemaAgreed { ticket, agreed: true });
        }
    }
    ring.run_for(10 * MILLISECOND);
    let answers = ring.answers(client);
    assert_eq!(answers.iter().map(|answer| answer.opcode()).collect::<Vec<_>>(), [opcode::RESULT]);
    assert!(!is_applied(&mut ring, client), "it was decided by a value that is gone");
}

#[test]
fn nodes_of_two_releases_cost_no_row_more_than_one_read() {
    let (mut ring, client) = testbed(&[1, 2]);
    for _ in 0..10 {
        assert!(is_applied(&mut ring, client));
        ring.run_for(2 * SECOND);
    }
    let read = rows_read(&ring);
    assert!(read <= 2, "{read} reads");
    empty_column(&ring);
    assert!(!is_applied(&mut ring, client));
}

#[test]
fn the_version_is_asked_for_once_a_second() {
    let (mut ring, client) = testbed(&[1]);
    assert!(is_applied(&mut ring, client));
    let asked = |ring: &TransactionTestbed| ring.bank.lock().unwrap().versions_asked;
    let before = asked(&ring);
    assert!((0..20).all(|_| is_applied(&mut ring, client)));
    assert!(asked(&ring) <= before + 1);
    ring.run_for(2 * SECOND);
    assert!(is_applied(&mut ring, client) && asked(&ring) > before);
}

#[test]
fn a_node_that_cannot_name_the_version_stops_no_statement() {
    let (mut ring, client) = testbed(&[1]);
    assert!(is_applied(&mut ring, client));
    let last = ring.ring.testbed.scene.nodes.len() - 1;
    ring.bank.lock().unwrap().versions_refused = (0..last.min(2)).collect();
    for _ in 0..6 {
        ring.run_for(2 * SECOND);
        assert!(is_applied(&mut ring, client));
    }
    assert_eq!(rows_read(&ring), 1, "the row is known");
}

#[test]
fn nodes_that_do_not_name_the_version_delay_a_statement_by_less_than_a_second() {
    let (mut ring, client) = testbed(&[1]);
    assert!(is_applied(&mut ring, client));
    let last = ring.ring.testbed.scene.nodes.len() - 1;
    ring.bank.lock().unwrap().versions_unanswered = (0..last.min(2)).collect();
    for _ in 0..6 {
        ring.run_for(2 * SECOND);
        ring.send(client, &bytes::query(4, 1, "UPDATE bank.t SET v = 1 WHERE id = 1 IF v = 1"));
        ring.run_for(SECOND);
        let answers = ring.answers(client);
        assert_eq!(answers.len(), 1, "it waits for silent nodes");
        assert_eq!(answers[0].rows()[0][0].as_deref(), Some(&[1][..]));
    }
    assert_eq!(rows_read(&ring), 1, "the row is known");
}

#[test]
fn a_statement_is_answered_though_no_node_names_the_version() {
    let (mut ring, client) = testbed(&[1]);
    assert!(is_applied(&mut ring, client));
    let nodes = 0..ring.ring.testbed.scene.nodes.len();
    ring.bank.lock().unwrap().versions_refused = nodes.collect();
    ring.run_for(2 * SECOND);
    let before = ring.bank.lock().unwrap().versions_asked;
    let answer = ring.ask(client, "UPDATE bank.t SET v = 1 WHERE id = 1 IF v = 1");
    assert_eq!(answer.opcode(), opcode::ERROR);
    // The proxy tries the statement again for a second, and each attempt asks three nodes.
    let asked = ring.bank.lock().unwrap().versions_asked - before;
    assert!((3..=400).contains(&asked) && asked.is_multiple_of(3), "{asked}");
}
