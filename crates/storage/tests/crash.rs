//! A writing process is killed with SIGKILL at random moments, many times over one directory. Its
//! acknowledged durable writes are there when the directory is opened again; a control without
//! durability shows that the test can detect a loss.
//!
//! The killed process is this test's own executable, started again with the directory in an
//! environment variable. `SHUNT_CRASH_ROUNDS` sets the number of kills.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test, as it should")]

use shunt_storage::engine::EngineOptions;
use shunt_storage::row::{
    Cell, CellValue, ColumnId, Deletion, Fragment, Header, Liveness, PartitionKey, RangeTombstone,
    Row, TableId,
};
use shunt_storage::store::{Durability, Mutation, Slice, Ticket, check};
use shunt_storage::{Store, StoreOptions, Target};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const DIRECTORY: &str = "SHUNT_CRASH_DIRECTORY";
const DURABILITY: &str = "SHUNT_CRASH_DURABILITY";
const ROUNDS: &str = "SHUNT_CRASH_ROUNDS";
const TABLE: TableId = TableId(1);
const WRITERS: u8 = 4;
const KEYS: u64 = 64;
/// Number of writes in flight.
const IN_FLIGHT: usize = 32;

/// Xorshift, so that rounds differ and a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Small memtables: flushes and compactions are always in progress.
fn options() -> StoreOptions {
    let engine = EngineOptions {
        memtable_bytes: 256 << 10,
        block_cache_bytes: 4 << 20,
        ..EngineOptions::default()
    };
    StoreOptions { engine, reserve_bytes: 0, write_back_fragments: 3, ..StoreOptions::default() }
}

fn partition(writer: u8, key: u64) -> Vec<u8> {
    let mut bytes = (u64::from(writer) << 32 | key).to_be_bytes().to_vec();
    bytes.push(writer);
    bytes
}

/// Version `version` of a key: two rows in one batch, a column that changes from version to
/// version, and occasionally a deletion of an earlier range.
fn mutations(partition: &[u8], version: i64) -> Vec<Mutation<'_>> {
    let cell = |column, value: Vec<u8>| Cell {
        column: ColumnId(column),
        path: None,
        timestamp: version,
        expiry: None,
        value: CellValue::Live(value),
    };
    let row = || Row {
        liveness: Some(Liveness { timestamp: version, expiry: None }),
        cells: vec![
            cell(0, version.to_be_bytes().to_vec()),
            cell(1 + (version % 7) as u32, vec![version as u8; (version % 400) as usize]),
        ],
        ..Row::default()
    };
    let mutation = |target, fragment| Mutation {
        table: TABLE,
        partition: PartitionKey(partition),
        target,
        fragment,
    };
    let mut batch = vec![
        mutation(Target::Row(b"a"), Fragment::Row(row())),
        mutation(Target::Row(b"b"), Fragment::Row(row())),
    ];
    if version % 10 == 0 {
        let deletion = Deletion { timestamp: version - 1, local: 1 };
        let ranges =
            vec![RangeTombstone::new(Bound::Included(b"a".to_vec()), Bound::Unbounded, deletion)];
        batch.push(mutation(Target::Header, Fragment::Header(Header { deletion: None, ranges })));
    }
    batch
}

/// Not a separate test: the code of the killed process. Without the variable it does nothing.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        assert!(std::env::var_os(DURABILITY).is_none(), "a child without a directory");
        return;
    };
    let durability = match std::env::var(DURABILITY).as_deref() {
        Ok("batch") => Durability::Batch,
        _ => Durability::Periodic { interval: Duration::from_secs(3600) },
    };
    let store = Store::open(Path::new(&directory), options()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write_for_ever(store, writer, durability));
        }
    });
}

