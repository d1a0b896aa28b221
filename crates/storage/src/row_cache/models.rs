//! Models of the parts that decide races in the row cache: a shard's lock, its stripes' generations
//! and open writes, tables' epochs. They cover every interleaving of readers and writers, within a
//! bound of preemptions, and every value that a processor's memory may show.
//!
//! Run with `cargo test -p shunt-storage --no-default-features --features loom --lib models`,
//! without RocksDB: the engine is a number that only the cache's own rules order (`Relaxed`). One
//! shard of one stripe, and no SSD tier. To prevent silent gaps, each model lists the outcomes that
//! it must have seen.

#![allow(clippy::unwrap_used, reason = "a model may panic")]

use std::collections::BTreeSet;
use std::sync::Mutex;

use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::thread;

use super::key::Keys;
use super::memory::MemoryTier;
use super::shard::ShardState;
use super::*;

/// Most preemptions of a runnable thread; most mistakes take one or two.
const PREEMPTIONS_MAX: usize = 3;

const KEY: &[u8] = b"tbl one";
/// In the same stripe, as there is only one.
const OTHER: &[u8] = b"tbl other";
const TABLE: &[u8] = b"tbl ";

/// The outcomes of all executions of a model.
fn outcomes<T: Ord + Send + 'static>(model: impl Fn() -> T + Send + Sync + 'static) -> BTreeSet<T> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    let inserted = Arc::clone(&seen);
    builder.check(move || {
        let outcome = model();
        inserted.lock().unwrap().insert(outcome);
    });
    std::mem::take(&mut *seen.lock().unwrap())
}

/// A cache before an engine with one row, and its writer's signal that a write is acknowledged.
struct Store {
    cache: RowCache,
    engine: AtomicU8,
    acknowledged: AtomicBool,
}

impl Store {
    fn new() -> Arc<Self> {
        let state = ShardState::new(MemoryTier::new(64 << 10, 8), None, 1);
        let shards = Box::new([Shard::new(state)]);
        let shared = Arc::new(Shared { keys: Keys::new(TABLE.len()), shards, ssd: None });
        let cache = RowCache { shared, cascade: None };
        Arc::new(Store { cache, engine: AtomicU8::new(0), acknowledged: AtomicBool::new(false) })
    }

    /// A store with the row already cached.
    fn filled() -> Arc<Self> {
        let store = Self::new();
        assert_eq!((store.read(), store.cached()), (0, Some(0)));
        store
    }

    fn cached(&self) -> Option<u8> {
        match self.cache.lookup(KEY) {
            Lookup::Hit(row) => Some(row.record().unwrap()[0]),
            Lookup::Miss => None,
            Lookup::OnSsd(_) => unreachable!("there is no SSD tier"),
        }
    }

    /// Reads like a user: from the cache, or from the engine into the cache.
    fn read(&self) -> u8 {
        self.cached().unwrap_or_else(|| {
            let token = self.cache.begin_fill(KEY);
            let row = self.engine.load(Ordering::Relaxed);
            self.cache.fill(token, KEY, Some(&[row]));
            row
        })
    }

    /// Reads after checking the signal: returns the row, and whether the write was acknowledged.
    fn read_after_word(&self) -> (u8, bool) {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let row = self.read();
        assert!(row == 1 || !acknowledged, "a stale row after the write was acknowledged");
        (row, acknowledged)
    }
}

fn spawn<T: 'static>(
    store: &Arc<Store>,
    body: impl FnOnce(&Store) -> T + 'static,
) -> thread::JoinHandle<T> {
    let store = Arc::clone(store);
    thread::spawn(move || body(&store))
}

/// Never: a row read before a write enters the cache, or is seen, after the write's invalidation.
///
/// Caught: the generation is advanced or read `Relaxed`; an invalidation advances nothing; a fill
/// does not compare generations; a fill compares them before it has the lock.
#[test]
fn no_stale_row_is_filled_after_an_invalidation() {
    let seen = outcomes(|| {
        let store = Store::new();
        let reader = spawn(&store, |store| store.read());
        store.engine.store(1, Ordering::Relaxed);
        store.cache.invalidate(KEY);
        let row = reader.join().unwrap();
        let cached = store.cached();
        assert_ne!(cached, Some(0), "a stale row stays");
        (row, cached)
    });
    assert_eq!(seen, [(0, None), (1, None), (1, Some(1))].into());
}

