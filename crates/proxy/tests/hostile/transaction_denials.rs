//! A node that has missed a GRANT, or keeps old permissions, denies the proxy's role the right to
//! read modes and rules. Its denial is one node's word: it opens no table to plain writes.

use shunt_proxy::metrics::TransactionEvent;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_transactions::catalogue::switching::SETTLES_NS;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::OVERLOADED;

use super::support::scene::Beginning;
use super::transaction_ring::{Bank, TransactionTestbed};

/// Nodes of the ring.
const NODES: usize = 3;
const WRITE: &str = "INSERT INTO bank.t (id, v) VALUES (1, 1)";

/// Has these nodes deny the right to read modes and rules.
fn forbid(bank: &mut Bank, nodes: std::ops::Range<usize>) {
    let tables = ["shunt_meta.transactional", "shunt.guards"];
    bank.forbidden_by = nodes.flat_map(|node| tables.map(|table| (table, node))).collect();
}

/// A ring whose table is `full`, and a proxy that began in doubt, because its control connection
/// led to a node that denies the right. Nodes of this range deny it; the others are silent.
fn testbed(forbidden: std::ops::Range<usize>) -> (TransactionTestbed, HostId<simulated::Client>) {
    let bank = Bank::with(&[("bank", "t")]);
    {
        let mut bank = bank.lock().unwrap();
        (bank.mode, bank.modes_unanswered) = (Some("full"), true);
        forbid(&mut bank, forbidden);
    }
    let mut ring = TransactionTestbed::new(bank, |options| {
        (options.beginning, options.config.query_timeout_ms) = (Beginning::InDoubt, 5_000);
    });
    let client = ring.client(None);
    (ring, client)
}

/// The statement was decided by a transaction, and the only write to a node is that transaction's.
fn is_carried_out_by_a_transaction(
    ring: &mut TransactionTestbed,
    client: HostId<simulated::Client>,
) {
    ring.bank.lock().unwrap().modes_unanswered = false;
    ring.run_for(6 * SECOND);
    ring.answers(client);
    assert_eq!(ring.ask(client, WRITE).opcode(), opcode::RESULT);
    ring.run_for(SECOND);
    let committed = ring.metrics().events.of(TransactionEvent::Committed).get();
    assert!(committed > 0 && ring.written() as u64 == committed, "{committed} {}", ring.written());
}

#[test]
fn one_nodes_denial_of_a_right_ends_no_doubt() {
    for denials in [1, NODES - 1] {
        let (mut ring, client) = testbed(0..denials);
        let answer = ring.ask(client, WRITE);
        let (code, why) = answer.error();
        assert!(code == OVERLOADED && why.contains("since it began"), "{code:#x} {why}");
        ring.run_for(2 * SETTLES_NS);
        assert_eq!(ring.ask(client, WRITE).error().0, OVERLOADED, "it is refused for as long");
        assert_eq!(ring.written(), 0);
        is_carried_out_by_a_transaction(&mut ring, client);
    }
}

/// No wait would end. The log says that modes and rules do not count here.
#[test]
fn a_right_that_all_nodes_deny_keeps_nobody_waiting() {
    let (mut ring, client) = testbed(0..NODES);
    assert_eq!(ring.ask(client, WRITE).opcode(), opcode::RESULT);
    assert_eq!((ring.written(), ring.metrics().modes_unknown.get()), (1, 0));
    assert_eq!(ring.metrics().events.of(TransactionEvent::Committed).get(), 0);
}

/// The role may have got the right meanwhile.
#[test]
fn all_nodes_are_asked_again_after_a_pause() {
    let (mut ring, client) = testbed(0..NODES);
    let core = ring.ring.testbed.scene.cores[0];
    ring.ring.testbed.scene.world.freeze(core);
    forbid(&mut ring.bank.lock().unwrap(), 0..1);
    ring.run_for(3 * SECOND / 2);
    ring.ring.testbed.scene.world.thaw(core);
    ring.run_for(SECOND / 2);
    ring.send(client, &bytes::query(4, 1, WRITE));
    ring.run_for(2 * SECOND);
    assert_eq!((ring.answers(client).len(), ring.written()), (0, 0), "it waits");
    is_carried_out_by_a_transaction(&mut ring, client);
}
