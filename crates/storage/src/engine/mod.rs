//! The engine: ordered keys, values merged from fragments, atomic batches, cursors.
//!
//! A narrow trait, so that the store above does not depend on RocksDB and tests can use a twin in
//! memory. The [`Merger`] defines values and how fragments merge.

mod logs;
mod manifest;
mod memory;
mod sync_mark;
#[cfg(feature = "store")]
mod operator;
#[cfg(feature = "store")]
mod rocks;
mod shared;
#[cfg(feature = "store")]
#[cfg(test)]
mod tests;

pub use logs::LogMark;
pub(crate) use logs::records;
#[cfg(feature = "store")]
pub(crate) use manifest::first_log_needed;
pub(crate) use manifest::{ManifestMark, log_number};
pub use memory::MemoryEngine;
#[cfg(feature = "store")]
pub use rocks::{EngineOptions, RocksEngine};
pub(crate) use sync_mark::{LOGS, Noted};

use std::fmt;
use std::path::Path;

/// Reason why an operation of the engine failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// Bytes on disk differ from the bytes written. The text names the file.
    Corrupt(String),
    /// The disk has no room.
    NoSpace(String),
    /// Writes arrive faster than compaction; the same write may succeed a little later.
    Busy,
    /// A read limited to memory did not find all of its data there, or reached its limit.
    WouldBlock,
    /// Any other error, usually from the operating system.
    Failed(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Corrupt(text) => write!(f, "corrupt data: {text}"),
            EngineError::NoSpace(text) => write!(f, "disk full: {text}"),
            EngineError::Busy => write!(f, "writes have to wait for compaction"),
            EngineError::WouldBlock => write!(f, "the read has to wait for the disk"),
            EngineError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for EngineError {}

/// Tiers that a read may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadTier {
    /// Memory and disk.
    #[default]
    Disk,
    /// Memory only, and within limits; a value that is not there or takes too long to merge is
    /// [`Found::WouldBlock`].
    Memory,
}

/// Most fragments and bytes that are merged for a reader that must not wait: half a millisecond's
/// work.
pub const QUICK_FRAGMENTS_MAX: usize = 256;
/// See [`QUICK_FRAGMENTS_MAX`].
pub const QUICK_BYTES_MAX: usize = 64 << 10;

/// True if these may be merged for a reader that must not wait. A single piece always passes; its
/// reader checks it.
fn is_quick(base: Option<&[u8]>, fragments: &[&[u8]]) -> bool {
    let bytes = || {
        base.map_or(0, <[u8]>::len) + fragments.iter().map(|fragment| fragment.len()).sum::<usize>()
    };
    let several = fragments.len() + usize::from(base.is_some()) > 1;
    !several || (fragments.len() <= QUICK_FRAGMENTS_MAX && bytes() <= QUICK_BYTES_MAX)
}

/// Result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The key does not exist.
    Absent,
    /// The key has a value.
    Value {
        /// Merged value.
        bytes: Vec<u8>,
        /// Number of fragments merged.
        fragments: u32,
    },
    /// The read would need the disk.
    WouldBlock,
}

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Adds a fragment to a key.
    Merge(Vec<u8>, Vec<u8>),
    /// Sets a key, replacing any value.
    Put(Vec<u8>, Vec<u8>),
    /// Deletes a key.
    Delete(Vec<u8>),
    /// Deletes all keys from the first up to but excluding the second.
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// Treatment of a write that arrives faster than compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// The write waits, however long that takes.
    Wait,
    /// The write fails with [`EngineError::Busy`].
    Refuse,
}

/// Current pace of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Writes pass at full speed.
    Free,
    /// Writes are slowed down.
    Delayed,
    /// Writes are blocked until compaction has caught up.
    Stopped,
}

/// Decision of compaction about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Keeps the value.
    Keep,
    /// Treats the value as absent.
    Remove,
}

