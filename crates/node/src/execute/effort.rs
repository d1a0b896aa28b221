//! Limits of a request where it is executed.
//!
//! An event loop reads a little data from memory; a request that needs more is given up and
//! executed again by a worker, which may wait. A worker gives it up again if it reads more than a
//! few thousand records; such requests have separate workers. They end when their time is over or
//! their client is gone. A request must therefore change nothing while it can still be given up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use shunt_storage::engine::ReadTier;
use shunt_storage::row::{CellValue, Row};
use shunt_storage::store::Reach;

use crate::error::CqlError;
use crate::limits;

/// Records between two looks at the clock, a power of two.
const RECORDS_PER_LOOK: usize = 64;

/// Executor of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    /// An event loop, which must not wait.
    Loop,
    /// A worker, which may wait while others wait for it.
    Worker,
    /// A worker for long requests.
    LongWorker,
}

/// Conditions that end a long request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// Deadline.
    pub(crate) until: Option<Instant>,
    /// Set when no client waits for the answer.
    pub(crate) gone: Arc<AtomicBool>,
}

/// Amount that a request may still read before it is given up.
#[derive(Debug)]
pub(crate) struct Effort {
    who: Who,
    records: Cell<usize>,
    bytes: Cell<usize>,
    /// Bytes of the writes of statements that have several.
    gathered: Cell<usize>,
    ends: Ends,
    /// Partition lock that the request will wait for.
    lock: Cell<Option<usize>>,
}

impl Effort {
    fn new(who: Who, records: usize, bytes: usize, ends: Ends) -> Effort {
        Effort {
            who,
            records: Cell::new(records),
            bytes: Cell::new(bytes),
            gathered: Cell::new(0),
            ends,
            lock: Cell::new(None),
        }
    }

    /// Effort of a request that may wait, and read without limit until it has to end.
    pub(crate) fn of_a_long_worker(ends: Ends) -> Effort {
        Effort::new(Who::LongWorker, usize::MAX, usize::MAX, ends)
    }

    /// Effort of a request that may wait, but not take long.
    pub(crate) fn of_a_worker(ends: Ends) -> Effort {
        Effort::new(Who::Worker, limits::WORKER_RECORDS, limits::WORKER_BYTES, ends)
    }

    /// Effort of one request on an event loop.
    pub(crate) fn of_a_loop() -> Effort {
        Effort::new(Who::Loop, limits::LOOP_RECORDS, limits::LOOP_BYTES, Ends::default())
    }

    /// True if the request must not wait.
    pub(crate) fn is_of_a_loop(&self) -> bool {
        self.who == Who::Loop
    }

    /// True if the request may wait until compaction has caught up.
    pub(crate) fn may_stall(&self) -> bool {
        self.who == Who::LongWorker
    }

    /// Records the partition lock that the request would wait for if given up.
    pub(crate) fn will_lock(&self, lock: Option<usize>) {
        self.lock.set(lock);
    }

    /// See [`Effort::will_lock`].
    pub(crate) fn lock(&self) -> Option<usize> {
        self.lock.get()
    }

    /// Limits of the next read: one more than allowed, so that an excess is detected.
    pub(crate) fn reach(&self) -> Reach {
        let tier = if self.is_of_a_loop() { ReadTier::Memory } else { ReadTier::Disk };
        Reach { tier, records: self.records.get().saturating_add(1), until: self.ends.until }
    }

    /// Must be called before a step that may wait for the disk, or for another request that does.
    pub(crate) fn may_wait(&self) -> Result<(), CqlError> {
        if self.is_of_a_loop() { Err(CqlError::WouldWait { long: false }) } else { Ok(()) }
    }

    /// Must be called before a step that takes long regardless of memory.
    pub(crate) fn may_take_long(&self) -> Result<(), CqlError> {
        if self.who == Who::LongWorker { Ok(()) } else { Err(CqlError::WouldWait { long: true }) }
    }

    /// Must be called before reading this many records, if their number is known.
    pub(crate) fn may_read(&self, records: usize) -> Result<(), CqlError> {
        if records > self.records.get() { self.may_take_long() } else { Ok(()) }
    }

    /// Must be called after a record was read.
    pub(crate) fn has_read(&self, row: Option<&Row>) -> Result<(), CqlError> {
        self.has_read_bytes(row.map_or(0, bytes_of_row))
    }

    /// Must be called after a record with this many bytes of values was read.
    pub(crate) fn has_read_bytes(&self, bytes: usize) -> Result<(), CqlError> {
        match (self.records.get().checked_sub(1), self.bytes.get().checked_sub(bytes)) {
            (Some(records), Some(bytes)) => {
                self.records.set(records);
                // Long requests are limited by time; their bytes are counted where they are stored.
                if self.who == Who::LongWorker {
                    return if records % RECORDS_PER_LOOK == 0 { self.check_end() } else { Ok(()) };
                }
                self.bytes.set(bytes);
                Ok(())
            }
            _ => self.may_take_long(),
        }
    }

