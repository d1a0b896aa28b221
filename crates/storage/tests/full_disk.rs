//! A disk that really fills up: writes are refused with the reason, reads continue, writes resume
//! when there is room, and no acknowledged write is lost.
//!
//! The disk is a small tmpfs in a separate mount namespace, in which this executable starts itself
//! again. If the kernel does not allow one, the test reports it and proves nothing.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test, as it should")]

use shunt_storage::engine::EngineOptions;
use shunt_storage::row::{Cell, CellValue, ColumnId, Fragment, PartitionKey, Row, TableId};
use shunt_storage::store::{Durability, Mutation, check};
use shunt_storage::{Store, StoreError, StoreOptions, Target};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DISK: &str = "SHUNT_SMALL_DISK";
const TABLE: TableId = TableId(1);

/// Without a reserve: the engine itself runs out of disk space.
fn options() -> StoreOptions {
    let engine =
        EngineOptions { memtable_bytes: 1 << 20, compression: false, ..EngineOptions::default() };
    StoreOptions {
        engine,
        reserve_bytes: 1,
        watch_interval: Duration::from_millis(20),
        ..StoreOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    [number.to_be_bytes(), number.to_be_bytes()].concat()
}

fn write(store: &Store, number: u64) -> Result<(), StoreError> {
    let value = CellValue::Live(vec![number as u8; 4000]);
    let cell = Cell { column: ColumnId(0), path: None, timestamp: 1, expiry: None, value };
    let fragment = Fragment::Row(Row { cells: vec![cell], ..Row::default() });
    let key = key(number);
    let mutation = Mutation {
        table: TABLE,
        partition: PartitionKey(&key),
        target: Target::Row(b""),
        fragment,
    };
    store.wait_durable(store.apply(&[mutation], Durability::Batch)?)
}

/// Repeats a write that found no room, for two minutes at most.
///
/// A flush or compaction that found none may end after the disk has room and writes have resumed;
/// the store is read-only again then, until the engine has recovered from that failure too.
fn write_when_there_is_room(store: &Store, number: u64) {
    let begun = Instant::now();
    while let Err(error) = write(store, number) {
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(120), "does not recover: {error}");
        std::thread::yield_now();
    }
}

fn all_there(store: &Store, acknowledged: &[u64]) {
    for number in acknowledged {
        let row = store.read_row(TABLE, PartitionKey(&key(*number)), Target::Row(b""), 1).unwrap();
        let value = row.unwrap_or_else(|| panic!("write {number} is lost")).cells[0].value.clone();
        assert_eq!(value, CellValue::Live(vec![*number as u8; 4000]));
    }
}

fn fill_and_recover(disk: &Path) {
    let directory = disk.join("data");
    let ballast = disk.join("ballast");
    // So much that writes and compaction do not fill the disk again.
    std::fs::write(&ballast, vec![1; 36 << 20]).unwrap();
    let store = Store::open(&directory, options()).unwrap();
    let mut acknowledged = Vec::new();
    let error = (0..100_000).find_map(|number| match write(&store, number) {
        Ok(()) => {
            acknowledged.push(number);
            None
        }
        Err(error) => Some(error),
    });
    let error = error.unwrap();
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    assert!(acknowledged.len() > 100);
    assert!(write(&store, 200_000).is_err());
    all_there(&store, &acknowledged);
    std::fs::remove_file(&ballast).unwrap();
    for number in 300_000..300_500 {
        write_when_there_is_room(&store, number);
        acknowledged.push(number);
    }
    all_there(&store, &acknowledged);
    drop(store);
    assert_eq!(check(&directory, &options()).unwrap(), Vec::new());
    all_there(&Store::open(&directory, options()).unwrap(), &acknowledged);
}

#[test]
fn a_full_disk_is_read_only_until_there_is_room() {
    if let Some(disk) = std::env::var_os(DISK) {
        return fill_and_recover(Path::new(&disk));
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=48m none \"$0\" || exit 77; exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_is_read_only_until_there_is_room", "--nocapture"])
        .env(DISK, disk.path())
        .status();
    match status.as_ref().map(|status| status.code()) {
        Ok(Some(1 | 77)) | Err(_) => {
            eprintln!("no small disk can be made here: nothing was tested")
        }
        Ok(code) => assert_eq!(code, Some(0)),
    }
}
