//! The proxy's own statements have metrics of their own. They are not among the requests of
//! clients, however they end and however often they are sent.

use std::sync::Arc;

use shunt_proxy::metrics::{CoreMetrics, Outcome};
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;

use super::transaction_ring::{Bank, TransactionTestbed, put, read_and_put};

/// Outcomes that only nodes can cause, or the lack of their answers.
const OF_NODES: [Outcome; 6] = [
    Outcome::Ok,
    Outcome::Error,
    Outcome::TimedOut,
    Outcome::LinkLost,
    Outcome::Retried,
    Outcome::Reprepared,
];

struct Setup {
    ring: TransactionTestbed,
    client: HostId<simulated::Client>,
    metrics: Arc<CoreMetrics>,
}

impl Setup {
    fn new() -> Setup {
        let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
        let client = ring.client(None);
        let metrics = Arc::clone(&ring.ring.testbed.scene.metrics[0]);
        Setup { ring, client, metrics }
    }

    /// Clients' requests, their outcomes, and the outcomes among them that nodes can cause.
    fn of_clients(&self) -> (u64, u64, u64) {
        let outcomes = &self.metrics.outcomes;
        let of_nodes = OF_NODES.iter().map(|outcome| outcomes.of(*outcome).get()).sum();
        (self.metrics.queries.total(), outcomes.total(), of_nodes)
    }

    /// Number of own statements with this outcome.
    fn own(&self, outcome: Outcome) -> u64 {
        self.metrics.own_statements.outcomes.of(outcome).get()
    }

    /// Each own statement is in flight or has ended.
    fn check_own(&self) {
        let own = &self.metrics.own_statements;
        let on_the_way = self.own(Outcome::Retried) + self.own(Outcome::Reprepared);
        let ended = own.outcomes.total() - on_the_way;
        assert_eq!(own.sent.get(), ended + own.in_flight.get());
    }

    fn commits(&mut self, text: &str) {
        let answer = self.ring.ask(self.client, text);
        assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    }
}

#[test]
fn a_fleet_without_clients_has_no_requests_of_clients() {
    let mut setup = Setup::new();
    let (before, own) = (setup.of_clients(), setup.own(Outcome::Ok));
    setup.ring.run_for(20 * SECOND);
    assert!(setup.own(Outcome::Ok) > own, "the proxy renews its lease");
    assert_eq!(setup.of_clients(), before);
    assert_eq!(setup.metrics.in_flight.get(), 0);
    setup.check_own();
}

#[test]
fn a_transaction_is_one_request_whatever_it_takes() {
    let mut setup = Setup::new();
    let (before, own) = (setup.of_clients(), setup.metrics.own_statements.sent.get());
    setup.commits(&put("bank.t", 1, 1));
    assert_eq!(setup.of_clients(), (before.0 + 1, before.1 + 1, before.2));
    assert!(setup.metrics.own_statements.sent.get() > own + 1, "a record and a write");
    setup.check_own();
}

/// A client sees one failed request, and the nodes have failed several of the proxy's.
#[test]
fn own_statements_without_an_answer_are_no_time_outs_of_clients() {
    let mut setup = Setup::new();
    let failed = |setup: &Setup| setup.own(Outcome::TimedOut) + setup.own(Outcome::LinkLost);
    let (before, own) = (setup.of_clients(), failed(&setup));
    setup.ring.bank.lock().unwrap().reads_unanswered = true;
    setup.ring.send(setup.client, &bytes::query(4, 1, &read_and_put("bank.t", 1, 1)));
    setup.ring.run_for(SECOND);
    assert_eq!(setup.metrics.in_flight.get(), 1, "the transaction");
    assert!(setup.metrics.own_statements.in_flight.get() > 0, "its read");
    setup.ring.ring.testbed.answered(setup.client, 1);
    setup.ring.run_for(60 * SECOND);
    assert!(failed(&setup) > own);
    assert_eq!(setup.of_clients(), (before.0 + 1, before.1 + 1, before.2));
    assert_eq!(setup.metrics.in_flight.get(), 0);
    setup.check_own();
}

#[test]
fn further_attempts_of_own_statements_are_none_of_clients() {
    let mut setup = Setup::new();
    // The text is prepared for the next time.
    setup.commits(&put("bank.t", 1, 1));
    setup.ring.run_for(SECOND);
    let before = setup.of_clients();
    let (retried, reprepared) = (setup.own(Outcome::Retried), setup.own(Outcome::Reprepared));
    setup.ring.bank.lock().unwrap().turned_away = 1;
    setup.commits(&put("bank.t", 1, 1));
    setup.ring.run_for(SECOND);
    assert_eq!(setup.own(Outcome::Retried), retried + 1);
    setup.ring.bank.lock().unwrap().forgotten = 1;
    setup.commits(&put("bank.t", 1, 1));
    setup.ring.run_for(SECOND);
    assert!(setup.own(Outcome::Reprepared) > reprepared);
    assert_eq!(setup.of_clients(), (before.0 + 2, before.1 + 2, before.2));
    setup.check_own();
}
