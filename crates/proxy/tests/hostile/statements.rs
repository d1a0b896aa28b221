//! A client with huge statements: others need not prepare theirs again, and its own can be
//! executed.

use shunt_bench::stub::StubMail;
use shunt_reactor::sim::SECOND;
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code;

use super::testbed::Testbed;

/// A SELECT of this many bytes that begins with this number.
fn select(number: usize, bytes: usize) -> String {
    let mut text = format!("SELECT v FROM bench.kv WHERE k = ? /* {number} */");
    text.extend(std::iter::repeat_n(' ', bytes - text.len()));
    text
}

/// The name of a keyspace becomes the key of a pool, and goes out on each of its links.
#[test]
fn a_keyspace_with_a_name_of_a_megabyte_does_not_exist() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    for (length, expected) in [(48, opcode::RESULT), (257, opcode::ERROR), (1 << 20, opcode::ERROR)]
    {
        testbed.send(offender, &bytes::query(4, 1, &format!("USE {}", "k".repeat(length))));
        testbed.answered(offender, 1);
        let answer = testbed.take_answers(offender).remove(0);
        assert_eq!(answer.header.opcode, expected, "{length}");
        assert!(expected == opcode::RESULT || answer.error().0 == error_code::INVALID);
    }
    // The connection lives on, in its old keyspace.
    testbed.send(offender, &bytes::query(4, 2, "SELECT v FROM bench.kv WHERE k = 0x01"));
    testbed.answered(offender, 1);
    assert_eq!(testbed.take_answers(offender)[0].header.opcode, opcode::RESULT);
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn statements_of_many_megabytes_push_nobody_elses_out() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let mut ids = Vec::new();
    for number in 0..5 {
        testbed.send(offender, &bytes::prepare(4, 1, &select(number, 15 << 20)));
        testbed.answered(offender, 1);
        ids.push(testbed.take_answers(offender)[0].prepared().id);
    }
    // The statements of bystanders are known: none of them must prepare again.
    testbed.start_work();
    testbed.check_bystanders();
    for forgotten in [false, true] {
        if forgotten {
            for (index, node) in testbed.scene.nodes.clone().into_iter().enumerate() {
                testbed.scene.world.post(node, StubMail::ForgetStatements(index));
            }
        }
        for (number, id) in ids.iter().enumerate().take(if forgotten { 1 } else { 5 }) {
            // The same as with a node: a client that is asked to prepare does so, and then it
            // works.
            let mut asked = 0;
            for key in 0u8..9 {
                testbed.send(offender, &bytes::execute(4, 2, id, &[&[key]]));
                testbed.answered(offender, 1);
                let answer = testbed.take_answers(offender).remove(0);
                if answer.header.opcode == opcode::RESULT {
                    continue;
                }
                assert_eq!((answer.error().0, forgotten), (error_code::UNPREPARED, true));
                asked += 1;
                testbed.send(offender, &bytes::prepare(4, 1, &select(number, 15 << 20)));
                testbed.answered(offender, 1);
                testbed.take_answers(offender);
                testbed.run_for(SECOND);
            }
            assert!(asked <= 1, "asked to prepare {asked} times");
        }
    }
    testbed.reset(offender);
    testbed.check_recovered();
}

/// The proxy reads only the head of a long text. Where the table comes after that, a node's answer
/// would show the node and not the proxy.
#[test]
fn no_long_text_hides_a_table_that_shows_a_node() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let mut ask = |text: &str| {
        let text = text.replace("{}", &" ".repeat(70_000));
        [bytes::query(4, 1, &text), bytes::prepare(4, 1, &text)].map(|request| {
            testbed.send(offender, &request);
            testbed.answered(offender, 1);
            testbed.take_answers(offender).remove(0)
        })
    };
    for text in [
        "SELECT {} * FROM system.local",
        "SELECT /* {} */ rpc_address FROM System.Local WHERE key = 'local'",
        "SELECT peer, {} host_id FROM \"system\".peers",
        "SELECT * FROM system./* {} */peers_v2",
    ] {
        for answer in ask(text) {
            assert_eq!(answer.header.opcode, opcode::ERROR, "{text}");
            let (code, why) = answer.error();
            assert!(code == error_code::INVALID && why.contains("keyspace system"), "{why}");
        }
    }
    for text in [
        "SELECT {} v FROM bench.kv WHERE k = 0x00",
        "SELECT rpc_address FROM system.local WHERE {} key = 'local'",
    ] {
        for answer in ask(text) {
            assert_eq!(answer.header.opcode, opcode::RESULT, "{text}");
        }
    }
    testbed.reset(offender);
    testbed.check_recovered();
}
