//! A client that asks for more transactions than can run leaves others theirs.

use std::sync::Arc;

use shunt_proxy::config::Secret;
use shunt_reactor::sim::{MICROSECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{OVERLOADED, UNAUTHORIZED};
use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode};

use super::transaction_ring::{Bank, Rights, TransactionTestbed, Writes, put, read_and_put};

/// Transactions that each read a row without an answer.
fn flood(table: &str, count: i16) -> Vec<u8> {
    (0..count)
        .flat_map(|stream| bytes::query(4, stream, &read_and_put(table, i32::from(stream % 8), 1)))
        .collect()
}

fn with_roles(
    roles: &'static [&'static str],
) -> impl FnOnce(&mut super::support::scene::SceneOptions) {
    move |options| {
        options.credentials =
            roles.iter().map(|role| ((*role).to_owned(), "secret".to_owned())).collect();
        options.config.username = Some(roles[0].to_owned());
        options.config.password = Some(Secret::new("secret"));
        options.config.query_timeout_ms = 10_000;
    }
}

#[test]
fn one_role_leaves_another_room_in_the_same_keyspace() {
    let mut ring = TransactionTestbed::new(
        Bank::with(&[("bank", "t"), ("bank", "u")]),
        with_roles(&["own", "eve", "ann"]),
    );
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    // Rights and plans are known.
    assert_eq!(ring.ask(ann, &put("bank.u", 1, 1)).opcode(), opcode::RESULT);
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().reads_unanswered = true;
    ring.send(eve, &flood("bank.t", 5_000));
    ring.run_for(SECOND);
    let refused = ring.answers(eve);
    assert!(refused.len() > 4_000, "{}", refused.len());
    assert!(
        refused.iter().all(|answer| answer.error().0 == OVERLOADED),
        "{:?}",
        refused[0].error()
    );
    let answer = ring.ask(ann, &put("bank.u", 2, 2));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    // Once they are over, there is room again.
    ring.run_for(20 * SECOND);
    assert_eq!(ring.metrics().open.get(), 0);
    ring.answers(eve);
    ring.bank.lock().unwrap().reads_unanswered = false;
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
}

