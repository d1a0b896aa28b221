//! Parts of an answer besides its message: traces that can be read, warnings; and refusals by size.

use std::time::{Duration, Instant};

use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::values::{Value, ValueList};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, ErrorMessage, QueryParams, ResultMessage,
    Values, encode, put, query_flag, split_response_prefix,
};

use super::select::tests::{Nodes, VERSION};
use super::{Done, Outcome, Request};

/// An answer taken apart.
struct Answer {
    done: Done,
    message: Vec<u8>,
    tracing_id: Option<[u8; 16]>,
    warnings: Vec<String>,
}

impl Answer {
    fn error(&self) -> String {
        assert_eq!(self.done.opcode, opcode::ERROR);
        ErrorMessage::decode(VERSION, &self.message).unwrap().message.to_owned()
    }
}

fn request(nodes: &mut Nodes, version: u8, flags: u8, opcode: u8, body: &[u8]) -> Answer {
    let mut out = b"before".to_vec();
    let done = nodes.executor.execute(
        &mut nodes.client,
        &Request { version, flags, opcode, body },
        &mut out,
    );
    let (prefix, message) = split_response_prefix(done.flags, &out[6..]).unwrap();
    let warnings =
        prefix.warnings.map(|list| list.iter().map(str::to_owned).collect()).unwrap_or_default();
    Answer { message: message.to_vec(), tracing_id: prefix.tracing_id, warnings, done }
}

fn query(nodes: &mut Nodes, version: u8, flags: u8, text: &str) -> Answer {
    let mut body = Vec::new();
    encode::query(&mut body, version, text, &QueryParams::simple(Consistency::QUORUM));
    request(nodes, version, flags, opcode::QUERY, &body)
}

/// Keeps the trace of an answer as its sender would, and waits for its rows. Returns the id as a
/// literal.
fn kept(nodes: &mut Nodes, mut answer: Answer) -> String {
    let id = answer.tracing_id.unwrap();
    assert!(nodes.executor.keep_trace(answer.done.trace.take().unwrap()));
    let id = shunt_language::values::literal(&shunt_language::ast::NativeType::Uuid.into(), &id);
    let deadline = Instant::now() + Duration::from_secs(60);
    while nodes
        .rows(&format!("SELECT duration FROM system_traces.sessions WHERE session_id = {id}"))
        .is_empty()
    {
        assert!(Instant::now() < deadline, "no trace came");
        std::thread::yield_now();
    }
    id
}

fn session(nodes: &mut Nodes, columns: &str, id: &str) -> String {
    nodes.rows(&format!("SELECT {columns} FROM system_traces.sessions WHERE session_id = {id}"))
}

fn events(nodes: &mut Nodes, id: &str) -> Vec<String> {
    let found =
        nodes.rows(&format!("SELECT activity FROM system_traces.events WHERE session_id = {id}"));
    found.split("; ").map(str::to_owned).collect()
}

fn table() -> Nodes {
    Nodes::new(&[
        "CREATE TABLE t (a int PRIMARY KEY, b text)",
        "INSERT INTO t (a, b) VALUES (7, 'x')",
    ])
}

#[test]
fn a_traced_query_has_a_session_and_its_events_in_order() {
    let mut nodes = table();
    nodes.client.address = Some([10, 0, 0, 9].into());
    let answer = query(&mut nodes, VERSION, flag::TRACING, "SELECT b FROM t WHERE a = 7");
    assert_eq!((answer.done.opcode, answer.done.flags), (opcode::RESULT, flag::TRACING));
    assert!(matches!(ResultMessage::decode(VERSION, &answer.message), Ok(ResultMessage::Rows(_))));
    let id = kept(&mut nodes, answer);
    let columns =
        "request, command, client, coordinator, coordinator_port, ttl(duration), parameters";
    assert_eq!(
        session(&mut nodes, columns, &id),
        "'Execute CQL3 query', 'QUERY', '10.0.0.9', '127.0.0.2', 9042, 86400, \
         {'consistency_level': 'QUORUM', 'query': 'SELECT b FROM t WHERE a = 7'}"
    );
    let events = events(&mut nodes, &id);
    assert_eq!(events[0], "'Parsing SELECT b FROM t WHERE a = 7'");
    assert!(
        events.iter().any(|event| event.contains("Reading 1 row(s) of a partition from 127.0.0.")),
        "{events:?}"
    );
    assert_eq!(
        events.last().unwrap(),
        "'Read 1 live row(s) of 1 partition(s), 0 of them filtered out, 1 row(s) in the answer'"
    );
    let elapsed = nodes
        .rows(&format!("SELECT source_elapsed FROM system_traces.events WHERE session_id = {id}"));
    let elapsed: Vec<i32> = elapsed.split("; ").map(|text| text.parse().unwrap()).collect();
    let duration: i32 = session(&mut nodes, "duration", &id).parse().unwrap();
    assert!(
        elapsed.is_sorted() && *elapsed.last().unwrap() <= duration,
        "{elapsed:?} of {duration}"
    );
}

