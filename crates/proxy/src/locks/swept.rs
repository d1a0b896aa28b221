//! How far the deleting of rows of locks has come ([`super::sweep`]).

use shunt_locks::{BUCKETS, LoadId};
use slab::Slab;

use crate::limits::SECOND_NS;

/// Deletions in one partition within [`Pace::window_ns`]. A read skips two ends of each, for two windows, and nodes warn at 1,000.
const DELETIONS_PER_PARTITION_MAX: u16 = 200;

/// How fast it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between the beginnings of two rounds through all partitions, at most: it is not longer than rows are kept.
    pub(crate) round_ns: u64,
    /// Between two pages.
    pub(crate) page_ns: u64,
    /// So many unneeded rows of those who share a lock that somebody has are worth a deletion.
    pub(crate) shares_min: usize,
    /// After an answer that says that a deletion would not reach all replicas now.
    pub(crate) rest_ns: u64,
    /// For so long at least replicas remember a deletion: `gc_grace_seconds` of the table.
    pub(crate) window_ns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            round_ns: 3_600 * SECOND_NS,
            page_ns: SECOND_NS,
            shares_min: 32,
            rest_ns: 600 * SECOND_NS,
            window_ns: 14_400 * SECOND_NS,
        }
    }
}

/// A deletion under way.
pub(super) struct Deleting {
    pub(super) bucket: u16,
    pub(super) name: Box<[u8]>,
    /// See [`shunt_locks::Unneeded::free_us`].
    pub(super) free_us: i64,
}

/// How far it has come.
pub(crate) struct Sweep {
    pub(crate) pace: Pace,
    /// The partition that is read next, or is being read.
    pub(super) bucket: u16,
    /// What is known of it, and where its last page ended.
    pub(super) page: Option<(LoadId, Box<[u8]>)>,
    pub(super) is_reading: bool,
    /// From which partition on those are looked for that nobody has asked for, and when.
    pub(super) ahead: u16,
    pub(super) ahead_ns: u64,
    pub(super) deleting: Slab<Deleting>,
    /// When the next page is read.
    pub(super) next_ns: u64,
    /// When the next round begins.
    pub(super) round_ns: u64,
    /// Deletions by partition, until the window ends.
    deleted: Vec<u16>,
    window_until_ns: u64,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            bucket: 0,
            page: None,
            is_reading: false,
            ahead: 0,
            ahead_ns: 0,
            deleting: Slab::new(),
            next_ns: 0,
            round_ns: 0,
            deleted: Vec::new(),
            window_until_ns: 0,
        }
    }
}

impl Sweep {
    /// The partition's end was reached, or it is left alone.
    pub(super) fn go_on(&mut self) {
        self.page = None;
        self.bucket += 1;
    }

    /// Takes a place among the deletions of a partition.
    pub(super) fn has_room(&mut self, now_ns: u64, bucket: u16) -> bool {
        if now_ns >= self.window_until_ns {
            self.window_until_ns = now_ns + self.pace.window_ns;
            self.deleted.clear();
            self.deleted.resize(BUCKETS, 0);
        }
        let count = &mut self.deleted[usize::from(bucket)];
        *count = count.saturating_add(1);
        *count <= DELETIONS_PER_PARTITION_MAX
    }
}