#[test]
fn one_keyspace_leaves_another_room_without_logins() {
    let change = |options: &mut super::support::scene::SceneOptions| {
        options.config.query_timeout_ms = 10_000
    };
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t"), ("bank2", "u")]), change);
    let [eve, ann] = [0, 1].map(|_| ring.client(None));
    assert_eq!(ring.ask(ann, &put("bank2.u", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().reads_unanswered = true;
    ring.send(eve, &flood("bank.t", 5_000));
    ring.run_for(SECOND);
    assert!(ring.answers(eve).len() > 4_000);
    let answer = ring.ask(ann, &put("bank2.u", 2, 2));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
}

/// Reads, writes and records of one role leave another room, whether nodes answer or not.
#[test]
fn statements_of_one_role_that_nobody_answers_leave_room_for_those_of_another() {
    let mut ring = TransactionTestbed::new(
        Bank::with(&[("bank", "t"), ("bank", "u")]),
        with_roles(&["own", "eve", "ann"]),
    );
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    assert_eq!(ring.ask(ann, &put("bank.u", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().writes = Writes::UnansweredOf("bank.t");
    let one = |stream: i16| {
        let writes: Vec<String> = (0..10i32)
            .map(|row| {
                format!("INSERT INTO bank.t (id, v) VALUES ({}, 1);", i32::from(stream) * 10 + row)
            })
            .collect();
        bytes::query(
            4,
            stream,
            &format!("BEGIN TRANSACTION {} COMMIT TRANSACTION", writes.join(" ")),
        )
    };
    for first in (0..700).step_by(20) {
        ring.send(eve, &(first..first + 20).flat_map(one).collect::<Vec<u8>>());
        ring.run_for(SECOND / 20);
    }
    let before = ring.bank.lock().unwrap().written_to("bank.u");
    for v in 0..5 {
        let answer = ring.ask(ann, &put("bank.u", 1, v));
        assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
        assert_eq!(
            ring.bank.lock().unwrap().written_to("bank.u") - before,
            v as usize + 1,
            "it is made at once"
        );
    }
}

/// Silence is no permission, however often and soon the client asks again.
#[test]
fn a_role_of_which_no_node_has_said_what_it_may_writes_nothing() {
    let mut ring =
        TransactionTestbed::new(Bank::with(&[("bank", "t")]), with_roles(&["own", "eve", "ann"]));
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    for rights in [Rights::Unsaid, Rights::None] {
        ring.bank.lock().unwrap().rights = Rights::All;
        // This transaction is planned, so questions for a plan stop nobody.
        assert_eq!(ring.ask(ann, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
        let before = ring.bank.lock().unwrap().written.len();
        ring.bank.lock().unwrap().rights = rights;
        let answer = ring.ask(eve, &put("bank.t", 1, 1));
        ring.run_for(2 * SECOND);
        assert_eq!(ring.bank.lock().unwrap().written.len(), before, "{rights:?}: {answer:?}");
        assert_eq!(answer.opcode(), opcode::ERROR);
    }
    ring.bank.lock().unwrap().rights = Rights::All;
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
}

/// Each transaction with a different text must be planned.
#[test]
fn one_role_leaves_another_room_to_have_its_transactions_planned() {
    let mut ring = TransactionTestbed::new(
        Bank::with(&[("bank", "t"), ("bank", "u")]),
        with_roles(&["own", "eve", "ann"]),
    );
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    assert_eq!(ring.ask(ann, &put("bank.u", 1, 1)).opcode(), opcode::RESULT);
    for round in 0..20 {
        let texts = (0..200i16)
            .flat_map(|stream| bytes::query(4, stream, &put("bank.t", round, i32::from(stream))));
        ring.send(eve, &texts.collect::<Vec<u8>>());
        let answer = ring.ask(ann, &put("bank.u", 2, round));
        assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
        ring.answers(eve);
    }
}

/// Each asks for a hundred tables at once. Otherwise a role whose text may not be planned for that
/// could not learn the modes either.
#[test]
fn one_role_that_has_wide_transactions_planned_leaves_another_room_and_all_their_modes() {
    let mut ring = TransactionTestbed::new(
        Bank::with(&[("bank", "t"), ("bank", "u")]),
        with_roles(&["own", "eve", "ann"]),
    );
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    assert_eq!(ring.ask(ann, &put("bank.u", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().missing_unanswered = true;
    let wide = |number: i16| {
        let writes =
            (0..100).map(|table| format!("INSERT INTO bank.x{table} (id) VALUES ({number}); "));
        let text = format!("BEGIN TRANSACTION {}COMMIT TRANSACTION", writes.collect::<String>());
        bytes::prepare(4, number, &text)
    };
    ring.send(eve, &(0..40).flat_map(wide).collect::<Vec<u8>>());
    ring.run_for(SECOND);
    let before = ring.bank.lock().unwrap().modes_read;
    let answer = ring.ask(ann, &put("bank.u", 2, 2));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
    ring.run_for(5 * SECOND);
    assert!(ring.bank.lock().unwrap().modes_read > before + 1, "they are read every two seconds");
}

/// Plannings that nobody answers end all at once, and free their places: of the long texts in line,
/// each turn reads as many bytes as of other heavy requests.
#[test]
fn long_texts_in_line_are_planned_in_many_turns() {
    const SMALL: i16 = 32;
    const LONG: i16 = 20;
    let change =
        |options: &mut super::support::scene::SceneOptions| options.config.query_timeout_ms = 4_000;
    let mut ring = TransactionTestbed::new(Bank::with(&[("bank", "t")]), change);
    let eve = ring.client(None);
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().missing_unanswered = true;
    let one = |stream: i16, blanks: usize| {
        let commit = format!(";{}COMMIT", " ".repeat(blanks));
        let text = put("bank.x", i32::from(stream), 1).replace("; COMMIT", &commit);
        bytes::query(4, stream, &text)
    };
    ring.send(eve, &(0..SMALL).flat_map(|stream| one(stream, 1)).collect::<Vec<u8>>());
    ring.run_for(SECOND);
    (SMALL..SMALL + LONG).for_each(|stream| ring.send(eve, &one(stream, 900 << 10)));
    ring.run_for(SECOND);
    assert_eq!(ring.answers(eve).len(), 0, "they wait");
    let metrics = Arc::clone(&ring.ring.testbed.scene.metrics[0]);
    let first = metrics.own_statements.sent.get();
    let (mut before, mut most) = (first, 0);
    let are_over = ring.ring.testbed.scene.world.run_until(20 * SECOND, |world| {
        let now = metrics.own_statements.sent.get();
        most = most.max(now - before);
        before = now;
        world.host(eve).answers.len() == (SMALL + LONG) as usize
    });
    assert!(are_over, "some are not answered");
    // Three questions begin a planning, and a fourth follows their answers.
    let long = LONG as u64;
    assert!(before - first >= 4 * long, "{} questions: they were not planned", before - first);
    assert!(most < 2 * long, "a turn has asked {most} questions of {}", 3 * long);
}

/// A missing right is asked for each time: a client that causes this must not delay other roles'
/// rights.
#[test]
fn one_role_that_has_many_rights_asked_for_leaves_another_room_to_have_its_own_found() {
    let mut ring = TransactionTestbed::new(
        Bank::with(&[("bank", "t"), ("bank", "u")]),
        with_roles(&["own", "eve", "ann"]),
    );
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    ring.bank.lock().unwrap().rights_unanswered = Some("bank.x");
    let one = |number: i16| bytes::query(4, number, &put(&format!("bank.x{number}"), 1, 1));
    ring.send(eve, &(0..600).flat_map(one).collect::<Vec<u8>>());
    ring.run_for(SECOND);
    let refused = ring.answers(eve);
    assert!(refused.len() > 300, "{}", refused.len());
    assert!(
        refused.iter().all(|answer| answer.error().0 == OVERLOADED),
        "{:?}",
        refused[0].error()
    );
    let answer = ring.ask(ann, &put("bank.u", 1, 1));
    assert_eq!(answer.opcode(), opcode::RESULT, "{answer:?}");
}

#[test]
fn requests_that_need_the_same_rights_wait_for_one_question_about_each() {
    let mut ring =
        TransactionTestbed::new(Bank::with(&[("bank", "t")]), with_roles(&["own", "eve", "ann"]));
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    // This transaction is planned, so the question about the proxy's own right to write, which
    // takes the same route, stops nobody.
    assert_eq!(ring.ask(ann, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    let before = ring.bank.lock().unwrap().rights_asked;
    ring.send(
        eve,
        &(0..200)
            .flat_map(|stream| bytes::query(4, stream, &put("bank.t", 1, 1)))
            .collect::<Vec<u8>>(),
    );
    ring.run_for(SECOND);
    let answers = ring.answers(eve);
    assert_eq!(
        (answers.len(), ring.bank.lock().unwrap().rights_asked - before),
        (200, 2),
        "to read it, and to write to it"
    );
    assert!(answers.iter().all(|answer| answer.opcode() == opcode::RESULT));
}

/// The right may have been granted in between.
#[test]
fn a_request_behind_a_refused_right_asks_for_the_right_again() {
    let mut ring =
        TransactionTestbed::new(Bank::with(&[("bank", "t")]), with_roles(&["own", "eve", "ann"]));
    let [eve, ann] = ["eve", "ann"].map(|role| ring.client(Some((role, "secret"))));
    assert_eq!(ring.ask(ann, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().rights = Rights::None;
    let before = ring.bank.lock().unwrap().rights_asked;
    let asked = ring.own_statements();
    ring.send(eve, &bytes::query(4, 1, &put("bank.t", 1, 1)));
    while ring.own_statements() == asked {
        ring.run_for(MICROSECOND);
    }
    // The request is on its way, and arrives before the answer.
    ring.send(eve, &bytes::query(4, 2, &put("bank.t", 1, 1)));
    while ring.bank.lock().unwrap().rights_asked == before {
        ring.run_for(MICROSECOND);
    }
    ring.bank.lock().unwrap().rights = Rights::All;
    ring.run_for(SECOND);
    let mut answers = ring.answers(eve);
    answers.sort_by_key(|answer| answer.header.stream);
    assert_eq!(answers[0].error().0, UNAUTHORIZED);
    assert_eq!(answers[1].opcode(), opcode::RESULT, "{:?}", answers[1]);
    assert_eq!(
        ring.bank.lock().unwrap().rights_asked - before,
        3,
        "the first to read it, once more, and to write to it"
    );
}

/// A value named in three places is three values to the proxy, and counts so.
#[test]
fn values_count_as_often_as_they_are_named() {
    let mut ring =
        TransactionTestbed::new(Bank::with(&[("bank", "t")]), with_roles(&["own", "eve"]));
    let eve = ring.client(Some(("eve", "secret")));
    assert_eq!(ring.ask(eve, &put("bank.t", 1, 1)).opcode(), opcode::RESULT);
    ring.bank.lock().unwrap().reads_unanswered = true;
    let refused_of = |ring: &mut TransactionTestbed, places: usize| {
        let conditions = vec!["a.v = :v"; places].join(" AND ");
        let text = format!(
            "BEGIN TRANSACTION LET a = (SELECT v FROM bank.t WHERE id = 1); IF {conditions} THEN \
             INSERT INTO bank.t (id, v) VALUES (1, 1); END IF COMMIT TRANSACTION"
        );
        let mut list = ValueList::named(4);
        list.push_named("v", Value::Bytes(&vec![0; 1 << 20]));
        for stream in 0..30 {
            let params =
                QueryParams { values: list.values(), ..QueryParams::simple(Consistency::ONE) };
            let body = bytes::body(|out| encode::query(out, 4, &text, &params));
            ring.send(eve, &bytes::request(4, stream, opcode::QUERY, &body));
            ring.run_for(SECOND / 20);
        }
        let refused =
            ring.answers(eve).iter().filter(|answer| answer.error().0 == OVERLOADED).count();
        ring.run_for(20 * SECOND);
        ring.answers(eve);
        assert_eq!(ring.metrics().open.get(), 0, "there is room again");
        refused
    };
    assert_eq!(refused_of(&mut ring, 1), 0, "30 MiB");
    let refused = refused_of(&mut ring, 3);
    assert!((10..30).contains(&refused), "{refused} of 90 MiB");
}
