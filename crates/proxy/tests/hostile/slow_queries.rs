//! Slow and failed queries: each has a record with its text, its node and its times. No record
//! shows a value, and a flood of them costs a bounded number of records and lines.

use shunt_bench::stub::Action;
use shunt_proxy::config::{Config, Switch};
use shunt_proxy::control::CoreMail;
use shunt_proxy::metrics::Outcome;
use shunt_proxy::slow_queries::records::SlowQuery;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::message::ResultMessage;
use shunt_wire::cql::message::error_code::{READ_TIMEOUT, SYNTAX_ERROR};
use tokio::sync::mpsc;

use super::support::journal::Journal;
use super::support::scene::SceneOptions;
use super::testbed::Testbed;

fn slow_after_100_ms(options: &mut SceneOptions) {
    options.config.slow_query_ms = 100;
    options.config.query_timeout_ms = 2_000;
}

/// The records of the only core.
pub fn records(testbed: &mut Testbed) -> Vec<SlowQuery> {
    let (sender, mut answers) = mpsc::channel(1);
    testbed.scene.world.post(testbed.scene.cores[0], CoreMail::SlowQueries(sender));
    testbed.run_for(10 * MILLISECOND);
    answers.try_recv().expect("an answer").queries
}

/// Prepares an INSERT; returns its id.
fn prepare(testbed: &mut Testbed, client: HostId<simulated::Client>) -> Vec<u8> {
    testbed.send(client, &bytes::prepare(4, 1, "INSERT INTO bench.kv (k, v) VALUES (?, ?)"));
    testbed.answered(client, 1);
    let answers = testbed.take_answers(client);
    let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(4, &answers[0].body) else {
        panic!("{answers:?}")
    };
    prepared.id.to_vec()
}

#[test]
fn a_query_answered_late_is_told_with_its_node_and_its_times_but_no_value() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(slow_after_100_ms);
    testbed.answer_queries_with(|| Action::Delay(300 * MILLISECOND));
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::query(4, 7, "SELECT v FROM bench.kv WHERE k = 'secret'"));
    testbed.answered(client, 1);
    let found = records(&mut testbed);
    let [query] = &found[..] else { panic!("{found:?}") };
    assert_eq!(query.text.as_deref(), Some("SELECT v FROM bench.kv WHERE k = ?"));
    assert_eq!((query.table.as_deref(), query.stream), (Some("bench.kv"), 7));
    assert_eq!((query.outcome, query.statements, query.error), (Outcome::Ok, 1, None));
    assert!(query.node_ns >= 300 * MILLISECOND && query.wait_ns < SECOND, "{query:?}");
    assert!(query.node.is_some() && query.client.is_some(), "{query:?}");
    let line = journal.only(&["slow query", "outcome=ok", "table=bench.kv", "consistency="]);
    assert!(line.contains("node_ms=3") && line.contains("client=10."), "{line}");
    journal.never("secret");
}

#[test]
fn an_execution_has_the_text_of_its_statement() {
    let mut testbed = Testbed::bare(slow_after_100_ms);
    let client = testbed.started_offender(4);
    let id = prepare(&mut testbed, client);
    testbed.answer_queries_with(|| Action::Delay(300 * MILLISECOND));
    testbed.send(client, &bytes::execute(4, 1, &id, &[b"secret", b"value"]));
    testbed.answered(client, 1);
    let found = records(&mut testbed);
    let [query] = &found[..] else { panic!("{found:?}") };
    assert_eq!(query.text.as_deref(), Some("INSERT INTO bench.kv (k, v) VALUES (?, ?)"));
    assert_eq!(query.table.as_deref(), Some("bench.kv"));
}

#[test]
fn a_quick_answer_and_a_wrong_statement_are_not_told() {
    let mut testbed = Testbed::bare(slow_after_100_ms);
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::insert(4, 1, "quick", 9));
    testbed.answered(client, 1);
    testbed.answer_queries_with(|| Action::Error(SYNTAX_ERROR));
    testbed.send(client, &bytes::insert(4, 1, "wrong", 9));
    testbed.answered(client, 2);
    assert!(records(&mut testbed).is_empty());
}