fn write_for_ever(store: &Store, writer: u8, durability: Durability) {
    let mut random = Random(u64::from(std::process::id()) << 8 | u64::from(writer) | 1);
    let mut versions: BTreeMap<u64, i64> = BTreeMap::new();
    let mut waiting: VecDeque<(Ticket, u64, i64)> = VecDeque::new();
    loop {
        let key = random.below(KEYS);
        let partition = partition(writer, key);
        let version = versions.entry(key).or_insert_with(|| stored(store, &partition).unwrap_or(0));
        *version += 1;
        let ticket = store.apply(&mutations(&partition, *version), durability).unwrap();
        waiting.push_back((ticket, key, *version));
        if durability != Durability::Batch {
            acknowledge(writer, waiting.pop_front());
        } else if waiting.len() > IN_FLIGHT {
            let oldest = waiting.pop_front();
            oldest.iter().for_each(|(ticket, _, _)| store.wait_durable(*ticket).unwrap());
            acknowledge(writer, oldest);
        }
    }
}

fn acknowledge(writer: u8, written: Option<(Ticket, u64, i64)>) {
    if let Some((_, key, version)) = written {
        let mut out = std::io::stdout().lock();
        writeln!(out, "ack {writer} {key} {version}").unwrap();
        out.flush().unwrap();
    }
}

/// The version of a key in the store. Both of its rows have the same: they were written together.
fn stored(store: &Store, partition: &[u8]) -> Option<i64> {
    let mut rows =
        store.read_partition(TABLE, PartitionKey(partition), &Slice::default(), 1).unwrap();
    let mut versions = Vec::new();
    while let Some((_, row)) = rows.next().unwrap() {
        let CellValue::Live(bytes) = &row.cells[0].value else { panic!("{row:?}") };
        versions.push(i64::from_be_bytes(bytes.as_slice().try_into().unwrap()));
        let point = store.read_row(TABLE, PartitionKey(partition), Target::Row(b"a"), 1).unwrap();
        assert!(point.is_some());
    }
    match versions[..] {
        [] => None,
        [a, b] if a == b => Some(a),
        _ => panic!("half of a batch: {versions:?}"),
    }
}

/// Lets a child write up to a number of acknowledgements, kills it, and collects its
/// acknowledgements.
fn kill_one(directory: &Path, durability: &str, acks: u64, newest: &mut BTreeMap<(u8, u64), i64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(DURABILITY, durability)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut seen) = (String::new(), 0);
    loop {
        line.clear();
        // Also after the kill: lines in the pipe were acknowledged.
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        let Some(position) = line.find("ack ") else { continue };
        let numbers: Vec<i64> =
            line[position + 4..].split_whitespace().map(|word| word.parse().unwrap()).collect();
        let known = newest.entry((numbers[0] as u8, numbers[1] as u64)).or_insert(0);
        *known = (*known).max(numbers[2]);
        seen += 1;
        if seen == acks {
            child.kill().unwrap();
        }
    }
    assert!(seen >= acks, "the child ended by itself after {seen} acknowledgements");
    child.wait().unwrap();
}

/// Number of acknowledged writes that the store lacks.
fn lost(directory: &Path, newest: &BTreeMap<(u8, u64), i64>) -> usize {
    assert_eq!(check(directory, &options()).unwrap(), Vec::new());
    let store = Store::open(directory, options()).unwrap();
    let missing = |((writer, key), version): (&(u8, u64), &i64)| {
        stored(&store, &partition(*writer, *key)).is_none_or(|stored| stored < *version)
    };
    newest.iter().filter(|entry| missing(*entry)).count()
}

fn rounds(default: u64) -> u64 {
    std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

#[test]
fn no_acknowledged_write_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let mut newest = BTreeMap::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds(12) {
        kill_one(directory.path(), "batch", 1 + random.below(3000), &mut newest);
        assert_eq!(lost(directory.path(), &newest), 0, "round {round}");
    }
}

#[test]
fn the_control_without_durability_sees_a_loss() {
    // Writes just before a full memtable are not lost; another child follows then.
    let loses = || {
        let directory = tempfile::tempdir().unwrap();
        let mut newest = BTreeMap::new();
        kill_one(directory.path(), "periodic", 2000, &mut newest);
        lost(directory.path(), &newest) > 0
    };
    assert!((0..10).any(|_| loses()));
}
