//! Many threads on a store with a tiny cache. Every row has growing versions, some of them
//! deletions of its partition. No reader sees an older version than one acknowledged, or seen by
//! any reader, before its read began.

use super::*;
use crate::catalogue::Catalogue;
use crate::row_cache::tests::disk::Disk;
use crate::row_cache::tests::{Random, open_on, small_ssd};
use crate::row_cache::{RowCacheOptions, SsdAdmission, SsdOptions};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

const ROWS: usize = 300;
const WRITERS: usize = 2;
const READERS: u64 = 2;
const WRITES: usize = 6_000;
/// Every version divisible by this deletes the row's partition.
const DELETES: u64 = 7;

struct Arena {
    store: Store,
    /// By row: the newest version begun by a writer, and the least version that a read beginning
    /// now must see.
    begun: Vec<AtomicU64>,
    floor: Vec<AtomicU64>,
    done: AtomicBool,
}

/// Rows are written back as soon as they have been merged from two fragments.
fn eager() -> StoreOptions {
    StoreOptions { write_back_fragments: 2, ..options() }
}

fn key_of(row: usize) -> [u8; 10] {
    let [high, low] = (row as u16).to_be_bytes();
    [0x80, 0, 0, 0, 0, 0, high, low, high, low]
}

impl Arena {
    fn new(store: Store) -> Self {
        // Deletions exceed the grace immediately: sweeps take every one they meet.
        store.set_gc_grace(TABLE, 1);
        let zeros = || (0..ROWS).map(|_| AtomicU64::new(0)).collect();
        Arena { store, begun: zeros(), floor: zeros(), done: AtomicBool::new(false) }
    }

    /// Each row has only one writer.
    fn write(&self, row: usize) {
        let version = self.begun[row].fetch_add(1, Ordering::SeqCst) + 1;
        let (key, timestamp) = (key_of(row), version as i64);
        if version.is_multiple_of(DELETES) {
            let deletion = Some(Deletion { timestamp, local: 1 });
            delete(&self.store, &key, Header { deletion, ranges: Vec::new() });
        } else {
            let mut value = vec![row as u8; 100 + row * 7];
            value[..8].copy_from_slice(&version.to_be_bytes());
            put(&self.store, &key, Target::Row(b""), insert(0, timestamp, &value));
        }
        self.floor[row].fetch_max(version, Ordering::SeqCst);
    }

    fn read(&self, row: usize) {
        let floor = self.floor[row].load(Ordering::SeqCst);
        let found =
            self.store.read_row(TABLE, PartitionKey(&key_of(row)), Target::Row(b""), NOW).unwrap();
        let begun = self.begun[row].load(Ordering::SeqCst);
        let seen = match found.as_ref().map(|row| &row.cells[0].value) {
            Some(CellValue::Live(value)) => u64::from_be_bytes(value[..8].try_into().unwrap()),
            Some(other) => panic!("{other:?}"),
            // The first state without the row that may still be seen.
            None => floor.next_multiple_of(DELETES),
        };
        assert!(
            (floor..=begun).contains(&seen),
            "row {row}: {seen} seen, {floor} before, {begun} begun"
        );
        self.floor[row].fetch_max(seen, Ordering::SeqCst);
    }

    fn upkeep(&self) {
        while !self.done.load(Ordering::SeqCst) {
            self.store.sweep(TABLE).unwrap();
            self.store.flush().unwrap();
            self.store.reclaim_schemas().unwrap();
        }
    }

    fn run(&self) {
        thread::scope(|scope| {
            let writer = |number: usize| {
                let mut random = Random::new(number as u64);
                for _ in 0..WRITES {
                    let below = 1 + random.below((ROWS / WRITERS) as u64);
                    self.write(random.below(below) as usize * WRITERS + number);
                }
            };
            let writers: Vec<_> =
                (0..WRITERS).map(|number| scope.spawn(move || writer(number))).collect();
            for number in 0..READERS {
                scope.spawn(move || {
                    let mut random = Random::new(100 + number);
                    while !self.done.load(Ordering::SeqCst) {
                        let below = 1 + random.below(ROWS as u64);
                        self.read(random.below(below) as usize);
                    }
                });
            }
            scope.spawn(|| self.upkeep());
            for writer in writers {
                let ended = writer.join();
                if ended.is_err() {
                    self.done.store(true, Ordering::SeqCst);
                }
                ended.unwrap();
            }
            self.done.store(true, Ordering::SeqCst);
        });
        (0..ROWS).for_each(|row| self.read(row));
        let statistics = self.store.figures().row_cache.unwrap();
        assert!(statistics.memory_hits > 1_000 && statistics.fills > 1_000, "{statistics:?}");
    }
}

#[test]
fn no_reader_goes_back_in_time() {
    let cache = open_on(&Disk::default(), 256 << 10, small_ssd(4));
    let (options, catalogue) = (eager(), Arc::new(Catalogue::in_memory(options().catalogue)));
    let store = Store::assemble(options, catalogue, Some(cache), None, |_, merger| {
        Ok(Box::new(MemoryEngine::new(merger)))
    });
    Arena::new(store.unwrap()).run();
}

#[test]
fn no_reader_goes_back_in_time_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mut ssd = SsdOptions::new(directory.path().join("ssd"), 2 << 20);
    ssd.admission = SsdAdmission::All;
    let row_cache = Some(RowCacheOptions {
        memory_bytes: 256 << 10,
        ssd: Some(ssd),
        ..RowCacheOptions::default()
    });
    let store =
        Store::open(&directory.path().join("data"), StoreOptions { row_cache, ..eager() }).unwrap();
    Arena::new(store).run();
}