    /// Must be called before a write with this many bytes is kept, if it is one of several for the
    /// same statement: a short request may ask for any number of them.
    pub(crate) fn will_gather(&self, bytes: usize) -> Result<(), CqlError> {
        self.gathered.set(self.gathered.get().saturating_add(bytes));
        if self.gathered.get() <= limits::GATHERED_BYTES_MAX {
            return Ok(());
        }
        let bytes_max = limits::GATHERED_BYTES_MAX;
        Err(CqlError::Invalid(format!(
            "the rows that this request writes have more than {bytes_max} bytes with their keys: use several requests"
        )))
    }

    /// Checks whether the request may continue.
    fn check_end(&self) -> Result<(), CqlError> {
        let over = self.ends.until.is_some_and(|until| Instant::now() >= until);
        if over || self.ends.gone.load(Ordering::Relaxed) {
            Err(CqlError::TimedOut)
        } else {
            Ok(())
        }
    }
}

/// Bytes of a row's values.
pub(super) fn bytes_of_row(row: &Row) -> usize {
    row.cells.iter().map(|cell| bytes_of(&cell.value)).sum()
}

/// Bytes that a row takes in memory. Elements of sets and keys of maps are paths of its cells.
pub(super) fn bytes_in_memory(row: &Row) -> usize {
    let paths = row.cells.iter().map(|cell| cell.path.as_ref().map_or(0, Vec::len));
    bytes_of_row(row) + paths.sum::<usize>() + size_of_val(row.cells.as_slice())
}

fn bytes_of(value: &CellValue) -> usize {
    match value {
        CellValue::Live(bytes) => bytes.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_gives_up_where_a_worker_goes_on() {
        let (patient, hasty) = (Effort::of_a_long_worker(Ends::default()), Effort::of_a_loop());
        let expected =
            Reach { tier: ReadTier::Memory, records: limits::LOOP_RECORDS + 1, until: None };
        assert_eq!(hasty.reach(), expected);
        assert_eq!(patient.reach(), Reach::default());
        let long = Err(CqlError::WouldWait { long: true });
        assert_eq!(
            (hasty.may_read(limits::LOOP_RECORDS), hasty.may_read(usize::MAX)),
            (Ok(()), long.clone())
        );
        for _ in 0..limits::LOOP_RECORDS {
            assert_eq!((hasty.has_read(None), patient.has_read(None)), (Ok(()), Ok(())));
        }
        assert_eq!((hasty.has_read(None), patient.has_read(None)), (long, Ok(())));
        assert_eq!(
            (hasty.may_wait(), patient.may_wait()),
            (Err(CqlError::WouldWait { long: false }), Ok(()))
        );
    }

    #[test]
    fn a_worker_waits_and_leaves_what_takes_long_to_others() {
        let worker = Effort::of_a_worker(Ends::default());
        assert_eq!(
            (worker.may_wait(), worker.reach().tier, worker.may_stall()),
            (Ok(()), ReadTier::Disk, false)
        );
        (0..limits::WORKER_RECORDS).for_each(|_| assert_eq!(worker.has_read(None), Ok(())));
        assert_eq!(worker.has_read(None), Err(CqlError::WouldWait { long: true }));
        let worker = Effort::of_a_worker(Ends::default());
        assert_eq!(
            worker.has_read_bytes(limits::WORKER_BYTES + 1),
            Err(CqlError::WouldWait { long: true })
        );
    }

    #[test]
    fn the_writes_that_one_request_gathers_are_limited_whoever_executes_it() {
        for effort in [Effort::of_a_loop(), Effort::of_a_long_worker(Ends::default())] {
            let half = limits::GATHERED_BYTES_MAX / 2;
            assert_eq!((effort.will_gather(half), effort.will_gather(half)), (Ok(()), Ok(())));
            assert!(matches!(effort.will_gather(2), Err(CqlError::Invalid(_))));
        }
    }

    #[test]
    fn a_long_request_ends_with_its_deadline_or_its_client() {
        let over = Ends { until: Some(Instant::now()), ..Ends::default() };
        let gone = Ends { gone: Arc::new(AtomicBool::new(true)), ..Ends::default() };
        for (ends, expected) in [
            (Ends::default(), Ok(())),
            (over, Err(CqlError::TimedOut)),
            (gone, Err(CqlError::TimedOut)),
        ] {
            let effort = Effort::of_a_long_worker(ends);
            let outcome = (0..RECORDS_PER_LOOK).try_for_each(|_| effort.has_read(None));
            assert_eq!(outcome, expected);
        }
    }
}
