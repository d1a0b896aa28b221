//! The errors of a store, with whose fault they are.

use crate::catalogue::{CatalogueError, DecodeError};
use crate::engine::EngineError;
use crate::key::{self, KeyError, Target};
use crate::row_cache::RowCacheError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a store did not do what it was asked to.
#[derive(Debug, Clone)]
pub enum StoreError {
    /// The operating system says so.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The directory is of another version of the store, or not one of a store at all.
    Format {
        /// The file that says so.
        path: PathBuf,
        /// Its contents, or what it lacks.
        found: String,
    },
    /// Another process has the directory.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who that is, as it says itself.
        holder: String,
    },
    /// The catalogue's file cannot be used.
    Catalogue(Arc<CatalogueError>),
    /// The engine says so.
    Engine(EngineError),
    /// The row cache cannot be opened as it is configured.
    RowCache(Arc<RowCacheError>),
    /// A record is broken.
    Corrupt {
        /// Table, partition and place of the record.
        record: String,
        /// How.
        what: DecodeError,
    },
    /// A key that cannot be stored. The caller's fault.
    Key(KeyError),
    /// A fragment of the wrong kind for its place. The caller's fault.
    Misplaced,
    /// More in one call than may be. The caller's fault.
    TooLarge {
        /// The size of the fragments together.
        bytes: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The end of the log is missing: writes that were acknowledged are gone.
    /// `EngineOptions::accept_damaged_log` opens what is left.
    LogLost {
        /// The file that says so.
        path: PathBuf,
        /// From where to where.
        what: String,
    },
    /// Writes come faster than they are compacted, and have for as long as a write waits. It was
    /// not carried out.
    Stalled(Duration),
    /// The disk is full: reads go on, writes again when there is room.
    Full(String),
    /// A write failed in a way that leaves open what is on disk: reads go on, writes do not until
    /// the store is opened anew.
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

/// Names a record in words.
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
