//! Errors of a store, each with its cause.

use crate::catalogue::{CatalogueError, DecodeError};
use crate::engine::EngineError;
use crate::key::{self, KeyError, Target};
use crate::row_cache::RowCacheError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Reasons why a store failed to carry out a call.
#[derive(Debug, Clone)]
pub enum StoreError {
    /// An error of the operating system.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The directory has another version of the store, or is not a store.
    Format {
        /// The file that shows it.
        path: PathBuf,
        /// Contents of the file, or what is missing.
        found: String,
    },
    /// Another process has locked the directory.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder, as written in the file.
        holder: String,
    },
    /// The catalogue's file cannot be used.
    Catalogue(Arc<CatalogueError>),
    /// An error of the engine.
    Engine(EngineError),
    /// The row cache cannot be opened with its configuration.
    RowCache(Arc<RowCacheError>),
    /// A record is broken.
    Corrupt {
        /// Table, partition and place of the record.
        record: String,
        /// Description of the fault.
        what: DecodeError,
    },
    /// A key that cannot be stored; the caller's fault.
    Key(KeyError),
    /// A fragment of the wrong kind for its place; the caller's fault.
    Misplaced,
    /// A call exceeds the size limit; the caller's fault.
    TooLarge {
        /// Total size of the fragments.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The end of the log is missing: acknowledged writes are lost.
    /// `EngineOptions::accept_damaged_log` opens the rest.
    LogLost {
        /// The file that shows it.
        path: PathBuf,
        /// Extent of the loss.
        what: String,
    },
    /// Writes arrived faster than compaction for as long as a write waits. The write was not
    /// executed.
    Stalled(Duration),
    /// The disk is full: reads continue, writes resume when there is room.
    Full(String),
    /// A failed write left the disk in an unknown state: reads continue, writes are refused until
    /// the store is reopened.
    Poisoned(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io { path, source } => write!(f, "{}: {source}", path.display()),
            StoreError::Format { path, found } => {
                write!(
                    f,
                    "{}: not a data directory that this version can read: {found}",
                    path.display()
                )
            }
            StoreError::Locked { path, holder } => {
                write!(f, "{}: the data directory is in use by {holder}", path.display())
            }
            StoreError::Catalogue(error) => error.fmt(f),
            StoreError::Engine(error) => error.fmt(f),
            StoreError::RowCache(error) => error.fmt(f),
            StoreError::Corrupt { record, what } => write!(f, "corrupt record, {record}: {what}"),
            StoreError::Key(error) => error.fmt(f),
            StoreError::Misplaced => {
                write!(f, "a row's fragment for a header, or the other way round")
            }
            StoreError::TooLarge { bytes, most } => {
                write!(f, "a write of {bytes} bytes, at most {most}")
            }
            StoreError::LogLost { path, what } => {
                write!(f, "{}: acknowledged writes are missing: {what}", path.display())
            }
            StoreError::Stalled(waited) => {
                let seconds = waited.as_secs();
                write!(
                    f,
                    "the write waited {seconds} s for compaction; write more slowly, or use a faster disk"
                )
            }
            StoreError::Full(why) => {
                write!(f, "the store is read-only until there is room on the disk: {why}")
            }
            StoreError::Poisoned(why) => {
                write!(f, "the store is read-only until it is opened anew: {why}")
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl From<EngineError> for StoreError {
    fn from(error: EngineError) -> Self {
        StoreError::Engine(error)
    }
}

impl From<KeyError> for StoreError {
    fn from(error: KeyError) -> Self {
        StoreError::Key(error)
    }
}

impl From<RowCacheError> for StoreError {
    fn from(error: RowCacheError) -> Self {
        StoreError::RowCache(Arc::new(error))
    }
}

impl From<CatalogueError> for StoreError {
    fn from(error: CatalogueError) -> Self {
        StoreError::Catalogue(Arc::new(error))
    }
}

impl StoreError {
    pub(super) fn io(path: &std::path::Path, source: io::Error) -> Self {
        StoreError::Io { path: path.to_owned(), source: Arc::new(source) }
    }

    pub(super) fn corrupt(key: &[u8], what: DecodeError) -> Self {
        StoreError::Corrupt { record: describe(key), what }
    }
}

/// Describes a record by its key.
pub(super) fn describe(key: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match key::split(key) {
        Some((table, partition, target)) => {
            let place = match target {
                Target::Header => "header".to_owned(),
                Target::Static => "static row".to_owned(),
                Target::Row(clustering) => format!("row 0x{}", hex(clustering)),
            };
            let (token, rest) = partition.split_at(8.min(partition.len()));
            format!("table {}, token 0x{}, partition 0x{}, {place}", table.0, hex(token), hex(rest))
        }
        None => format!("key 0x{}", hex(key)),
    }
}
