//! The SSD tier: an append-only log of records (`log`, `page`, `file`), an index without keys in
//! memory (`index`, one per shard), a bounded queue and one thread that writes rows (`queue`,
//! `cascade`). Dropped rows stay in the log as garbage until their segment is collected.
//!
//! The tier turns off when the disk fails: look-ups find nothing in it, rows that leave memory are
//! dropped, and queries only take longer.

mod cascade;
mod file;
pub(super) mod index;
mod log;
pub(crate) mod page;
mod queue;

use std::cell::RefCell;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::counters::SsdCounters;
use super::options::{SsdAdmission, SsdOptions};
use super::row::CachedRow;
pub(super) use cascade::run as run_cascade;
#[cfg(test)]
pub(super) use file::SegmentFile;
pub(super) use file::{AlignedBuffer, Directory, SegmentStore};
pub(super) use index::{Location, SsdIndex};
pub(super) use log::{Appender, Log};
pub(super) use page::PAGE_BYTES;
use page::{PageFault, Record};
pub(super) use queue::{Spill, SpillQueue};

thread_local! {
    /// Per-thread read buffer, so that a hit allocates only its row.
    static READ_BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(PAGE_BYTES));
}

/// Past or present place of a row on the SSD, to be passed to [`super::RowCache::read_ssd`] on a
/// thread that may block.
#[derive(Debug)]
pub struct SsdTicket {
    pub(super) key: Box<[u8]>,
    pub(super) epoch: u32,
    pub(super) generation: u32,
    pub(super) place: Place,
}

impl SsdTicket {
    /// The looked-up key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// A place in the log, in one life of its segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) location: Location,
    pub(super) sequence: u64,
}

/// Result of reading a place.
pub(super) enum Found {
    Row(CachedRow),
    /// The row of another key, or the row before its table was cleared.
    Other {
        key_matches: bool,
    },
    /// The segment was reused in the meantime.
    Recycled,
    /// The disk failed or returned other bytes than were written.
    Broken(String),
}

pub(super) struct SsdTier {
    on: AtomicBool,
    pub(super) log: Log,
    pub(super) queue: SpillQueue,
    pub(super) appender: Mutex<Appender>,
    pub(super) counters: SsdCounters,
    /// Count since the tier was switched on.
    read_errors: AtomicU32,
    read_errors_max: u32,
    pub(super) admit_all: bool,
}

impl SsdTier {
    pub(super) fn new(log: Log, options: &SsdOptions) -> Self {
        SsdTier {
            on: AtomicBool::new(false),
            log,
            queue: SpillQueue::new(options.queue_bytes),
            appender: Mutex::new(Appender::new()),
            counters: SsdCounters::default(),
            read_errors: AtomicU32::new(0),
            read_errors_max: options.read_errors_max,
            admit_all: options.admission == SsdAdmission::All,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// Returns whether the tier was on.
    pub(super) fn set_off(&self) -> bool {
        self.on.swap(false, Ordering::SeqCst)
    }

    /// Starts with an empty log; the caller holds the appender, and no index points into the log.
    pub(super) fn set_on(&self, appender: &mut Appender) -> io::Result<()> {
        appender.restart(&self.log)?;
        self.read_errors.store(0, Ordering::Relaxed);
        self.on.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The row at a place that is still in the write buffer; `None` if it takes a read.
    pub(super) fn in_buffer(&self, place: Place, key: &[u8], epoch: u32) -> Option<Found> {
        let found = |record: Result<Record<'_>, PageFault>| self.judge(place, key, epoch, record);
        self.log.in_buffer(place.location, place.sequence, found)
    }

    /// Reads the row at a place with exactly one read.
    pub(super) fn read(&self, place: Place, key: &[u8], epoch: u32) -> Found {
        self.counters.reads.increment();
        READ_BUFFER.with_borrow_mut(|buffer| {
            match self.log.read(place.location, place.sequence, buffer) {
                Ok(record) => self.judge(place, key, epoch, record),
                Err(_) if self.log.sequence(place.location.page) != place.sequence => {
                    Found::Recycled
                }
                Err(error) => Found::Broken(error.to_string()),
            }
        })
    }

    /// Counts a failed read; returns whether the limit is exceeded.
    pub(super) fn count_read_error(&self) -> bool {
        self.counters.read_errors.increment();
        self.read_errors.fetch_add(1, Ordering::Relaxed) >= self.read_errors_max
    }

    fn judge(
        &self,
        place: Place,
        key: &[u8],
        epoch: u32,
        record: Result<Record<'_>, PageFault>,
    ) -> Found {
        match record {
            Ok(record) if record.key != key => Found::Other { key_matches: false },
            Ok(record) if record.epoch != epoch => Found::Other { key_matches: true },
            Ok(record) => match CachedRow::new(record.key, record.payload) {
                Some(row) => Found::Row(row),
                None => Found::Other { key_matches: true },
            },
            Err(_) if self.log.sequence(place.location.page) != place.sequence => Found::Recycled,
            Err(fault) => Found::Broken(format!("page {}: {fault:?}", place.location.page)),
        }
    }
}
