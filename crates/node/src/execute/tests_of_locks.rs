//! Conditional statements against foreign timestamps in a row: from a clock that has stepped back
//! since, and from clients.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use shunt_topology::token;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, encode};

use super::select::tests::Nodes;
use super::{ClientState, Executor, Request};

const TABLE: &str =
    "CREATE TABLE t (p int, c int, s int static, v int, l list<int>, PRIMARY KEY (p, c))";

/// An hour, in microseconds.
const HOUR_US: u64 = 3_600_000_000;

/// Nodes whose clock was an hour ahead while `before` was written, and has stepped back since, as
/// across a restart.
fn stepped_back(before: &[&str]) -> Nodes {
    let mut nodes = Nodes::new(&["CREATE TABLE locks (name int PRIMARY KEY, owner int)", TABLE]);
    let now_us = nodes.executor.shared.now_us() as u64;
    nodes.executor.shared.set_clock_us(now_us + HOUR_US);
    for text in before {
        let answer = nodes.rows(text);
        assert!(!answer.starts_with("error") && !answer.starts_with("false"), "{text}: {answer}");
    }
    nodes.executor.shared.set_clock_us(now_us);
    nodes
}

fn check(nodes: &mut Nodes, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(nodes.rows(text), *expected, "{text}");
    }
}

#[test]
fn a_lock_is_given_back_and_taken_after_the_clock_has_stepped_back() {
    let mut nodes = stepped_back(&["INSERT INTO locks (name, owner) VALUES (1, 7) IF NOT EXISTS"]);
    check(
        &mut nodes,
        &[
            ("INSERT INTO locks (name, owner) VALUES (1, 8) IF NOT EXISTS", "false, 1, 7"),
            ("UPDATE locks SET owner = 9 WHERE name = 1 IF owner = 7", "true"),
            ("SELECT owner FROM locks", "9"),
            ("DELETE FROM locks WHERE name = 1 IF owner = 9", "true"),
            ("SELECT owner FROM locks", ""),
            ("INSERT INTO locks (name, owner) VALUES (1, 8) IF NOT EXISTS", "true"),
            ("SELECT owner FROM locks", "8"),
            ("DELETE FROM locks WHERE name = 1 IF EXISTS", "true"),
            ("INSERT INTO locks (name, owner) VALUES (1, 6) IF NOT EXISTS", "true"),
            ("UPDATE locks SET owner = null WHERE name = 1 IF owner = 6", "true"),
            ("SELECT name, owner FROM locks", "1, null"),
        ],
    );
}

#[test]
fn deletions_of_partitions_and_ranges_do_not_cover_what_is_written_on_a_condition_later() {
    let deleted = [
        "DELETE FROM t WHERE p = 1",
        "DELETE FROM t WHERE p = 2 AND c > 0 AND c < 9",
        "DELETE s FROM t WHERE p = 3",
        "DELETE v FROM t WHERE p = 4 AND c = 1",
        "UPDATE t SET l = [1, 2] WHERE p = 5 AND c = 1",
    ];
    let mut nodes = stepped_back(&deleted);
    check(
        &mut nodes,
        &[
            ("INSERT INTO t (p, c, v) VALUES (1, 1, 1) IF NOT EXISTS", "true"),
            ("UPDATE t SET s = 1 WHERE p = 1 IF s = null", "true"),
            ("SELECT s, v FROM t WHERE p = 1", "1, 1"),
            ("INSERT INTO t (p, c, v) VALUES (2, 1, 1) IF NOT EXISTS", "true"),
            ("SELECT v FROM t WHERE p = 2", "1"),
            ("UPDATE t SET s = 1 WHERE p = 3 IF s = null", "true"),
            ("SELECT s FROM t WHERE p = 3", "1"),
            ("UPDATE t SET v = 1 WHERE p = 4 AND c = 1 IF v = null", "true"),
            ("SELECT v FROM t WHERE p = 4", "1"),
            ("UPDATE t SET l = [3] WHERE p = 5 AND c = 1 IF l = [1, 2]", "true"),
            ("SELECT l FROM t WHERE p = 5", "[3]"),
        ],
    );
}

#[test]
fn deletions_in_conditional_batches_take_what_a_clock_ahead_has_written() {
    let mut nodes = stepped_back(&[
        "INSERT INTO t (p, c, s, v) VALUES (1, 1, 1, 1)",
        "INSERT INTO t (p, c, v) VALUES (1, 2, 2)",
        "INSERT INTO t (p, c, s, v) VALUES (2, 1, 1, 1)",
    ]);
    check(
        &mut nodes,
        &[
            (
                "BEGIN BATCH UPDATE t SET s = 2 WHERE p = 1 IF s = 1; DELETE FROM t WHERE p = 1 AND c > 1 APPLY BATCH",
                "true",
            ),
            ("SELECT c, s, v FROM t WHERE p = 1", "1, 2, 1"),
            (
                "BEGIN BATCH DELETE FROM t WHERE p = 2; INSERT INTO t (p, c, v) VALUES (2, 5, 5) IF NOT EXISTS APPLY \
                 BATCH",
                "true",
            ),
            ("SELECT c, s, v FROM t WHERE p = 2", "5, null, 5"),
        ],
    );
}

