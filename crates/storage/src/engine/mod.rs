//! The engine: ordered keys, values that are merged from fragments, atomic batches, cursors.
//!
//! A narrow trait, so that the store above does not know RocksDB, and a twin in memory for tests.
//! What a value is and how fragments merge is the [`Merger`]'s business.

mod logs;
mod manifest;
mod memory;
mod noted;
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
pub(crate) use noted::{LOGS, Noted};
#[cfg(feature = "store")]
pub use rocks::{EngineOptions, RocksEngine};

use std::fmt;
use std::path::Path;

/// The reason why an operation of the engine failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// Bytes on disk are not what was written. The text names the file.
    Corrupt(String),
    /// No room on the disk.
    NoSpace(String),
    /// Writes come faster than they are compacted; the same write may succeed a little later.
    Busy,
    /// A read that may look at memory alone has not found all of it there, or has looked at as much
    /// as it may.
    WouldBlock,
    /// Anything else: the operating system's word, usually.
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

/// Where a read may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadTier {
    /// Wherever it has to.
    #[default]
    Disk,
    /// Memory only, and not at much of it; what is not there, or takes too long to merge, is
    /// [`Found::WouldBlock`].
    Memory,
}

/// Fragments that are merged for a reader who may not wait, and bytes of them: half a millisecond's
/// work.
pub const QUICK_FRAGMENTS_MAX: usize = 256;
/// See [`QUICK_FRAGMENTS_MAX`].
pub const QUICK_BYTES_MAX: usize = 64 << 10;

/// True if these may be merged for a reader who may not wait. What is in one piece already is not
/// looked at: who reads it does.
fn is_quick(base: Option<&[u8]>, fragments: &[&[u8]]) -> bool {
    let bytes = || {
        base.map_or(0, <[u8]>::len) + fragments.iter().map(|fragment| fragment.len()).sum::<usize>()
    };
    let several = fragments.len() + usize::from(base.is_some()) > 1;
    !several || (fragments.len() <= QUICK_FRAGMENTS_MAX && bytes() <= QUICK_BYTES_MAX)
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No such key.
    Absent,
    /// Its value.
    Value {
        /// Merged.
        bytes: Vec<u8>,
        /// From how many fragments.
        fragments: u32,
    },
    /// It would take a look at the disk.
    WouldBlock,
}

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Adds a fragment to a key.
    Merge(Vec<u8>, Vec<u8>),
    /// Sets a key, whatever was there.
    Put(Vec<u8>, Vec<u8>),
    /// Deletes a key.
    Delete(Vec<u8>),
    /// Deletes all keys from the first to before the second.
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// The fate of a write that comes faster than compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// It waits, for as long as that takes.
    Wait,
    /// It is [`EngineError::Busy`].
    Refuse,
}

/// How writes fare at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they come.
    Free,
    /// More slowly than they come.
    Delayed,
    /// Not at all, until compaction has caught up.
    Stopped,
}

/// The decision of compaction about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// It is as good as absent.
    Remove,
}

/// How fragments become a value. Called by readers and by compaction, on any thread.
pub trait Merger: Send + Sync + 'static {
    /// The value of a key: `base`, if there is one, and the fragments after it, oldest first.
    /// Cannot fail: what does not merge has to be kept as it is. `purge` is set in compaction,
    /// where what may be forgotten need not be written.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, fragments: &[&[u8]], purge: bool) -> Vec<u8>;
    /// One fragment for several neighbours, oldest first; `None` keeps them apart.
    fn merge_fragments(&self, key: &[u8], fragments: &[&[u8]]) -> Option<Vec<u8>>;
    /// Decides what compaction does with a value.
    fn verdict(&self, key: &[u8], value: &[u8]) -> Verdict;
}

/// The keys that a cursor sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// First key.
    pub from: Vec<u8>,
    /// After the last key.
    pub to: Vec<u8>,
    /// All keys of it are of one partition, so that filters may say that there are none.
    pub one_partition: bool,
    /// True if blocks read go into the block cache. Not for scans of everything.
    pub cache: bool,
    /// With [`ReadTier::Memory`] the cursor ends in [`EngineError::WouldBlock`] where it would have
    /// to read.
    pub tier: ReadTier,
}

/// Key and value.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// Walks over keys and merged values, as they were when the cursor was made.
pub trait Cursor {
    /// To the first key at or after this one.
    fn seek(&mut self, key: &[u8]);
    /// To the last key before this one.
    fn seek_before(&mut self, key: &[u8]);
    /// One on.
    fn next(&mut self);
    /// One back.
    fn previous(&mut self);
    /// From how many fragments the value was merged.
    fn fragments(&self) -> u32;
    /// Key and value, `None` beyond the ends.
    fn entry(&self) -> Result<Option<Entry<'_>>, EngineError>;
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// The size of the files in use.
    pub disk_bytes: u64,
    /// The size of what is not in files yet.
    pub memtable_bytes: u64,
    /// Used of the block cache.
    pub cache_bytes: u64,
    /// The size of indexes and filters outside the block cache.
    pub reader_bytes: u64,
    /// An estimate.
    pub keys: u64,
    /// Files in use.
    pub files: u64,
}

/// Ordered keys with merged values.
pub trait Engine: Send + Sync {
    /// One value.
    fn get(&self, key: &[u8], tier: ReadTier) -> Result<Found, EngineError>;
    /// All or nothing, visible to every read that begins afterwards; durable after
    /// [`Engine::sync`].
    fn write(&self, batch: &[Write], stall: Stall) -> Result<(), EngineError>;
    /// How writes fare at the moment. Takes a lock of the engine: for when one was refused.
    fn pace(&self) -> Pace;
    /// A view of a range.
    fn cursor(&self, span: &Span) -> Box<dyn Cursor + '_>;
    /// The number of the last write; later ones have greater numbers, also after a reopening.
    fn sequence(&self) -> u64;
    /// Makes everything written before durable.
    fn sync(&self) -> Result<(), EngineError>;
    /// The newest of its logs, oldest first, as far as the last sync covered them.
    fn synced_logs(&self) -> Vec<LogMark> {
        Vec::new()
    }
    /// Writes what is in memory to files.
    fn flush(&self) -> Result<(), EngineError>;
    /// Merges and purges a range in its files, down to the last level. Takes as long as it takes.
    fn compact(&self, from: &[u8], to: &[u8]);
    /// Drops whole files of a deleted range at once.
    fn drop_files(&self, from: &[u8], to: &[u8]) -> Result<(), EngineError>;
    /// A copy to open elsewhere, which shares files with this one where the file system can.
    fn checkpoint(&self, directory: &Path) -> Result<(), EngineError>;
    /// How much there is.
    fn sizes(&self) -> Sizes;
    /// Counters for metrics, by the engine's own names.
    fn statistics(&self) -> Vec<(String, u64)>;
    /// The files in use with their first and last keys.
    fn files(&self) -> Result<Vec<DataFile>, EngineError>;
}

/// A file of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Within the directory.
    pub name: String,
    /// First key.
    pub from: Vec<u8>,
    /// Last key.
    pub to: Vec<u8>,
    /// Its size.
    pub bytes: u64,
}
