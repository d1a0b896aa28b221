//! IN queries that are split, with nodes that refuse, forget, close or stay silent: each is
//! answered once, with the answer of the whole query or with an error; and nothing is kept of it.
//! The test notices mistakes in the merge.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_proxy::config::Multiget;
use shunt_proxy::metrics::{Label, Lost, Snapshot, Whole};
use shunt_proxy::weakened::{self, Mistake, Weakened};
use shunt_reactor::sim::{HostId, MILLISECOND, Random, SECOND, for_seeds};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::{
    Consistency, ErrorDetails, ErrorMessage, Execute, QueryParams, Reader, ResultMessage,
};
use shunt_wire::cql::message::{
    Value, ValueList, encode, error_code, metadata_flag, put, query_flag, result_kind,
};

use super::testbed::Testbed;

const LIST_OF_BLOB: &[u8] = &[0, 0x20, 0, 0x03];
/// A text, and its markers with their types.
type Text = (&'static str, &'static [encode_result::Column<'static>]);
const STATEMENTS: [Text; 3] = [
    ("SELECT * FROM bench.kv WHERE k IN ?", &[("in(k)", LIST_OF_BLOB)]),
    (
        "SELECT v, k FROM bench.kv WHERE k IN (?, ?, ?, ?)",
        &[("k", native::BLOB), ("k", native::BLOB), ("k", native::BLOB), ("k", native::BLOB)],
    ),
    (
        "SELECT v FROM bench.kv WHERE k IN ? LIMIT ?",
        &[("in(k)", LIST_OF_BLOB), ("[limit]", native::INT)],
    ),
];

fn id_of(statement: usize) -> [u8; 16] {
    [statement as u8 + 1; 16]
}

/// The rows of a partition: some have none, others several.
fn rows_of(key: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let sum = key.iter().map(|byte| usize::from(*byte)).sum::<usize>();
    (0..sum % 4).map(move |row| [key, &[b':', row as u8]].concat())
}

/// A node's answer to an EXECUTE, like Cassandra's: keys in order, each once, up to the limit or
/// the end of the page.
fn answer_of(version: u8, body: &[u8]) -> Vec<u8> {
    let execute = Execute::decode(version, body).unwrap();
    let values: Vec<&[u8]> =
        execute.params.values.iter().map(|(_, value)| value.bytes().unwrap()).collect();
    let statement = usize::from(execute.id[0]) - 1;
    let mut keys = BTreeSet::new();
    if statement == 1 {
        keys.extend(values.iter().copied());
    } else {
        let mut reader = Reader::new(values[0]);
        for _ in 0..reader.count("keys").unwrap() {
            keys.insert(reader.bytes("key").unwrap().unwrap());
        }
    }
    let limit =
        if statement == 2 { i32::from_be_bytes(values[1].try_into().unwrap()) } else { i32::MAX }
            as usize;
    let page =
        execute.params.page_size.filter(|rows| *rows > 0).map_or(usize::MAX, |rows| rows as usize);
    let all = keys.iter().flat_map(|key| rows_of(key).map(|value| (key.to_vec(), value)));
    let rows: Vec<(Vec<u8>, Vec<u8>)> = all.take(limit.min(page)).collect();
    let has_more = limit > page && rows.len() == page;
    let skips = execute.params.skips_metadata();
    let columns: &[(&str, &[u8])] = match statement {
        0 => &[("k", native::BLOB), ("v", native::BLOB)],
        1 => &[("v", native::BLOB), ("k", native::BLOB)],
        _ => &[("v", native::BLOB)],
    };
    let mut out = Vec::new();
    put::int(&mut out, result_kind::ROWS);
    let flags = metadata_flag::GLOBAL_TABLE
        | if skips { metadata_flag::NO_METADATA } else { 0 }
        | if has_more { metadata_flag::HAS_MORE_PAGES } else { 0 };
    put::int(&mut out, flags);
    put::int(&mut out, columns.len() as i32);
    if has_more {
        put::bytes(&mut out, Some(b"further"));
    }
    if !skips {
        put::string(&mut out, "bench");
        put::string(&mut out, "kv");
        for (name, option) in columns {
            put::string(&mut out, name);
            out.extend_from_slice(option);
        }
    }
    put::int(&mut out, rows.len() as i32);
    for (key, value) in rows {
        let row: &[&[u8]] = match statement {
            0 => &[&key, &value],
            1 => &[&value, &key],
            _ => &[&value],
        };
        row.iter().for_each(|value| put::bytes(&mut out, Some(value)));
    }
    out
}

/// A node's answer to requests about the statements.
fn answered(request: &Request<'_>) -> Option<Action> {
    let framed = |op: u8, body: &[u8]| {
        let answer = bytes::envelope(Header::response(request.version, request.stream, op), body);
        Action::Garbage(bytes::framed(request.version, answer))
    };
    if request.opcode == opcode::PREPARE {
        let text =
            |text: &str| request.body.windows(text.len()).any(|found| found == text.as_bytes());
        let statement = STATEMENTS.iter().position(|(found, _)| text(found))?;
        let spec = PreparedSpec {
            id: &id_of(statement),
            result_metadata_id: b"meta",
            keyspace: "bench",
            table: "kv",
            bind: STATEMENTS[statement].1,
            partition_key: &[],
            result: &[("v", native::BLOB)],
        };
        return Some(framed(
            opcode::RESULT,
            &bytes::body(|out| encode_result::prepared(out, request.version, &spec)),
        ));
    }
    is_ours(request).then(|| framed(opcode::RESULT, &answer_of(request.version, request.body)))
}

fn is_ours(request: &Request<'_>) -> bool {
    let ids = || (0..STATEMENTS.len()).map(id_of);
    request.opcode == opcode::EXECUTE && ids().any(|id| request.body.get(2..18) == Some(&id[..]))
}

/// Draws a fault of a node.
fn fault(random: &mut Random, request: &Request<'_>) -> Option<Action> {
    let error = |code: i32, details: ErrorDetails<'_>| {
        let error = ErrorMessage { code, message: "on purpose", details };
        let body = bytes::body(|out| error.put(out, request.version));
        let answer = bytes::envelope(
            Header::response(request.version, request.stream, opcode::ERROR),
            &body,
        );
        Some(Action::Garbage(bytes::framed(request.version, answer)))
    };
    match random.below(10) {
        0..4 => {
            error(error_code::UNPREPARED, ErrorDetails::Unprepared { id: &request.body[2..18] })
        }
        4 => error(error_code::OVERLOADED, ErrorDetails::None),
        5 => error(error_code::IS_BOOTSTRAPPING, ErrorDetails::None),
        6 => error(error_code::INVALID, ErrorDetails::None),
        7 => Some(Action::Close),
        8 => Some(Action::Silence),
        _ => Some(Action::Error(error_code::SERVER_ERROR)),
    }
}

/// True for errors that a client may get because of these faults.
fn is_an_excuse(code: i32) -> bool {
    [
        error_code::OVERLOADED,
        error_code::IS_BOOTSTRAPPING,
        error_code::READ_TIMEOUT,
        error_code::UNPREPARED,
        error_code::INVALID,
        error_code::SERVER_ERROR,
    ]
    .contains(&code)
}

/// A client and its requests.
struct Asker {
    host: HostId<simulated::Client>,
    version: u8,
    metadata_id: Vec<u8>,
    /// The bodies, by stream id.
    asked: Vec<Vec<u8>>,
}

impl Asker {
    fn new(testbed: &mut Testbed, version: u8) -> Asker {
        let host = testbed.started_offender(version);
        let mut asker = Asker { host, version, metadata_id: Vec::new(), asked: Vec::new() };
        for (text, _) in STATEMENTS {
            testbed.send(host, &bytes::framed(version, bytes::prepare(version, 1, text)));
            testbed.answered(host, 1);
            let answer = testbed.take_answers(host).remove(0);
            match ResultMessage::decode(version, &answer.body) {
                Ok(ResultMessage::Prepared(prepared)) => {
                    asker.metadata_id = prepared.result_metadata_id.unwrap_or_default().to_vec();
                }
                other => panic!("{other:?}"),
            }
        }
        asker
    }

    /// Sends this many requests at once.
    fn ask(&mut self, testbed: &mut Testbed, random: &mut Random, count: usize) {
        self.asked = (0..count).map(|_| self.draw(random)).collect();
        let mut all = Vec::new();
        for (stream, body) in self.asked.iter().enumerate() {
            let request = bytes::request(self.version, stream as i16, opcode::EXECUTE, body);
            all.extend(bytes::framed(self.version, request));
        }
        testbed.send(self.host, &all);
    }

    fn draw(&self, random: &mut Random) -> Vec<u8> {
        let statement = random.index(STATEMENTS.len());
        let mut key = || vec![b'a' + random.below(20) as u8; 1 + random.index(3)];
        let keys: Vec<Vec<u8>> = (0..4).map(|_| key()).collect();
        let more: Vec<Vec<u8>> = (0..6).map(|_| key()).collect();
        let mut list = Vec::new();
        put::int(&mut list, 10);
        keys.iter().chain(&more).for_each(|key| put::bytes(&mut list, Some(key)));
        let limit = (1 + random.below(12) as i32).to_be_bytes();
        let mut values = ValueList::positional(self.version);
        match statement {
            1 => keys.iter().for_each(|key| drop_ref(values.push(Value::Bytes(key)))),
            _ => drop_ref(values.push(Value::Bytes(&list))),
        }
        if statement == 2 {
            values.push(Value::Bytes(&limit));
        }
        let page_size = [None, Some(5), Some(20), Some(5000), Some(-1)][random.index(5)];
        let flags = if random.chance(0.5) { query_flag::SKIP_METADATA } else { 0 };
        let params = QueryParams {
            flags,
            values: values.values(),
            page_size,
            ..QueryParams::simple(Consistency::ONE)
        };
        let metadata_id = Some(&self.metadata_id[..]);
        bytes::body(|out| {
            encode::execute(out, self.version, &id_of(statement), metadata_id, &params)
        })
    }

    /// The number of wrong answers.
    fn wrong(&self, answers: &[Answer]) -> usize {
        let is_wrong = |answer: &&Answer| {
            let asked = &self.asked[answer.header.stream as usize];
            match answer.header.opcode {
                opcode::ERROR => !is_an_excuse(answer.error().0),
                _ => {
                    answer.header.flags & flag::COMPRESSION != 0
                        || answer.body != answer_of(self.version, asked)
                }
            }
        };
        let streams: BTreeSet<i16> = answers.iter().map(|answer| answer.header.stream).collect();
        answers.iter().filter(is_wrong).count() + answers.len() - streams.len()
    }
}

fn drop_ref<T>(_: &mut T) {}

/// Tallies of a run.
#[derive(Debug, Default)]
struct Found {
    wrong: usize,
    right: usize,
    errors: usize,
    split: u64,
    lost: u64,
}

/// Rounds of requests to nodes, some of which misbehave; `mistake`: the proxy makes one too.
fn run(seed: u64, faults: bool, mistake: Option<Mistake>) -> Found {
    let mut random = Random::new(seed ^ 0x0069_6e3f);
    let mut testbed = Testbed::bare(|options| {
        options.seed = seed;
        options.config.multiget = Multiget::Split;
        options.config.query_timeout_ms = 3_000;
    });
    let core = testbed.scene.cores[0];
    testbed.scene.world.with(core, |core, _| {
        weakened::leave_out(core, Weakened { multiget: mistake, ..Weakened::default() })
    });
    testbed.hook_all(|| Box::new(|request| answered(request).unwrap_or(Action::Answer)));
    let mut asker = Asker::new(&mut testbed, 3 + random.index(3) as u8);
    let mut found = Found::default();
    for _ in 0..if faults { 8 } else { 3 } {
        let probability = if faults && random.chance(0.7) { 0.15 } else { 0.0 };
        let mut draws = (0..3).map(|_| random.fork()).collect::<Vec<_>>();
        for node in 0..3 {
            let mut draw = draws.remove(0);
            let hook = move |request: &Request<'_>| {
                let fault = if is_ours(request) && draw.chance(probability) {
                    fault(&mut draw, request)
                } else {
                    None
                };
                fault.or_else(|| answered(request)).unwrap_or(Action::Answer)
            };
            testbed.scene.hook(node, Some(Box::new(hook)));
        }
        testbed.run_for(10 * MILLISECOND);
        asker.ask(&mut testbed, &mut random, 20);
        if faults && random.chance(0.2) {
            testbed.run_for(random.below(2 * MILLISECOND));
            testbed.reset(asker.host);
            testbed.hook_all(|| Box::new(|request| answered(request).unwrap_or(Action::Answer)));
            testbed.run_for(4 * SECOND);
            asker = Asker::new(&mut testbed, asker.version);
            continue;
        }
        if faults && random.chance(0.2) {
            let node = random.index(3);
            testbed.run_for(random.below(2 * MILLISECOND));
            testbed.scene.world.kill(testbed.scene.nodes[node]);
            testbed.run_for(random.below(SECOND));
            testbed.scene.restart_node(node);
        }
        testbed.answered(asker.host, 20);
        // No answer comes after that.
        testbed.run_for(5 * SECOND);
        let answers = testbed.take_answers(asker.host);
        found.wrong += asker.wrong(&answers) + answers.len().abs_diff(20);
        found.errors +=
            answers.iter().filter(|answer| answer.header.opcode == opcode::ERROR).count();
        found.right +=
            answers.iter().filter(|answer| answer.header.opcode == opcode::RESULT).count();
    }
    testbed.reset(asker.host);
    // A stream id that a node never answered is held for a minute.
    testbed.run_for(if faults { 90 * SECOND } else { SECOND });
    testbed.scene.check_at_rest();
    let metrics = &testbed.scene.metrics[0].multigets;
    assert_eq!(
        (metrics.open.get(), metrics.parts_open.get(), metrics.bytes.get()),
        (0, 0, 0),
        "something is kept"
    );
    found.split = metrics.split.get();
    found.lost = Lost::ALL.iter().map(|why| metrics.lost.of(*why).get()).sum();
    found
}

