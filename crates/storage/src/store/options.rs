//! The options of a store, and the values that its callers hand over.

use crate::catalogue::Limits;
use crate::engine::EngineOptions;
use crate::key::Target;
use crate::merger::Clock;
use crate::row::{Fragment, PartitionKey, TableId};
use crate::row_cache::RowCacheOptions;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a store is opened.
#[derive(Clone)]
pub struct StoreOptions {
    /// True if a store is begun where there is none; else what is missing is an error.
    pub create: bool,
    /// The options of the engine.
    pub engine: EngineOptions,
    /// The limits of the schema catalogue.
    pub catalogue: Limits,
    /// Whole rows in memory and, beyond that, on an SSD, in front of the engine; `None` for none.
    /// The store says itself how many bytes of a key name its table. What is on the SSD does not
    /// outlive the store: it is opened empty.
    pub row_cache: Option<RowCacheOptions>,
    /// A read that merged so many fragments has the merged row written back; `u32::MAX` for never.
    pub write_back_fragments: u32,
    /// The largest size of the fragments of one `apply` together.
    pub batch_bytes_max: usize,
    /// How long an `apply` waits for compaction, if writes come faster than that, before it is
    /// refused. Event loops do not wait, see `append`.
    pub stall_wait_max: Duration,
    /// With less room than this on the disk the store takes no writes; 0 looks at the disk's errors
    /// alone.
    pub reserve_bytes: u64,
    /// How often the room on the disk is looked at.
    pub watch_interval: Duration,
    /// The clock that tells compaction the time.
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

/// When a write counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged once it is synced. Whoever waits at the same time shares a sync.
    Batch,
    /// Acknowledged at once, synced within the interval.
    Periodic {
        /// The longest time of writes that a crash may lose.
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
    /// Where in it.
    pub target: Target<'a>,
    /// The fragment to write: a header for [`Target::Header`], else a row.
    pub fragment: Fragment,
}

/// As [`Mutation`], of a fragment that somebody else keeps.
#[derive(Debug, Clone, Copy)]
pub struct MutationRef<'a> {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub partition: PartitionKey<'a>,
    /// Where in it.
    pub target: Target<'a>,
    /// The fragment to write: a header for [`Target::Header`], else a row.
    pub fragment: &'a Fragment,
}

impl<'a> From<&'a Mutation<'_>> for MutationRef<'a> {
    fn from(mutation: &'a Mutation<'_>) -> Self {
        let Mutation { table, partition, target, fragment } = mutation;
        MutationRef { table: *table, partition: *partition, target: *target, fragment }
    }
}

/// The place of an `apply` in the order of all of them; durable when all before it are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticket(pub u64);
