//! A process that was paused does not know how others changed modes and rules meanwhile. It sends
//! no earlier request to a node until it has read them; nor a request that a node sent back after
//! its table got another mode.

use std::sync::Arc;

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_proxy::metrics::TransactionEvent;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND, World};
use shunt_testing::{bytes, simulated};
use shunt_transactions::catalogue::switching::{INITIAL_AGE_MAX_NS, MODES_TRUSTED_NS, SETTLES_NS};
use shunt_transactions::guard::request::{FORWARDED_TRANSACTION, Safeguards};
use shunt_transactions::request::Request as Transaction;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{INVALID, IS_BOOTSTRAPPING, OVERLOADED, UNPREPARED};
use shunt_wire::cql::message::{Consistency, ResultMessage, ValueList, encode, put as primitive};

use super::lock_ring::Tables;
use super::support::scene::Beginning;
use super::testbed::Testbed;
use super::transaction_ring::{self, Bank, TransactionTestbed, put};

/// Longer than a process may be paused and still trust its state, and shorter than its lease and
/// the deadline of a query.
const STILL_NS: u64 = 3 * SECOND / 2;
/// The table of rules.
const GUARDS: &str = "shunt.guards";

fn testbed() -> (TransactionTestbed, HostId<simulated::Client>) {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |options| {
        options.config.query_timeout_ms = 5_000
    });
    let client = ring.client(None);
    assert_eq!(ring.ask(client, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    (ring, client)
}

impl TransactionTestbed {
    /// Pauses the proxy while this runs; afterwards it gets no answer about modes and rules.
    fn stands_still(&mut self, meanwhile: impl FnOnce(&mut TransactionTestbed)) {
        let core = self.ring.testbed.scene.cores[0];
        self.ring.testbed.scene.world.freeze(core);
        self.bank.lock().unwrap().modes_unanswered = true;
        meanwhile(self);
        self.run_for(STILL_NS);
        self.ring.testbed.scene.world.thaw(core);
    }

    /// Waits until nodes have sent back all planned requests.
    fn wait_until_sent_back(&mut self) {
        let bank = Arc::clone(&self.bank);
        let is_sent_back = |bank: &Bank| bank.turned_away == 0 && bank.forgotten == 0;
        let world = &mut self.ring.testbed.scene.world;
        assert!(
            world.run_until(SECOND, |_| is_sent_back(&bank.lock().unwrap())),
            "no node was asked"
        );
    }

    /// Makes nodes answer again; earlier questions are given up.
    fn answer_modes(&mut self) {
        self.bank.lock().unwrap().modes_unanswered = false;
        self.run_for(6 * SECOND);
    }

    pub fn written(&self) -> usize {
        self.bank.lock().unwrap().written.len()
    }
}

fn prepared(
    ring: &mut TransactionTestbed,
    client: HostId<simulated::Client>,
    text: &str,
) -> Vec<u8> {
    ring.send(client, &bytes::prepare(4, 1, text));
    ring.ring.testbed.answered(client, 1);
    match ResultMessage::decode(4, &ring.answers(client)[0].body) {
        Ok(ResultMessage::Prepared(prepared)) => prepared.id.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Asks for a transaction that this process has not planned yet, and pauses the process; then it
/// must refuse to begin it, and later it must not.
fn is_not_begun(
    asked: impl FnOnce(&mut TransactionTestbed),
    heard: impl FnOnce(&mut TransactionTestbed),
) {
    let (mut ring, client) = testbed();
    let before = ring.written();
    ring.send(client, &bytes::query(4, 1, &put("bank.t", 2, 2)));
    asked(&mut ring);
    ring.stands_still(|_| {});
    heard(&mut ring);
    ring.run_for(SECOND / 2);
    let answers = ring.answers(client);
    let (code, why) = answers[0].error();
    assert!(code == IS_BOOTSTRAPPING && why.contains("was paused"), "{code:#x} {why}");
    assert_eq!((answers.len(), ring.written()), (1, before));
    ring.answer_modes();
    assert_eq!(ring.ask(client, &put("bank.t", 2, 2)).opcode(), opcode::RESULT);
    assert_eq!(ring.written(), before + 1);
}

#[test]
fn a_plan_made_after_a_pause_waits_for_new_modes() {
    let nodes_are_frozen = |ring: &mut TransactionTestbed| {
        let scene = &mut ring.ring.testbed.scene;
        scene.nodes.clone().iter().for_each(|node| scene.world.freeze(*node));
        ring.run_for(100 * MILLISECOND);
    };
    is_not_begun(nodes_are_frozen, |ring| {
        ring.run_for(SECOND / 2);
        let scene = &mut ring.ring.testbed.scene;
        scene.nodes.clone().iter().for_each(|node| scene.world.thaw(*node));
    });
}

/// The nodes' answer to its text is there when the process goes on, and is read before the process
/// reads its clock.
#[test]
fn a_plan_made_during_a_pause_waits_for_new_modes() {
    let node_is_asked = |ring: &mut TransactionTestbed| {
        let (bank, before) = (Arc::clone(&ring.bank), ring.bank.lock().unwrap().prepared.len());
        let is_asked = |_: &mut World| bank.lock().unwrap().prepared.len() > before;
        assert!(ring.ring.testbed.scene.world.run_until(SECOND, is_asked), "no node was asked");
    };
    is_not_begun(node_is_asked, |_| {});
}

/// The proxy does not read it to see which tables it writes to; but it waits as others do.
#[test]
fn a_batch_that_is_too_long_to_be_a_transaction_waits_too() {
    let (mut ring, client) = testbed();
    let before = ring.written();
    let long = format!(
        "BEGIN BATCH INSERT INTO bank.t (id, v) VALUES (5, 5); {}APPLY BATCH",
        "-- a batch of more than a mebibyte\n".repeat(40_000)
    );
    ring.stands_still(|_| {});
    ring.run_for(SECOND / 2);
    ring.send(client, &bytes::query(4, 1, &long));
    ring.run_for(SECOND);
    assert_eq!((ring.answers(client).len(), ring.written()), (0, before), "it waits");
    ring.answer_modes();
    assert_eq!(ring.answers(client)[0].opcode(), opcode::RESULT);
    assert_eq!(ring.written(), before + 1);
}

#[test]
fn a_refused_request_goes_to_no_other_node_before_modes_are_known() {
    let (mut ring, client) = testbed();
    let before = ring.written();
    ring.bank.lock().unwrap().turned_away = 1;
    ring.send(client, &bytes::query(4, 1, "INSERT INTO bank.t (id, v) VALUES (5, 5)"));
    ring.wait_until_sent_back();
    ring.stands_still(|_| {});
    ring.run_for(SECOND / 2);
    let (code, why) = ring.answers(client)[0].error();
    assert!(code == OVERLOADED && why.contains("taken this table over"), "{code:#x} {why}");
    assert_eq!(ring.written(), before);
    ring.answer_modes();
    assert_eq!(
        ring.ask(client, "INSERT INTO bank.t (id, v) VALUES (5, 5)").opcode(),
        opcode::RESULT
    );
    assert_eq!(ring.written(), before + 1);
}

/// The driver prepares it again, and that waits.
#[test]
fn a_forgotten_statement_is_not_sent_again_before_modes_are_known() {
    let (mut ring, client) = testbed();
    let id = prepared(&mut ring, client, "INSERT INTO bank.t (id, v) VALUES (6, 6)");
    let before = ring.written();
    ring.bank.lock().unwrap().forgotten = 1;
    ring.send(client, &bytes::execute(4, 1, &id, &[]));
    ring.wait_until_sent_back();
    ring.stands_still(|_| {});
    ring.run_for(SECOND / 2);
    let (code, why) = ring.answers(client)[0].error();
    assert!(code == UNPREPARED && why.contains("taken this table over"), "{code:#x} {why}");
    assert_eq!(ring.written(), before);
    ring.send(client, &bytes::execute(4, 1, &id, &[]));
    ring.run_for(SECOND / 2);
    assert_eq!((ring.answers(client).len(), ring.written()), (0, before), "it waits");
    ring.answer_modes();
    assert_eq!(ring.answers(client)[0].opcode(), opcode::RESULT);
    assert_eq!(ring.written(), before + 1);
}

/// No process was paused: the node took its time.
#[test]
fn a_refused_request_goes_to_no_other_node_once_its_table_has_a_mode() {
    for is_prepared in [false, true] {
        let (mut ring, client) = testbed();
        let text = "INSERT INTO bank.t (id, v) VALUES (7, 7)";
        let request = match is_prepared {
            true => bytes::execute(4, 1, &prepared(&mut ring, client, text), &[]),
            false => bytes::query(4, 1, text),
        };
        let before = ring.written();
        {
            let mut bank = ring.bank.lock().unwrap();
            (bank.turned_away, bank.forgotten) =
                (usize::from(!is_prepared), usize::from(is_prepared));
        }
        ring.send(client, &request);
        ring.wait_until_sent_back();
        let scene = &mut ring.ring.testbed.scene;
        let (node, core) = (scene.nodes[ring.bank.lock().unwrap().sent_back_by], scene.cores[0]);
        scene.world.cut_one_way(node, core);
        ring.bank.lock().unwrap().mode = Some("mixed_reads");
        ring.run_for(3 * SECOND);
        ring.ring.testbed.scene.world.join(node, core);
        ring.run_for(SECOND / 2);
        let (code, why) = ring.answers(client)[0].error();
        let wanted = if is_prepared { UNPREPARED } else { OVERLOADED };
        assert!(code == wanted && why.contains("taken this table over"), "{code:#x} {why}");
        assert_eq!(ring.written(), before);
        // A retry makes it a transaction.
        ring.send(client, &request);
        ring.run_for(SECOND);
        let answers = ring.answers(client);
        assert_eq!(answers[0].opcode(), opcode::RESULT, "{answers:?}");
        assert!(answers[0].prefix().custom_payload.is_some());
        assert_eq!(ring.written(), before + 1);
    }
}

/// One replica may have missed a table's mode. No statement bypasses it, and no client waits for
/// ever.
#[test]
fn a_proxy_that_began_without_a_quorum_serves_no_table_before_it_has_read_modes() {
    for (rules_forbidden, rights_unread) in [(false, false), (true, false), (false, true)] {
        begins_in_doubt(Beginning::InDoubt, rules_forbidden, rights_unread);
    }
}

/// The table has got a mode since a quorum denied that. Nodes would decide the client's statement,
/// and another proxy decides by its rows in memory meanwhile.
#[test]
fn a_proxy_that_began_with_old_modes_serves_no_table_before_it_has_read_others() {
    for beginning in [Beginning::Late(INITIAL_AGE_MAX_NS + MILLISECOND), Beginning::Untold] {
        begins_in_doubt(beginning, false, false);
    }
}

/// `rules_forbidden`: its role may not read rules. That justifies neither unread modes nor endless
/// refusal. `rights_unread`: nodes cannot look the rights up, and answer as if the role had none.
/// That ends no doubt.
fn begins_in_doubt(beginning: Beginning, rules_forbidden: bool, rights_unread: bool) {
    let bank = Bank::with(&[("bank", "t")]);
    {
        let mut bank = bank.lock().unwrap();
        bank.mode = Some("full");
        bank.forbidden_by =
            (0..if rules_forbidden { 3 } else { 0 }).map(|node| (GUARDS, node)).collect();
        (bank.modes_unanswered, bank.rights_unread) = (!rights_unread, rights_unread);
    }
    let mut ring = TransactionTestbed::new(bank, |options| {
        (options.beginning, options.config.query_timeout_ms) = (beginning, 5_000);
    });
    let client = ring.client(None);
    let write = "INSERT INTO bank.t (id, v) VALUES (1, 1)";
    for text in [
        write,
        "INSERT INTO bank.t (id, v) VALUES (1, 1) IF NOT EXISTS",
        "SELECT v FROM bank.t WHERE id = 1",
        "UPDATE others.u SET v = 1 WHERE id = 1",
    ] {
        let answer = ring.ask(client, text);
        let (code, why) = answer.error();
        let wanted = "since it began";
        assert!(code == OVERLOADED && why.contains(wanted), "{text}: {code:#x} {why}");
    }
    assert_eq!(ring.written(), 0);
    assert_eq!(ring.ask(client, "SELECT * FROM system.local").opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().rights_unread = false;
    ring.answer_modes();
    assert_eq!(ring.ask(client, write).opcode(), opcode::RESULT);
    ring.run_for(SECOND);
    assert_eq!(
        (ring.written(), ring.metrics().events.of(TransactionEvent::Committed).get()),
        (1, 1)
    );
}

/// The ways in which a running core gets no modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Nodes do not answer the questions.
    Unanswered,
    /// The process was paused, and then nodes do not answer.
    Paused,
}

/// The table has got another mode long ago, and others go by it. A keyspace without a mode is
/// served all along, once a pause is over.
#[test]
fn a_core_that_cannot_read_modes_does_not_go_by_old_ones() {
    for loss in [Loss::Unanswered, Loss::Paused] {
        let (mut ring, client) = testbed();
        let (before, plain) = (ring.written(), ring.client(None));
        match loss {
            Loss::Unanswered => {
                ring.bank.lock().unwrap().modes_unanswered = true;
                ring.bank.lock().unwrap().mode = Some("full");
                ring.run_for(MODES_TRUSTED_NS + SECOND);
                let elsewhere = ring.ask(plain, "UPDATE others.u SET v = 1 WHERE id = 1");
                assert_eq!(
                    elsewhere.error().0,
                    INVALID,
                    "a node knows no such table: {elsewhere:?}"
                );
            }
            Loss::Paused => {
                ring.stands_still(|ring| ring.bank.lock().unwrap().mode = Some("full"));
                ring.run_for(SECOND / 2);
            }
        }
        let write = "INSERT INTO bank.t (id, v) VALUES (5, 5)";
        ring.send(client, &bytes::query(4, 1, write));
        ring.run_for(SECOND);
        assert_eq!((ring.answers(client).len(), ring.written()), (0, before), "{loss:?}: it waits");
        ring.run_for(SETTLES_NS);
        for text in [write, "SELECT v FROM bank.u WHERE id = 1"] {
            let answers = ring.answers(client);
            let (code, why) = answers[0].error();
            let is_refused = code == OVERLOADED && why.contains("modes and rules lately");
            assert!(is_refused && ring.written() == before, "{loss:?}: {text}: {code:#x} {why}");
            ring.send(client, &bytes::query(4, 1, "SELECT v FROM bank.u WHERE id = 1"));
            ring.run_for(SECOND);
        }
        let elsewhere = ring.ask(plain, "UPDATE others.u SET v = 1 WHERE id = 1");
        assert_eq!(elsewhere.error().0, INVALID, "a node knows no such table: {elsewhere:?}");
        assert_eq!(ring.metrics().modes_unknown.get(), 1, "{loss:?}");
        ring.answers(client);
        ring.answer_modes();
        let committed = ring.metrics().events.of(TransactionEvent::Committed).get();
        assert_eq!(ring.ask(client, write).opcode(), opcode::RESULT, "{loss:?}");
        assert_eq!(ring.metrics().modes_unknown.get(), 0, "{loss:?}");
        ring.run_for(SECOND);
        let events = &ring.metrics().events;
        assert_eq!(events.of(TransactionEvent::Committed).get(), committed + 1, "{loss:?}");
    }
}

/// Nodes answer about one table just after a pause, and about the other only once the first answer
/// is too old: the mode may have changed in between.
#[test]
fn a_wait_does_not_end_by_an_answer_that_is_too_old() {
    let (modes, rules) = ("shunt_meta.transactional", "shunt.guards");
    for (early, late) in [(modes, rules), (rules, modes)] {
        let (mut ring, client) = testbed();
        let before = ring.written();
        ring.stands_still(|_| {});
        {
            let mut bank = ring.bank.lock().unwrap();
            (bank.modes_unanswered, bank.silent_about) = (false, Some(late));
        }
        ring.run_for(SECOND / 2);
        ring.bank.lock().unwrap().modes_unanswered = true;
        ring.run_for(MODES_TRUSTED_NS + SECOND / 2);
        let write = "INSERT INTO bank.t (id, v) VALUES (5, 5)";
        ring.send(client, &bytes::query(4, 1, write));
        {
            let mut bank = ring.bank.lock().unwrap();
            (bank.mode, bank.modes_unanswered) = (Some("full"), false);
            bank.silent_about = Some(early);
        }
        ring.run_for(2 * SECOND);
        let answers = ring.answers(client);
        assert_eq!((answers.len(), ring.written()), (0, before), "{early}: it waits");
        ring.bank.lock().unwrap().silent_about = None;
        ring.answer_modes();
        ring.answers(client);
        let committed = ring.metrics().events.of(TransactionEvent::Committed).get();
        assert_eq!(ring.ask(client, write).opcode(), opcode::RESULT, "{early}");
        ring.run_for(SECOND);
        let events = &ring.metrics().events;
        assert_eq!(events.of(TransactionEvent::Committed).get(), committed + 1, "{early}");
    }
}

/// The proxy's role may not read rules, which no other error of a node changes.
#[test]
fn a_proxy_that_may_not_read_rules_does_not_wait_for_them_after_another_error() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().forbidden_by = (0..3).map(|node| (GUARDS, node)).collect();
    let mut ring = TransactionTestbed::new(bank, |options| options.beginning = Beginning::InDoubt);
    let client = ring.client(None);
    {
        let mut bank = ring.bank.lock().unwrap();
        bank.forbidden_by.clear();
        bank.rights_unread = true;
    }
    ring.run_for(3 * SECOND / 2);
    ring.send(client, &bytes::query(4, 1, "INSERT INTO bank.t (id, v) VALUES (5, 5)"));
    ring.run_for(SECOND);
    let answers = ring.answers(client);
    assert!(answers.len() == 1 && answers[0].opcode() == opcode::RESULT, "{answers:?}");
    assert_eq!(ring.written(), 1);
}

/// The proxy is no member, because the ring has too few replicas. Its clients are served all the
/// same.
#[test]
fn a_proxy_that_cannot_join_reads_modes_at_its_fleets_level() {
    let (tables, bank) = (Tables::shared(), Bank::with(&[("bank", "t")]));
    tables.lock().unwrap().is_local = true;
    let mut testbed = Testbed::bare(|options| {
        options.config.fleet = Some("main".to_owned());
        options.config.fleet_replicas_min = 9;
        options.config.advertise = Some("10.2.0.1:9042".parse().unwrap());
    });
    (0..testbed.scene.nodes.len())
        .for_each(|node| testbed.scene.hook(node, Some(transaction_ring::hook(&tables, &bank))));
    testbed.run_for(15 * SECOND);
    assert_eq!(tables.lock().unwrap().renewals, 0, "it is a member");
    assert_eq!(bank.lock().unwrap().modes_level, Some(Consistency::LOCAL_QUORUM));
}

/// A statement with a transaction as another proxy forwards it, or with a payload that only names
/// one.
fn forwarded(stream: i16, asked: Option<&str>, text: &str) -> Vec<u8> {
    let values = ValueList::positional(4);
    let asked = asked.map(|text| {
        let mut message = Vec::new();
        let (safeguards, values) = (Safeguards::default(), values.values());
        let (version, types, keyspace, role, options) = (4, 4, "", "", None);
        let asked =
            Transaction { text, keyspace, version, types, role, safeguards, values, options };
        asked.encode(&mut message);
        message
    });
    let body = bytes::body(|out| {
        primitive::bytes_map(out, [(FORWARDED_TRANSACTION, asked.as_deref())]);
        encode::query_simple(out, 4, text, Consistency::QUORUM);
    });
    let header =
        Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, stream, opcode::QUERY) };
    bytes::envelope(header, &body)
}

