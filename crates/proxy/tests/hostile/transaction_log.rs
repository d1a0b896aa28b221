//! Committed writes are made, in the tables that they were committed to and in no others, whatever
//! happens to those and to the nodes.

use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::Answer;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, WRITE_TIMEOUT};

use super::transaction_ring::{Bank, TransactionTestbed, Writes, put, read_and_put};

fn is_committed(answer: &Answer) -> bool {
    answer.opcode() == opcode::RESULT
        && answer.prefix().custom_payload.is_some_and(|payload| {
            payload.iter().any(|(key, value)| key == "shunt-applied" && value == Some(&[1][..]))
        })
}

#[test]
fn a_transaction_is_committed_and_made() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
    let client = ring.client(None);
    for text in [put("bank.t", 1, 2), read_and_put("bank.t", 2, 3)] {
        let answer = ring.ask(client, &text);
        assert!(is_committed(&answer), "{answer:?}");
    }
    assert_eq!(ring.bank.lock().unwrap().written_to("bank.t"), 2);
}

/// The nodes are sound: the table of that name is another one, and would show old rows.
#[test]
fn a_write_that_is_repeated_is_not_made_in_another_table_of_the_same_name() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t"), ("bank", "u")]), |_| {});
    let client = ring.client(None);
    assert!(is_committed(&ring.ask(client, &put("bank.t", 1, 1))));
    ring.bank.lock().unwrap().writes = Writes::Unanswered;
    let answer = ring.ask(client, &put("bank.t", 1, 2));
    assert!(is_committed(&answer), "it is known to be made in the end: {answer:?}");
    let before = {
        let mut bank = ring.bank.lock().unwrap();
        bank.writes = Writes::Acknowledged;
        bank.make_again("bank", "t");
        bank.written_to("bank.t")
    };
    ring.run_for(20 * SECOND);
    assert_eq!(
        ring.bank.lock().unwrap().written_to("bank.t"),
        before,
        "the other table has an old row"
    );
    assert_eq!(ring.metrics().records.get(), 1, "a node may not know the schema yet");
    // Other transactions go on, also on that partition, once nodes have said for long that the
    // table is another.
    assert!(is_committed(&ring.ask(client, &put("bank.u", 1, 2))));
    ring.run_for(15 * SECOND);
    assert_eq!(ring.metrics().records.get(), 0);
    assert!(is_committed(&ring.ask(client, &put("bank.t", 1, 3))), "of the other table");
    assert_eq!(ring.bank.lock().unwrap().written_to("bank.t"), before + 1);
}

#[test]
fn recovered_writes_go_to_their_own_table_and_no_namesake() {
    for is_another in [false, true] {
        let bank = Bank::with(&[("bank", "t")]);
        {
            let mut bank = bank.lock().unwrap();
            bank.leave(("bank", "t"), 0);
            if is_another {
                bank.make_again("bank", "t");
            }
        }
        let mut ring = TransactionTestbed::new(bank, |_| {});
        ring.run_for(40 * SECOND);
        let client = ring.client(None);
        assert!(is_committed(&ring.ask(client, &put("bank.t", 5, 5))), "the shard is open");
        let bank = ring.bank.lock().unwrap();
        assert_eq!(bank.generations("bank"), Some((2, 1)));
        let old: Vec<_> =
            bank.written.iter().filter(|(text, _)| text.contains("VALUES (1, 0)")).collect();
        assert_eq!(old.len(), usize::from(!is_another), "{old:?}");
        assert!(old.iter().all(|(_, timestamp)| *timestamp == Some(1_000)));
    }
}

/// The proxy does not at once believe a node that does not know the table yet, nor take silence for
/// an answer.
#[test]
fn a_write_to_a_table_that_is_there_is_not_given_up_for_what_some_nodes_do_not_know() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().leave(("bank", "t"), 0);
    bank.lock().unwrap().stale = (6, [0xee; 16]);
    let mut ring = TransactionTestbed::new(bank, |_| {});
    ring.run_for(15 * SECOND);
    assert!(ring.bank.lock().unwrap().looks >= 7);
    assert_eq!(ring.bank.lock().unwrap().written_to("bank.t"), 1);
    let client = ring.client(None);
    ring.bank.lock().unwrap().looks_unanswered = true;
    let answer = ring.ask(client, &put("bank.t", 1, 1));
    assert!(!is_committed(&answer), "{answer:?}");
    ring.run_for(60 * SECOND);
    ring.bank.lock().unwrap().looks_unanswered = false;
    assert!(is_committed(&ring.ask(client, &put("bank.t", 1, 1))));
}

/// Each decision asks for it anew, and a node parses the text only once.
#[test]
fn a_prepared_statement_asks_for_a_tables_identity() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
    let client = ring.client(None);
    assert!(is_committed(&ring.ask(client, &put("bank.t", 1, 1))));
    ring.run_for(SECOND);
    let looks = |ring: &TransactionTestbed| {
        let bank = ring.bank.lock().unwrap();
        (bank.looks, bank.looks_as_text)
    };
    let (before, as_text) = looks(&ring);
    for row in 2..10 {
        assert!(is_committed(&ring.ask(client, &put("bank.t", row, 1))));
    }
    let (after, after_as_text) = looks(&ring);
    assert!(after >= before + 8, "{before} {after}");
    assert_eq!(after_as_text, as_text);
}

