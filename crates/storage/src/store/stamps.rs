//! Detects writes to a partition while several of its records were read.
//!
//! A batch enters the engine in one step, but a reader of several records, from the engine and from
//! the row cache, takes one after another. It reads the partition's stamp before and after. If no
//! write was in progress and none came, the records are of one moment; otherwise it reads again
//! through one cursor, which is itself a view of one moment. Readers and writers never wait for
//! each other.
//!
//! Records of two moments must never count as one: a write begins here before any reader can see
//! it, and ends only when every reader sees it, in the row cache and in the engine. Partitions
//! share stamps, so a reader may repeat a read needlessly.

use crate::engine::Write;
use crate::key;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Number of stamps shared by all partitions.
const STAMPS: usize = 4096;

/// One begun write, in the upper half of a stamp; the lower half counts ended writes.
const BEGUN: u64 = 1 << 32;

/// Stamps of all partitions of a store.
pub(super) struct Stamps(Box<[AtomicU64]>);

/// The stamp of a partition seen before a read. `None`: a write was in progress.
#[derive(Clone, Copy)]
pub(super) struct Seen(Option<u64>);

/// Guard of writes in progress.
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
    /// Chosen by the partition's token, which is a hash of its key; the store's own records use any
    /// stamp.
    fn of(&self, key: &[u8]) -> &AtomicU64 {
        let token =
            key.get(key::TABLE_BYTES..key::TABLE_BYTES + 8).and_then(|bytes| bytes.try_into().ok());
        let token = token.map_or(0, u64::from_be_bytes);
        &self.0[token as usize % STAMPS]
    }

    /// Must be called before the first record of a partition is read, with any of its keys.
    pub(super) fn look(&self, key: &[u8]) -> Seen {
        let stamp = self.of(key).load(Ordering::Acquire);
        Seen((stamp >> 32 == stamp & (BEGUN - 1)).then_some(stamp))
    }

    /// Must be called after the last record; returns whether all records are of one moment.
    pub(super) fn are_as(&self, seen: Seen, key: &[u8]) -> bool {
        // Earlier reads stay before this load.
        fence(Ordering::Acquire);
        seen.0.is_some_and(|stamp| self.of(key).load(Ordering::Relaxed) == stamp)
    }

    /// Must be called before a batch is written; the write is in progress until the guard is
    /// dropped.
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
            // Must not touch the first half: a plain addition would carry into it.
            let _ = self.stamps.of(key).fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        }
    }
}

/// Ranges are deleted only with their whole table, which no reader expects as of one moment.
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