/// The other proxy sends it again, and other requests on the connection do not wait for it. A
/// client that sends such a payload gets nothing to a node.
#[test]
fn a_forwarded_transaction_does_not_hold_up_its_connection() {
    let (mut ring, hop) = testbed();
    let (before, client) = (ring.written(), ring.client(None));
    let write = "INSERT INTO bank.t (id, v) VALUES (5, 5)";
    let lock =
        "INSERT INTO shunt.fast_locks (name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 20";
    ring.stands_still(|_| {});
    ring.run_for(SECOND / 2);
    ring.send(client, &forwarded(1, None, write));
    ring.send(hop, &forwarded(1, Some(&put("bank.t", 2, 2)), write));
    ring.send(hop, &bytes::query(4, 2, lock));
    ring.run_for(SECOND);
    let mut answers = ring.answers(hop);
    answers.sort_by_key(|answer| answer.header.stream);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[0].error().0, IS_BOOTSTRAPPING);
    assert_eq!(answers[1].opcode(), opcode::RESULT);
    assert_eq!((ring.answers(client).len(), ring.written()), (0, before), "the client waits");
    ring.run_for(SETTLES_NS);
    assert_eq!(ring.answers(client)[0].error().0, OVERLOADED);
    ring.send(hop, &forwarded(1, Some(&put("bank.t", 2, 2)), write));
    ring.run_for(SECOND);
    assert_eq!(ring.answers(hop)[0].error().0, IS_BOOTSTRAPPING);
    assert_eq!(ring.written(), before);
    ring.answer_modes();
    let empty = "BEGIN TRANSACTION COMMIT TRANSACTION";
    ring.send(hop, &forwarded(1, Some(&put("bank.t", 2, 2)), empty));
    ring.run_for(SECOND);
    assert_eq!(ring.answers(hop)[0].opcode(), opcode::RESULT);
    assert_eq!(ring.written(), before + 1);
}

