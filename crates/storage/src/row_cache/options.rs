//! Options for opening a row cache, and errors of opening it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::ssd::index::PAGES_MAX;
use super::ssd::page::PAGE_BYTES;

const MEMORY_BYTES_MIN: usize = 256 * 1024;
const SEGMENT_BYTES_MIN: u64 = 256 * 1024;
/// One segment for appending, one free, one to collect.
const SEGMENTS_MIN: u64 = 3;
/// Each segment is an open file.
const SEGMENTS_MAX: u64 = 4096;
const EXPECTED_ROW_BYTES_MIN: usize = 16;

/// Size and location of a row cache.
#[derive(Debug, Clone)]
pub struct RowCacheOptions {
    /// Bytes of memory for rows, including all their overhead; at least 256 KB. The index of the
    /// SSD tier (`ssd.bytes / ssd.expected_row_bytes` rows at 9.4 bytes each) and its queue are
    /// additional.
    pub memory_bytes: usize,
    /// Number of leading bytes of a key that name its table: at most 8.
    pub table_prefix_bytes: usize,
    /// The second tier; without it, rows that leave memory are lost.
    pub ssd: Option<SsdOptions>,
}

impl Default for RowCacheOptions {
    fn default() -> Self {
        RowCacheOptions { memory_bytes: 64 << 20, table_prefix_bytes: 4, ssd: None }
    }
}

/// Options of the SSD tier.
#[derive(Debug, Clone)]
pub struct SsdOptions {
    /// A directory for this cache alone. Opening removes segments found there: the cache starts
    /// cold.
    pub dir: PathBuf,
    /// Bytes on SSD, at least three segments.
    pub bytes: u64,
    /// Size of a segment: a multiple of 4 KB, at least 256 KB. Collection reads and frees one at a
    /// time.
    pub segment_bytes: u64,
    /// Mean size of key and record, which determines the size of the index. Rows half as large use
    /// only half of the space.
    pub expected_row_bytes: usize,
    /// Most bytes of rows waiting to be written; rows beyond are dropped.
    pub queue_bytes: usize,
    /// Reads that may fail or find a broken record before the tier turns itself off. A failing
    /// write turns it off immediately.
    pub read_errors_max: u32,
    /// Selection of the rows that move from memory to SSD.
    pub admission: SsdAdmission,
}

impl SsdOptions {
    /// Segments of 8 MB (or a sixteenth of a small cache), rows of 512 bytes, a queue of 8 MB.
    pub fn new(dir: impl Into<PathBuf>, bytes: u64) -> Self {
        let segment_bytes =
            (bytes / 16).clamp(SEGMENT_BYTES_MIN, 8 << 20).max(bytes / SEGMENTS_MAX);
        SsdOptions {
            dir: dir.into(),
            bytes,
            segment_bytes: segment_bytes.next_multiple_of(PAGE_BYTES as u64),
            expected_row_bytes: 512,
            queue_bytes: 8 << 20,
            read_errors_max: 16,
            admission: SsdAdmission::default(),
        }
    }
}

/// Selection of the rows that move from memory to SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SsdAdmission {
    /// Every row, as in the paper: gives most hits if there are no scans.
    All,
    /// Rows that were read again while in memory, or came back soon after they left: excludes
    /// scans.
    #[default]
    ReadAgain,
}

impl RowCacheOptions {
    pub(super) fn check(&self) -> Result<(), RowCacheError> {
        let wrong = |what: String| Err(RowCacheError::Options(what));
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return wrong(format!(
                "memory_bytes is {}, less than {MEMORY_BYTES_MIN}",
                self.memory_bytes
            ));
        }
        if self.table_prefix_bytes > 8 {
            return wrong(format!(
                "table_prefix_bytes is {}, more than 8",
                self.table_prefix_bytes
            ));
        }
        let Some(ssd) = &self.ssd else { return Ok(()) };
        if ssd.segment_bytes < SEGMENT_BYTES_MIN
            || !ssd.segment_bytes.is_multiple_of(PAGE_BYTES as u64)
        {
            let wanted = format!("not a multiple of {PAGE_BYTES} of at least {SEGMENT_BYTES_MIN}");
            return wrong(format!("ssd.segment_bytes is {}, {wanted}", ssd.segment_bytes));
        }
        let segments = ssd.bytes / ssd.segment_bytes;
        if !(SEGMENTS_MIN..=SEGMENTS_MAX).contains(&segments) {
            let wanted = format!("not {SEGMENTS_MIN} to {SEGMENTS_MAX}");
            return wrong(format!(
                "ssd.bytes is {segments} segments of {}, {wanted}",
                ssd.segment_bytes
            ));
        }
        if ssd.bytes / PAGE_BYTES as u64 > PAGES_MAX {
            return wrong(format!("ssd.bytes is {}, more than {PAGES_MAX} pages", ssd.bytes));
        }
        if ssd.expected_row_bytes < EXPECTED_ROW_BYTES_MIN {
            let least = EXPECTED_ROW_BYTES_MIN;
            return wrong(format!(
                "ssd.expected_row_bytes is {}, less than {least}",
                ssd.expected_row_bytes
            ));
        }
        Ok(())
    }
}

/// Reasons why a row cache, or its SSD tier, could not be opened.
#[derive(Debug)]
pub enum RowCacheError {
    /// An option has an invalid value.
    Options(String),
    /// The directory or a segment in it cannot be created, or belongs to another cache.
    Ssd {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The thread that writes to the SSD could not be started.
    Thread(io::Error),
}

impl fmt::Display for RowCacheError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowCacheError::Options(what) => write!(formatter, "row cache: {what}"),
            RowCacheError::Ssd { dir, error } => {
                write!(formatter, "row cache: SSD tier in {}: {error}", dir.display())
            }
            RowCacheError::Thread(error) => {
                write!(formatter, "row cache: no thread for the SSD tier: {error}")
            }
        }
    }
}

impl std::error::Error for RowCacheError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RowCacheError::Ssd { error, .. } | RowCacheError::Thread(error) => Some(error),
            RowCacheError::Options(_) => None,
        }
    }
}