/// The plan of the transaction belongs to the former table. With a commit of that plan the writes
/// would be given up.
#[test]
fn a_transaction_that_was_planned_with_a_table_of_the_same_name_is_planned_anew() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
    let client = ring.client(None);
    for text in [put("bank.t", 1, 1), read_and_put("bank.t", 2, 2)] {
        assert!(is_committed(&ring.ask(client, &text)));
        ring.bank.lock().unwrap().make_again("bank", "t");
        let before = ring.bank.lock().unwrap().written_to("bank.t");
        assert!(
            is_committed(&ring.ask(client, &text)),
            "asked again within a second, with another plan"
        );
        ring.run_for(SECOND);
        assert_eq!(ring.bank.lock().unwrap().written_to("bank.t"), before + 1);
        assert_eq!(ring.metrics().records.get(), 0);
    }
}

#[test]
fn a_keyspace_of_which_no_quorum_can_be_reached_is_refused_before_anything_is_written() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().replicas = 7;
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    let (code, why) = ring.ask(client, &put("bank.t", 1, 1)).error();
    assert!(
        code == INVALID && why.contains("7 replicas") && why.contains("a quorum is 4"),
        "{code:#x} {why}"
    );
    assert_eq!(ring.bank.lock().unwrap().written.len(), 0);
}

/// An operator sees the table and the nodes' errors; and the write is made as soon as possible.
#[test]
fn a_write_that_cannot_be_made_is_shown_and_made_when_a_node_comes_up() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().leave(("bank", "t"), 0);
    bank.lock().unwrap().writes = Writes::Unavailable;
    let mut ring = TransactionTestbed::new(bank, |_| {});
    ring.run_for(300 * SECOND);
    assert_eq!((ring.metrics().unmade.get(), ring.metrics().opening.get()), (1, 1));
    let tried = ring.bank.lock().unwrap().written.len();
    assert!((40..160).contains(&tried), "less and less often, up to a bound: {tried}");
    let client = ring.client(None);
    assert!(!is_committed(&ring.ask(client, &put("bank.t", 1, 1))));
    ring.run_for(6 * SECOND);
    ring.bank.lock().unwrap().writes = Writes::Acknowledged;
    let scene = &mut ring.ring.testbed.scene;
    scene.said_up[2] = false;
    scene.post_cluster();
    scene.said_up[2] = true;
    scene.post_cluster();
    let before = ring.bank.lock().unwrap().written.len();
    ring.run_for(100 * MILLISECOND);
    assert_eq!(ring.bank.lock().unwrap().written.len(), before + 1);
    assert!(is_committed(&ring.ask(client, &put("bank.t", 1, 1))));
    ring.run_for(SECOND);
    assert_eq!((ring.metrics().unmade.get(), ring.metrics().opening.get()), (0, 0));
}

/// The first node has written it. The second may not know the schema yet, and speaks only for
/// itself.
#[test]
fn a_statement_that_a_second_node_refuses_is_in_doubt() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().mode = Some("conditional");
    bank.lock().unwrap().valued_us = Some(1_000);
    let mut ring = TransactionTestbed::new(bank, |_| {});
    ring.ring.testbed.scene.add_table("bank", "t", &["id", "v"]);
    let client = ring.client(None);
    for text in [
        "INSERT INTO bank.t (id, v) VALUES (1, 2)",
        "UPDATE bank.t SET v = 2 WHERE id = 2 IF v = 1",
    ] {
        ring.bank.lock().unwrap().writes = Writes::CarriedOutAndLost;
        let answer = ring.ask(client, text);
        let (code, why) = answer.error();
        assert_eq!(code, WRITE_TIMEOUT, "{text}: {why}");
        ring.run_for(SECOND);
        // No node had it before: the client gets the real error.
        let answer = ring.ask(client, text);
        let (code, why) = answer.error();
        assert!(code == INVALID && why.contains("unconfigured table"), "{text}: {code:#x} {why}");
        ring.bank.lock().unwrap().writes = Writes::Acknowledged;
    }
}

/// By the clock of another node the row may still exist, with a value that the statement does not
/// name.
#[test]
fn a_row_that_has_expired_is_deleted_before_it_is_written_anew() {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().mode = Some("conditional");
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    let written = |ring: &mut TransactionTestbed, text: &str| {
        let answer = ring.ask(client, text);
        assert_eq!(answer.rows()[0][0].as_deref(), Some(&[1][..]), "{text}: {answer:?}");
        ring.bank.lock().unwrap().written.last().expect("a write").0.clone()
    };
    let insert = "INSERT INTO bank.t (id, v) VALUES (1, 2) IF NOT EXISTS USING TTL 3";
    assert!(written(&mut ring, insert).contains("DELETE FROM"), "nothing was known of it");
    ring.run_for(4 * SECOND);
    let again = written(&mut ring, insert);
    assert!(again.contains("DELETE FROM") && again.contains("USING TTL 3"), "{again}");
    // A deletion holds by every clock.
    written(&mut ring, "DELETE FROM bank.t WHERE id = 1 IF EXISTS");
    let known = written(&mut ring, insert);
    assert!(!known.contains("DELETE FROM"), "{known}");
}