fn sum(all: &[Found], of: impl Fn(&Found) -> u64) -> u64 {
    all.iter().map(of).sum()
}

#[test]
fn in_queries_are_answered_as_a_node_would() {
    let mut all = Vec::new();
    for_seeds(12, |seed| all.push(run(seed, false, None)));
    assert!(all.iter().all(|found| found.wrong == 0 && found.errors == 0), "{all:?}");
    assert!(sum(&all, |found| found.split) > 100 && sum(&all, |found| found.lost) > 3, "{all:?}");
}

#[test]
fn in_queries_are_answered_once_whatever_nodes_do() {
    let mut all = Vec::new();
    for_seeds(25, |seed| all.push(run(seed, true, None)));
    assert!(all.iter().all(|found| found.wrong == 0), "{all:?}");
    let (split, errors) = (sum(&all, |found| found.split), sum(&all, |found| found.errors as u64));
    assert!(
        split > 300 && errors > 20 && sum(&all, |found| found.lost) > 20,
        "{split} {errors} {all:?}"
    );
    assert!(sum(&all, |found| found.right as u64) > errors, "{all:?}");
}

#[test]
fn mistakes_are_noticed() {
    for mistake in [
        Mistake::OrderOfAnswers,
        Mistake::PagesIgnored,
        Mistake::ErrorIgnored,
        Mistake::LimitIgnored,
    ] {
        let faults = mistake == Mistake::ErrorIgnored;
        let noticed = (0..10).any(|seed| run(seed, faults, Some(mistake)).wrong > 0);
        assert!(noticed, "{mistake:?}");
    }
}

