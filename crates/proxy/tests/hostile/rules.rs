//! A statement that a rule refuses reaches no node, whichever request carries it, and whenever it
//! was prepared. Nothing else is refused, and each statement counts once.

use std::sync::{Arc, Mutex};

use shunt_bench::stub::Action;
use shunt_proxy::config::{Action as RuleAction, Config, Readable as _, RuleList, Written};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, OVERLOADED, READ_TIMEOUT};
use shunt_wire::cql::message::{
    Batch, BatchChild, BatchKind, BatchStatement, Consistency, Execute, Query, QueryParams,
    ResultMessage, Values, encode,
};

use super::testbed::{ANN, Testbed};

type Client = HostId<simulated::Client>;

const BOB: (&str, &str) = ("bob", "secret");
const READ: &str = "SELECT v FROM bench.kv WHERE k = 0x01";
const WRITE: &str = "INSERT INTO bench.kv (k, v) VALUES (0x01, 0x02)";

fn text(text: &str) -> Written {
    Written::Text(text.to_owned())
}

fn table(entries: &[(&str, Written)]) -> Written {
    Written::Table(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

/// Rules that match by these keys. Each has these actions.
pub fn rules(matches: &[&[(&str, Written)]], actions: &[(&str, Written)]) -> RuleList {
    let one = |(number, keys): (usize, &&[(&str, Written)])| {
        let name = text(&format!("rule {number}"));
        table(&[&[("name", name), ("match", table(keys))], actions].concat())
    };
    let mut faults = Vec::new();
    let list = Written::List(matches.iter().enumerate().map(one).collect());
    let list = RuleList::read(&list, &mut faults).expect("a list");
    assert_eq!(faults, Vec::<String>::new());
    list
}

fn refusing(keys: &[(&str, Written)]) -> RuleList {
    rules(&[keys], &[("refuse", text("ask the owner"))])
}

fn testbed(rules: RuleList) -> Testbed {
    Testbed::bare(|options| {
        options.nodes = 1;
        options.aggregate = vec![false];
        options.credentials = [ANN, BOB].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        options.config.rule = rules;
    })
}

fn reload(testbed: &mut Testbed, rule: RuleList) {
    // As a reload of the process does.
    let former = testbed.scene.options.config.clone();
    let config = former.reloaded(&Config { rule, ..former.clone() });
    testbed.scene.options.config = config.config.clone();
    testbed.scene.reload_as(config.config);
    testbed.run_for(10 * MILLISECOND);
}

fn logged_in(testbed: &mut Testbed, (role, password): (&str, &str)) -> Client {
    let client = testbed.started_offender(4);
    let token = format!("\0{role}\0{password}");
    testbed.send(client, &bytes::auth_response(4, token.as_bytes()));
    testbed.answered(client, 1);
    assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::AUTH_SUCCESS);
    client
}

fn ask(testbed: &mut Testbed, client: Client, request: &[u8]) -> Answer {
    testbed.send(client, request);
    testbed.answered(client, 1);
    testbed.take_answers(client).remove(0)
}

fn passes(testbed: &mut Testbed, client: Client, request: &[u8]) {
    let answer = ask(testbed, client, request);
    assert_eq!(answer.header.opcode, opcode::RESULT, "{answer:?}");
}

fn is_refused(testbed: &mut Testbed, client: Client, request: &[u8]) {
    let (code, words) = ask(testbed, client, request).error();
    assert_eq!(code, INVALID, "{words}");
    assert_eq!(words, "Shunt: rule `rule 0` refuses this statement: ask the owner");
}

fn prepare(testbed: &mut Testbed, client: Client, text: &str) -> Vec<u8> {
    let answer = ask(testbed, client, &bytes::prepare(4, 1, text));
    match ResultMessage::decode(4, &answer.body) {
        Ok(ResultMessage::Prepared(prepared)) => prepared.id.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn batch(statements: &[BatchStatement<'_>]) -> Vec<u8> {
    let values = Values::default();
    let children = statements.iter().map(|statement| BatchChild { statement: *statement, values });
    let params = QueryParams::simple(Consistency::ONE);
    let body = bytes::body(|out| encode::batch(out, 4, BatchKind::Unlogged, children, &params));
    bytes::request(4, 1, opcode::BATCH, &body)
}

/// The number of statements that a rule has refused, and would have refused.
fn hits(testbed: &Testbed, place: usize) -> (u64, u64) {
    let shared = &testbed.scene.options.config.rule.0[place].shared;
    (shared.sum(RuleAction::Refuse, false), shared.sum(RuleAction::Refuse, true))
}

#[test]
fn every_request_with_the_statement_is_refused_and_others_pass() {
    let mut testbed = testbed(RuleList::default());
    let client = logged_in(&mut testbed, ANN);
    let prepared = prepare(&mut testbed, client, WRITE);
    let read = prepare(&mut testbed, client, READ);
    passes(&mut testbed, client, &bytes::execute(4, 1, &prepared, &[]));
    reload(&mut testbed, refusing(&[("kind", text("insert")), ("table", text("bench.kv"))]));
    let other = "UPDATE bench.kv SET v = 0x02 WHERE k = 0x01";
    for request in [
        bytes::query(4, 1, WRITE),
        bytes::query(4, 1, &format!("/* a */ insert {}", &WRITE[6..])),
        bytes::prepare(4, 1, WRITE),
        bytes::execute(4, 1, &prepared, &[]),
        batch(&[BatchStatement::Text(other), BatchStatement::Text(WRITE)]),
        batch(&[BatchStatement::Text(other), BatchStatement::Prepared(&prepared)]),
    ] {
        is_refused(&mut testbed, client, &request);
        is_refused(&mut testbed, client, &request);
    }
    assert_eq!(hits(&testbed, 0), (12, 0));
    passes(&mut testbed, client, &bytes::query(4, 1, READ));
    passes(&mut testbed, client, &bytes::execute(4, 1, &read, &[]));
    passes(&mut testbed, client, &batch(&[BatchStatement::Text(other)]));
    passes(&mut testbed, client, &bytes::query(4, 1, "SELECT * FROM system.local"));
    reload(&mut testbed, RuleList::default());
    passes(&mut testbed, client, &bytes::execute(4, 1, &prepared, &[]));
    passes(&mut testbed, client, &bytes::query(4, 1, WRITE));
}

#[test]
fn a_rule_is_for_its_role_and_level_and_an_exception_comes_first() {
    let role = [("role", text("bob"))];
    let level = [("consistency", text("ALL"))];
    let mut list = rules(&[&role, &level], &[("refuse", Written::Truth(false))]).0;
    list.extend(refusing(&[]).0.into_iter().map(|mut rule| {
        rule.name = "rule 0".into();
        rule
    }));
    list[0].name = "bob".into();
    let mut testbed = testbed(RuleList(list));
    let (ann, bob) = (logged_in(&mut testbed, ANN), logged_in(&mut testbed, BOB));
    passes(&mut testbed, bob, &bytes::query(4, 1, READ));
    is_refused(&mut testbed, ann, &bytes::query(4, 1, READ));
    passes(&mut testbed, ann, &bytes::query(4, 1, "SELECT * FROM system.peers"));
    assert_eq!((hits(&testbed, 0), hits(&testbed, 2)), ((1, 0), (1, 0)));
}

#[test]
fn an_exception_for_one_statement_of_a_batch_exempts_no_other() {
    let mut list = rules(&[&[("kind", text("update"))]], &[("refuse", Written::Truth(false))]).0;
    list[0].name = "updates".into();
    list.extend(refusing(&[]).0);
    let mut testbed = testbed(RuleList(list));
    let client = logged_in(&mut testbed, ANN);
    let update = "UPDATE bench.kv SET v = 0x02 WHERE k = 0x01";
    let [update, write] = [update, WRITE].map(BatchStatement::Text);
    passes(&mut testbed, client, &batch(&[update, update]));
    for statements in [[update, write], [write, update]] {
        is_refused(&mut testbed, client, &batch(&statements));
    }
}

#[test]
fn a_dry_run_counts_each_statement_once_even_if_it_waits() {
    let actions = [("refuse", text("no")), ("dry_run", Written::Truth(true))];
    let mut testbed = testbed(rules(&[&[("unbounded", Written::Truth(true))]], &actions));
    let client = logged_in(&mut testbed, ANN);
    let scan = bytes::query(4, 1, "SELECT v FROM bench.kv");
    testbed.send(client, &scan);
    testbed.answered(client, 1);
    testbed.take_answers(client);
    assert_eq!(hits(&testbed, 0), (0, 1), "a query without links waits, and counts once");
    testbed.answer_queries_with(|| Action::Delay(200 * MILLISECOND));
    let many: Vec<u8> =
        (0..5_000).flat_map(|stream| bytes::query(4, stream, "SELECT v FROM bench.kv")).collect();
    testbed.send(client, &many);
    let done = testbed
        .scene
        .world
        .run_until(60 * SECOND, |world| world.host(client).answers.len() == 5_000);
    assert!(done, "{}", testbed.scene.world.host(client).answers.len());
    assert_eq!(hits(&testbed, 0), (0, 5_001));
}

/// The levels with which the nodes get queries, from now on.
fn levels(testbed: &mut Testbed) -> Arc<Mutex<Vec<u16>>> {
    let seen: Arc<Mutex<Vec<u16>>> = Arc::default();
    let of_nodes = Arc::clone(&seen);
    testbed.hook_all(move || {
        let seen = Arc::clone(&of_nodes);
        Box::new(move |request| {
            let level = match request.opcode {
                opcode::QUERY => {
                    let query = Query::decode(4, request.body).ok();
                    query.filter(|it| it.text.contains("bench.kv")).map(|it| it.params.consistency)
                }
                opcode::EXECUTE => {
                    Execute::decode(4, request.body).ok().map(|it| it.params.consistency)
                }
                opcode::BATCH => {
                    Batch::decode(4, request.body).ok().map(|it| it.params.consistency)
                }
                _ => None,
            };
            seen.lock().unwrap().extend(level.map(|level| level.0));
            Action::Answer
        })
    });
    seen
}

#[test]
fn a_pinned_level_reaches_the_node_and_conditions_keep_theirs() {
    let actions = [("consistency", text("LOCAL_QUORUM"))];
    let mut testbed = testbed(rules(&[&[("table", text("bench.kv"))]], &actions));
    let client = logged_in(&mut testbed, ANN);
    let read = prepare(&mut testbed, client, READ);
    let seen = levels(&mut testbed);
    let quorum = Consistency::LOCAL_QUORUM.0;
    for request in [
        bytes::query(4, 1, READ),
        bytes::execute(4, 1, &read, &[]),
        batch(&[BatchStatement::Text(WRITE)]),
    ] {
        passes(&mut testbed, client, &request);
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [quorum]);
    }
    let odd = "UPDATE bench.kv SET v = 0x02 WHERE k = f(?) + {}[3] IF v = 0x01";
    for conditional in [&format!("{WRITE} IF NOT EXISTS"), odd] {
        ask(&mut testbed, client, &bytes::query(4, 1, conditional));
        let level = std::mem::take(&mut *seen.lock().unwrap());
        assert!(!level.is_empty() && !level.contains(&quorum), "{conditional}: {level:?}");
    }
    let shared = &testbed.scene.options.config.rule.0[0].shared;
    assert_eq!(shared.sum(RuleAction::Consistency, false), 3);
}

#[test]
fn a_deadline_of_a_rule_ends_its_queries_alone() {
    let actions = [("timeout_ms", Written::Number(400))];
    let mut testbed = testbed(rules(&[&[("kind", text("select"))]], &actions));
    let client = logged_in(&mut testbed, ANN);
    passes(&mut testbed, client, &bytes::query(4, 1, READ));
    testbed.answer_queries_with(|| Action::Delay(2 * SECOND));
    testbed.send(client, &[bytes::query(4, 1, READ), bytes::query(4, 2, WRITE)].concat());
    testbed.run_for(SECOND);
    let answers = testbed.take_answers(client);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!((answers[0].header.stream, answers[0].error().0), (1, READ_TIMEOUT));
    testbed.answered(client, 1);
    let answers = testbed.take_answers(client);
    assert_eq!((answers[0].header.stream, answers[0].header.opcode), (2, opcode::RESULT));
}

#[test]
fn a_limit_of_a_rule_refuses_the_rest_and_nothing_else() {
    let actions = [("queries_per_s", Written::Number(10))];
    let mut testbed = testbed(rules(&[&[("kind", text("select"))]], &actions));
    let client = logged_in(&mut testbed, ANN);
    testbed.run_for(2 * SECOND);
    let many: Vec<u8> = (0..50).flat_map(|stream| bytes::query(4, stream, READ)).collect();
    testbed.send(client, &many);
    testbed.answered(client, 50);
    let answers = testbed.take_answers(client);
    let refused: Vec<_> =
        answers.iter().filter(|answer| answer.header.opcode == opcode::ERROR).collect();
    assert!((38..=41).contains(&refused.len()), "{}", refused.len());
    let (code, words) = refused[0].error();
    assert_eq!(code, OVERLOADED);
    let expected = "Shunt: rule `rule 0` has reached its limit at this proxy: queries_per_s = 10";
    assert_eq!(words, expected);
    passes(&mut testbed, client, &bytes::query(4, 1, WRITE));
    let shared = &testbed.scene.options.config.rule.0[0].shared;
    assert_eq!(shared.sum(RuleAction::Limit, false), refused.len() as u64);
    testbed.run_for(SECOND);
    passes(&mut testbed, client, &bytes::query(4, 1, READ));
}
