//! A node is lost with a request on it. It may have executed the request, or may do so later: only
//! a request without effect at a second execution goes to another node, and no client hears that
//! nothing was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_topology::schema::ColumnKind;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{
    CONFIG_ERROR, INVALID, IS_BOOTSTRAPPING, OVERLOADED, PROTOCOL_ERROR, SERVER_ERROR,
    SYNTAX_ERROR, UNAUTHORIZED, UNAVAILABLE, WRITE_TIMEOUT,
};
use shunt_wire::cql::message::values::{Value, ValueList};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, QueryParams, encode,
};

use super::testbed::Testbed;

/// A timestamp of a client.
const AT: Option<i64> = Some(1_700_000_000_000_000);

/// The outcome of `request` when the first node that gets it breaks the connection and every other
/// does `then`.
fn lost(
    testbed: &mut Testbed,
    offender: HostId<simulated::Client>,
    request: &[u8],
    then: &Action,
) -> Fate {
    fate(testbed, offender, request, &[Action::Close, then.clone()])
}

/// The outcome of `request` when the first node that gets it does the first action, and every other
/// the second.
fn fate(
    testbed: &mut Testbed,
    offender: HostId<simulated::Client>,
    request: &[u8],
    reactions: &[Action; 2],
) -> Fate {
    let got = Arc::new(AtomicUsize::new(0));
    testbed.hook_all(|| {
        let (got, [first, then]) = (Arc::clone(&got), reactions.clone());
        Box::new(move |request: &Request<'_>| {
            if !is_the_clients(request) {
                return Action::Answer;
            }
            if got.fetch_add(1, Ordering::Relaxed) == 0 { first.clone() } else { then.clone() }
        })
    });
    testbed.send(offender, request);
    let answer = only_answer(testbed, offender);
    let code = if answer.header.opcode == opcode::ERROR { answer.error().0 } else { 0 };
    (got.load(Ordering::Relaxed), code)
}

/// The only answer to the only request of a client. Later bytes must be no second answer.
fn only_answer(testbed: &mut Testbed, offender: HostId<simulated::Client>) -> Answer {
    testbed.answered(offender, 1);
    let mut answers = testbed.take_answers(offender);
    testbed.run_for(SECOND);
    answers.extend(testbed.take_answers(offender));
    assert_eq!(answers.len(), 1, "answers to one request");
    answers.remove(0)
}

/// The error that the client gets when the first node says that it is overloaded and the second
/// does `then`: its code (0: none) and its text.
fn turned_away(text: &str, timestamp: Option<i64>, then: &Action) -> (i32, String) {
    let (mut testbed, offender) = testbed();
    let got = Arc::new(AtomicUsize::new(0));
    testbed.hook_all(|| {
        let (got, then) = (Arc::clone(&got), then.clone());
        Box::new(move |request: &Request<'_>| match got.load(Ordering::Relaxed) {
            _ if !is_the_clients(request) => Action::Answer,
            0 => {
                got.store(1, Ordering::Relaxed);
                Action::Error(OVERLOADED)
            }
            _ => then.clone(),
        })
    });
    testbed.send(offender, &query(text, timestamp));
    let answer = only_answer(&mut testbed, offender);
    let (code, words) =
        if answer.header.opcode == opcode::ERROR { answer.error() } else { Default::default() };
    testbed.scene.check_at_rest();
    (code, words.to_owned())
}

/// True for a request of the client; links send their own queries when they open.
fn is_the_clients(request: &Request<'_>) -> bool {
    matches!(request.opcode, opcode::QUERY | opcode::EXECUTE | opcode::BATCH)
        && !request.body.windows(12).any(|word| word == b"system.local")
}

fn testbed() -> (Testbed, HostId<simulated::Client>) {
    let mut testbed = Testbed::bare(|_| {});
    let offender = testbed.started_offender(4);
    (testbed, offender)
}

fn params(timestamp: Option<i64>) -> QueryParams<'static> {
    QueryParams { timestamp, ..QueryParams::simple(Consistency::ONE) }
}

fn query(text: &str, timestamp: Option<i64>) -> Vec<u8> {
    bytes::request(
        4,
        1,
        opcode::QUERY,
        &bytes::body(|out| encode::query(out, 4, text, &params(timestamp))),
    )
}

