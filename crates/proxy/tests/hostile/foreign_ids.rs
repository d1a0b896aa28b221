//! A node that answers PREPARE with the id of another client's statement. That statement keeps its
//! text and its table's mode on all links; the node loses its link, and its client gets an error.

use std::sync::{Arc, Mutex};

use shunt_bench::stub::hook::Request;
use shunt_proxy::metrics::TransactionEvent;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::Prepare;
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::error_code::OVERLOADED;

use super::lock_ring::answer;
use super::transaction_ring::{self, Bank, TransactionTestbed};

const WRITE: &str = "INSERT INTO bank.t (id, v) VALUES (6, 6)";
/// The statement to which nodes give the id of [`WRITE`].
const READ: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

/// The nodes' lie, and the texts that they are asked to prepare.
#[derive(Default)]
struct Liar {
    /// Id that [`READ`] gets; empty: its own.
    id: Vec<u8>,
    prepares: Vec<String>,
}

impl Liar {
    /// The answer to a PREPARE, if it is a lie.
    fn lie(&mut self, request: &Request<'_>) -> Option<Vec<u8>> {
        let text = Prepare::decode(request.version, request.body).ok()?.text;
        self.prepares.push(text.to_owned());
        let spec = PreparedSpec {
            id: &self.id,
            result_metadata_id: &self.id,
            keyspace: "bench",
            table: "kv",
            bind: &[],
            partition_key: &[],
            result: &[("v", native::BLOB)],
        };
        let lies = text == READ && !self.id.is_empty();
        lies.then(|| bytes::body(|out| encode_result::prepared(out, request.version, &spec)))
    }
}

/// A proxy in front of nodes that lie, with the client of [`WRITE`] and another one.
struct Scenario {
    ring: TransactionTestbed,
    liar: Arc<Mutex<Liar>>,
    victim: HostId<simulated::Client>,
    other: HostId<simulated::Client>,
    id: [u8; 16],
}

impl Scenario {
    fn new(mode: Option<&'static str>) -> Scenario {
        let bank = Bank::with(&[("bank", "t")]);
        bank.lock().unwrap().mode = mode;
        let mut ring = TransactionTestbed::new(bank, |_| {});
        let liar = Arc::<Mutex<Liar>>::default();
        let (tables, bank, lies) =
            (Arc::clone(&ring.ring.tables), Arc::clone(&ring.bank), Arc::clone(&liar));
        ring.ring.testbed.hook_all(move || {
            let (mut honest, lies) = (transaction_ring::hook(&tables, &bank), Arc::clone(&lies));
            Box::new(move |request| {
                let is_prepare = request.opcode == opcode::PREPARE;
                let lie = is_prepare.then(|| lies.lock().unwrap().lie(request)).flatten();
                lie.map_or_else(|| honest(request), |body| answer(request, &body))
            })
        });
        let [victim, other] = [0, 1].map(|_| ring.client(None));
        let mut scenario = Scenario { ring, liar, victim, other, id: [0; 16] };
        let prepared = scenario.ask(victim, &bytes::prepare(4, 1, WRITE)).prepared();
        scenario.id.copy_from_slice(&prepared.id);
        scenario
    }

    fn ask(&mut self, client: HostId<simulated::Client>, request: &[u8]) -> Answer {
        self.ring.send(client, request);
        self.ring.ring.testbed.answered(client, 1);
        self.ring.answers(client).remove(0)
    }

    fn execute(&mut self) -> Answer {
        let request = bytes::execute(4, 2, &self.id, &[]);
        self.ask(self.victim, &request)
    }

    /// Lets nodes lie to the other client, and checks that the proxy notices.
    fn lie(&mut self) {
        let before = self.protocol_errors();
        self.liar.lock().unwrap().id = self.id.to_vec();
        let refused = self.ask(self.other, &bytes::prepare(4, 1, READ));
        self.liar.lock().unwrap().id.clear();
        let (code, why) = refused.error();
        assert!(code == OVERLOADED && why.contains("the id of another one"), "{code:#x} {why}");
        self.ring.run_for(SECOND);
        assert!(self.ring.answers(self.other).is_empty(), "a second answer");
        assert_eq!(self.protocol_errors(), before + 1, "the link is given up");
    }

    fn protocol_errors(&self) -> u64 {
        self.ring.ring.testbed.scene.metrics[0].node_protocol_errors.get()
    }

    fn committed(&self) -> u64 {
        self.ring.metrics().events.of(TransactionEvent::Committed).get()
    }
}

#[test]
fn the_statement_of_another_client_stays_a_transaction() {
    let mut scenario = Scenario::new(Some("mixed_reads"));
    for turn in 1..=3 {
        scenario.lie();
        let before = (scenario.committed(), scenario.ring.written());
        let answer = scenario.execute();
        assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
        assert!(answer.prefix().custom_payload.is_some(), "a node has decided it");
        scenario.ring.run_for(SECOND);
        let after = (scenario.committed(), scenario.ring.written());
        assert_eq!(after, (before.0 + 1, before.1 + 1), "turn {turn}");
        // The link is made again.
        scenario.ring.run_for(15 * SECOND);
    }
    // The other client has lost neither its connection nor the statement.
    let (other, read) = (scenario.other, bytes::prepare(4, 1, READ));
    let id = scenario.ask(other, &read).prepared().id;
    assert_ne!(id, scenario.id);
    let answer = scenario.ask(other, &bytes::execute(4, 2, &id, &[]));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
}

#[test]
fn a_node_that_has_forgotten_the_statement_prepares_its_own_text() {
    let mut scenario = Scenario::new(None);
    scenario.lie();
    scenario.ring.run_for(15 * SECOND);
    scenario.liar.lock().unwrap().prepares.clear();
    scenario.ring.bank.lock().unwrap().forgotten = 1;
    let before = scenario.ring.written();
    let answer = scenario.execute();
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    assert_eq!(scenario.ring.written(), before + 1);
    let prepares = std::mem::take(&mut scenario.liar.lock().unwrap().prepares);
    assert!(prepares.iter().any(|text| text == WRITE), "{prepares:?}");
    assert!(prepares.iter().all(|text| text != READ), "{prepares:?}");
}
