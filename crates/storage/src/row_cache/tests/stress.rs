//! Many threads at once. Records carry the version of their row; the engine is an array of
//! versions. No reader may see a version older than one acknowledged (or, with write guards, one
//! seen by any reader) before its read began.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

const ROWS: usize = 3_000;
const READERS: u64 = 3;
const WRITERS: u64 = 2;
const READS: usize = 30_000;

#[derive(Clone, Copy, PartialEq)]
enum Writes {
    Invalidate,
    Update,
    Guarded,
    GuardedUpdate,
}

struct Arena {
    cache: RowCache,
    engine: Vec<AtomicU64>,
    /// The least version that a read beginning now must see.
    floor: Vec<AtomicU64>,
    strict: bool,
    done: AtomicBool,
}

/// Some rows are larger than a page, and are written to SSD immediately.
fn bytes_of(row: usize) -> usize {
    if row % 8 == 7 { 5_000 } else { 100 + row % 700 }
}

fn versioned(version: u64, row: usize) -> Vec<u8> {
    let mut record = vec![row as u8; bytes_of(row)];
    record[..8].copy_from_slice(&version.to_be_bytes());
    record
}

fn version_of(record: &[u8]) -> u64 {
    u64::from_be_bytes(record[..8].try_into().unwrap())
}

impl Arena {
    fn read(&self, random: &mut Random) {
        let row = random.below(1 + random.0 % ROWS as u64) as usize;
        let key = key_of(1, row as u64);
        let floor = self.floor[row].load(Ordering::SeqCst);
        let cached = match self.cache.lookup(&key) {
            Lookup::Hit(row) => Some(row),
            Lookup::OnSsd(ticket) => {
                if random.one_in(8) {
                    thread::yield_now();
                }
                self.cache.read_ssd(ticket)
            }
            Lookup::Miss => None,
        };
        let version = match cached {
            Some(cached) => {
                let record = cached.record().expect("every row exists");
                assert_eq!(record.len(), bytes_of(row), "the record of another row");
                version_of(record)
            }
            None => {
                let token = self.cache.begin_fill(&key);
                let version = self.engine[row].load(Ordering::SeqCst);
                if random.one_in(4) {
                    thread::yield_now();
                }
                self.cache.fill(token, &key, Some(&versioned(version, row)));
                version
            }
        };
        assert!(version >= floor, "row {row}: version {version} was read after {floor}");
        if self.strict {
            self.floor[row].fetch_max(version, Ordering::SeqCst);
        }
    }

    fn write(&self, random: &mut Random, how: Writes) {
        let row = random.below(1 + random.0 % ROWS as u64) as usize;
        let key = key_of(1, row as u64);
        let guard = matches!(how, Writes::Guarded | Writes::GuardedUpdate)
            .then(|| self.cache.begin_write(&key));
        let version = self.engine[row].fetch_add(1, Ordering::SeqCst) + 1;
        // As with cells, the newer of the two wins, in whatever order they are merged.
        let merge = |old: Option<&[u8]>| {
            Update::Record(versioned(version.max(old.map_or(0, version_of)), row))
        };
        match (how, guard) {
            (Writes::GuardedUpdate, Some(guard)) => guard.update(merge),
            (Writes::Update, _) => self.cache.update(&key, merge),
            (_, Some(guard)) => drop(guard),
            _ => self.cache.invalidate(&key),
        }
        self.floor[row].fetch_max(version, Ordering::SeqCst);
    }

    /// Clears the table in the cache, and switches the SSD tier off and on.
    fn disturb(&self, random: &mut Random) {
        for row in 0..ROWS {
            self.engine[row].fetch_add(1, Ordering::SeqCst);
        }
        let versions: Vec<_> =
            self.engine.iter().map(|version| version.load(Ordering::SeqCst)).collect();
        self.cache.clear_table(&1u32.to_be_bytes());
        for (floor, version) in self.floor.iter().zip(versions) {
            floor.fetch_max(version, Ordering::SeqCst);
        }
        if random.one_in(3) {
            self.cache.disable_ssd();
            self.cache.enable_ssd().unwrap();
        }
    }
}

fn fight(how: Writes, disturbed: bool) {
    let disk = Disk::default();
    disk.faults.slow.store(true, Ordering::SeqCst);
    let arena = Arena {
        cache: open_on(&disk, 256 << 10, small_ssd(4)),
        engine: (0..ROWS).map(|_| AtomicU64::new(0)).collect(),
        floor: (0..ROWS).map(|_| AtomicU64::new(0)).collect(),
        // A cleared table changes while readers use it.
        strict: matches!(how, Writes::Guarded | Writes::GuardedUpdate) && !disturbed,
        done: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let arena = &arena;
                scope.spawn(move || {
                    let mut random = Random::new(reader);
                    (0..READS).for_each(|_| arena.read(&mut random));
                })
            })
            .collect();
        for writer in 0..WRITERS {
            let arena = &arena;
            scope.spawn(move || {
                let mut random = Random::new(100 + writer);
                while !arena.done.load(Ordering::SeqCst) {
                    arena.write(&mut random, how);
                    if disturbed && random.one_in(2_000) {
                        arena.disturb(&mut random);
                    }
                    thread::yield_now();
                }
            });
        }
        let ends: Vec<_> = readers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        arena.done.store(true, Ordering::SeqCst);
        ends.into_iter().for_each(|end| end.expect("a reader saw what it should"));
    });
    let statistics = arena.cache.statistics();
    assert!(
        statistics.memory_hits > 1_000 && statistics.ssd_hits > 100,
        "both tiers were in it: {statistics:?}"
    );
    assert_eq!(
        statistics.ssd_read_errors, 0,
        "what is taken for a broken disk was a race: {statistics:?}"
    );
}

#[test]
fn an_invalidated_row_is_never_read_again() {
    fight(Writes::Invalidate, false);
}

#[test]
fn an_updated_row_is_never_read_as_it_was() {
    fight(Writes::Update, false);
}

#[test]
fn with_guarded_writes_no_reader_goes_back_in_time() {
    fight(Writes::Guarded, false);
    fight(Writes::GuardedUpdate, false);
}

#[test]
fn a_cleared_table_is_never_read_again() {
    fight(Writes::Invalidate, true);
}
