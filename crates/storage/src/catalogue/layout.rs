//! Layout of a record, shared by the encoder and the decoder.
//!
//! ```text
//! row      version|kind  flags  base timestamp  [expiry]  [liveness]  [deletions]  presence
//!          columns  values
//! header   version|kind  [deletion]  ranges
//! unmerged version|kind  fragments, each with its length
//!
//! presence  exact: schema id
//!           base:  schema id, one bit for each of the base's columns
//!           inline: count, columns (as differences)
//! columns   uniform: one length for all of them; else a length for each; before each, if the
//!           row has metadata, a byte of flags and the fields that the flags announce
//! ```
//!
//! A plain INSERT of values of one length costs 11 bytes besides the values: 2 + 7 (timestamp) + 1
//! (schema) + 1 (length). Timestamps and times are differences from the row's first ones. Values
//! come last and contiguously, so that a reader finds a column by summing the lengths before it.

/// The version of the format, in the upper half of the first byte.
pub(super) const VERSION: u8 = 1;

pub(super) const KIND_ROW: u8 = 0;
pub(super) const KIND_HEADER: u8 = 1;
pub(super) const KIND_UNMERGED: u8 = 2;

/// The row was inserted with the base timestamp and the row's expiry.
pub(super) const LIVENESS_AT_BASE: u8 = 1 << 0;
/// The row was inserted with its own timestamp and expiry.
pub(super) const LIVENESS_OWN: u8 = 1 << 1;
/// Deletions of the row or of collections follow.
pub(super) const DELETIONS: u8 = 1 << 2;
/// Expiry of the columns without their own.
pub(super) const EXPIRY: u8 = 1 << 3;
/// A byte of flags for each column.
pub(super) const METADATA: u8 = 1 << 4;
/// Values of equal length.
pub(super) const UNIFORM: u8 = 1 << 5;
/// Shift of the two highest bits, which say how the record names its columns.
pub(super) const PRESENCE_SHIFT: u8 = 6;
pub(super) const PRESENCE_EXACT: u8 = 0;
pub(super) const PRESENCE_BASE: u8 = 1;
pub(super) const PRESENCE_INLINE: u8 = 2;
pub(super) const PRESENCE_NONE: u8 = 3;

/// Two bits: kind of the cell's content.
pub(super) const CELL_KIND: u8 = 0b11;
pub(super) const CELL_LIVE: u8 = 0;
pub(super) const CELL_TOMBSTONE: u8 = 1;
pub(super) const CELL_COUNTER: u8 = 2;
pub(super) const CELL_DELTA: u8 = 3;
/// A timestamp other than the base.
pub(super) const CELL_TIMESTAMP: u8 = 1 << 2;
/// The cell has its own expiry.
pub(super) const CELL_EXPIRY: u8 = 1 << 3;
/// The row has an expiry, but this cell has none.
pub(super) const CELL_STAYS: u8 = 1 << 4;
/// The value is a list of elements, each a cell.
pub(super) const CELL_ELEMENTS: u8 = 1 << 5;
/// Bits not used by any flag.
pub(super) const CELL_UNKNOWN: u8 = 0b1100_0000;

/// 2020-01-01 in µs: timestamps from here take seven bytes until 2028, eight until 2161.
pub(super) const EPOCH_US: i64 = 1_577_836_800_000_000;

/// Seconds of a timestamp in µs, the base for local times and expiries.
pub(super) fn seconds(timestamp: i64) -> i64 {
    timestamp.div_euclid(1_000_000)
}
