//! Redo records: re-encoding decoded bytes gives the same bytes.

use shunt_transactions::record::{Record, WRITES_MAX};

/// Tries one record.
pub fn run(data: &[u8]) {
    // A value of four bytes takes 24 in memory, and a write of 26 takes 88.
    let Ok(record) = crate::bounded(16, data.len(), || Record::decode(data)) else { return };
    assert!(!record.writes.is_empty() && record.writes.len() <= WRITES_MAX);
    let again = crate::written(|out| record.encode(out).expect("what was read can be written"));
    assert_eq!(again, data);
}