/// The rows behind one that cannot be read may be those of this table.
#[test]
fn a_row_that_cannot_be_read_takes_no_mode_away() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().mode = Some("mixed_reads");
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    ring.bank.lock().unwrap().modes_cut_off = true;
    ring.run_for(3 * SECOND);
    let write = "INSERT INTO bank.t (id, v) VALUES (5, 5)";
    let answer = ring.ask(client, write);
    assert_eq!(answer.opcode(), opcode::RESULT);
    assert!(answer.prefix().custom_payload.is_some(), "it is a transaction");
}

/// A node that does not answer costs one question, and no doubt: the next goes to another node.
#[test]
fn a_silent_node_does_not_make_modes_old() {
    let (mut ring, client) = testbed();
    let node = ring.ring.testbed.scene.nodes[0];
    ring.ring.testbed.scene.world.freeze(node);
    for _ in 0..20 {
        let read = ring.bank.lock().unwrap().modes_read;
        ring.run_for(MODES_TRUSTED_NS - SECOND);
        assert!(ring.bank.lock().unwrap().modes_read > read);
    }
    ring.ring.testbed.scene.world.thaw(node);
    ring.run_for(SECOND);
    let write = "INSERT INTO bank.t (id, v) VALUES (5, 5)";
    assert_eq!(ring.ask(client, write).opcode(), opcode::RESULT);
}

