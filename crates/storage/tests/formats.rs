//! Every format on disk, as written by the version that began it: `fixtures` holds the bytes, this
//! file the values. Today's code must read them to these values for as long as the format is
//! supported, and write these bytes for the values.
//!
//! `SHUNT_WRITE_FIXTURES=1` writes missing fixtures and never overwrites one: see "Changing a
//! format" in CONTRIBUTING.md.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test, as it should")]

use shunt_storage::catalogue::{
    Catalogue, DecodeError, Limits, decode_header, decode_row, decode_unmerged, encode_header,
    encode_row, encode_unmerged,
};
use shunt_storage::engine::{EngineOptions, LogMark};
use shunt_storage::row::{
    Cell, CellValue, ColumnId, Cut, Deletion, Expiry, Fragment, Header, Liveness, PartitionKey,
    RangeTombstone, Row, TableId,
};
use shunt_storage::store::{Durability, Mutation, check};
use shunt_storage::{Store, StoreError, StoreOptions, Target, raw};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TABLE: TableId = TableId(5);
const TIMESTAMP: i64 = 1_790_000_000_123_456;
const NOW: i64 = 1_790_000_010;
const DELETION: Deletion = Deletion { timestamp: TIMESTAMP - 7, local: 1_790_000_001 };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn is_writing() -> bool {
    std::env::var_os("SHUNT_WRITE_FIXTURES").is_some()
}

/// The bytes of a fixture; `written` is today's encoding of its values, `version` the place of its
/// version.
fn kept(name: &str, written: &[u8], version: &str) -> Vec<u8> {
    let path = fixture(name);
    if is_writing() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, written).unwrap();
    }
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        bytes == written,
        "what is written differs from {}: the format has changed. Raise its version ({version}), keep this fixture, and add \
         one of the new version: see \"Changing a format\" in CONTRIBUTING.md.\n{bytes:02x?} is there\n{written:02x?} is written",
        path.display()
    );
    bytes
}

/// Panics with instructions for a fixture that is no longer readable.
fn unread(name: &str, found: impl std::fmt::Debug) -> ! {
    panic!(
        "fixture {name} is not read as it was: {found:?}. A format that was ever released stays readable: give the new one \
         a version of its own, see \"Changing a format\" in CONTRIBUTING.md"
    )
}

fn cell(column: u32, value: CellValue) -> Cell {
    Cell { column: ColumnId(column), path: None, timestamp: TIMESTAMP, expiry: None, value }
}

fn live(column: u32, value: &[u8]) -> Cell {
    cell(column, CellValue::Live(value.to_vec()))
}

/// Rows with every part that a record may have.
fn rows() -> Vec<(&'static str, Row)> {
    let liveness = Some(Liveness { timestamp: TIMESTAMP, expiry: None });
    let expiry = Some(Expiry { ttl: 60, at: 1_790_000_060 });
    let every_cell = vec![
        Cell { expiry, ..live(1, b"expires") },
        Cell { timestamp: TIMESTAMP + 9, expiry, ..live(2, b"later") },
        live(3, b"stays"),
        Cell { expiry: Some(Expiry { ttl: 1, at: 1_790_000_001 }), ..live(4, b"soon gone") },
        cell(6, CellValue::Tombstone { local: 1_790_000_002 }),
        cell(7, CellValue::Counter(-5)),
        cell(8, CellValue::CounterDelta(6)),
    ];
    let element = |path: &[u8], value| Cell { path: Some(path.to_vec()), ..cell(1, value) };
    let elements = vec![
        element(b"", CellValue::Live(b"first".to_vec())),
        element(b"a", CellValue::Tombstone { local: 1_790_000_003 }),
        element(b"b", CellValue::Live(Vec::new())),
    ];
    let own = Some(Liveness {
        timestamp: TIMESTAMP - 9,
        expiry: Some(Expiry { ttl: 2, at: 1_790_000_002 }),
    });
    let key = Cell { timestamp: 0, ..live(ColumnId::KEY_AS_WRITTEN.0, b"\x00\x01K") };
    vec![
        (
            "exact",
            Row {
                liveness,
                cells: vec![live(1, b"same"), live(2, b"long"), live(3, b"four")],
                ..Row::default()
            },
        ),
        (
            "base",
            Row {
                liveness,
                cells: vec![live(2, b"two"), live(300, b"three hundred")],
                ..Row::default()
            },
        ),
        (
            "inline",
            Row { liveness, cells: vec![live(9, b"nine"), live(1000, b"")], ..Row::default() },
        ),
        (
            "expiring",
            Row {
                liveness: Some(Liveness { timestamp: TIMESTAMP, expiry }),
                cells: every_cell,
                ..Row::default()
            },
        ),
        ("own-liveness", Row { liveness: own, cells: vec![live(1, b"v"), key], ..Row::default() }),
        (
            "elements",
            Row {
                liveness,
                deletion: Some(DELETION),
                complex: vec![
                    (ColumnId(1), DELETION),
                    (ColumnId(4), Deletion { timestamp: TIMESTAMP, ..DELETION }),
                ],
                cells: elements,
            },
        ),
        ("deleted", Row { deletion: Some(DELETION), ..Row::default() }),
        ("empty", Row::default()),
    ]
}