/// If only a paused node has all keys of a part, others are asked for them, as for single keys.
#[test]
fn a_node_that_stands_still_is_not_asked_for_parts() {
    let mut testbed = Testbed::bare(|options| options.config.multiget = Multiget::Split);
    testbed.hook_all(|| Box::new(|request| answered(request).unwrap_or(Action::Answer)));
    let mut asker = Asker::new(&mut testbed, 4);
    testbed.scene.world.freeze(testbed.scene.nodes[0]);
    // The proxy finds it silent, and has not given up its links yet.
    testbed.run_for(3 * SECOND);
    let metrics = Arc::clone(&testbed.scene.metrics[0]);
    let timed = || {
        let mut durations = Snapshot::default();
        metrics.latency_ns.add_to(&mut durations);
        durations.count()
    };
    let before = timed();
    asker.ask(&mut testbed, &mut Random::new(2), 40);
    testbed.run_for(SECOND / 4);
    assert_eq!(timed() - before, 40, "a part is no query of a client");
    let answers = testbed.take_answers(asker.host);
    assert_eq!((answers.len(), asker.wrong(&answers)), (40, 0));
    assert!(answers.iter().all(|answer| answer.header.opcode == opcode::RESULT));
    assert!(metrics.multigets.split.get() > 10);
}

