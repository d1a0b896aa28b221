//! Digests: each query counts once, to its statement without values, and a flood of distinct texts
//! leaves the statements in use their rows.

use shunt_bench::stub::Action;
use shunt_proxy::config::{Config, Switch};
use shunt_proxy::control::CoreMail;
use shunt_proxy::digests::table::{CoreDigests, DigestRow};
use shunt_proxy::metrics::{Outcome, QueryKind};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, READ_TIMEOUT};
use shunt_wire::cql::message::{
    Consistency, QueryParams, ResultMessage, Value, ValueList, encode, query_flag,
};
use tokio::sync::mpsc;

use super::lock_ring::LockTestbed;
use super::slow_queries::records;
use super::testbed::Testbed;

const INSERT: &str = "INSERT INTO bench.kv (k, v) VALUES (?, ?)";
const SELECT: &str = "SELECT v FROM bench.kv WHERE k = ?";

/// The digests of the only core.
fn digests(testbed: &mut Testbed) -> CoreDigests {
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(testbed.scene.cores[0], CoreMail::Digests(sender));
    testbed.run_for(10 * MILLISECOND);
    answers.try_recv().expect("an answer")
}

fn row<'a>(found: &'a CoreDigests, kind: QueryKind, text: &str) -> &'a DigestRow {
    let is_it = |row: &&DigestRow| row.name.kind == kind && &*row.name.text == text;
    found.rows.iter().find(is_it).unwrap_or_else(|| panic!("{kind:?} {text}: {:?}", found.rows))
}

fn prepare(testbed: &mut Testbed, client: HostId<simulated::Client>) -> Vec<u8> {
    prepare_text(testbed, client, INSERT)
}

fn prepare_text(testbed: &mut Testbed, client: HostId<simulated::Client>, text: &str) -> Vec<u8> {
    testbed.send(client, &bytes::prepare(4, 1, text));
    testbed.answered(client, 1);
    let answers = testbed.take_answers(client);
    let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(4, &answers[0].body) else {
        panic!("{answers:?}")
    };
    prepared.id.to_vec()
}

#[test]
fn rows_count_where_the_answer_has_no_metadata() {
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::insert(4, 1, "there", 9));
    testbed.answered(client, 1);
    testbed.take_answers(client);
    let id = prepare_text(&mut testbed, client, SELECT);
    for (stream, key) in (2..).zip(["there", "there", "away"]) {
        let mut list = ValueList::positional(4);
        list.push(Value::Bytes(key.as_bytes()));
        let simple = QueryParams::simple(Consistency::ONE);
        let params =
            QueryParams { flags: query_flag::SKIP_METADATA, values: list.values(), ..simple };
        let body = bytes::body(|out| encode::execute(out, 4, &id, None, &params));
        testbed.send(client, &bytes::request(4, stream, opcode::EXECUTE, &body));
        testbed.answered(client, 1);
        testbed.take_answers(client);
    }
    testbed.send(client, &bytes::execute(4, 9, &id, &[b"there"]));
    testbed.answered(client, 1);
    let found = digests(&mut testbed);
    let totals = &row(&found, QueryKind::Execute, SELECT).totals;
    assert_eq!((totals.count, totals.rows_known, totals.rows), (4, 3, 2), "{totals:?}");
}

#[test]
fn each_query_counts_once_to_its_statement_without_values() {
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.started_offender(4);
    let id = prepare(&mut testbed, client);
    for stream in 0..10 {
        testbed.send(client, &bytes::execute(4, stream, &id, &[b"secret", b"value"]));
    }
    for number in 0..5 {
        let text = format!("SELECT v FROM bench.kv WHERE k = 'secret {number}'");
        testbed.send(client, &bytes::query(4, 20 + number, &text));
        testbed.send(client, &bytes::query(4, 30 + number, "SELECT v FROM bench.kv WHERE k = 'a'"));
    }
    testbed.answered(client, 20);
    let found = digests(&mut testbed);
    let executed = &row(&found, QueryKind::Execute, INSERT).totals;
    assert_eq!((executed.count, executed.errors), (10, [0; 6]));
    assert!(executed.bytes_in >= 10 * 11 && executed.bytes_out >= 10 * 4, "{executed:?}");
    let p99_us = executed.times.percentile_us(0.99).expect("times");
    assert!(p99_us < 1_000_000, "{p99_us}");
    let selected = row(&found, QueryKind::Query, SELECT);
    assert_eq!((selected.totals.count, selected.origin.table.as_deref()), (10, Some("bench.kv")));
    assert!(!format!("{:?}", found.rows).contains("secret"));
    let others: u64 = found.others.iter().map(|totals| totals.count).sum();
    assert_eq!((found.rows.len(), others), (2, 1), "the PREPARE has no row");
}

