//! A proxy without a fleet beside a fleet: it refuses statements on locks, because a node would
//! grant locks that another client holds.

use shunt_bench::stub::Action;
use shunt_reactor::sim::HostId;
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec};
use shunt_wire::cql::message::error_code::INVALID;
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, QueryParams, ValueList, encode,
};

use super::testbed::Testbed;

const TAKE: &str =
    "INSERT INTO shunt.locks (name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 20";
const ON_LOCKS: [&str; 6] = [
    TAKE,
    "insert into Shunt.\"fast_locks\" (name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 20",
    "UPDATE shunt.rwlocks SET owner = 'me' WHERE name = 'a' IF owner = null",
    "DELETE FROM shunt.locks WHERE name = 'a' IF owner = 'me'",
    "SELECT owner FROM shunt.lock_queue WHERE name = 'a'",
    "BEGIN BATCH INSERT INTO shunt.locks (name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 20; APPLY BATCH",
];

fn ask(testbed: &mut Testbed, client: HostId<simulated::Client>, request: &[u8]) -> Answer {
    testbed.send(client, request);
    testbed.answered(client, 1);
    testbed.take_answers(client).remove(0)
}

/// Sets the ring's keyspaces from now on.
fn tell(testbed: &mut Testbed, keyspaces: &[&'static str]) {
    testbed.scene.keyspaces = keyspaces.to_vec();
    testbed.scene.post_cluster();
    testbed.run_for(shunt_reactor::sim::SECOND);
}

fn batch(statement: BatchStatement<'_>) -> Vec<u8> {
    let none = ValueList::positional(4);
    let child = BatchChild { statement, values: none.values() };
    let params = QueryParams::simple(Consistency::ONE);
    let body = bytes::body(|out| encode::batch(out, 4, BatchKind::Unlogged, [child], &params));
    bytes::request(4, 2, opcode::BATCH, &body)
}

fn is_refused(answer: &Answer) -> bool {
    answer.header.opcode == opcode::ERROR && {
        let (code, text) = answer.error();
        code == INVALID && text.contains("this proxy is in no fleet")
    }
}

#[test]
fn a_proxy_outside_the_rings_fleet_refuses_statements_on_locks() {
    let mut testbed = Testbed::new();
    tell(&mut testbed, &["bench", "shunt", "shunt_meta"]);
    let client = testbed.started_offender(4);
    for text in ON_LOCKS {
        for request in [bytes::query(4, 1, text), bytes::prepare(4, 1, text)] {
            let answer = ask(&mut testbed, client, &request);
            assert!(is_refused(&answer), "{text}: {answer:?}");
        }
    }
    let answer = ask(&mut testbed, client, &batch(BatchStatement::Text(TAKE)));
    assert!(is_refused(&answer), "{answer:?}");
    // Other tables are served.
    let answer =
        ask(&mut testbed, client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 0x00"));
    assert_eq!(answer.header.opcode, opcode::RESULT);
}

/// The proxy reads only the head of a long text, and the table may stand after that.
#[test]
fn no_long_text_hides_a_lock() {
    let mut testbed = Testbed::new();
    tell(&mut testbed, &["bench", "shunt", "shunt_meta"]);
    let client = testbed.started_offender(4);
    let rest = "(name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 20";
    for text in [
        format!("INSERT /* {{}} */ INTO shunt.locks {rest}"),
        format!("INSERT INTO shunt./* {{}} */locks {rest}"),
        format!("INSERT INTO shunt.locks {rest}; /* {{}} */"),
        format!("{{}} INSERT INTO shunt.locks {rest}"),
        "DELETE {} FROM Shunt.\"locks\" WHERE name = 'a' IF owner = 'me'".to_owned(),
        format!("BEGIN BATCH INSERT INTO shunt/* {{}} */.locks {rest}; APPLY BATCH"),
        format!("BEGIN /* {{}} */ BATCH INSERT INTO shunt.locks {rest}; APPLY BATCH"),
    ] {
        let text = text.replace("{}", &" ".repeat(70_000));
        for request in [
            bytes::query(4, 1, &text),
            bytes::prepare(4, 1, &text),
            batch(BatchStatement::Text(&text)),
        ] {
            let answer = ask(&mut testbed, client, &request);
            assert!(is_refused(&answer), "{}: {answer:?}", text.replace("  ", ""));
        }
    }
}

#[test]
fn statements_prepared_before_the_fleet_are_refused_too() {
    let mut testbed = Testbed::new();
    testbed.hook_all(|| {
        Box::new(|request| {
            if request.opcode != opcode::PREPARE {
                return Action::Answer;
            }
            let spec = PreparedSpec {
                id: b"sixteen bytes id",
                result_metadata_id: &[],
                keyspace: "shunt",
                table: "locks",
                bind: &[],
                partition_key: &[],
                result: &[],
            };
            let body = bytes::body(|out| encode_result::prepared(out, request.version, &spec));
            let header = Header::response(request.version, request.stream, opcode::RESULT);
            Action::Garbage(bytes::envelope(header, &body))
        })
    });
    let client = testbed.started_offender(4);
    let id = ask(&mut testbed, client, &bytes::prepare(4, 1, TAKE)).prepared().id;
    assert!(!is_refused(&ask(&mut testbed, client, &bytes::execute(4, 1, &id, &[]))));
    tell(&mut testbed, &["bench", "shunt", "shunt_meta"]);
    for request in [bytes::execute(4, 1, &id, &[]), batch(BatchStatement::Prepared(&id))] {
        let answer = ask(&mut testbed, client, &request);
        assert!(is_refused(&answer), "{answer:?}");
    }
}

#[test]
fn tables_named_like_a_fleets_are_plain_tables_without_one() {
    let mut testbed = Testbed::new();
    tell(&mut testbed, &["bench", "shunt"]);
    let client = testbed.started_offender(4);
    for text in ON_LOCKS {
        assert!(!is_refused(&ask(&mut testbed, client, &bytes::query(4, 1, text))), "{text}");
    }
}
