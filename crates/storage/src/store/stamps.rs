//! Notices that a partition was written to while several of its records were read.
//!
//! A batch is in the engine in one step, but a reader of several records, from the engine and from
//! the row cache, takes one after another. It looks at the partition's stamp before and after. If
//! no write was under way and none came, all that it read is of one moment; otherwise it reads
//! again through one cursor, which is a view of one moment by itself. Readers wait for nobody, and
//! writers for no reader.
//!
//! The one thing that this may never do is to call records of two moments one: a write has begun
//! here before anybody can see it, and has ended only when everybody sees it, in the row cache as
//! in the engine. Partitions share stamps, so that a reader may read again for nothing.

use crate::engine::Write;
use crate::key;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Partitions have so many stamps between them.
const STAMPS: usize = 4096;

/// One that has begun, in the upper half of a stamp; those that have ended are in the lower half.
const BEGUN: u64 = 1 << 32;

/// For all partitions of a store.
pub(super) struct Stamps(Box<[AtomicU64]>);

/// The stamp that a reader has seen of a partition before it read. `None`: a write was under way.
#[derive(Clone, Copy)]
pub(super) struct Seen(Option<u64>);

/// Writes that are under way.
pub(super) struct UnderWay<'s> {
    stamps: &'s Stamps,
    batch: &'s [Write],
}

impl Default for Stamps {
    fn default() -> Self {
        Stamps((0..STAMPS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Stamps {
    /// By the partition's token, which is a hash of its key; records of the store's own have any.
    fn of(&self, key: &[u8]) -> &AtomicU64 {
        let token =
            key.get(key::TABLE_BYTES..key::TABLE_BYTES + 8).and_then(|bytes| bytes.try_into().ok());
        let token = token.map_or(0, u64::from_be_bytes);
        &self.0[token as usize % STAMPS]
    }

    /// Before the first record of a partition is read, of which any key will do.
    pub(super) fn look(&self, key: &[u8]) -> Seen {
        let stamp = self.of(key).load(Ordering::Acquire);
        Seen((stamp >> 32 == stamp & (BEGUN - 1)).then_some(stamp))
    }

    /// After the last one: whether all that was read is of one moment.
    pub(super) fn are_as(&self, seen: Seen, key: &[u8]) -> bool {
        // What was read, was read before.
        fence(Ordering::Acquire);
        seen.0.is_some_and(|stamp| self.of(key).load(Ordering::Relaxed) == stamp)
    }

    /// Before a batch is written; it is under way until what this returns is dropped.
    pub(super) fn begin<'s>(&'s self, batch: &'s [Write]) -> UnderWay<'s> {
        for key in keys(batch) {
            self.of(key).fetch_add(BEGUN, Ordering::AcqRel);
        }
        UnderWay { stamps: self, batch }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        for key in keys(self.batch) {
            let count =
                |stamp: u64| Some(stamp & !(BEGUN - 1) | u64::from((stamp as u32).wrapping_add(1)));
            // Never the first half: a plain addition would carry into it.
            let _ = self.stamps.of(key).fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        }
    }
}

/// A range is deleted with its whole table, which nobody takes for one moment.
fn keys(batch: &[Write]) -> impl Iterator<Item = &[u8]> {
    batch.iter().filter_map(|write| match write {
        Write::Merge(key, _) | Write::Put(key, _) | Write::Delete(key) => Some(key.as_slice()),
        Write::DeleteRange(..) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(token: u64) -> Vec<u8> {
        [&[0, 0, 0, 7][..], &token.to_be_bytes(), b"more"].concat()
    }

    #[test]
    fn a_write_is_seen_by_who_reads_across_it_and_by_nobody_else() {
        let stamps = Stamps::default();
        let batch = [Write::Delete(key(1)), Write::Delete(key(1)), Write::Delete(key(2))];
        let (before, elsewhere) = (stamps.look(&key(1)), stamps.look(&key(3)));
        assert!(stamps.are_as(before, &key(1)));
        let under_way = stamps.begin(&batch);
        let within = stamps.look(&key(2));
        assert!(!stamps.are_as(before, &key(1)) && !stamps.are_as(within, &key(2)));
        drop(under_way);
        assert!(!stamps.are_as(before, &key(1)) && !stamps.are_as(within, &key(2)));
        assert!(stamps.are_as(elsewhere, &key(3)));
        let after = stamps.look(&key(1));
        assert!(stamps.are_as(after, &key(1)));
    }

    #[test]
    fn a_stamp_goes_round_without_a_mistake() {
        let stamps = Stamps::default();
        let batch = [Write::Delete(key(1))];
        let last = u64::from(u32::MAX);
        stamps.of(&key(1)).store(last << 32 | last, Ordering::Relaxed);
        let before = stamps.look(&key(1));
        assert!(stamps.are_as(before, &key(1)));
        drop(stamps.begin(&batch));
        assert!(!stamps.are_as(before, &key(1)));
        let after = stamps.look(&key(1));
        assert!(stamps.are_as(after, &key(1)), "none is under way");
    }
}