/// With the exact schema 0 of columns 1 to 3, the base 1 of those and 300, and no more room.
fn catalogue() -> Catalogue {
    let catalogue = Catalogue::in_memory(Limits { exact: 1, bases: 1, ..Limits::default() });
    for columns in [&[1, 2, 3][..], &[300]] {
        let row = Row {
            cells: columns.iter().map(|column| live(*column, b"")).collect(),
            ..Row::default()
        };
        encode_row(&row, TABLE, &catalogue, &mut Vec::new());
    }
    catalogue
}

fn header() -> Header {
    let range = |start, end, timestamp| RangeTombstone {
        start,
        end,
        deletion: Deletion { timestamp, ..DELETION },
    };
    let ranges = vec![
        range(Cut::Start, Cut::Before(b"a".to_vec()), TIMESTAMP),
        range(Cut::After(b"b".to_vec()), Cut::After(b"c".to_vec()), TIMESTAMP + 1),
        range(Cut::Before(b"d".to_vec()), Cut::End, TIMESTAMP + 2),
    ];
    Header { deletion: Some(DELETION), ranges }
}

const RECORD: &str = "VERSION in catalogue/layout.rs";

#[test]
fn records_of_rows() {
    let catalogue = catalogue();
    for (name, row) in rows() {
        let mut written = Vec::new();
        encode_row(&row, TABLE, &catalogue, &mut written);
        let name = format!("record-1/row-{name}");
        let bytes = kept(&name, &written, RECORD);
        match decode_row(&bytes, &catalogue) {
            Ok(read) if read == row => {}
            other => unread(&name, other),
        }
    }
}

#[test]
fn records_of_headers_and_of_fragments() {
    let mut written = Vec::new();
    encode_header(&header(), &mut written);
    let bytes = kept("record-1/header", &written, RECORD);
    match decode_header(&bytes) {
        Ok(read) if read == header() => {}
        other => unread("record-1/header", other),
    }
    let fragments = [&bytes[..], b"broken"];
    let mut written = Vec::new();
    encode_unmerged(fragments.into_iter(), &mut written);
    let bytes = kept("record-1/unmerged", &written, RECORD);
    match decode_unmerged(&bytes) {
        Some(read) if read == fragments => {}
        other => unread("record-1/unmerged", other),
    }
}

#[test]
fn records_of_a_version_to_come_are_refused() {
    let catalogue = catalogue();
    for name in ["row-exact", "header", "unmerged"] {
        let mut bytes = fs::read(fixture("record-1").join(name)).unwrap();
        bytes[0] = bytes[0] & 0x0F | 2 << 4;
        let row = decode_row(&bytes, &catalogue).unwrap_err();
        assert_eq!(row, DecodeError::Version { found: 2 });
        assert_eq!(row.to_string(), "record format 2 is not known");
        assert_eq!(decode_header(&bytes), Err(DecodeError::Version { found: 2 }));
        assert_eq!(decode_unmerged(&bytes), None);
    }
}

#[test]
fn keys() {
    let long = [b"12345678", &[7; 300][..]].concat();
    let places: [(&str, &[u8], Target<'_>); 4] = [
        ("header", b"\x80\0\0\0\0\0\0\x01partition", Target::Header),
        ("static", b"\x80\0\0\0\0\0\0\x01", Target::Static),
        ("row", b"\x80\0\0\0\0\0\0\x01partition", Target::Row(b"clustering")),
        ("long-partition", &long, Target::Row(b"")),
    ];
    for (name, partition, target) in places {
        let name = format!("key-1/{name}");
        let written = raw::key(TABLE, PartitionKey(partition), target).unwrap();
        let bytes =
            kept(&name, &written, "FORMAT in store/directory.rs: keys have none of their own");
        match raw::split_key(&bytes) {
            Some(found) if found == (TABLE, partition.to_vec(), target) => {}
            other => unread(&name, other),
        }
    }
}

/// In the order in which a store writes: the head with the next id, then schemas as rows need them.
#[test]
fn the_file_of_schemas() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    let opened =
        Catalogue::open(&path, Limits { exact: 1, bases: 1, ..Limits::default() }).unwrap();
    for columns in [&[1, 2, 3][..], &[300]] {
        let row = Row {
            cells: columns.iter().map(|column| live(*column, b"")).collect(),
            ..Row::default()
        };
        encode_row(&row, TABLE, &opened, &mut Vec::new());
        opened.persist().unwrap();
    }
    let bytes = kept("catalogue-1", &fs::read(&path).unwrap(), "VERSION in catalogue/file.rs");
    let columns = |columns: &[u32]| columns.iter().copied().map(ColumnId).collect::<Vec<_>>();
    let schemas =
        vec![(0, TABLE, columns(&[1, 2, 3]), false), (1, TABLE, columns(&[1, 2, 3, 300]), true)];
    match raw::decode_catalogue(&bytes) {
        Ok(found) if found == (schemas, 2, bytes.len() as u64) => {}
        other => unread("catalogue-1", other),
    }
    let mut later = bytes;
    later[7] = 2;
    fs::write(&path, &later).unwrap();
    let refused = Catalogue::open(&path, Limits::default()).unwrap_err().to_string();
    assert!(refused.ends_with("its format is 2, this program knows 1"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), later, "and left as it is");
}