#[test]
fn nothing_is_counted_while_digests_are_off() {
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.started_offender(4);
    let id = prepare(&mut testbed, client);
    let mut counted = Vec::new();
    for switch in [Switch::On, Switch::Off, Switch::On] {
        let config = Config { digests: switch, ..testbed.scene.options.config.clone() };
        testbed.scene.reload_as(config);
        testbed.run_for(MILLISECOND);
        testbed.take_answers(client);
        for stream in 0..5 {
            testbed.send(client, &bytes::execute(4, stream, &id, &[b"key", b"value"]));
            let text = "SELECT v FROM bench.kv WHERE k = 'a'";
            testbed.send(client, &bytes::query(4, 5 + stream, text));
            testbed.send(client, &bytes::query(4, 10 + stream, "SELECT v FROM bench.kv WHERE"));
        }
        testbed.answered(client, 15);
        let found = digests(&mut testbed);
        let others: u64 = found.others.iter().map(|totals| totals.count).sum();
        let rows: u64 = found.rows.iter().map(|row| row.totals.count).sum();
        counted.push(rows + others);
    }
    // The PREPARE counts too.
    assert_eq!(counted, [16, 16, 31]);
}

#[test]
fn errors_count_by_their_kind() {
    let mut testbed = Testbed::bare(|options| options.config.query_timeout_ms = 2_000);
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::insert(4, 1, "opens links", 9));
    testbed.answered(client, 1);
    let select = bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'a'");
    let actions: [fn() -> Action; 3] =
        [|| Action::Error(INVALID), || Action::Error(READ_TIMEOUT), || Action::Silence];
    for (number, action) in actions.into_iter().enumerate() {
        testbed.answer_queries_with(action);
        testbed.send(client, &select);
        testbed.answered(client, number + 2);
    }
    let found = digests(&mut testbed);
    let totals = &row(&found, QueryKind::Query, SELECT).totals;
    assert_eq!((totals.count, totals.errors), (3, [2, 0, 0, 1, 0, 0]));
    assert!(totals.times.percentile_us(1.0).is_some_and(|time_us| time_us > 1_900_000));
}

/// Controls of terminals stay escaped.
#[test]
fn a_flood_of_distinct_texts_leaves_a_statement_in_use_its_row() {
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.started_offender(4);
    let id = prepare(&mut testbed, client);
    for round in 0..20 {
        for number in 0..400 {
            let text =
                format!("SELECT v AS \"\u{1b}[2J{round}_{number}\" FROM bench.kv WHERE k = 'a'");
            testbed.send(client, &bytes::query(4, number, &text));
        }
        testbed.send(client, &bytes::execute(4, 401, &id, &[b"k", b"v"]));
        testbed.answered(client, 401);
        testbed.take_answers(client);
        testbed.run_for(SECOND);
    }
    let found = digests(&mut testbed);
    assert!(found.rows.len() <= shunt_proxy::limits::DIGESTS_MAX);
    let executed = &row(&found, QueryKind::Execute, INSERT).totals;
    assert!(executed.count >= 15, "{}", executed.count);
    let rows = found.rows.iter().map(|row| row.totals.count);
    let others = found.others.iter().map(|totals| totals.count);
    assert_eq!(rows.chain(others).sum::<u64>(), 20 * 401 + 1, "each counts once");
    assert!(found.rows.iter().all(|row| !row.name.text.contains('\u{1b}')));
}

/// The proxy itself serves statements on locks: their rows have the wait for the lock.
#[test]
fn statements_on_locks_count_with_their_waits_and_errors() {
    let mut ring = LockTestbed::new(|options| options.config.slow_query_ms = 100);
    let [holder, waiter] = [0; 2].map(|_| ring.client(None));
    let take = |owner: &str, table: &str| {
        format!(
            "INSERT INTO shunt.{table} (name, owner, wait_ms) VALUES ('a', '{owner}', 1500) \
            IF NOT EXISTS USING TTL 20"
        )
    };
    assert!(ring.applies(holder, &take("me", "fast_locks")));
    assert!(!ring.applies(waiter, &take("other", "fast_locks")), "after a second and a half");
    let (code, _) = ring.ask(waiter, "SELECT nothing FROM shunt.fast_locks").error();
    let found = digests(&mut ring.testbed);
    let shown = "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES (?, …) \
        IF NOT EXISTS USING TTL ?";
    let taken = row(&found, QueryKind::Query, shown);
    let totals = &taken.totals;
    assert_eq!((totals.count, totals.errors.iter().sum::<u64>(), totals.node_ns), (2, 0, 0));
    assert!(totals.times.wait_percentile_us(1.0).is_some_and(|time_us| time_us > 1_300_000));
    assert!(totals.bytes_in > 200 && totals.bytes_out > 0, "{totals:?}");
    assert_eq!(taken.origin.table.as_deref(), Some("shunt.fast_locks"));
    let refused = &row(&found, QueryKind::Query, "SELECT nothing FROM shunt.fast_locks").totals;
    assert_eq!((code, refused.count, refused.errors), (INVALID, 1, [0, 0, 0, 1, 0, 0]));
    let slow = records(&mut ring.testbed);
    let [waited] = &slow[..] else { panic!("{slow:?}") };
    assert_eq!((waited.outcome, waited.text.as_deref()), (Outcome::Intercepted, Some(shown)));
    assert!(waited.wait_ns > SECOND && waited.node_ns == 0 && waited.client.is_some());
}
