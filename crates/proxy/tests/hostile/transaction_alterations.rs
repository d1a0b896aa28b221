//! Options and columns that a table with a mode cannot have. A node that set them would end all
//! writes to the table, so the proxy refuses the statement. And changes of a mode, for which the
//! proxy asks a node whether the client's role may change the table.

use std::sync::{Arc, Mutex};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_proxy::config::Secret;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::Query;
use shunt_wire::cql::message::error_code::{INVALID, UNAUTHORIZED, WRITE_TIMEOUT};

use super::lock_ring::{answer, applied, rows, some};
use super::transaction_ring::{self, Bank, Rights, TransactionTestbed, error};

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

/// Texts of changes of a table that came to nodes.
type Changes = Arc<Mutex<Vec<String>>>;

/// The nodes' answers to a change of a mode: the table has none yet.
fn on_change(request: &Request<'_>, rights: Rights, changes: &Changes) -> Option<Action> {
    if request.opcode != opcode::QUERY {
        return None;
    }
    let text = Query::decode(request.version, request.body).ok()?.text;
    if text.starts_with("ALTER TABLE") {
        changes.lock().unwrap().push(text.to_owned());
        return Some(match rights {
            Rights::None => error(request, UNAUTHORIZED, "User ann has no ALTER permission"),
            _ => error(request, INVALID, "Column shunt_asks_for_alter was not found in table t"),
        });
    }
    let int = |number: i32| some(number.to_be_bytes());
    let body = if text.contains("gc_grace_seconds FROM system_schema.tables") {
        rows(&["default_time_to_live", "gc_grace_seconds"], [vec![int(0), int(864_000)]])
    } else if text.starts_with("SELECT mode FROM shunt_meta.transactional") {
        rows(&["mode"], Vec::new())
    } else if text.starts_with("INSERT INTO shunt_meta.transactional") {
        applied(true)
    } else {
        return None;
    };
    Some(answer(request, &body))
}

/// A node may complete a conditional write later, so a refusal would be wrong.
#[test]
fn a_change_of_a_mode_whose_outcome_no_node_tells_is_in_doubt() {
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |_| {});
    for node in 0..ring.ring.testbed.scene.nodes.len() {
        let mut others = transaction_ring::hook(&ring.ring.tables, &ring.bank);
        let hook = move |request: &Request<'_>| {
            let text = Query::decode(request.version, request.body).ok().map(|query| query.text);
            let writes = request.opcode == opcode::QUERY
                && text
                    .is_some_and(|text| text.starts_with("INSERT INTO shunt_meta.transactional"));
            match writes {
                true => Action::Silence,
                false => on_change(request, Rights::All, &Changes::default())
                    .unwrap_or_else(|| others(request)),
            }
        };
        ring.ring.testbed.scene.hook(node, Some(Box::new(hook)));
    }
    let client = ring.client(None);
    let text = "ALTER TABLE bank.t WITH transactional_mode = 'mixed_reads'";
    let (code, why) = ring.ask(client, text).error();
    assert!(code == WRITE_TIMEOUT && why.contains("not known"), "{code:#x} {why}");
}

/// Another client may have changed the table since the proxy read it.
#[test]
fn the_question_for_the_right_to_change_a_table_changes_nothing() {
    for rights in [Rights::All, Rights::None] {
        let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), |options| {
            let login = |role: &str| (role.to_owned(), "secret".to_owned());
            options.credentials = ["own", "ann"].map(login).to_vec();
            options.config.username = Some("own".to_owned());
            options.config.password = Some(Secret::new("secret"));
        });
        let changes = Changes::default();
        for node in 0..ring.ring.testbed.scene.nodes.len() {
            let changes = Arc::clone(&changes);
            let mut others = transaction_ring::hook(&ring.ring.tables, &ring.bank);
            let hook = move |request: &Request<'_>| {
                on_change(request, rights, &changes).unwrap_or_else(|| others(request))
            };
            ring.ring.testbed.scene.hook(node, Some(Box::new(hook)));
        }
        let ann = ring.client(Some(("ann", "secret")));
        let answer = ring.ask(ann, "ALTER TABLE bank.t WITH transactional_mode = 'mixed_reads'");
        match rights {
            Rights::None => {
                let (code, why) = answer.error();
                assert!(code == UNAUTHORIZED && why.contains("no ALTER"), "{code:#x} {why}");
            }
            _ => assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}"),
        }
        let changes = changes.lock().unwrap();
        let column = "shunt_asks_for_alter";
        assert_eq!(*changes, [format!("ALTER TABLE bank.t RENAME {column} TO {column}")]);
    }
}