/// The length is the version: the first had only the number of the write, the second also the
/// manifest.
#[test]
fn the_file_of_what_was_synced() {
    let mut logs = [LogMark::default(); 8];
    logs[0] = LogMark { number: 12, bytes: 4096 };
    logs[1] = LogMark { number: 9, bytes: 100 };
    let manifest = (5, 300, 0xCAFE_F00D);
    let written = raw::encode_synced((77, manifest, logs));
    kept("synced-3", &written, "it is told by the file's length, in engine/sync_mark.rs");
    let shorter = |length: usize| {
        [&written[..length], &crc32fast::hash(&written[..length]).to_le_bytes()].concat()
    };
    kept("synced-2", &shorter(28), "it is told by the file's length, in engine/sync_mark.rs");
    kept("synced-1", &shorter(8), "it is told by the file's length, in engine/sync_mark.rs");
    let none = [LogMark::default(); 8];
    let said = [
        ("synced-1", (77, (0, 0, 0), none)),
        ("synced-2", (77, manifest, none)),
        ("synced-3", (77, manifest, logs)),
    ];
    for (name, said) in said {
        match raw::decode_synced(&fs::read(fixture(name)).unwrap()) {
            Some(found) if found == said => {}
            other => unread(name, other),
        }
    }
    // A file longer than any version shows nothing, like a damaged one: its content is checked, not
    // needed.
    assert_eq!(raw::decode_synced(&[&written[..], &[0; 16]].concat()), None);
}

fn options() -> StoreOptions {
    let engine = EngineOptions {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        ..EngineOptions::default()
    };
    StoreOptions {
        create: false,
        engine,
        clock: Arc::new(|| NOW),
        reserve_bytes: 0,
        ..StoreOptions::default()
    }
}

fn partition(number: u8) -> [u8; 9] {
    [0x80, 0, 0, 0, 0, 0, 0, number, number]
}

/// Rows in a file, then a header and rows only in the log, one of them over a row of the file.
fn write_store(directory: &Path) {
    let store = Store::open(directory, StoreOptions { create: true, ..options() }).unwrap();
    let put = |number: u8, target, fragment| {
        let partition = partition(number);
        let mutation =
            Mutation { table: TABLE, partition: PartitionKey(&partition), target, fragment };
        store.wait_durable(store.apply(&[mutation], Durability::Batch).unwrap()).unwrap();
    };
    for (number, (name, row)) in rows().into_iter().enumerate() {
        put(number as u8, Target::Row(name.as_bytes()), Fragment::Row(row));
    }
    store.flush().unwrap();
    put(0, Target::Row(b"exact"), Fragment::Row(newer()));
    put(
        9,
        Target::Static,
        Fragment::Row(Row { cells: vec![live(1, b"static")], ..Row::default() }),
    );
    put(
        9,
        Target::Row(b"bb"),
        Fragment::Row(Row { cells: vec![live(1, b"covered")], ..Row::default() }),
    );
    put(
        9,
        Target::Row(b"ca"),
        Fragment::Row(Row { cells: vec![live(1, b"not covered")], ..Row::default() }),
    );
    put(9, Target::Header, Fragment::Header(header()));
}

fn newer() -> Row {
    Row { cells: vec![Cell { timestamp: TIMESTAMP + 1, ..live(2, b"newer") }], ..Row::default() }
}