/// Merges fragments into values. Readers and compaction call it, on any thread.
pub trait Merger: Send + Sync + 'static {
    /// Returns the value of a key: `base`, if there is one, and the later fragments, oldest first.
    /// Cannot fail: unmergeable data must be preserved. `purge` is set in compaction, where expired
    /// data need not be written.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, fragments: &[&[u8]], purge: bool) -> Vec<u8>;
    /// Merges several neighbouring fragments, oldest first, into one; `None` keeps them separate.
    fn merge_fragments(&self, key: &[u8], fragments: &[&[u8]]) -> Option<Vec<u8>>;
    /// Decides what compaction does with a value.
    fn verdict(&self, key: &[u8], value: &[u8]) -> Verdict;
}

/// Range of keys that a cursor sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// First key.
    pub from: Vec<u8>,
    /// End of the range, excluded.
    pub to: Vec<u8>,
    /// True if all keys belong to one partition, so that filters can rule it out.
    pub one_partition: bool,
    /// True if read blocks go into the block cache. False for full scans.
    pub cache: bool,
    /// With [`ReadTier::Memory`] the cursor ends in [`EngineError::WouldBlock`] where it would have
    /// to read the disk.
    pub tier: ReadTier,
}

/// Key and value.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// Iterates over keys and merged values as of the cursor's creation.
pub trait Cursor {
    /// Moves to the first key at or after this one.
    fn seek(&mut self, key: &[u8]);
    /// Moves to the last key before this one.
    fn seek_before(&mut self, key: &[u8]);
    /// Moves one key forward.
    fn next(&mut self);
    /// Moves one key back.
    fn previous(&mut self);
    /// Number of fragments that the value was merged from.
    fn fragments(&self) -> u32;
    /// Key and value; `None` beyond the ends.
    fn entry(&self) -> Result<Option<Entry<'_>>, EngineError>;
}

/// Sizes of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Size of the files in use.
    pub disk_bytes: u64,
    /// Size of the data not yet in files.
    pub memtable_bytes: u64,
    /// Used bytes of the block cache.
    pub cache_bytes: u64,
    /// Size of indexes and filters outside the block cache.
    pub reader_bytes: u64,
    /// Estimated number of keys.
    pub keys: u64,
    /// Number of files in use.
    pub files: u64,
}

/// Ordered keys with merged values.
pub trait Engine: Send + Sync {
    /// Reads one value.
    fn get(&self, key: &[u8], tier: ReadTier) -> Result<Found, EngineError>;
    /// Writes all or nothing, visible to every later read; durable after [`Engine::sync`].
    fn write(&self, batch: &[Write], stall: Stall) -> Result<(), EngineError>;
    /// Current pace of writes. Takes a lock of the engine: call it only after a refused write.
    fn pace(&self) -> Pace;
    /// A cursor over a range.
    fn cursor(&self, span: &Span) -> Box<dyn Cursor + '_>;
    /// Number of the last write. Later writes have greater numbers, also after the engine is
    /// reopened.
    fn sequence(&self) -> u64;
    /// Makes every earlier write durable.
    fn sync(&self) -> Result<(), EngineError>;
    /// The newest logs, oldest first, as far as the last sync covered them.
    fn synced_logs(&self) -> Vec<LogMark> {
        Vec::new()
    }
    /// Writes the memtables to files.
    fn flush(&self) -> Result<(), EngineError>;
    /// Merges and purges a range in the files, down to the last level. Takes as long as needed.
    fn compact(&self, from: &[u8], to: &[u8]);
    /// Immediately drops whole files of a deleted range.
    fn drop_files(&self, from: &[u8], to: &[u8]) -> Result<(), EngineError>;
    /// Makes a copy that can be opened elsewhere and shares files with this engine where the file
    /// system allows it.
    fn checkpoint(&self, directory: &Path) -> Result<(), EngineError>;
    /// Sizes of the data.
    fn sizes(&self) -> Sizes;
    /// Counters for metrics, under the engine's names.
    fn statistics(&self) -> Vec<(String, u64)>;
    /// The files in use with their first and last keys.
    fn files(&self) -> Result<Vec<DataFile>, EngineError>;
}

/// A file of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// File name within the directory.
    pub name: String,
    /// First key.
    pub from: Vec<u8>,
    /// Last key.
    pub to: Vec<u8>,
    /// Size in bytes.
    pub bytes: u64,
}