#[test]
fn a_scan_says_what_it_went_through() {
    let mut nodes = table();
    nodes.rows("INSERT INTO t (a, b) VALUES (8, 'y')");
    let answer =
        query(&mut nodes, VERSION, flag::TRACING, "SELECT a FROM t WHERE b = 'y' ALLOW FILTERING");
    let id = kept(&mut nodes, answer);
    let events = events(&mut nodes, &id);
    assert_eq!(
        events[2..],
        [
            "'Reading 49 range(s) of tokens from -9223372036854775808 to 9223372036854775807'",
            "'Read 2 live row(s) of 2 partition(s), 1 of them filtered out, 1 row(s) in the answer'"
        ]
    );
}

#[test]
fn untraced_requests_have_no_trace() {
    let mut nodes = table();
    let answer = query(&mut nodes, VERSION, 0, "SELECT b FROM t WHERE a = 7");
    assert_eq!(
        (answer.done.flags, answer.tracing_id, answer.done.trace.is_none()),
        (0, None, true)
    );
    assert_eq!(nodes.rows("SELECT session_id FROM system_traces.sessions"), "");
}

#[test]
fn every_kind_of_request_is_traced_under_its_name() {
    let mut nodes = table();
    let insert = "INSERT INTO t (a, b) VALUES (?, 'y')";
    let mut body = Vec::new();
    encode::prepare(&mut body, VERSION, insert, None);
    let prepared = request(&mut nodes, VERSION, flag::TRACING, opcode::PREPARE, &body);
    let Ok(ResultMessage::Prepared(found)) = ResultMessage::decode(VERSION, &prepared.message)
    else {
        panic!()
    };
    let statement = found.id.to_vec();
    let id = kept(&mut nodes, prepared);
    assert_eq!(session(&mut nodes, "request", &id), "'Preparing CQL3 query'");

    let mut values = ValueList::positional(VERSION);
    values.push(Value::Bytes(&[0, 0, 0, 9]));
    let params = QueryParams {
        flags: query_flag::VALUES,
        values: values.values(),
        ..QueryParams::simple(Consistency::ONE)
    };
    body.clear();
    encode::execute(&mut body, VERSION, &statement, None, &params);
    let executed = request(&mut nodes, VERSION, flag::TRACING, opcode::EXECUTE, &body);
    let id = kept(&mut nodes, executed);
    assert_eq!(session(&mut nodes, "request", &id), "'Execute CQL3 prepared query'");
    let parameters = session(&mut nodes, "parameters", &id);
    assert!(
        parameters.contains("'bound_var_0_a': '9'") && parameters.contains("'query': 'INSERT"),
        "{parameters}"
    );
    let written = events(&mut nodes, &id);
    assert!(
        written
            .iter()
            .any(|event| event.contains("Appended 1 mutation(s) to the log and memtable of")),
        "{written:?}"
    );

    let child = BatchChild {
        statement: BatchStatement::Text("INSERT INTO t (a) VALUES (1)"),
        values: Values::default(),
    };
    body.clear();
    encode::batch(
        &mut body,
        VERSION,
        BatchKind::Logged,
        [child],
        &QueryParams::simple(Consistency::ONE),
    );
    let batch = request(&mut nodes, VERSION, flag::TRACING, opcode::BATCH, &body);
    let id = kept(&mut nodes, batch);
    assert_eq!(session(&mut nodes, "request", &id), "'Execute batch of CQL3 queries'");
}

/// A request given up by a loop is one request with one trace, from arrival to answer.
#[test]
fn the_trace_of_a_request_goes_on_where_it_is_taken_up() {
    let mut nodes = table();
    let mut body = Vec::new();
    encode::query_simple(&mut body, VERSION, "TRUNCATE t", Consistency::ONE);
    let asked =
        Request { version: VERSION, flags: flag::TRACING, opcode: opcode::QUERY, body: &body };
    let mut out = Vec::new();
    let given_up = match nodes.executor.execute_at_once(&mut nodes.client, &asked, &mut out) {
        Outcome::WouldWait(given_up) => given_up,
        Outcome::Done(done) => panic!("{done:?}"),
    };
    assert!(out.is_empty());
    let session = given_up.trace.as_ref().unwrap().origin.session;
    nodes.executor.resume(given_up.trace);
    let answer = request(&mut nodes, VERSION, flag::TRACING, opcode::QUERY, &body);
    assert_eq!((answer.done.opcode, answer.tracing_id), (opcode::RESULT, Some(session)));
    let id = kept(&mut nodes, answer);
    let events = events(&mut nodes, &id);
    let handed_over = events.iter().position(|event| event.contains("Handed over"));
    let truncated = events.iter().position(|event| event.contains("Truncated k.t"));
    assert!(handed_over.is_some() && handed_over < truncated, "{events:?}");
    assert_eq!(
        query(&mut nodes, VERSION, 0, "SELECT a FROM t").tracing_id,
        None,
        "the next is another request"
    );
}