/// Never: a reader that knows that a write is done finds the row as before it, held in the cache or
/// inserted again.
///
/// Caught: an invalidation that leaves the row in memory.
#[test]
fn a_row_in_memory_is_gone_when_the_write_is_acknowledged() {
    let seen = outcomes(|| {
        let store = Store::filled();
        let reader = spawn(&store, Store::read_after_word);
        store.engine.store(1, Ordering::Relaxed);
        store.cache.invalidate(KEY);
        store.acknowledged.store(true, Ordering::Release);
        let outcome = reader.join().unwrap();
        assert_ne!(store.cached(), Some(0), "a stale row stays");
        outcome
    });
    assert_eq!(seen, [(0, false), (1, false), (1, true)].into());
}

/// Never: a row updated in place misses one of two concurrent writes, whether the other is an
/// update or an invalidation.
///
/// Caught: a merged row is inserted without a check that the row is still there, and still the one
/// it was merged with.
#[test]
fn two_concurrent_writes_of_a_row_are_both_kept() {
    for invalidates in [false, true] {
        let seen = outcomes(move || {
            let store = Store::filled();
            let write = |store: &Store, bit: u8, invalidates: bool| {
                store.engine.fetch_or(bit, Ordering::Relaxed);
                if invalidates {
                    store.cache.invalidate(KEY);
                } else {
                    store.cache.update(KEY, |row| Update::Record(vec![row.unwrap()[0] | bit]));
                }
            };
            let other = spawn(&store, move |store| write(store, 2, invalidates));
            write(&store, 1, false);
            other.join().unwrap();
            let cached = store.cached();
            assert_eq!(cached.unwrap_or(3), 3, "a write was lost");
            cached
        });
        assert_eq!(seen, [if invalidates { None } else { Some(3) }].into());
    }
}

/// Never: an update of an absent row admits a row read before it.
///
/// Caught: an update that does not advance the generation.
#[test]
fn an_update_keeps_out_what_was_read_before() {
    let seen = outcomes(|| {
        let store = Store::new();
        let reader = spawn(&store, |store| store.read());
        store.engine.store(1, Ordering::Relaxed);
        store.cache.update(KEY, |row| Update::Record(vec![row.unwrap()[0] | 1]));
        let row = reader.join().unwrap();
        let cached = store.cached();
        assert_ne!(cached, Some(0), "a stale row stays");
        (row, cached)
    });
    assert_eq!(seen, [(0, None), (0, Some(1)), (1, None), (1, Some(1))].into());
}

/// Never: with two writers in a stripe, a reader sees an unacknowledged write in the engine, and
/// then the earlier row in the cache.
///
/// Caught: the end of the other's write ends both (a flag instead of a count); a look-up ignores
/// open writes; the end of a write does not advance the generation.
#[test]
fn a_read_never_goes_back_while_two_write_in_a_stripe() {
    let seen = outcomes(|| {
        let store = Store::filled();
        let other = spawn(&store, |store| drop(store.cache.begin_write(OTHER)));
        // Reads like a scan: from the engine alone.
        let reader = spawn(&store, |store| {
            [store.engine.load(Ordering::Acquire), store.read(), store.read()]
        });
        let write = store.cache.begin_write(KEY);
        store.engine.store(1, Ordering::Release);
        drop(write);
        other.join().unwrap();
        let reads = reader.join().unwrap();
        assert!(reads.is_sorted(), "{reads:?}");
        assert_ne!(store.cached(), Some(0), "a stale row stays");
        reads
    });
    assert_eq!(seen, [[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]].into());
}

/// Never: a row of a cleared table comes back, or is seen by a reader that knows that the table is
/// cleared.
///
/// Caught: the epoch is incremented or read `Relaxed`; a fill uses the current epoch instead of its
/// token's; a look-up does not compare epochs.
#[test]
fn no_row_outlives_its_table() {
    for new in [Store::new, Store::filled] {
        let seen = outcomes(move || {
            let store = new();
            let reader = spawn(&store, Store::read_after_word);
            store.engine.store(1, Ordering::Relaxed);
            store.cache.clear_table(TABLE);
            store.acknowledged.store(true, Ordering::Release);
            let outcome = reader.join().unwrap();
            assert_ne!(store.cached(), Some(0), "a row of before stays");
            outcome
        });
        assert_eq!(seen, [(0, false), (1, false), (1, true)].into());
    }
}