/// Nodes that have missed the schema know no table of modes or of rules. A table has a mode all the
/// same, which the last node may know, be it its only replica.
#[test]
fn nodes_that_have_missed_the_schema_end_no_doubt() {
    for count in [3, 5] {
        let bank = Bank::with(&[("bank", "t")]);
        {
            let mut bank = bank.lock().unwrap();
            (bank.mode, bank.modes_unanswered) = (Some("full"), true);
            bank.unaware = (0..count - 1).collect();
        }
        let mut ring = TransactionTestbed::new(bank, |options| {
            (options.beginning, options.nodes) = (Beginning::InDoubt, count);
            options.config.query_timeout_ms = 5_000;
        });
        let client = ring.client(None);
        let write = "INSERT INTO bank.t (id, v) VALUES (1, 1)";
        let answer = ring.ask(client, write);
        let (code, why) = answer.error();
        let wanted = "since it began";
        assert!(code == OVERLOADED && why.contains(wanted), "{code:#x} {why}");
        assert_eq!(ring.written(), 0);
        ring.answer_modes();
        assert_eq!(ring.ask(client, write).opcode(), opcode::RESULT);
        ring.run_for(SECOND);
        assert_eq!(
            (ring.written(), ring.metrics().events.of(TransactionEvent::Committed).get()),
            (1, 1)
        );
    }
}