#[test]
fn a_request_that_fails_has_a_trace_too() {
    let mut nodes = table();
    let answer = query(&mut nodes, VERSION, flag::TRACING, "SELECT b FROM nowhere");
    assert!(answer.error().contains("nowhere"));
    let id = kept(&mut nodes, answer);
    assert!(events(&mut nodes, &id).last().unwrap().contains("The request failed"));
}

/// Answering is never delayed, and every lost trace is counted.
#[test]
fn more_traces_than_can_be_written_are_lost_and_counted() {
    let mut nodes = table();
    let mut trace =
        query(&mut nodes, VERSION, flag::TRACING, "SELECT a FROM t").done.trace.unwrap();
    (0..150).for_each(|_| trace.note("x".repeat(8000)));
    let (mut kept, mut lost) = (0_u16, 0);
    // Traces arrive faster than they are written, unless this thread is paused in between.
    while lost < 50 && kept < u16::MAX {
        trace.origin.session[..2].copy_from_slice(&kept.to_be_bytes());
        let is_kept = nodes.executor.keep_trace(trace.clone());
        *(if is_kept { &mut kept } else { &mut lost }) += 1;
    }
    assert!(kept > 0 && lost == 50, "{kept} are kept, {lost} lost");
    let deadline = Instant::now() + Duration::from_secs(180);
    while nodes.rows("SELECT count(*) FROM system_traces.sessions") != kept.to_string() {
        assert!(Instant::now() < deadline, "{kept} are kept");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn the_custom_payload_of_a_request_is_ignored() {
    let mut nodes = table();
    let mut body = Vec::new();
    put::bytes_map(&mut body, [("who", Some(&b"an application"[..])), ("nothing", None)]);
    encode::query_simple(&mut body, VERSION, "SELECT b FROM t WHERE a = 7", Consistency::ONE);
    let answer = request(&mut nodes, VERSION, flag::CUSTOM_PAYLOAD, opcode::QUERY, &body);
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(VERSION, &answer.message) else {
        panic!()
    };
    assert_eq!((rows.row_count, answer.done.flags), (1, 0));
}

#[test]
fn aggregates_without_one_partition_are_warned_of() {
    let mut nodes = table();
    let without = "Aggregation query used without partition key";
    for (text, expected) in [
        ("SELECT count(*) FROM t", &[without][..]),
        ("SELECT max(a) FROM t WHERE token(a) > 0", &[]),
        ("SELECT a FROM t GROUP BY a", &[without]),
        ("SELECT count(*) FROM t WHERE b = 'x' ALLOW FILTERING", &[without]),
        ("SELECT count(*) FROM t WHERE a = 7", &[]),
        (
            "SELECT count(*) FROM t WHERE a IN (7, 8)",
            &["Aggregation query used on multiple partition keys (IN restriction)"],
        ),
        ("SELECT a FROM t", &[]),
    ] {
        let answer = query(&mut nodes, VERSION, 0, text);
        assert_eq!(answer.done.opcode, opcode::RESULT, "{text}");
        assert_eq!(answer.warnings, expected, "{text}");
    }
    let old = query(&mut nodes, 3, 0, "SELECT count(*) FROM t");
    assert_eq!((old.done.flags, old.warnings.len()), (0, 0), "v3 has no warnings");
    let both = query(&mut nodes, 4, flag::TRACING, "SELECT count(*) FROM t");
    assert_eq!((both.done.flags, both.warnings.len()), (flag::TRACING | flag::WARNING, 1));
    assert!(both.tracing_id.is_some());
    assert!(matches!(ResultMessage::decode(4, &both.message), Ok(ResultMessage::Rows(_))));
}

/// A batch of rows with a text of the given length, in one partition or one per row.
fn batch(nodes: &mut Nodes, kind: BatchKind, rows: usize, bytes: usize, spread: bool) -> Answer {
    let text = "x".repeat(bytes);
    let partition = |row: usize| if spread { row } else { 0 };
    let texts: Vec<String> = (0..rows)
        .map(|row| {
            format!("INSERT INTO wide (a, c, b) VALUES ({}, {row}, '{text}')", partition(row))
        })
        .collect();
    let children = texts.iter().map(|text| BatchChild {
        statement: BatchStatement::Text(text),
        values: Values::default(),
    });
    let mut body = Vec::new();
    encode::batch(&mut body, VERSION, kind, children, &QueryParams::simple(Consistency::ONE));
    request(nodes, VERSION, 0, opcode::BATCH, &body)
}

#[test]
fn large_batches_over_partitions_are_warned_of_or_refused() {
    let mut nodes = Nodes::new(&["CREATE TABLE wide (a int, c int, b text, PRIMARY KEY (a, c))"]);
    // A row has its text and 16 bytes of times, 5 of clustering (as stored) and 8 of its own time.
    for (kind, rows, bytes, spread, warned) in [
        (BatchKind::Logged, 5, 995, true, None),
        (
            BatchKind::Logged,
            5,
            996,
            true,
            Some("Batch for [k.wide] is of size 5125, exceeding specified threshold of 5120 by 5."),
        ),
        (BatchKind::Logged, 5, 30_000, false, None),
        (BatchKind::Logged, 11, 1, true, None),
        (BatchKind::Unlogged, 10, 1, true, None),
        (BatchKind::Unlogged, 11, 1, false, None),
        (
            BatchKind::Unlogged,
            11,
            1,
            true,
            Some(
                "Unlogged batch covering 11 partitions detected against table [k.wide]. You should use a logged batch for \
                 atomicity, or asynchronous writes for performance.",
            ),
        ),
    ] {
        let answer = batch(&mut nodes, kind, rows, bytes, spread);
        assert_eq!(answer.done.opcode, opcode::RESULT, "{kind:?} {rows} {bytes}");
        assert_eq!(answer.warnings.first().map(String::as_str), warned, "{kind:?} {rows} {bytes}");
    }
    nodes.rows("TRUNCATE wide");
    let answer = batch(&mut nodes, BatchKind::Logged, 2, 30_000, true);
    assert_eq!(answer.error(), "Batch too large");
    assert_eq!(nodes.rows("SELECT a FROM wide"), "", "all or nothing");
}

/// Rust's driver binds counters only to counter markers.
#[test]
fn a_counters_increment_has_the_type_counter() {
    let mut nodes = Nodes::new(&["CREATE TABLE counts (a int PRIMARY KEY, n counter)"]);
    for text in ["UPDATE counts SET n = n + ? WHERE a = 1", "UPDATE counts SET n -= ? WHERE a = 1"]
    {
        let mut body = Vec::new();
        encode::prepare(&mut body, VERSION, text, None);
        let answer = request(&mut nodes, VERSION, 0, opcode::PREPARE, &body);
        let Ok(ResultMessage::Prepared(found)) = ResultMessage::decode(VERSION, &answer.message)
        else {
            panic!()
        };
        let first = found.bind.markers().next().unwrap();
        assert_eq!(first.type_option, [0, 5], "{text}");
    }
    nodes.rows("UPDATE counts SET n = n + 5 WHERE a = 1");
    nodes.rows("UPDATE counts SET n -= 2 WHERE a = 1");
    assert_eq!(nodes.rows("SELECT n FROM counts"), "3");
}

/// The schema on disk is then the new one: continuing with the old one, the node would reuse its
/// numbers and differ after a restart.
#[test]
fn a_schema_whose_directory_could_not_be_synced_is_the_one_in_the_file() {
    let mut nodes =
        Nodes::new(&["CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO k.t (k) VALUES (1)"]);
    let tables = |nodes: &Nodes| {
        let stores = nodes.executor.shared.stores();
        stores.iter().map(|store| store.tables().unwrap().len()).sum::<usize>()
    };
    let before = tables(&nodes);
    for statement in ["CREATE TABLE u (k int PRIMARY KEY)", "DROP TABLE t"] {
        shunt_storage::files::fail_next_directory_sync();
        let error = query(&mut nodes, VERSION, 0, statement).error();
        assert!(
            error.starts_with("the schema has changed: ") && error.contains("may be as before"),
            "{error}"
        );
    }
    let saved = crate::schema::persist::load(nodes.executor.shared.directory()).unwrap().unwrap();
    let schema = nodes.executor.shared.schema();
    assert_eq!((saved.version, saved.next_table), (schema.version, schema.next_table));
    assert_eq!(saved.keyspaces["k"].tables, schema.keyspaces["k"].tables);
    assert_eq!(
        query(&mut nodes, VERSION, 0, "INSERT INTO u (k) VALUES (1)").done.opcode,
        opcode::RESULT
    );
    assert!(query(&mut nodes, VERSION, 0, "SELECT * FROM t").error().contains("does not exist"));
    assert!(tables(&nodes) > before, "the schema that may be back has no data");
}