/// A node that answers in pages may fill the first one before it comes to a key that no node can
/// serve.
#[test]
fn paged_requests_are_asked_whole_before_an_error() {
    let mut testbed = Testbed::bare(|options| options.config.multiget = Multiget::Split);
    testbed.hook_all(|| {
        Box::new(|request| {
            let is_part = is_ours(request) && {
                let execute = Execute::decode(request.version, request.body).unwrap();
                let first = execute
                    .params
                    .values
                    .iter()
                    .next()
                    .and_then(|(_, value)| value.bytes())
                    .unwrap();
                execute.id[0] != 2 && Reader::new(first).count("keys").unwrap() < 10
            };
            match is_part {
                true => Action::Error(error_code::OVERLOADED),
                false => answered(request).unwrap_or(Action::Answer),
            }
        })
    });
    let (mut refused, mut whole) = (0, 0);
    for seed in 0..4 {
        let mut asker = Asker::new(&mut testbed, 4);
        asker.ask(&mut testbed, &mut Random::new(seed), 40);
        testbed.answered(asker.host, 40);
        let answers = testbed.take_answers(asker.host);
        assert_eq!(asker.wrong(&answers), 0);
        for answer in &answers {
            let execute = Execute::decode(4, &asker.asked[answer.header.stream as usize]).unwrap();
            let has_pages = execute.params.page_size.is_some_and(|rows| rows > 0);
            let is_error = answer.header.opcode == opcode::ERROR;
            assert!(!is_error || !has_pages, "{:?}", execute.params.page_size);
            (refused, whole) = (refused + usize::from(is_error), whole + usize::from(has_pages));
        }
        // A lost bet is not made again at once.
        testbed.run_for(200 * SECOND);
    }
    let lost = testbed.scene.metrics[0].multigets.lost.of(Lost::Refused).get();
    assert!(refused > 0 && whole > 0 && lost > 0, "{refused} {whole} {lost}");
}

