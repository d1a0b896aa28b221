//! Counts of the cache for metrics: totals since it was opened, and current sizes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A total that only grows.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn increment(&self) {
        self.add(1);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one shard, so that threads in different shards do not share a cache line.
#[derive(Default)]
pub(super) struct ShardCounters {
    pub(super) memory_hits: Counter,
    pub(super) ssd_hits: Counter,
    pub(super) misses: Counter,
    pub(super) fills: Counter,
    pub(super) fills_dropped: Counter,
    pub(super) memory_evictions: Counter,
}

/// The counters of the SSD tier.
#[derive(Default)]
pub(super) struct SsdCounters {
    pub(super) buffer_hits: Counter,
    pub(super) rows_written: Counter,
    pub(super) row_bytes_written: Counter,
    pub(super) rows_dropped: Counter,
    pub(super) rows_rewritten: Counter,
    pub(super) evictions: Counter,
    pub(super) segments_collected: Counter,
    pub(super) reads: Counter,
    pub(super) read_errors: Counter,
    pub(super) write_errors: Counter,
    pub(super) key_mismatches: Counter,
}

/// The figures that [`super::RowCache::statistics`] returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowCacheStatistics {
    /// Look-ups answered from memory.
    pub memory_hits: u64,
    /// Look-ups answered by the SSD tier, including its write buffer.
    pub ssd_hits: u64,
    /// SSD hits answered from the write buffer, without a read.
    pub ssd_buffer_hits: u64,
    /// Look-ups that neither tier answered.
    pub misses: u64,
    /// Rows inserted after a miss.
    pub fills: u64,
    /// Rows not inserted after a miss: written since the miss, or too large.
    pub fills_dropped: u64,
    /// Rows evicted from memory.
    pub memory_evictions: u64,
    /// Rows in memory now.
    pub memory_rows: u64,
    /// Bytes of memory used by rows, including all overhead.
    pub memory_bytes: u64,
    /// True if there is an SSD tier and it is on.
    pub ssd_on: bool,
    /// Rows written to SSD after leaving memory.
    pub ssd_rows_written: u64,
    /// Bytes of these rows as stored on SSD.
    pub ssd_row_bytes_written: u64,
    /// Bytes written to SSD for these rows: whole pages, including rewrites by collection.
    pub ssd_bytes_written: u64,
    /// Rows dropped on their way to SSD: queue full, or row written in the meantime.
    pub ssd_rows_dropped: u64,
    /// Live rows rewritten by collection.
    pub ssd_rows_rewritten: u64,
    /// Live rows dropped by collection, and rows without room in the index.
    pub ssd_evictions: u64,
    /// Segments collected.
    pub ssd_segments_collected: u64,
    /// Reads of the SSD for look-ups.
    pub ssd_reads: u64,
    /// Reads that failed or found a broken record.
    pub ssd_read_errors: u64,
    /// Writes that failed; each turned the tier off.
    pub ssd_write_errors: u64,
    /// Reads that found another key's row with the same tag.
    pub ssd_key_mismatches: u64,
    /// Bytes of segments allocated on SSD.
    pub ssd_bytes: u64,
    /// Bytes of rows waiting to be written.
    pub ssd_queue_bytes: u64,
    /// Rows on SSD.
    pub index_entries: u64,
    /// Memory of the SSD tier's index in bytes.
    pub index_bytes: u64,
}

impl RowCacheStatistics {
    /// Bytes written to SSD per byte of a row brought there; 0 if there is none.
    pub fn ssd_write_amplification(&self) -> f64 {
        match self.ssd_row_bytes_written {
            0 => 0.0,
            bytes => self.ssd_bytes_written as f64 / bytes as f64,
        }
    }

    pub(super) fn add_shard(&mut self, counters: &ShardCounters) {
        self.memory_hits += counters.memory_hits.get();
        self.ssd_hits += counters.ssd_hits.get();
        self.misses += counters.misses.get();
        self.fills += counters.fills.get();
        self.fills_dropped += counters.fills_dropped.get();
        self.memory_evictions += counters.memory_evictions.get();
    }

    pub(super) fn add_ssd(&mut self, counters: &SsdCounters) {
        self.ssd_buffer_hits = counters.buffer_hits.get();
        self.ssd_rows_written = counters.rows_written.get();
        self.ssd_row_bytes_written = counters.row_bytes_written.get();
        self.ssd_rows_dropped = counters.rows_dropped.get();
        self.ssd_rows_rewritten = counters.rows_rewritten.get();
        self.ssd_evictions = counters.evictions.get();
        self.ssd_segments_collected = counters.segments_collected.get();
        self.ssd_reads = counters.reads.get();
        self.ssd_read_errors = counters.read_errors.get();
        self.ssd_write_errors = counters.write_errors.get();
        self.ssd_key_mismatches = counters.key_mismatches.get();
    }
}
