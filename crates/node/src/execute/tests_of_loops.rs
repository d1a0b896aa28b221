//! Requests as executed by an event loop: gathered writes, stalls, and the cost of a point read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use shunt_storage::Store;
use shunt_storage::engine::{MemoryEngine, Pace};
use shunt_storage::row_cache::RowCacheOptions;
use shunt_storage::store::StoreOptions;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::values::Value;
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, ErrorMessage, Prepare, QueryParams,
    ResultMessage, ValueList, Values, encode, error_code, query_flag,
};

use super::effort::Ends;
use super::{Carried, ClientState, Executor, Outcome, Request, WouldWait};
use crate::cluster::ClusterInfo;
use crate::limits;
use crate::shared::Shared;

const VERSION: u8 = 4;

/// One loop of one node, on an engine in memory.
struct Loop {
    executor: Executor,
    client: ClientState,
    engine: Arc<MemoryEngine>,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new() -> Loop {
        Loop::among(1)
    }

    /// One of `count` nodes, the last of which has the test's engine.
    fn among(count: u8) -> Loop {
        let directory = tempfile::tempdir().expect("a directory");
        let info = {
            let addresses: Vec<_> =
                (1..=count).map(|host| SocketAddr::from(([127, 0, 0, host], 9042))).collect();
            ClusterInfo::new("test", &addresses)
        };
        let options = StoreOptions {
            row_cache: Some(RowCacheOptions {
                memory_bytes: 1 << 20,
                ..RowCacheOptions::default()
            }),
            stall_wait_max: Duration::from_millis(20),
            ..StoreOptions::default()
        };
        let mut shared = Shared::open(directory.path(), info, &options).expect("stores");
        let mut kept = None;
        let store = Store::on_engine(options, |merger| {
            let engine = Arc::new(MemoryEngine::new(merger));
            kept = Some(Arc::clone(&engine));
            Box::new(engine)
        });
        shared.replace_store(store.expect("a store"));
        let executor = Executor::new(Arc::new(shared), 0);
        let engine = kept.expect("an engine");
        let mut this =
            Loop { executor, client: ClientState::default(), engine, _directory: directory };
        for text in [
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE k.t (p int PRIMARY KEY, v text, w text)",
        ] {
            let (opcode, out) = this.patiently(text);
            assert_eq!(opcode, opcode::RESULT, "{text}: {out:?}");
        }
        this
    }

    /// Executes like a worker.
    fn patiently(&mut self, text: &str) -> (u8, Vec<u8>) {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        encode::query_simple(&mut body, VERSION, text, Consistency::ONE);
        let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
        let done = self.executor.execute(&mut self.client, &request, &mut out);
        (done.opcode, out)
    }

    fn at_once(&mut self, text: &str) -> (Outcome, Vec<u8>) {
        let mut body = Vec::new();
        encode::query_simple(&mut body, VERSION, text, Consistency::ONE);
        self.request(opcode::QUERY, &body)
    }

    fn request(&mut self, opcode: u8, body: &[u8]) -> (Outcome, Vec<u8>) {
        let mut out = Vec::new();
        let request = Request { version: VERSION, flags: 0, opcode, body };
        (self.executor.execute_at_once(&mut self.client, &request, &mut out), out)
    }

    /// Executes a write that must be gathered.
    fn gather(&mut self, text: &str) {
        let (outcome, _) = self.at_once(text);
        let gathered =
            matches!(&outcome, Outcome::Done(done) if done.gathered && done.durable_at.is_none());
        assert!(gathered, "{text}: {outcome:?}");
    }

    /// The first column of the rows.
    fn column(&mut self, text: &str) -> Vec<String> {
        let (outcome, out) = self.at_once(text);
        assert!(matches!(&outcome, Outcome::Done(done) if !done.gathered), "{text}: {outcome:?}");
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(VERSION, &out) else {
            panic!("{text}: {out:?}")
        };
        let first =
            |row: Option<&[u8]>| String::from_utf8_lossy(row.unwrap_or(b"null")).into_owned();
        rows.rows().map(|row| first(row.expect("a row").get(0))).collect()
    }