/// The process was paused for longer than the deadline, and then finds that parts were refused.
#[test]
fn a_late_split_request_is_not_asked_whole() {
    let mut testbed = Testbed::bare(|options| options.config.multiget = Multiget::Split);
    testbed.hook_all(|| Box::new(|request| answered(request).unwrap_or(Action::Answer)));
    let (mut asker, came) = (Asker::new(&mut testbed, 4), Arc::<AtomicUsize>::default());
    testbed.hook_all(|| {
        let came = Arc::clone(&came);
        Box::new(move |request| match is_ours(request) {
            true => {
                came.fetch_add(1, Ordering::Relaxed);
                Action::Error(error_code::OVERLOADED)
            }
            false => Action::Answer,
        })
    });
    testbed.run_for(10 * MILLISECOND);
    asker.ask(&mut testbed, &mut Random::new(3), 10);
    let world = &mut testbed.scene.world;
    assert!(world.run_until(SECOND, |_| came.load(Ordering::Relaxed) > 0), "no node was asked");
    world.freeze(testbed.scene.cores[0]);
    testbed.run_for(4 * SECOND);
    let before = came.load(Ordering::Relaxed);
    testbed.scene.world.thaw(testbed.scene.cores[0]);
    testbed.answered(asker.host, 10);
    let metrics = &testbed.scene.metrics[0].multigets;
    let lost = Lost::ALL.iter().map(|why| metrics.lost.of(*why).get()).sum::<u64>();
    assert!(metrics.split.get() > 3 && lost > 3, "{} {lost}", metrics.split.get());
    assert_eq!(came.load(Ordering::Relaxed), before);
}

#[test]
fn nothing_is_split_while_the_option_is_off() {
    let mut testbed = Testbed::bare(|_| {});
    testbed.hook_all(|| Box::new(|request| answered(request).unwrap_or(Action::Answer)));
    let mut asker = Asker::new(&mut testbed, 4);
    asker.ask(&mut testbed, &mut Random::new(1), 20);
    testbed.answered(asker.host, 20);
    assert_eq!(asker.wrong(&testbed.take_answers(asker.host)), 0);
    let metrics = &testbed.scene.metrics[0].multigets;
    let whole = Whole::ALL.iter().map(|why| metrics.whole.of(*why).get()).sum::<u64>();
    assert_eq!((metrics.split.get(), metrics.parts.get(), whole), (0, 0, 0));
}
