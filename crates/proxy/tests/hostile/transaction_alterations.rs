//! Options and columns that a table with a mode cannot have. A node that set them would end all
//! writes to the table, so the proxy refuses the statement.

use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::INVALID;

use super::transaction_ring::{Bank, TransactionTestbed};

fn testbed(mode: &'static str) -> (TransactionTestbed, HostId<simulated::Client>) {
    let bank = Bank::with(&[("bank", "t")]);
    bank.lock().unwrap().mode = Some(mode);
    let mut ring = TransactionTestbed::new(bank, |_| {});
    let client = ring.client(None);
    (ring, client)
}

/// Sends a statement as text, and prepared.
fn answers(
    ring: &mut TransactionTestbed,
    client: HostId<simulated::Client>,
    text: &str,
) -> [Answer; 2] {
    let as_text = ring.ask(client, text);
    ring.send(client, &bytes::prepare(4, 1, text));
    ring.run_for(SECOND);
    let id = ring.answers(client)[0].prepared().id;
    ring.send(client, &bytes::execute(4, 2, &id, &[]));
    ring.run_for(SECOND);
    [as_text, ring.answers(client).remove(0)]
}

#[test]
fn options_that_end_all_writes_to_a_table_with_a_mode_are_refused() {
    // A proxy does not search so long a text for the options.
    let comment = "c".repeat(70_000);
    let long = format!("ALTER TABLE bank.t WITH compaction = {{}} /* {comment} */");
    for mode in ["conditional", "observe", "mixed_reads", "full"] {
        let (mut ring, client) = testbed(mode);
        for (text, why) in [
            ("ALTER TABLE bank.t WITH gc_grace_seconds = 60", "gc_grace_seconds = 60"),
            (
                "ALTER TABLE bank.t WITH comment = 'c' AND default_time_to_live = 60",
                "default_time_to_live = 60",
            ),
            ("ALTER TABLE bank.t WITH read_repair = 'NONE'", "read_repair = 'NONE'"),
        ] {
            for answer in answers(&mut ring, client, text) {
                assert_eq!(answer.opcode(), opcode::ERROR, "{mode} {text}: {answer:?}");
                let (code, message) = answer.error();
                assert!(code == INVALID && message.contains(why), "{code:#x} {message}");
            }
        }
        let (code, message) = ring.ask(client, &long).error();
        assert!(code == INVALID && message.contains("bytes are allowed"), "{code:#x} {message}");
        assert_eq!(ring.bank.lock().unwrap().written, []);
    }
}

#[test]
fn columns_by_which_no_statement_can_be_decided_are_refused() {
    for (mode, is_refused) in
        [("conditional", true), ("observe", true), ("mixed_reads", false), ("full", false)]
    {
        let (mut ring, client) = testbed(mode);
        for (text, why) in [
            ("ALTER TABLE bank.t ADD s int STATIC", "its column s would be static"),
            ("ALTER TABLE bank.t ADD l list<int>", "its column l would be a collection"),
        ] {
            for answer in answers(&mut ring, client, text) {
                assert_eq!(
                    answer.opcode() == opcode::ERROR,
                    is_refused,
                    "{mode} {text}: {answer:?}"
                );
                let words = is_refused.then(|| answer.error());
                assert!(
                    words.is_none_or(|(code, message)| code == INVALID && message.contains(why))
                );
            }
        }
        let refused = ring.bank.lock().unwrap().written.is_empty();
        assert_eq!(refused, is_refused, "{mode}");
    }
}

#[test]
fn other_options_and_other_tables_are_left_to_nodes() {
    for (mode, text) in [
        ("conditional", "ALTER TABLE bank.t WITH gc_grace_seconds = 864000"),
        ("conditional", "ALTER TABLE bank.other WITH gc_grace_seconds = 60"),
        ("conditional", "ALTER TABLE bank.t ADD a int"),
        ("conditional", "ALTER TABLE bank.other ADD a int STATIC"),
        ("unsafe", "ALTER TABLE bank.t WITH gc_grace_seconds = 60"),
    ] {
        let (mut ring, client) = testbed(mode);
        for answer in answers(&mut ring, client, text) {
            assert_eq!(answer.opcode(), opcode::RESULT, "{text}: {answer:?}");
        }
        assert_eq!(ring.bank.lock().unwrap().written.len(), 2);
    }
}