#[test]
fn a_failure_of_nodes_is_told_however_quick() {
    let mut testbed = Testbed::bare(slow_after_100_ms);
    let client = testbed.client_with_open_links();
    testbed.answer_queries_with(|| Action::Error(READ_TIMEOUT));
    testbed.send(client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'"));
    testbed.answered(client, 1);
    let found = records(&mut testbed);
    assert!(!found.is_empty());
    assert!(found.iter().all(|query| query.error == Some(READ_TIMEOUT)), "{found:?}");
}

#[test]
fn a_query_without_an_answer_is_told_as_timed_out_with_its_text() {
    let mut testbed = Testbed::bare(slow_after_100_ms);
    let client = testbed.client_with_open_links();
    testbed.answer_queries_with(|| Action::Silence);
    testbed.send(client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'"));
    testbed.answered(client, 1);
    let found = records(&mut testbed);
    let [query] = &found[..] else { panic!("{found:?}") };
    assert_eq!(query.outcome, Outcome::TimedOut);
    assert_eq!(query.text.as_deref(), Some("SELECT v FROM bench.kv WHERE k = ?"));
    assert!(query.node.is_some() && query.total_ns() >= 2 * SECOND, "{query:?}");
}

#[test]
fn a_query_that_no_link_took_in_time_is_told_as_overloaded() {
    let mut testbed = Testbed::bare(slow_after_100_ms);
    testbed.answer_queries_with(|| Action::Silence);
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'"));
    testbed.answered(client, 1);
    let found = records(&mut testbed);
    let [query] = &found[..] else { panic!("{found:?}") };
    assert_eq!((query.outcome, query.node.is_none()), (Outcome::Overloaded, true));
    assert_eq!(query.text.as_deref(), Some("SELECT v FROM bench.kv WHERE k = ?"));
}

#[test]
fn off_is_off_and_a_reload_switches_it_on() {
    let mut testbed = Testbed::bare(|options| options.config.slow_query_ms = 0);
    testbed.answer_queries_with(|| Action::Delay(SECOND));
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::insert(4, 1, "one", 9));
    testbed.answered(client, 1);
    assert!(records(&mut testbed).is_empty());
    let config = Config { slow_query_ms: 500, ..testbed.scene.options.config.clone() };
    testbed.scene.reload_as(config);
    testbed.send(client, &bytes::insert(4, 1, "two", 9));
    testbed.answered(client, 2);
    assert_eq!(records(&mut testbed).len(), 1);
}

/// A node that dies makes all queries slow at once.
#[test]
fn a_flood_of_slow_queries_costs_a_bounded_number_of_records_and_lines() {
    let journal = Journal::open();
    let mut testbed = Testbed::bare(slow_after_100_ms);
    testbed.answer_queries_with(|| Action::Delay(200 * MILLISECOND));
    let client = testbed.started_offender(4);
    for round in 0..5 {
        (0..400).for_each(|stream| testbed.send(client, &bytes::insert(4, stream, "k", 9)));
        testbed.answered(client, 400 * (round + 1));
        testbed.run_for(SECOND);
    }
    let core = &testbed.scene.metrics[0];
    assert_eq!(core.slow_queries.get(), 2_000);
    // A second's limits may be used at both of its ends.
    let (records, lines) = (records(&mut testbed).len(), journal.with(&["slow query"]));
    assert!((20..=200).contains(&records), "{records}");
    assert!((5..=50).contains(&lines.len()), "{}", lines.len());
    let more = journal.with(&["more queries were slow"]);
    let told = lines.len() as u64 + Journal::sum(&[&lines[..], &more].concat(), "suppressed");
    assert!((1_600..=2_000).contains(&told), "{told}");
}

/// Escapes of terminals stay escaped.
#[test]
fn values_are_shown_where_they_are_wanted() {
    let mut testbed = Testbed::bare(|options| {
        slow_after_100_ms(options);
        options.config.log_values = Switch::On;
    });
    testbed.answer_queries_with(|| Action::Delay(300 * MILLISECOND));
    let client = testbed.started_offender(4);
    testbed.send(client, &bytes::query(4, 7, "SELECT v FROM bench.kv WHERE k = 'a\u{1b}[2J'"));
    testbed.answered(client, 1);
    let found = records(&mut testbed);
    let text = found[0].text.as_deref();
    assert_eq!(text, Some(r"SELECT v FROM bench.kv WHERE k = 'a\u{1b}[2J'"));
}