/// The files that RocksDB needs; the others describe where the directory was made.
fn copy_store(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("db")).unwrap();
    for (below, keep) in [("", None), ("db", Some(["LOG", "OPTIONS", "LOCK", "IDENTITY"]))] {
        for entry in fs::read_dir(from.join(below)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let left_out =
                keep.is_some_and(|names| names.iter().any(|other| name.starts_with(other)));
            if entry.path().is_file() && name != "LOCK" && !left_out {
                fs::copy(entry.path(), to.join(below).join(name)).unwrap();
            }
        }
    }
}

fn values(store: &Store, number: u8, target: Target<'_>) -> Vec<(u32, CellValue)> {
    let row = store.read_row(TABLE, PartitionKey(&partition(number)), target, NOW).unwrap();
    row.into_iter().flat_map(|row| row.cells).map(|cell| (cell.column.0, cell.value)).collect()
}

#[test]
fn a_data_directory() {
    let name = "store-1";
    if is_writing() && !fixture(name).exists() {
        let directory = tempfile::tempdir().unwrap();
        write_store(directory.path());
        copy_store(directory.path(), &fixture(name));
    }
    let directory = tempfile::tempdir().unwrap();
    copy_store(&fixture(name), directory.path());
    match check(directory.path(), &options()) {
        Ok(problems) if problems.is_empty() => {}
        other => unread(name, other),
    }
    let store =
        Store::open(directory.path(), options()).unwrap_or_else(|error| unread(name, error));
    let is = |value: &[u8]| CellValue::Live(value.to_vec());
    // With all its times.
    let base =
        store.read_row(TABLE, PartitionKey(&partition(1)), Target::Row(b"base"), NOW).unwrap();
    assert_eq!(base.as_ref(), rows().iter().find(|(name, _)| *name == "base").map(|(_, row)| row));
    assert_eq!(
        values(&store, 0, Target::Row(b"exact")),
        [(1, is(b"same")), (2, is(b"newer")), (3, is(b"four"))]
    );
    assert_eq!(
        values(&store, 1, Target::Row(b"base")),
        [(2, is(b"two")), (300, is(b"three hundred"))]
    );
    assert_eq!(values(&store, 2, Target::Row(b"inline")), [(9, is(b"nine")), (1000, is(b""))]);
    let expiring = [(1, is(b"expires")), (2, is(b"later")), (3, is(b"stays"))];
    assert_eq!(values(&store, 3, Target::Row(b"expiring"))[..3], expiring);
    assert_eq!(values(&store, 4, Target::Row(b"own-liveness"))[0], (1, is(b"v")));
    assert_eq!(values(&store, 5, Target::Row(b"elements")), [(1, is(b"first")), (1, is(b""))]);
    assert_eq!(values(&store, 6, Target::Row(b"deleted")), []);
    assert_eq!(values(&store, 9, Target::Static), [(1, is(b"static"))]);
    assert_eq!(values(&store, 9, Target::Row(b"bb")), []);
    assert_eq!(values(&store, 9, Target::Row(b"ca")), [(1, is(b"not covered"))]);
    assert_eq!(store.tables().unwrap(), [TABLE]);
    // The store accepts writes.
    let partition = partition(10);
    let mutation = Mutation {
        table: TABLE,
        partition: PartitionKey(&partition),
        target: Target::Row(b""),
        fragment: Fragment::Row(newer()),
    };
    store.wait_durable(store.apply(&[mutation], Durability::Batch).unwrap()).unwrap();
    drop(store);
    let store = Store::open(directory.path(), options()).unwrap();
    assert_eq!(values(&store, 10, Target::Row(b"")), [(2, is(b"newer"))]);
    assert_eq!(values(&store, 9, Target::Static), [(1, is(b"static"))]);
}

#[test]
fn a_data_directory_of_a_version_to_come_is_refused_and_left_alone() {
    let format = fs::read(fixture("store-1/FORMAT")).unwrap();
    assert_eq!(format, b"shunt storage 1\n", "FORMAT in store/directory.rs");
    let directory = tempfile::tempdir().unwrap();
    copy_store(&fixture("store-1"), directory.path());
    fs::write(directory.path().join("FORMAT"), "shunt storage 2\n").unwrap();
    let before = names(directory.path());
    let refused =
        Store::open(directory.path(), StoreOptions { create: true, ..options() }).err().unwrap();
    assert!(matches!(refused, StoreError::Format { .. }), "{refused:?}");
    let message = refused.to_string();
    assert!(message.contains("not a data directory that this version can read"), "{message}");
    assert!(
        message.contains("it says \"shunt storage 2\", expected \"shunt storage 1\""),
        "{message}"
    );
    assert_eq!(names(directory.path()), before);
}

fn names(directory: &Path) -> Vec<String> {
    let all = [directory.to_owned(), directory.join("db")];
    let entries = all.iter().flat_map(|directory| fs::read_dir(directory).unwrap());
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().path().display().to_string()).collect();
    names.sort();
    names
}
