//! How far a request may go where it is executed.
//!
//! An event loop reads what is in memory, and little of it; a request that needs more is given up and executed again by a
//! worker, which may wait. So nothing may be changed before a request is past the point where it can be given up.

use std::cell::Cell;

use shunt_storage::engine::ReadTier;
use shunt_storage::row::{CellValue, Row};
use shunt_storage::store::Reach;

use crate::error::CqlError;
use crate::limits;

/// What a request may still read before it is given up.
#[derive(Debug)]
pub(crate) struct Effort {
    patient: bool,
    records: Cell<usize>,
    bytes: Cell<usize>,
}

impl Effort {
    /// It may wait, and read as much as it likes.
    pub(crate) fn unlimited() -> Effort {
        Effort { patient: true, records: Cell::new(usize::MAX), bytes: Cell::new(usize::MAX) }
    }

    /// That of an event loop, for one request.
    pub(crate) fn of_a_loop() -> Effort {
        let (records, bytes) = (Cell::new(limits::LOOP_RECORDS), Cell::new(limits::LOOP_BYTES));
        Effort { patient: false, records, bytes }
    }

    /// Whether it may not wait.
    pub(crate) fn is_of_a_loop(&self) -> bool {
        !self.patient
    }

    /// How far the next read may look: one more than it may use, so that it is seen whether there is more.
    pub(crate) fn reach(&self) -> Reach {
        match self.patient {
            true => Reach::default(),
            false => Reach { tier: ReadTier::Memory, records: self.records.get().saturating_add(1) },
        }
    }

    /// Before something that may wait for the disk, or for somebody who waits for the disk.
    pub(crate) fn may_wait(&self) -> Result<(), CqlError> {
        if self.patient { Ok(()) } else { Err(CqlError::WouldWait { long: false }) }
    }

    /// Before something that takes long whatever is in memory.
    pub(crate) fn may_take_long(&self) -> Result<(), CqlError> {
        if self.patient { Ok(()) } else { Err(CqlError::WouldWait { long: true }) }
    }

    /// Before so many records are read, if that is known.
    pub(crate) fn may_read(&self, records: usize) -> Result<(), CqlError> {
        if records > self.records.get() { self.may_take_long() } else { Ok(()) }
    }

    /// After a record was read.
    pub(crate) fn has_read(&self, row: Option<&Row>) -> Result<(), CqlError> {
        if self.patient {
            return Ok(());
        }
        self.has_read_bytes(row.map_or(0, |row| row.cells.iter().map(|cell| bytes_of(&cell.value)).sum()))
    }

    /// After a record with so many bytes of values was read.
    pub(crate) fn has_read_bytes(&self, bytes: usize) -> Result<(), CqlError> {
        if self.patient {
            return Ok(());
        }
        match (self.records.get().checked_sub(1), self.bytes.get().checked_sub(bytes)) {
            (Some(records), Some(bytes)) => {
                self.records.set(records);
                self.bytes.set(bytes);
                Ok(())
            }
            _ => self.may_take_long(),
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
        let (patient, hasty) = (Effort::unlimited(), Effort::of_a_loop());
        assert_eq!(hasty.reach(), Reach { tier: ReadTier::Memory, records: limits::LOOP_RECORDS + 1 });
        assert_eq!(patient.reach(), Reach::default());
        let long = Err(CqlError::WouldWait { long: true });
        assert_eq!((hasty.may_read(limits::LOOP_RECORDS), hasty.may_read(usize::MAX)), (Ok(()), long.clone()));
        for _ in 0..limits::LOOP_RECORDS {
            assert_eq!((hasty.has_read(None), patient.has_read(None)), (Ok(()), Ok(())));
        }
        assert_eq!((hasty.has_read(None), patient.has_read(None)), (long, Ok(())));
        assert_eq!((hasty.may_wait(), patient.may_wait()), (Err(CqlError::WouldWait { long: false }), Ok(())));
    }
}
