//! A client that writes rows of its own table with timestamps in the future does not move the clock
//! that others write by; a proxy whose own clock is in the past writes nothing.

use shunt_reactor::sim::SECOND;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, IS_BOOTSTRAPPING};

use super::transaction_ring::{Bank, TransactionTestbed, put, read_and_put};

const SECOND_US: i64 = 1_000_000;

#[test]
fn rows_from_the_future_do_not_take_the_clock_of_their_shard_along() {
    let bank = Bank::with(&[("bank", "t"), ("bank", "u")]);
    bank.lock().unwrap().mode = Some("conditional");
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let [eve, ann] = [0, 1].map(|_| ring.client(None));
    // Time of the shard's clock: the proxy writes a statement without a condition with it.
    let shown_us = |ring: &mut TransactionTestbed, row: i32| {
        let answer = ring.ask(ann, &format!("INSERT INTO bank.u (id, v) VALUES ({row}, 1)"));
        assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
        ring.bank.lock().unwrap().written.last().expect("a write").1.expect("a timestamp")
    };
    let began_us = shown_us(&mut ring, 0);
    for row in 1..=20 {
        // The lease, and so its limit, is renewed meanwhile.
        ring.run_for(4 * SECOND);
        let ahead_us = shown_us(&mut ring, row) + 11 * SECOND_US;
        ring.bank.lock().unwrap().valued_us = Some(ahead_us);
        let answer = ring.ask(eve, &format!("UPDATE bank.t SET v = 2 WHERE id = {row} IF v = 1"));
        let (code, message) = answer.error();
        assert!(code == INVALID && message.contains("in the future"), "{code}: {message}");
    }
    // The reader's clock shows 80 seconds more, plus the turns of the simulation.
    let passed_us = shown_us(&mut ring, 0) - began_us;
    assert!((80 * SECOND_US..90 * SECOND_US).contains(&passed_us), "{passed_us}");
    // A node's clock may be a little ahead.
    let ahead_us = shown_us(&mut ring, 0) + SECOND_US / 2;
    ring.bank.lock().unwrap().valued_us = Some(ahead_us);
    let answer = ring.ask(eve, "UPDATE bank.t SET v = 2 WHERE id = 100 IF v = 1");
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    let written_us =
        ring.bank.lock().unwrap().written.last().expect("a write").1.expect("a timestamp");
    assert!(written_us > ahead_us, "it is not hidden");
}

#[test]
fn a_proxy_whose_clock_is_behind_says_so_and_writes_nothing() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
    let client = ring.client(None);
    let answer = ring.ask(client, &put("bank.t", 1, 1));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    let written_us =
        ring.bank.lock().unwrap().written.last().expect("a write").1.expect("a timestamp");
    // The nodes' clocks stand still here.
    ring.ring.tables.lock().unwrap().nodes_us = written_us + 120 * SECOND_US;
    ring.run_for(10 * SECOND);
    let answer = ring.ask(client, &put("bank.t", 2, 1));
    let (code, message) = answer.error();
    assert!(code == IS_BOOTSTRAPPING && message.contains("behind the nodes"), "{code}: {message}");
    let behind_us = ring.ring.testbed.scene.metrics[0].clock_behind_us.get();
    assert!((100_000_000..=120_000_000).contains(&behind_us), "{behind_us}");
    let read = "BEGIN TRANSACTION SELECT v FROM bank.t WHERE id = 1; COMMIT TRANSACTION";
    let answer = ring.ask(client, read);
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    assert_eq!(ring.bank.lock().unwrap().written_to("bank.t"), 1);
    ring.ring.tables.lock().unwrap().nodes_us = written_us;
    ring.run_for(10 * SECOND);
    let answer = ring.ask(client, &put("bank.t", 2, 1));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    assert_eq!(ring.ring.testbed.scene.metrics[0].clock_behind_us.get(), 0);
}

/// A take-over may end within the second for which requests are sent again. A clock does not become
/// right so soon.
#[test]
fn a_refusal_for_the_clock_comes_at_once_and_asks_nodes_no_more_than_once() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
    let client = ring.client(None);
    let texts = [put("bank.t", 1, 1), read_and_put("bank.t", 1, 1)];
    // Number of questions about tables: each attempt asks them.
    let costs = |ring: &mut TransactionTestbed, text: &str, expected: u8| {
        let before = ring.bank.lock().unwrap().looks;
        let answer = ring.ask(client, text);
        assert_eq!(answer.opcode(), expected, "{answer:?}");
        ring.bank.lock().unwrap().looks - before
    };
    // The first time, each is planned.
    texts.iter().for_each(|text| _ = costs(&mut ring, text, opcode::RESULT));
    let once = texts.each_ref().map(|text| costs(&mut ring, text, opcode::RESULT));
    assert!(once.iter().all(|looks| *looks > 0), "{once:?}");
    let written_us =
        ring.bank.lock().unwrap().written.last().expect("a write").1.expect("a timestamp");
    ring.ring.tables.lock().unwrap().nodes_us = written_us + 120 * SECOND_US;
    ring.run_for(10 * SECOND);
    let refused = texts.each_ref().map(|text| costs(&mut ring, text, opcode::ERROR));
    assert_eq!(refused, [0, once[1]], "one that writes in any case asks nothing");
}