/// The fleet does not exist yet, so no table has a mode. A node that is silent might know one.
#[test]
fn a_table_of_modes_that_all_nodes_deny_ends_the_doubt() {
    for (count, is_one_silent) in [(1, false), (3, false), (5, false), (3, true)] {
        let mut testbed = Testbed::bare(|options| {
            options.config.fleet = Some("main".to_owned());
            options.config.advertise = Some("10.2.0.1:9042".parse().unwrap());
            (options.beginning, options.nodes) = (Beginning::InDoubt, count);
            options.config.query_timeout_ms = 1_000;
        });
        let bank = Bank::with(&[("bank", "t")]);
        bank.lock().unwrap().unaware = (0..count).collect();
        for node in 0..count {
            let bank = Arc::clone(&bank);
            let hook = move |request: &Request<'_>| {
                let own = bank.lock().unwrap().request(request);
                let is_fleets = request.body.windows(5).any(|part| part == b"shunt");
                own.unwrap_or(if is_fleets { Action::Error(INVALID) } else { Action::Answer })
            };
            testbed.scene.hook(node, Some(Box::new(hook)));
        }
        if is_one_silent {
            let node = testbed.scene.nodes[1];
            testbed.scene.world.freeze(node);
        }
        let client = testbed.started_offender(4);
        let write = "INSERT INTO bank.t (id, v) VALUES (1, 1)";
        testbed.send(client, &bytes::query(4, 1, write));
        testbed.run_for(if is_one_silent { 12 * SECOND } else { 6 * SECOND });
        let answers = testbed.take_answers(client);
        let wanted = if is_one_silent { opcode::ERROR } else { opcode::RESULT };
        assert!(answers.len() == 1 && answers[0].opcode() == wanted, "{count}: {answers:?}");
        assert_eq!(bank.lock().unwrap().written.len(), usize::from(!is_one_silent));
    }
}