/// A batch with conditions has one timestamp, as in Cassandra the ballot's, whatever single
/// statements say.
#[test]
fn times_that_clients_make_up_make_no_lock_wrong() {
    let mut nodes = stepped_back(&[
        "INSERT INTO locks (name, owner) VALUES (1, 7) USING TIMESTAMP 9000000000000000",
        "DELETE FROM locks USING TIMESTAMP 9000000000000000 WHERE name = 2",
        "INSERT INTO locks (name, owner) VALUES (3, 7) USING TIMESTAMP 9223372036854775807",
        "DELETE FROM locks USING TIMESTAMP 9223372036854775807 WHERE name = 4",
        "INSERT INTO t (p, c, v) VALUES (1, 1, 1)",
    ]);
    check(
        &mut nodes,
        &[
            ("DELETE FROM locks WHERE name = 1 IF owner = 7", "true"),
            ("INSERT INTO locks (name, owner) VALUES (1, 8) IF NOT EXISTS", "true"),
            ("SELECT owner FROM locks WHERE name = 1", "8"),
            ("INSERT INTO locks (name, owner) VALUES (2, 8) IF NOT EXISTS", "true"),
            ("SELECT owner FROM locks WHERE name = 2", "8"),
            (
                "BEGIN BATCH UPDATE t SET s = 1 WHERE p = 1 IF s = null; UPDATE t USING TIMESTAMP 1 SET v = 2 WHERE \
                 p = 1 AND c = 1 APPLY BATCH",
                "true",
            ),
            ("SELECT s, v FROM t WHERE p = 1", "1, 2"),
        ],
    );
    // No timestamp is later than that one: no write would be visible, so none may be acknowledged.
    for text in [
        "DELETE FROM locks WHERE name = 3 IF owner = 7",
        "INSERT INTO locks (name, owner) VALUES (4, 8) IF NOT EXISTS",
    ] {
        let answer = nodes.rows(text);
        assert!(
            answer.starts_with("error: ") && answer.contains("9223372036854775807"),
            "{text}: {answer}"
        );
    }
    check(
        &mut nodes,
        &[
            ("SELECT owner FROM locks WHERE name = 3", "7"),
            ("SELECT owner FROM locks WHERE name = 4", ""),
            ("INSERT INTO locks (name, owner) VALUES (3, 8) IF NOT EXISTS", "false, 3, 7"),
        ],
    );
}

/// An element found by its index or value is deleted, although it was written while the statement
/// waited for the lock.
#[test]
fn elements_of_lists_that_were_found_are_deleted_though_the_clock_has_stepped_back() {
    let mut nodes = stepped_back(&["UPDATE t SET l = [1, 2, 3] WHERE p = 1 AND c = 1"]);
    check(
        &mut nodes,
        &[
            ("UPDATE t SET l[0] = 9 WHERE p = 1 AND c = 1 IF l = [1, 2, 3]", "true"),
            ("DELETE l[1] FROM t WHERE p = 1 AND c = 1 IF EXISTS", "true"),
            ("SELECT l FROM t WHERE p = 1", "[9, 3]"),
        ],
    );
}

/// A condition is read under the lock of its partition: the previous holder's writes decide.
#[test]
fn a_condition_waits_for_who_holds_the_partition() {
    let table = "CREATE TABLE locks (name int PRIMARY KEY, owner int)";
    let mut nodes = Nodes::new(&[table, "INSERT INTO locks (name, owner) VALUES (1, 7)"]);
    let shared = Arc::clone(&nodes.executor.shared);
    let held = shared.hold_lock(shared.lock_of(token::token(&1_i32.to_be_bytes())));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let shared = Arc::clone(&shared);
        scope.spawn(move || {
            let mut body = Vec::new();
            let text = "UPDATE k.locks SET owner = 8 WHERE name = 1 IF owner = 7";
            encode::query_simple(&mut body, 4, text, Consistency::ONE);
            let request = Request { version: 4, flags: 0, opcode: opcode::QUERY, body: &body };
            let mut client = ClientState::default();
            let done = Executor::new(shared, 0).execute(&mut client, &request, &mut Vec::new());
            tell.send(done.opcode).unwrap();
        });
        // Long enough for a statement that does not wait; a statement that has not begun does no
        // harm.
        let early = told.recv_timeout(Duration::from_millis(300));
        assert!(early.is_err(), "it was decided while somebody else held its partition");
        assert_eq!(nodes.rows("UPDATE locks SET owner = 9 WHERE name = 1"), "");
        drop(held);
        assert_eq!(told.recv(), Ok(opcode::RESULT));
    });
    assert_eq!(nodes.rows("SELECT owner FROM locks WHERE name = 1"), "9");
}