    fn written(&self) -> u64 {
        self.executor.shared.stores()[0].figures().applies
    }

    fn prepare(&mut self, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        encode::prepare(&mut body, VERSION, text, None);
        Prepare::decode(VERSION, &body).expect("a PREPARE");
        let (_, out) = self.request(opcode::PREPARE, &body);
        let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(VERSION, &out) else {
            panic!("{out:?}")
        };
        prepared.id.to_vec()
    }
}

#[test]
fn writes_are_gathered_until_somebody_may_ask_for_them() {
    let mut this = Loop::new();
    this.gather("INSERT INTO k.t (p, v) VALUES (1, 'x')");
    this.gather("INSERT INTO k.t (p, v) VALUES (2, 'y')");
    assert!(this.column("SELECT v FROM k.t WHERE p = 3").is_empty());
    assert_eq!(this.written(), 0, "a read of another partition leaves them be");
    assert_eq!(this.column("SELECT v FROM k.t WHERE p = 2"), ["y"]);
    assert_eq!(this.written(), 2);
    this.gather("UPDATE k.t SET v = 'z' WHERE p = 2");
    this.gather("BEGIN BATCH DELETE FROM k.t WHERE p = 1; INSERT INTO k.t (p, v) VALUES (3, 'b') APPLY BATCH");
    let carried = this.executor.finish_gathered();
    let places: Vec<u64> = carried
        .iter()
        .map(|one| match one {
            Carried::Durable(place) => *place,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places, [1, 1, 2, 2], "two batches, two places in the log");
    assert_eq!(this.written(), 4);
    assert!(this.executor.finish_gathered().is_empty());
    assert_eq!(this.column("SELECT v FROM k.t WHERE p IN (1, 2, 3)"), ["z", "b"]);
}

#[test]
fn a_workers_request_sees_the_gathered_writes() {
    let mut this = Loop::new();
    this.gather("INSERT INTO k.t (p, v) VALUES (1, 'x')");
    let (outcome, _) = this.at_once("INSERT INTO k.t (p, v) VALUES (1, 'y') IF NOT EXISTS");
    assert!(matches!(outcome, Outcome::WouldWait(_)), "{outcome:?}");
    assert_eq!(this.written(), 1);
    let carried = this.executor.finish_gathered();
    assert!(matches!(carried[..], [Carried::Durable(1)]), "{carried:?}");
}

#[test]
fn many_are_carried_out_before_the_end_of_the_turn() {
    let mut this = Loop::new();
    for p in 0..=limits::GATHERED_WRITES_MAX {
        this.gather(&format!("INSERT INTO k.t (p, v) VALUES ({p}, 'x')"));
    }
    assert_eq!(this.written(), limits::GATHERED_WRITES_MAX as u64);
    let carried = this.executor.finish_gathered();
    assert_eq!(carried.len(), limits::GATHERED_WRITES_MAX + 1);
    assert!(matches!(carried.last(), Some(Carried::Durable(2))), "{carried:?}");
}

#[test]
fn a_write_that_fails_fails_alone() {
    let mut this = Loop::new();
    this.gather("INSERT INTO k.t (p, v) VALUES (1, 'x')");
    // More than a batch of the store may have.
    this.gather(&format!("INSERT INTO k.t (p, v) VALUES (2, '{}')", "y".repeat(17 << 20)));
    this.gather("INSERT INTO k.t (p, v) VALUES (3, 'z')");
    let carried = this.executor.finish_gathered();
    let [Carried::Durable(1), Carried::Failed(error), Carried::Durable(1)] = &carried[..] else {
        panic!("{carried:?}")
    };
    let mut out = Vec::new();
    error.put(&mut out, VERSION);
    assert!(String::from_utf8_lossy(&out).contains("at most 16777216"));
    assert_eq!(this.column("SELECT v FROM k.t WHERE p IN (1, 2, 3)"), ["x", "z"]);
}

#[test]
fn a_loop_does_not_wait_for_compaction_and_a_worker_not_for_ever() {
    let mut this = Loop::new();
    this.engine.set_pace(Pace::Stopped);
    const INSERT: &str = "INSERT INTO k.t (p, v) VALUES (1, 'x')";
    this.gather(INSERT);
    this.gather("INSERT INTO k.t (p, v) VALUES (2, 'x')");
    let carried = this.executor.finish_gathered();
    assert!(matches!(carried[..], [Carried::Stalled, Carried::Stalled]), "{carried:?}");
    let (opcode, out) = this.patiently(INSERT);
    assert_eq!(opcode, opcode::ERROR);
    let error = ErrorMessage::decode(VERSION, &out).expect("an error");
    assert_eq!(error.code, error_code::OVERLOADED);
    assert_eq!(
        error.message,
        "the write waited 0 s for compaction; write more slowly, or use a faster disk"
    );
    this.engine.set_pace(Pace::Free);
    assert_eq!(this.patiently(INSERT).0, opcode::RESULT);
    assert_eq!(this.column("SELECT v FROM k.t WHERE p IN (1, 2)"), ["x"]);
}

/// Counts the allocations of a prepared read of one cached row, including values: fewer if the row
/// is read in its record.
#[test]
fn a_point_read_of_a_plain_row_takes_nothing_out_of_its_record() {
    let mut this = Loop::new();
    for statement in [
        "INSERT INTO k.t (p, v, w) VALUES (1, 'x', 'y')",
        "INSERT INTO k.t (p, v, w) VALUES (2, 'x', 'y') USING TTL 86400",
    ] {
        this.gather(statement);
    }
    this.executor.finish_gathered();
    let id = this.prepare("SELECT p, v, w FROM k.t WHERE p = ?");
    let mut allocations = |p: i32| {
        let (mut body, mut params) = (Vec::new(), QueryParams::simple(Consistency::ONE));
        let mut values = ValueList::positional(VERSION);
        values.push(shunt_wire::cql::message::values::Value::Bytes(&p.to_be_bytes()));
        params.flags |= query_flag::VALUES;
        params.values = values.values();
        encode::execute(&mut body, VERSION, &id, None, &params);
        let request = Request { version: VERSION, flags: 0, opcode: opcode::EXECUTE, body: &body };
        let mut out = Vec::with_capacity(1024);
        // The first two bring the row into the cache.
        for _ in 0..2 {
            out.clear();
            this.executor.execute_at_once(&mut this.client, &request, &mut out);
        }
        out.clear();
        let counted = measure(|| {
            this.executor.execute_at_once(&mut this.client, &request, &mut out);
        });
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(VERSION, &out) else {
            panic!("{out:?}")
        };
        let row: Vec<Vec<u8>> = rows
            .rows()
            .map(|row| row.expect("a row").get(1).unwrap_or_default().to_vec())
            .collect();
        assert_eq!(row, [b"x"]);
        counted.count_total
    };
    let (plain, decoded) = (allocations(1), allocations(2));
    println!("allocations: {plain} in place, {decoded} decoded");
    assert!(plain + 4 <= decoded, "{plain} in place, {decoded} decoded");
    assert!(plain <= PLAIN_READ_ALLOCATIONS_MAX, "{plain}");
}

/// Most allocations of a prepared read of one cached row.
const PLAIN_READ_ALLOCATIONS_MAX: u64 = 16;

#[test]
fn a_partial_write_does_not_answer_as_refused() {
    let mut this = Loop::among(2);
    this.patiently("CREATE TABLE k.n (p int PRIMARY KEY, c counter)");
    let keys = (0..20).map(|key| key.to_string()).collect::<Vec<_>>().join(", ");
    let (count, read) =
        (format!("UPDATE k.n SET c = c + 1 WHERE p IN ({keys})"), "SELECT c FROM k.n");
    this.engine.set_pace(Pace::Stopped);
    let (_, out) = this.patiently(&count);
    let error = ErrorMessage::decode(VERSION, &out).expect("an error");
    this.engine.set_pace(Pace::Free);
    let (_, rows) = this.patiently(read);
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(VERSION, &rows) else {
        panic!("{rows:?}")
    };
    assert!((1..20).contains(&rows.rows().count()), "one node has its part");
    assert_eq!(error.code, error_code::WRITE_TIMEOUT, "{}", error.message);
}

/// Each attempt would write the same part again, and the rest never.
#[test]
fn a_write_that_one_node_can_never_take_is_refused_by_all() {
    let mut this = Loop::among(2);
    let keys = (0..401).map(|key| key.to_string()).collect::<Vec<_>>().join(", ");
    let info = &this.executor.shared.info;
    let owner = |p: i32| info.owner(shunt_topology::token::token(&p.to_be_bytes()));
    let mut of_nodes = [0_usize; 2];
    (0..401).for_each(|p| of_nodes[owner(p)] += 1);
    let (few, many) = (of_nodes[0].min(of_nodes[1]), of_nodes[0].max(of_nodes[1]));
    assert!(few > 0 && few < many, "{of_nodes:?}");
    // The node with fewer of the keys could take its part.
    let value = "v".repeat((16 << 20) / many);
    let (op, body) = this.patiently(&format!("UPDATE k.t SET v = '{value}' WHERE p IN ({keys})"));
    assert_eq!(op, opcode::ERROR);
    let error = ErrorMessage::decode(VERSION, &body).expect("an error");
    assert_eq!(error.code, error_code::INVALID, "{}", error.message);
    let (_, rows) = this.patiently("SELECT v FROM k.t");
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(VERSION, &rows) else {
        panic!("{rows:?}")
    };
    assert_eq!(rows.rows().count(), 0, "no node has a part");
}

/// A short text could name a long value any number of times.
#[test]
fn a_value_counts_as_often_as_its_name_is_there() {
    let mut this = Loop::new();
    let mut update = |bytes: usize| {
        let (value, mut values) = (vec![b'v'; bytes], ValueList::named(VERSION));
        values.push_named("a", Value::Bytes(&value));
        let mut params = QueryParams::simple(Consistency::ONE);
        (params.flags, params.values) = (params.flags | query_flag::VALUES, values.values());
        let (mut body, mut out) = (Vec::new(), Vec::new());
        let text = "UPDATE k.t SET v = :a, w = :a WHERE p = 1";
        encode::query(&mut body, VERSION, text, &params);
        let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
        let done = this.executor.execute(&mut this.client, &request, &mut out);
        (done.opcode, String::from_utf8_lossy(&out).into_owned())
    };
    assert_eq!(update(1 << 20).0, opcode::RESULT);
    let (op, told) = update(limits::GATHERED_BYTES_MAX / 2 + 1);
    assert!(op == opcode::ERROR && told.contains("as often as it is named"), "{told}");
}

/// Each value was looked for from the first one on: 65,535 took seconds of the loop.
#[test]
fn many_values_are_found_by_their_markers() {
    let mut this = Loop::new();
    for p in [7, 150, 199] {
        this.patiently(&format!("INSERT INTO k.t (p, v) VALUES ({p}, '{p}')"));
    }
    for is_named in [false, true] {
        let mut values =
            if is_named { ValueList::named(VERSION) } else { ValueList::positional(VERSION) };
        for number in 0..200_i32 {
            let number = if is_named { 199 - number } else { number };
            values.push_named(&format!("n{number}"), Value::Bytes(&number.to_be_bytes()));
        }
        let markers = (0..200).map(|n| if is_named { format!(":n{n}") } else { "?".to_owned() });
        let markers = markers.collect::<Vec<_>>().join(", ");
        let mut params = QueryParams::simple(Consistency::ONE);
        (params.flags, params.values) = (params.flags | query_flag::VALUES, values.values());
        let (mut body, mut out) = (Vec::new(), Vec::new());
        let text = format!("SELECT v FROM k.t WHERE p IN ({markers})");
        encode::query(&mut body, VERSION, &text, &params);
        let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
        this.executor.execute(&mut this.client, &request, &mut out);
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(VERSION, &out) else {
            panic!("{out:?}")
        };
        let found: Vec<Vec<u8>> = rows
            .rows()
            .map(|row| row.expect("a row").get(0).unwrap_or_default().to_vec())
            .collect();
        assert_eq!(found, [&b"7"[..], b"150", b"199"], "named: {is_named}");
    }
}

/// A request whose values are lists of this many elements each.
fn with_lists(text: &str, lists: &[(usize, &[u8])]) -> Vec<u8> {
    let mut values = ValueList::positional(VERSION);
    for (count, element) in lists {
        let mut list = (*count as i32).to_be_bytes().to_vec();
        for number in 0..*count {
            let bytes = [element, &(number as u32).to_be_bytes()[..]].concat();
            list.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
            list.extend_from_slice(&bytes);
        }
        values.push(Value::Bytes(&list));
    }
    let mut params = QueryParams::simple(Consistency::ONE);
    (params.flags, params.values) = (params.flags | query_flag::VALUES, values.values());
    let mut body = Vec::new();
    encode::query(&mut body, VERSION, text, &params);
    body
}

/// Compared one by one, these would take hours.
#[test]
fn many_elements_are_removed_from_a_long_list() {
    let mut this = Loop::new();
    this.patiently("CREATE TABLE k.lists (p int PRIMARY KEY, l list<blob>)");
    for (text, count, element) in [
        ("UPDATE k.lists SET l = l + ? WHERE p = 1", 60_000, &b"kept"[..]),
        ("UPDATE k.lists SET l = l - ? WHERE p = 1", 1_000_000, b"gone"),
        ("UPDATE k.lists SET l = l - ? WHERE p = 1", 59_999, b"kept"),
    ] {
        let (body, mut out) = (with_lists(text, &[(count, element)]), Vec::new());
        let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
        let done = this.executor.execute(&mut this.client, &request, &mut out);
        assert_eq!(done.opcode, opcode::RESULT, "{text}: {}", out.escape_ascii());
    }
    let (_, out) = this.patiently("SELECT l FROM k.lists WHERE p = 1");
    let last = [&b"kept"[..], &59_999_u32.to_be_bytes()].concat();
    assert!(out.ends_with(&last) && out.len() < 100, "{}", out.escape_ascii());
}

/// A batch of conditions on rows of one partition.
fn conditions(rows: std::ops::Range<usize>, text: impl Fn(usize) -> String) -> Vec<u8> {
    let texts: Vec<_> = rows.map(text).collect();
    let children = texts.iter().map(|text| BatchChild {
        statement: BatchStatement::Text(text),
        values: Values::default(),
    });
    let mut body = Vec::new();
    let params = QueryParams::simple(Consistency::ONE);
    encode::batch(&mut body, VERSION, BatchKind::Logged, children, &params);
    body
}

#[test]
fn conditions_on_many_rows_take_long_and_have_a_bound_in_bytes() {
    let mut this = Loop::new();
    this.patiently("CREATE TABLE k.wide (p int, c int, v text, PRIMARY KEY (p, c))");
    let insert = |v: String| {
        move |c| format!("INSERT INTO k.wide (p, c, v) VALUES (1, {c}, '{v}') IF NOT EXISTS")
    };
    let ask = |this: &mut Loop, body: &[u8]| {
        let (mut out, version) = (Vec::new(), VERSION);
        let request = Request { version, flags: 0, opcode: opcode::BATCH, body };
        (this.executor.execute(&mut this.client, &request, &mut out).opcode, out)
    };
    let is_long = |this: &mut Loop, body: &[u8]| {
        let mut out = Vec::new();
        let request = Request { version: VERSION, flags: 0, opcode: opcode::BATCH, body };
        let outcome =
            this.executor.execute_shortly(Ends::default(), &mut this.client, &request, &mut out);
        matches!(outcome, Outcome::WouldWait(WouldWait { long: true, .. }))
    };
    let (few, many) =
        (conditions(0..16, insert("v".into())), conditions(0..3_000, insert("v".into())));
    assert!(!is_long(&mut this, &few) && is_long(&mut this, &many));
    // Sixteen rows exist by now.
    let rows = |body: &[u8]| match ResultMessage::decode(VERSION, body) {
        Ok(ResultMessage::Rows(rows)) => rows.rows().count(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rows(&ask(&mut this, &many).1), 16);
    let others = conditions(16..3_016, insert("v".into()));
    assert_eq!(rows(&ask(&mut this, &others).1), 1, "applied");
    assert_eq!(rows(&ask(&mut this, &many).1), 3_000);

    let long = "x".repeat(4 << 20);
    for c in 0..17 {
        let text = format!("INSERT INTO k.wide (p, c, v) VALUES (2, {c}, '{long}')");
        assert_eq!(this.patiently(&text).0, opcode::RESULT);
    }
    let body = conditions(0..17, |c| {
        format!("UPDATE k.wide SET v = 'w' WHERE p = 2 AND c = {c} IF EXISTS")
    });
    let (op, out) = ask(&mut this, &body);
    let error = ErrorMessage::decode(VERSION, &out).unwrap();
    assert!(op == opcode::ERROR && error.message.contains("use several batches"), "{error:?}");
}

/// Rows without a marker of their own are not seen by a condition on a static column.
#[test]
fn a_condition_on_static_columns_ends_with_its_client() {
    let mut this = Loop::new();
    this.patiently("CREATE TABLE k.s (p int, c int, s int static, v int, PRIMARY KEY (p, c))");
    for c in 0..limits::WORKER_RECORDS + 100 {
        this.patiently(&format!("UPDATE k.s SET v = 1 WHERE p = 1 AND c = {c}"));
    }
    let mut body = Vec::new();
    let text = "UPDATE k.s SET s = 1 WHERE p = 1 IF s = 0";
    encode::query_simple(&mut body, VERSION, text, Consistency::ONE);
    let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
    let mut out = Vec::new();
    let short =
        this.executor.execute_shortly(Ends::default(), &mut this.client, &request, &mut out);
    assert!(matches!(short, Outcome::WouldWait(WouldWait { long: true, .. })), "{short:?}");
    let ends = Ends::default();
    ends.gone.store(true, std::sync::atomic::Ordering::Relaxed);
    let done = this.executor.execute_until(ends, &mut this.client, &request, &mut out);
    assert_eq!(done.opcode, opcode::ERROR);
}

/// A short statement must not take the memory of all its rows with their keys.
#[test]
fn the_writes_of_one_statement_are_limited_in_bytes() {
    let mut this = Loop::new();
    let table = "CREATE TABLE k.n (p text, c int, n counter, PRIMARY KEY (p, c))";
    assert_eq!(this.patiently(table).0, opcode::RESULT);
    let key = "k".repeat(60_000);
    let rows = limits::GATHERED_BYTES_MAX / key.len() + 10;
    for row in 0..rows {
        let text = format!("UPDATE k.n SET n = n + 1 WHERE p = '{key}' AND c = {row}");
        assert_eq!(this.patiently(&text).0, opcode::RESULT);
    }
    let written = this.written();
    let (op, body) = this.patiently(&format!("DELETE FROM k.n WHERE p = '{key}'"));
    assert_eq!(op, opcode::ERROR);
    let error = ErrorMessage::decode(VERSION, &body).expect("an error");
    assert!(
        error.code == error_code::INVALID && error.message.contains("several requests"),
        "{error:?}"
    );
    assert_eq!(this.written(), written);
    // A value counts for each row that it is written to.
    let keys: Vec<String> = (0..2_000).map(|key| format!("'{key}'")).collect();
    let table = "CREATE TABLE k.v (p text PRIMARY KEY, v text)";
    assert_eq!(this.patiently(table).0, opcode::RESULT);
    let written = this.written();
    let all = format!("UPDATE k.v SET v = '{key}' WHERE p IN ({})", keys.join(", "));
    let (op, body) = this.patiently(&all);
    assert_eq!(op, opcode::ERROR);
    let error = ErrorMessage::decode(VERSION, &body).expect("an error");
    assert!(error.code == error_code::INVALID && this.written() == written, "{error:?}");
    let few = format!("DELETE FROM k.n WHERE p = '{key}' AND c < 100");
    assert_eq!(this.patiently(&few).0, opcode::RESULT);
}

/// Static values, elements of sets and ranges have copies for each partition, too.
#[test]
fn all_that_one_statement_writes_to_many_partitions_is_limited_in_bytes() {
    let mut this = Loop::new();
    let table = "CREATE TABLE k.w (p int, a int, b int, f text static, s set<text>, \
        PRIMARY KEY (p, a, b))";
    assert_eq!(this.patiently(table).0, opcode::RESULT);
    let written = this.written();
    let long = "l".repeat(60_000);
    let numbers = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    for text in [
        format!("UPDATE k.w SET f = '{long}' WHERE p IN ({})", numbers(2_000)),
        format!(
            "UPDATE k.w SET s = s + {{'{long}'}} WHERE p IN ({}) AND a = 1 AND b = 1",
            numbers(2_000)
        ),
        format!("DELETE FROM k.w WHERE p IN ({}) AND a IN ({})", numbers(1_000), numbers(1_000)),
    ] {
        let (op, body) = this.patiently(&text);
        assert_eq!(op, opcode::ERROR, "{}", &text[..40]);
        let error = ErrorMessage::decode(VERSION, &body).expect("an error");
        let is_told = error.code == error_code::INVALID && error.message.contains("several");
        assert!(is_told && this.written() == written, "{error:?}");
    }
    let few = format!("UPDATE k.w SET f = '{long}' WHERE p IN ({})", numbers(10));
    assert_eq!(this.patiently(&few).0, opcode::RESULT);
}

/// Values of counters, and timestamps under which a conditional write would be invisible, are found
/// by reading whole partitions.
#[test]
fn reads_before_writes_end_with_their_time_or_their_client() {
    const DELETE_COUNTERS: &str = "DELETE FROM k.n WHERE p = 1";
    const DELETE_ROWS: &str = "BEGIN BATCH DELETE FROM k.r WHERE p = 1; UPDATE k.r SET s = 2 WHERE p = 1 IF s = 1; APPLY BATCH";
    const DELETE_RANGE: &str = "BEGIN BATCH DELETE FROM k.r WHERE p = 1 AND c > 0; UPDATE k.r SET s = 2 WHERE p = 1 IF s = 1; APPLY BATCH";
    let mut this = Loop::new();
    for text in [
        "CREATE TABLE k.n (p int, c int, n counter, PRIMARY KEY (p, c))",
        "CREATE TABLE k.r (p int, c int, s int static, v int, PRIMARY KEY (p, c))",
        "INSERT INTO k.r (p, s) VALUES (1, 1)",
    ] {
        assert_eq!(this.patiently(text).0, opcode::RESULT, "{text}");
    }
    for row in 0..200 {
        for text in [
            format!("UPDATE k.n SET n = n + 1 WHERE p = 1 AND c = {row}"),
            format!("INSERT INTO k.r (p, c, v) VALUES (1, {row}, 1)"),
        ] {
            assert_eq!(this.patiently(&text).0, opcode::RESULT, "{text}");
        }
    }
    let over = Ends { until: Some(Instant::now()), ..Ends::default() };
    let gone = Ends { gone: Arc::new(AtomicBool::new(true)), ..Ends::default() };
    for text in [DELETE_COUNTERS, DELETE_ROWS, DELETE_RANGE] {
        let (mut body, written) = (Vec::new(), this.written());
        encode::query_simple(&mut body, VERSION, text, Consistency::ONE);
        let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
        for ends in [&over, &gone] {
            let mut out = Vec::new();
            this.executor.execute_until(ends.clone(), &mut this.client, &request, &mut out);
            let error = ErrorMessage::decode(VERSION, &out).expect(text);
            assert_eq!(error.code, error_code::READ_TIMEOUT, "{text}: {error:?}");
        }
        assert_eq!(this.written(), written, "{text}");
        let mut out = Vec::new();
        let done =
            this.executor.execute_until(Ends::default(), &mut this.client, &request, &mut out);
        assert_eq!((done.opcode, this.written()), (opcode::RESULT, written + 1), "{text}: {out:?}");
        if text == DELETE_ROWS {
            this.patiently("INSERT INTO k.r (p, s) VALUES (1, 1)");
            for row in 0..200 {
                this.patiently(&format!("INSERT INTO k.r (p, c, v) VALUES (1, {row}, 1)"));
            }
        }
    }
}
