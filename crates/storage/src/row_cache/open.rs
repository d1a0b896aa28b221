//! Opening and closing a cache, switching its SSD tier, and reporting its figures.

use std::sync::Arc;
use std::thread;

use super::RowCache;
use super::counters::RowCacheStatistics;
use super::key::Keys;
use super::memory::MemoryTier;
use super::options::{RowCacheError, RowCacheOptions, SsdOptions};
use super::shard::{Shard, ShardState};
use super::shared::Shared;
use super::ssd::{Directory, Log, PAGE_BYTES, SegmentStore, SsdIndex, SsdTier, run_cascade};

/// More shards than cores, so that threads seldom meet; the hash has six bits for them.
const SHARDS_MAX: usize = 64;
/// Least memory of a shard, so that it can hold rows of some size.
const SHARD_BYTES_MIN: usize = 1 << 20;
/// Most stripes of keys that share a generation. A write drops the fills in progress in its stripe.
const STRIPES_MAX: usize = 64 * 1024;
const STRIPES_MIN: usize = 256;
/// Bytes of memory per stripe: generations take less than one percent.
const STRIPE_SHARE: usize = 1024;
/// Bytes of cached data per remembered row that left memory.
const GHOST_ROW_BYTES: u64 = 256;

impl RowCache {
    /// Opens an empty cache.
    pub fn open(options: RowCacheOptions) -> Result<Self, RowCacheError> {
        options.check()?;
        let store = match &options.ssd {
            Some(ssd) => {
                let failed = |error| RowCacheError::Ssd { dir: ssd.dir.clone(), error };
                Some(Box::new(Directory::open(&ssd.dir).map_err(failed)?) as Box<dyn SegmentStore>)
            }
            None => None,
        };
        Self::open_with(options, store)
    }

    /// Opens a cache whose segments come from `store`.
    pub(super) fn open_with(
        options: RowCacheOptions,
        store: Option<Box<dyn SegmentStore>>,
    ) -> Result<Self, RowCacheError> {
        options.check()?;
        let keys = Keys::new(options.table_prefix_bytes);
        let ssd = options.ssd.as_ref().zip(store).map(|(ssd, store)| ssd_tier(ssd, store));
        let shards = shards(&options, ssd.is_some());
        let shared = Arc::new(Shared { keys, shards, ssd });
        let mut cache = RowCache { shared: shared.clone(), cascade: None };
        if let (Some(options), Some(ssd)) = (&options.ssd, &shared.ssd) {
            let failed = |error| RowCacheError::Ssd { dir: options.dir.clone(), error };
            shared.turn_ssd_on(ssd).map_err(failed)?;
            let shared = shared.clone();
            let cascade = thread::Builder::new()
                .name("row-cache-ssd".into())
                .spawn(move || run_cascade(&shared));
            cache.cascade = Some(cascade.map_err(RowCacheError::Thread)?);
        }
        Ok(cache)
    }

    /// Totals since the cache was opened and current sizes. Visits every shard.
    pub fn statistics(&self) -> RowCacheStatistics {
        let mut statistics = RowCacheStatistics::default();
        for shard in &self.shared.shards {
            statistics.add_shard(&shard.counters);
            let state = shard.read();
            statistics.memory_rows += state.memory.rows() as u64;
            statistics.memory_bytes += state.allocated_bytes() as u64;
            if let Some(index) = &state.index {
                statistics.index_entries += index.entries() as u64;
                statistics.index_bytes += index.allocated_bytes() as u64;
            }
        }
        statistics.memory_bytes += self.shared.keys.allocated_bytes() as u64;
        if let Some(ssd) = &self.shared.ssd {
            statistics.add_ssd(&ssd.counters);
            statistics.ssd_on = ssd.is_on();
            statistics.ssd_bytes = ssd.log.allocated_bytes();
            statistics.ssd_bytes_written = ssd.log.written_bytes();
            statistics.ssd_queue_bytes = ssd.queue.bytes() as u64;
        }
        statistics
    }
}

impl Drop for RowCache {
    fn drop(&mut self) {
        if let Some(ssd) = &self.shared.ssd {
            ssd.queue.close();
        }
        if let Some(cascade) = self.cascade.take() {
            // The thread panicked or ended: either way it is gone.
            let _ = cascade.join();
        }
    }
}

fn ssd_tier(options: &SsdOptions, store: Box<dyn SegmentStore>) -> SsdTier {
    let segments = (options.bytes / options.segment_bytes) as u32;
    let log = Log::new(store, segments, (options.segment_bytes / PAGE_BYTES as u64) as u32);
    SsdTier::new(log, options)
}

fn shards(options: &RowCacheOptions, with_ssd: bool) -> Box<[Shard]> {
    let count = 1 << (options.memory_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).ilog2();
    let stripes = (options.memory_bytes / STRIPE_SHARE).clamp(STRIPES_MIN, STRIPES_MAX) / count;
    let ssd = options.ssd.as_ref().filter(|_| with_ssd);
    let index_rows =
        ssd.map(|ssd| (ssd.bytes / ssd.expected_row_bytes as u64) as usize / count + 1);
    let ghost_rows = (options.memory_bytes as u64 / GHOST_ROW_BYTES) as usize / count;
    let fixed = Keys::new(0).allocated_bytes() / count + ShardState::stripe_bytes(stripes);
    let capacity = (options.memory_bytes / count).saturating_sub(fixed);
    let state = |_| {
        let index = index_rows.map(SsdIndex::new);
        ShardState::new(MemoryTier::new(capacity, ghost_rows), index, stripes)
    };
    (0..count).map(state).map(Shard::new).collect()
}
