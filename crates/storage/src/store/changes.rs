//! Recent writes by hash of the key: whether a record has changed since it was read, how many
//! unmerged fragments it has, and whether it already waits for a merge.
//!
//! Fixed-size tables of counters: no lock, no allocation, no state per record. Two records with
//! equal hashes may make each other look changed, which costs another attempt, or lose the count of
//! fragments, which costs a slower read. A changed record must never look unchanged.

use crate::engine::Write;
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of slots of each table.
const SLOTS: usize = 4096;

/// Number of fragments on one record after which a merge is worthwhile even if no reader asked for
/// it, and again after as many more.
const PILE: u64 = 64;

/// Above this number a reader that must not wait does not even gather the fragments.
const PILE_MAX: u64 = 1024;

/// Bits of a pile's slot that count; the others identify the record.
const COUNT: u64 = u16::MAX as u64;

/// Tables of counters described above.
pub(super) struct Changes {
    seed: DefaultHashBuilder,
    /// Changes of all records at once: deleted ranges of keys, and searches for schemas.
    all: AtomicU64,
    changes: Box<[AtomicU64]>,
    piles: Box<[AtomicU64]>,
    waiting: Box<[AtomicU64]>,
}

/// State of a record at a moment; equal if no write came in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Default for Changes {
    fn default() -> Self {
        let table = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let (seed, all) = (DefaultHashBuilder::default(), AtomicU64::new(0));
        Changes { seed, all, changes: table(), piles: table(), waiting: table() }
    }
}

fn slot(table: &[AtomicU64], hash: u64) -> &AtomicU64 {
    &table[hash as usize % SLOTS]
}

impl Changes {
    fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash_one(key)
    }

    /// Must be called before a record is read. Its writer reports a change after the write and
    /// before leaving the gate: a reader that closes the gate afterwards and sees the same state
    /// has read everything.
    pub(super) fn seen(&self, key: &[u8]) -> Seen {
        // Both only grow, so the sum is unchanged only if neither grew.
        let one = slot(&self.changes, self.hash(key)).load(Ordering::Acquire);
        Seen(one.wrapping_add(self.all.load(Ordering::Acquire)))
    }

    /// Must be called after a batch, successful or not: a failed one leaves an unknown state.
    /// `told` gets the records with many fragments.
    pub(super) fn wrote(&self, batch: &[Write], mut told: impl FnMut(&[u8])) {
        for write in batch {
            match write {
                Write::Merge(key, _) => {
                    let hash = self.hash(key);
                    slot(&self.changes, hash).fetch_add(1, Ordering::AcqRel);
                    if self.pile_up(hash).is_multiple_of(PILE) {
                        told(key);
                    }
                }
                Write::Put(key, _) | Write::Delete(key) => {
                    slot(&self.changes, self.hash(key)).fetch_add(1, Ordering::AcqRel);
                    self.put_together(key);
                }
                Write::DeleteRange(..) => self.all_changed(),
            }
        }
    }

    /// Marks every record as changed.
    pub(super) fn all_changed(&self) {
        self.all.fetch_add(1, Ordering::AcqRel);
    }

    fn pile_up(&self, hash: u64) -> u64 {
        let slot = slot(&self.piles, hash);
        let known = slot.load(Ordering::Relaxed);
        let count = if known & !COUNT == hash & !COUNT {
            (known & COUNT).saturating_add(1).min(COUNT)
        } else {
            1
        };
        // A concurrent count may be lost: the next multiple then comes a little later.
        slot.store(hash & !COUNT | count, Ordering::Relaxed);
        count
    }

    /// Resets the count of a record that was merged or removed.
    pub(super) fn put_together(&self, key: &[u8]) {
        let hash = self.hash(key);
        let slot = slot(&self.piles, hash);
        if slot.load(Ordering::Relaxed) & !COUNT == hash & !COUNT {
            slot.store(0, Ordering::Relaxed);
        }
    }

    /// True if a record has too many fragments for a reader that must not wait.
    pub(super) fn is_piled_up(&self, key: &[u8]) -> bool {
        let hash = self.hash(key);
        let known = slot(&self.piles, hash).load(Ordering::Relaxed);
        known & !COUNT == hash & !COUNT && known & COUNT > PILE_MAX
    }

    /// True if the record did not wait yet; marks it as waiting.
    pub(super) fn begins_to_wait(&self, key: &[u8]) -> bool {
        let hash = self.hash(key) | 1;
        slot(&self.waiting, hash >> 1).swap(hash, Ordering::Relaxed) != hash
    }

    /// Marks the record as not waiting.
    pub(super) fn ends_to_wait(&self, key: &[u8]) {
        let hash = self.hash(key) | 1;
        let _ = slot(&self.waiting, hash >> 1).compare_exchange(
            hash,
            0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_changed_never_looks_as_if_it_had_not() {
        let changes = Changes::default();
        let key = b"key".to_vec();
        let before = changes.seen(&key);
        assert_eq!(changes.seen(&key), before);
        let writes = [
            Write::Merge(key.clone(), Vec::new()),
            Write::Put(key.clone(), Vec::new()),
            Write::Delete(key.clone()),
            Write::DeleteRange(Vec::new(), vec![0xFF]),
        ];
        let mut last = before;
        for write in writes {
            changes.wrote(&[write], |_| ());
            assert_ne!(changes.seen(&key), last);
            last = changes.seen(&key);
        }
    }

    #[test]
    fn fragments_are_counted_until_they_are_put_together() {
        let changes = Changes::default();
        let key = b"key".to_vec();
        let write = [Write::Merge(key.clone(), Vec::new())];
        let pile = |count| {
            let mut told = 0;
            (0..count).for_each(|_| changes.wrote(&write, |_| told += 1));
            told
        };
        assert_eq!((pile(PILE - 1), pile(1), pile(PILE)), (0, 1, 1));
        assert!(!changes.is_piled_up(&key));
        pile(PILE_MAX);
        assert!(changes.is_piled_up(&key) && !changes.is_piled_up(b"another"));
        changes.put_together(&key);
        assert!(!changes.is_piled_up(&key));
        pile(COUNT + PILE);
        assert!(changes.is_piled_up(&key), "the count ends where its place does");
    }

    #[test]
    fn a_record_waits_once() {
        let changes = Changes::default();
        assert!(changes.begins_to_wait(b"key") && !changes.begins_to_wait(b"key"));
        changes.ends_to_wait(b"key");
        assert!(changes.begins_to_wait(b"key"));
    }
}
