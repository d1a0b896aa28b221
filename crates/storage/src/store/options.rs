//! Options of a store, and the values that its callers pass.

use crate::catalogue::Limits;
use crate::engine::EngineOptions;
use crate::key::Target;
use crate::merger::Clock;
use crate::row::{Fragment, PartitionKey, TableId};
use crate::row_cache::RowCacheOptions;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Options for opening a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// True to create a store if absent; otherwise missing parts are an error.
    pub create: bool,
    /// Options of the engine.
    pub engine: EngineOptions,
    /// Limits of the schema catalogue.
    pub catalogue: Limits,
    /// Cache of whole rows in memory and, beyond that, on an SSD, in front of the engine; `None`
    /// for none. The store itself sets the number of key bytes that name the table. The SSD's
    /// content does not outlive the store: it starts empty.
    pub row_cache: Option<RowCacheOptions>,
    /// Number of merged fragments in a read that triggers a write-back of the row; `u32::MAX` for
    /// never.
    pub write_back_fragments: u32,
    /// Largest total size of the fragments of one `apply`.
    pub batch_bytes_max: usize,
    /// Longest wait of an `apply` for compaction before it is refused. Event loops do not wait, see
    /// `append`.
    pub stall_wait_max: Duration,
    /// With less free space than this the store refuses writes; 0 relies on errors of the disk.
    pub reserve_bytes: u64,
    /// Interval between checks of the disk space.
    pub watch_interval: Duration,
    /// Clock for compaction.
    pub clock: Clock,
}

impl Default for StoreOptions {
    fn default() -> Self {
        let clock = || {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
        };
        StoreOptions {
            create: true,
            engine: EngineOptions::default(),
            catalogue: Limits::default(),
            row_cache: None,
            write_back_fragments: 4,
            batch_bytes_max: 16 << 20,
            stall_wait_max: Duration::from_secs(10),
            reserve_bytes: 256 << 20,
            watch_interval: Duration::from_secs(1),
            clock: Arc::new(clock),
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("create", &self.create)
            .field("engine", &self.engine)
            .field("catalogue", &self.catalogue)
            .field("row_cache", &self.row_cache)
            .field("write_back_fragments", &self.write_back_fragments)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("reserve_bytes", &self.reserve_bytes)
            .finish_non_exhaustive()
    }
}

/// Condition for acknowledging a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged once synced. Concurrent waiters share a sync.
    Batch,
    /// Acknowledged immediately, synced within the interval.
    Periodic {
        /// Longest time span of writes that a crash may lose.
        interval: Duration,
    },
}

/// One write to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub partition: PartitionKey<'a>,
    /// Place in the partition.
    pub target: Target<'a>,
    /// The fragment to write: a header for [`Target::Header`], otherwise a row.
    pub fragment: Fragment,
}

/// Like [`Mutation`], with a borrowed fragment.
#[derive(Debug, Clone, Copy)]
pub struct MutationRef<'a> {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub partition: PartitionKey<'a>,
    /// Place in the partition.
    pub target: Target<'a>,
    /// The fragment to write: a header for [`Target::Header`], otherwise a row.
    pub fragment: &'a Fragment,
}

impl<'a> From<&'a Mutation<'_>> for MutationRef<'a> {
    fn from(mutation: &'a Mutation<'_>) -> Self {
        let Mutation { table, partition, target, fragment } = mutation;
        MutationRef { table: *table, partition: *partition, target: *target, fragment }
    }
}

/// Position of an `apply` in the order of all writes; durable when all before it are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticket(pub u64);