fn batch(children: &[BatchStatement<'_>], timestamp: Option<i64>) -> Vec<u8> {
    let none = ValueList::positional(4);
    let children = children
        .iter()
        .map(|statement| BatchChild { statement: *statement, values: none.values() });
    let body =
        bytes::body(|out| encode::batch(out, 4, BatchKind::Logged, children, &params(timestamp)));
    bytes::request(4, 1, opcode::BATCH, &body)
}

/// The number of nodes that got a request, and the code of the error (0: none).
type Fate = (usize, i32);

const REPEATED: Fate = (2, 0);
const OPEN: Fate = (1, WRITE_TIMEOUT);

#[test]
fn only_repeatable_requests_go_to_another_node() {
    let list: &[(&str, Option<i64>, Fate)] = &[
        ("SELECT v FROM bench.kv WHERE k = 0x01", None, REPEATED),
        ("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)", AT, REPEATED),
        ("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)", None, OPEN),
        ("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)", Some(i64::MIN), OPEN),
        ("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02) USING TIMESTAMP 7", None, REPEATED),
        ("DELETE FROM bench.kv WHERE k = 0x01", AT, REPEATED),
        ("DELETE FROM bench.kv WHERE k = 0x01", None, OPEN),
        ("INSERT INTO bench.kv (k, l) VALUES (0x01, [1, 2])", AT, OPEN),
        ("UPDATE bench.kv SET l = [1, 2] WHERE k = 0x01", AT, OPEN),
        ("UPDATE bench.kv SET m = {'a': 1} WHERE k = 0x01", AT, REPEATED),
        ("INSERT INTO bench.kv JSON '{\"k\": \"0x01\"}'", AT, OPEN),
        ("INSERT INTO bench.other (k) VALUES (0x01)", AT, OPEN),
        ("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02) USING TTL 5", AT, OPEN),
        ("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02) IF NOT EXISTS", AT, OPEN),
        ("BEGIN BATCH UPDATE bench.kv SET l = [1] WHERE k = 0x01; APPLY BATCH", AT, OPEN),
    ];
    for (text, timestamp, expected) in list {
        let (mut testbed, offender) = testbed();
        assert_eq!(
            lost(&mut testbed, offender, &query(text, *timestamp), &Action::Answer),
            *expected,
            "{text}"
        );
    }
}

#[test]
fn a_batch_is_repeated_if_all_in_it_may_be() {
    let insert = BatchStatement::Text("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)");
    let stamped =
        BatchStatement::Text("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02) USING TIMESTAMP 7");
    let list = BatchStatement::Text("UPDATE bench.kv SET l = [1, 2] WHERE k = 0x01");
    let cases: [(&[BatchStatement<'_>], Option<i64>, Fate); 6] = [
        (&[insert, insert], AT, REPEATED),
        (&[insert, insert], None, OPEN),
        (&[stamped, stamped], None, REPEATED),
        (&[stamped, insert], None, OPEN),
        (&[insert, list], AT, OPEN),
        (&[list, insert], AT, OPEN),
    ];
    for (children, timestamp, expected) in cases {
        let (mut testbed, offender) = testbed();
        let request = batch(children, timestamp);
        assert_eq!(
            lost(&mut testbed, offender, &request, &Action::Answer),
            expected,
            "{children:?}"
        );
    }
}

#[test]
fn a_prepared_statement_is_judged_with_its_values_and_the_schema_of_the_moment() {
    let (plain, stamped) = (
        "INSERT INTO bench.kv (k, v) VALUES (?, ?)",
        "INSERT INTO bench.kv (k, v) VALUES (?, ?) USING TIMESTAMP ?",
    );
    let now = 7_i64.to_be_bytes();
    let cases = [
        (plain, AT, None, false, REPEATED),
        (plain, None, None, false, OPEN),
        // The column has become a list: the table was dropped and created with another type.
        (plain, AT, None, true, OPEN),
        (stamped, None, Some(Value::Bytes(&now)), false, REPEATED),
        (stamped, None, Some(Value::Unset), false, OPEN),
        (stamped, None, Some(Value::Null), false, OPEN),
        (stamped, AT, Some(Value::Unset), false, REPEATED),
    ];
    for (text, timestamp, last, altered, expected) in cases {
        let (mut testbed, offender) = testbed();
        testbed.send(offender, &bytes::prepare(4, 1, text));
        testbed.answered(offender, 1);
        let id = testbed.take_answers(offender)[0].prepared().id;
        if altered {
            testbed.scene.columns = vec![("k", ColumnKind::Single), ("v", ColumnKind::List)];
            testbed.scene.post_cluster();
            testbed.run_for(SECOND);
        }
        let mut values = ValueList::positional(4);
        values.push(Value::Bytes(&[1])).push(Value::Bytes(&[2]));
        if let Some(last) = last {
            values.push(last);
        }
        let params = QueryParams { values: values.values(), ..params(timestamp) };
        let body = bytes::body(|out| encode::execute(out, 4, &id, None, &params));
        let request = bytes::request(4, 1, opcode::EXECUTE, &body);
        assert_eq!(
            lost(&mut testbed, offender, &request, &Action::Answer),
            expected,
            "{text} {last:?} {altered}"
        );
    }
}

#[test]
fn requests_that_may_have_changed_something_are_not_reported_as_undone() {
    for text in [
        "CREATE TABLE bench.x (k int PRIMARY KEY)",
        "DROP TABLE bench.kv",
        "TRUNCATE bench.kv",
        "GRANT SELECT ON bench.kv TO ann",
        "ALTER ROLE ann WITH PASSWORD = 'x'",
        "SOMETHING NEW",
    ] {
        let (mut testbed, offender) = testbed();
        assert_eq!(lost(&mut testbed, offender, &query(text, AT), &Action::Answer), OPEN, "{text}");
        // A second node that takes too long does not either.
        let (mut testbed, offender) = self::testbed();
        testbed.hook_all(|| {
            Box::new(
                |request: &Request<'_>| {
                    if is_the_clients(request) { Action::Silence } else { Action::Answer }
                },
            )
        });
        testbed.send(offender, &query(text, AT));
        testbed.run_for(90 * SECOND);
        assert_eq!(testbed.take_answers(offender)[0].error().0, WRITE_TIMEOUT, "{text}");
    }
}

#[test]
fn a_second_node_that_refuses_does_not_speak_for_the_first() {
    let write = query("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)", AT);
    let read = query("SELECT v FROM bench.kv WHERE k = 0x01", None);
    let of_request = [INVALID, SYNTAX_ERROR, UNAUTHORIZED, CONFIG_ERROR, PROTOCOL_ERROR];
    let of_node = [OVERLOADED, IS_BOOTSTRAPPING, UNAVAILABLE, SERVER_ERROR];
    for code in of_node.into_iter().chain(of_request) {
        let (mut testbed, offender) = testbed();
        let expected = if code == SERVER_ERROR { SERVER_ERROR } else { WRITE_TIMEOUT };
        assert_eq!(
            lost(&mut testbed, offender, &write, &Action::Error(code)),
            (2, expected),
            "{code:#x}"
        );
        if code != UNAVAILABLE {
            let (mut testbed, offender) = self::testbed();
            assert_eq!(
                lost(&mut testbed, offender, &read, &Action::Error(code)),
                (2, code),
                "{code:#x}"
            );
        }
    }
    // The lack of a second node does not either.
    let one_node = |options: &mut super::support::scene::SceneOptions| options.nodes = 1;
    for (request, expected) in [(&write, WRITE_TIMEOUT), (&read, OVERLOADED)] {
        let mut testbed = Testbed::bare(one_node);
        let offender = testbed.started_offender(4);
        assert_eq!(lost(&mut testbed, offender, request, &Action::Answer), (1, expected));
    }
}

/// The client learns the second node's reason, without being told that nothing was written.
#[test]
fn a_second_nodes_error_is_told_with_a_write_timeout() {
    let batch = "BEGIN BATCH INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02); APPLY BATCH";
    for write in ["INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)", batch] {
        let (code, words) = turned_away(write, AT, &Action::Error(INVALID));
        assert!(
            code == WRITE_TIMEOUT && words.contains("may have carried it out"),
            "{write}: {code:#x} {words}"
        );
        assert!(words.ends_with(": as the hook wants it"), "the node's words: {words}");
        let (own, _) = turned_away(write, None, &Action::Answer);
        assert_eq!(own, OVERLOADED, "{write}: it is not repeated");
        let refusal = Action::Error(INVALID);
        let (mut testbed, offender) = testbed();
        let found = fate(&mut testbed, offender, &query(write, AT), &[refusal.clone(), refusal]);
        assert_eq!(found, (1, INVALID), "{write}: no other node had it");
    }
}

/// An overloaded node does not say how far it got; but no link was lost, and the client is not told
/// that one was.
#[test]
fn a_second_node_that_refuses_does_not_speak_for_an_overloaded_one() {
    let write = "INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)";
    for code in [OVERLOADED, IS_BOOTSTRAPPING, UNAVAILABLE] {
        let (found, words) = turned_away(write, AT, &Action::Error(code));
        assert_eq!(found, WRITE_TIMEOUT, "{code:#x}");
        assert!(!words.contains("connection"), "{code:#x}: {words}");
    }
    let refused = Action::Error(OVERLOADED);
    assert_eq!(turned_away("SELECT v FROM bench.kv WHERE k = 0x01", None, &refused).0, OVERLOADED);
    assert_eq!(turned_away(write, AT, &Action::Answer).0, 0);
    assert_eq!(turned_away(write, None, &Action::Answer).0, OVERLOADED, "it is not repeated");
}

#[test]
fn a_second_node_that_does_not_know_the_statement_does_not_speak_for_the_first() {
    let (write, read) = (
        "INSERT INTO bench.kv (k, v) VALUES (?, ?)",
        "SELECT v FROM bench.kv WHERE k = ? AND v = ?",
    );
    let prepares = [
        Action::Answer,
        Action::Error(OVERLOADED),
        Action::Error(IS_BOOTSTRAPPING),
        Action::Silence,
    ];
    for (text, on_prepare) in
        [write, read].into_iter().flat_map(|text| prepares.iter().map(move |then| (text, then)))
    {
        let (mut testbed, offender) = testbed();
        testbed.send(offender, &bytes::prepare(4, 1, text));
        testbed.answered(offender, 1);
        let id = testbed.take_answers(offender)[0].prepared().id;
        testbed.run_for(SECOND);
        let got = Arc::new(AtomicUsize::new(0));
        testbed.hook_all(|| {
            let (got, on_prepare) = (Arc::clone(&got), on_prepare.clone());
            Box::new(move |request: &Request<'_>| match request.opcode {
                opcode::EXECUTE if got.fetch_add(1, Ordering::Relaxed) == 0 => Action::Close,
                opcode::EXECUTE => Action::Unprepared,
                opcode::PREPARE => on_prepare.clone(),
                _ => Action::Answer,
            })
        });
        let mut values = ValueList::positional(4);
        values.push(Value::Bytes(&[1])).push(Value::Bytes(&[2]));
        let params = QueryParams { values: values.values(), ..params(AT) };
        let body = bytes::body(|out| encode::execute(out, 4, &id, None, &params));
        testbed.send(offender, &bytes::request(4, 1, opcode::EXECUTE, &body));
        testbed.answered(offender, 1);
        let code = testbed.take_answers(offender)[0].error().0;
        assert!(got.load(Ordering::Relaxed) >= 2, "it was repeated");
        if text == write {
            assert_eq!(code, WRITE_TIMEOUT, "{on_prepare:?}");
        } else {
            assert_ne!(code, WRITE_TIMEOUT, "{on_prepare:?}");
        }
    }
}

/// An overloaded node does not say how far it got, so a second overloaded one does not speak for
/// it. A node that is only starting has not begun.
#[test]
fn two_overloaded_nodes_leave_a_write_open() {
    let write = query("INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)", AT);
    let read = query("SELECT v FROM bench.kv WHERE k = 0x01", None);
    let cases = [
        (&write, OVERLOADED, OVERLOADED, WRITE_TIMEOUT),
        (&write, OVERLOADED, UNAVAILABLE, WRITE_TIMEOUT),
        (&write, IS_BOOTSTRAPPING, OVERLOADED, OVERLOADED),
        (&read, OVERLOADED, OVERLOADED, OVERLOADED),
    ];
    for (request, first, second, expected) in cases {
        let (mut testbed, offender) = testbed();
        let reactions = [Action::Error(first), Action::Error(second)];
        assert_eq!(
            fate(&mut testbed, offender, request, &reactions),
            (2, expected),
            "{first:#x} {second:#x}"
        );
    }
}
