//! How far a request may go where it is executed.
//!
//! An event loop reads what is in memory, and little of it; a request that needs more is given up
//! and executed again by a worker, which may wait. A worker gives it up again if it reads more than
//! a few thousand records, and those that take long have workers of their own. There it ends when
//! its time is over or its client is gone. So nothing may be changed before a request is past the
//! point where it can be given up.

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

/// Who executes a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    /// It may not wait.
    Loop,
    /// It may wait, but others wait for it.
    Worker,
    /// It may take long.
    LongWorker,
}

/// When a request that takes long is to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// At this time.
    pub(crate) until: Option<Instant>,
    /// When this is set: nobody is left who waits for its answer.
    pub(crate) gone: Arc<AtomicBool>,
}

/// The amount that a request may still read before it is given up.
#[derive(Debug)]
pub(crate) struct Effort {
    who: Who,
    records: Cell<usize>,
    bytes: Cell<usize>,
    ends: Ends,
    /// The lock of a partition that the request will wait for.
    lock: Cell<Option<usize>>,
}

impl Effort {
    fn new(who: Who, records: usize, bytes: usize, ends: Ends) -> Effort {
        Effort {
            who,
            records: Cell::new(records),
            bytes: Cell::new(bytes),
            ends,
            lock: Cell::new(None),
        }
    }

    /// It may wait, and read as much as it likes until it has to end.
    pub(crate) fn of_a_long_worker(ends: Ends) -> Effort {
        Effort::new(Who::LongWorker, usize::MAX, usize::MAX, ends)
    }

    /// It may wait, but not take long.
    pub(crate) fn of_a_worker(ends: Ends) -> Effort {
        Effort::new(Who::Worker, limits::WORKER_RECORDS, limits::WORKER_BYTES, ends)
    }

    /// That of an event loop, for one request.
    pub(crate) fn of_a_loop() -> Effort {
        Effort::new(Who::Loop, limits::LOOP_RECORDS, limits::LOOP_BYTES, Ends::default())
    }

    /// True if it may not wait.
    pub(crate) fn is_of_a_loop(&self) -> bool {
        self.who == Who::Loop
    }

    /// True if it may wait until compaction has caught up.
    pub(crate) fn may_stall(&self) -> bool {
        self.who == Who::LongWorker
    }

    /// Which lock of a partition is waited for, if it is given up.
    pub(crate) fn will_lock(&self, lock: Option<usize>) {
        self.lock.set(lock);
    }

    /// See [`Effort::will_lock`].
    pub(crate) fn lock(&self) -> Option<usize> {
        self.lock.get()
    }

    /// How far the next read may look: one more than it may use, so that it is seen whether there
    /// is more.
    pub(crate) fn reach(&self) -> Reach {
        let tier = if self.is_of_a_loop() { ReadTier::Memory } else { ReadTier::Disk };
        Reach { tier, records: self.records.get().saturating_add(1), until: self.ends.until }
    }

    /// Before something that may wait for the disk, or for somebody who waits for the disk.
    pub(crate) fn may_wait(&self) -> Result<(), CqlError> {
        if self.is_of_a_loop() { Err(CqlError::WouldWait { long: false }) } else { Ok(()) }
    }

    /// Before something that takes long whatever is in memory.
    pub(crate) fn may_take_long(&self) -> Result<(), CqlError> {
        if self.who == Who::LongWorker { Ok(()) } else { Err(CqlError::WouldWait { long: true }) }
    }

    /// Before so many records are read, if that is known.
    pub(crate) fn may_read(&self, records: usize) -> Result<(), CqlError> {
        if records > self.records.get() { self.may_take_long() } else { Ok(()) }
    }

    /// After a record was read.
    pub(crate) fn has_read(&self, row: Option<&Row>) -> Result<(), CqlError> {
        self.has_read_bytes(
            row.map_or(0, |row| row.cells.iter().map(|cell| bytes_of(&cell.value)).sum()),
        )
    }

    /// After a record with so many bytes of values was read.
    pub(crate) fn has_read_bytes(&self, bytes: usize) -> Result<(), CqlError> {
        match (self.records.get().checked_sub(1), self.bytes.get().checked_sub(bytes)) {
            (Some(records), Some(bytes)) => {
                self.records.set(records);
                // What takes long is bounded by time; bytes of it are counted where they are kept.
                if self.who == Who::LongWorker {
                    return if records % RECORDS_PER_LOOK == 0 { self.check_end() } else { Ok(()) };
                }
                self.bytes.set(bytes);
                Ok(())
            }
            _ => self.may_take_long(),
        }
    }

    /// Checks whether it may go on.
    fn check_end(&self) -> Result<(), CqlError> {
        let over = self.ends.until.is_some_and(|until| Instant::now() >= until);
        if over || self.ends.gone.load(Ordering::Relaxed) {
            Err(CqlError::TimedOut)
        } else {
            Ok(())
        }
    }
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
    fn what_takes_long_ends_with_its_time_or_its_client() {
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
