//! Counts of a store, for metrics.

use crate::catalogue::CatalogueCounts;
use crate::engine::Sizes;
use crate::row_cache::RowCacheStatistics;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the classes of fragments per read; one more class is above the last.
pub const FRAGMENT_CLASSES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Counters of a store.
#[derive(Debug, Default)]
pub(super) struct Figures {
    applies: AtomicU64,
    mutations: AtomicU64,
    stalled: AtomicU64,
    stalled_us: AtomicU64,
    syncs: AtomicU64,
    synced: AtomicU64,
    sync_us: AtomicU64,
    sync_us_max: AtomicU64,
    reads: AtomicU64,
    would_block: AtomicU64,
    fragments: [AtomicU64; FRAGMENT_CLASSES.len() + 1],
    written_back: AtomicU64,
    catalogue_errors: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoreFigures {
    /// Batches written.
    pub applies: u64,
    /// Fragments in these batches.
    pub mutations: u64,
    /// Batches that had to wait for compaction.
    pub stalled: u64,
    /// Total time of these waits, in µs.
    pub stalled_us: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Batches that the syncs made durable.
    pub synced: u64,
    /// Total time of the syncs, in µs.
    pub sync_us: u64,
    /// Longest sync, in µs.
    pub sync_us_max: u64,
    /// Records read from the engine, one by one or as rows of a partition.
    pub reads: u64,
    /// Reads answered with "would block".
    pub would_block: u64,
    /// Reads by number of merged fragments, in the classes of [`FRAGMENT_CLASSES`].
    pub fragments: Vec<u64>,
    /// Merged rows written back.
    pub written_back: u64,
    /// Merges that met a broken fragment.
    pub broken_merges: u64,
    /// Failures to write the catalogue's file.
    pub catalogue_errors: u64,
    /// Counts of the catalogue.
    pub catalogue: CatalogueCounts,
    /// Sizes of the engine.
    pub sizes: Sizes,
    /// Statistics of the row cache, if there is one. A read that would block counts as a miss, and
    /// again when it is repeated with waiting.
    pub row_cache: Option<RowCacheStatistics>,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Figures {
    pub(super) fn applied(&self, requests: u64, mutations: usize) {
        add(&self.applies, requests);
        add(&self.mutations, mutations as u64);
    }

    pub(super) fn stalled(&self, waited: Duration) {
        add(&self.stalled, 1);
        add(&self.stalled_us, u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn synced(&self, batches: u64, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        add(&self.syncs, 1);
        add(&self.synced, batches);
        add(&self.sync_us, took);
        self.sync_us_max.fetch_max(took, Ordering::Relaxed);
    }

    /// Counts a read of a value with this many fragments, 0 if there was no value.
    pub(super) fn read(&self, fragments: u32) {
        add(&self.reads, 1);
        if fragments > 0 {
            add(&self.fragments[FRAGMENT_CLASSES.partition_point(|end| *end < fragments)], 1);
        }
    }

    pub(super) fn blocked(&self) {
        add(&self.would_block, 1);
    }

    pub(super) fn wrote_back(&self) {
        add(&self.written_back, 1);
    }

    pub(super) fn catalogue_failed(&self) {
        add(&self.catalogue_errors, 1);
    }

    pub(super) fn reading(
        &self,
        broken_merges: u64,
        catalogue: CatalogueCounts,
        sizes: Sizes,
        row_cache: Option<RowCacheStatistics>,
    ) -> StoreFigures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreFigures {
            applies: of(&self.applies),
            mutations: of(&self.mutations),
            stalled: of(&self.stalled),
            stalled_us: of(&self.stalled_us),
            syncs: of(&self.syncs),
            synced: of(&self.synced),
            sync_us: of(&self.sync_us),
            sync_us_max: of(&self.sync_us_max),
            reads: of(&self.reads),
            would_block: of(&self.would_block),
            fragments: self.fragments.iter().map(of).collect(),
            written_back: of(&self.written_back),
            broken_merges,
            catalogue_errors: of(&self.catalogue_errors),
            catalogue,
            sizes,
            row_cache,
        }
    }
}
