//! One cell, and the choice between two cells of the same column and path.

use super::{Bytes, ColumnId};
use std::cmp::Ordering;

/// Expiry of a value written with a TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// TTL given by the client, in seconds; `ttl()` and the tombstone's local time derive from it.
    pub ttl: u32,
    /// First second at which the value is gone.
    pub at: i64,
}

/// The value of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellValue {
    /// A value.
    Live(Bytes),
    /// A deletion that the node received in second `local`.
    Tombstone {
        /// Start of the grace period before collection.
        local: i64,
    },
    /// A counter's value, which replaces any earlier one.
    Counter(i64),
    /// Amount that a write adds to a counter.
    CounterDelta(i64),
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The column.
    pub column: ColumnId,
    /// Element of a non-frozen collection or UDT: set element, map key, list position, field
    /// number.
    pub path: Option<Bytes>,
    /// In µs; for a counter, the newest of its writes, for deletions of partitions and ranges.
    pub timestamp: i64,
    /// Expiry of a value written with a TTL.
    pub expiry: Option<Expiry>,
    /// Content of the cell.
    pub value: CellValue,
}

impl Cell {
    /// True if a reader sees the cell at `now` (s).
    pub fn is_live(&self, now: i64) -> bool {
        match self.value {
            CellValue::Tombstone { .. } => false,
            _ if self.is_key() => false,
            _ => self.expiry.is_none_or(|expiry| now < expiry.at),
        }
    }

    /// True for a counter's value or delta.
    pub fn is_counter(&self) -> bool {
        matches!(self.value, CellValue::Counter(_) | CellValue::CounterDelta(_))
    }

    /// True if the cell belongs to no column, see [`ColumnId::KEY_AS_WRITTEN`].
    pub fn is_key(&self) -> bool {
        self.column == ColumnId::KEY_AS_WRITTEN
    }

    /// Sort key of cells within a row.
    pub(crate) fn place(&self) -> (ColumnId, Option<&[u8]>) {
        (self.column, self.path.as_deref())
    }

    /// Returns the winner of two cells in one place. `older` came first into the store, which
    /// matters only for counters and keys.
    pub fn reconcile(older: Cell, newer: Cell) -> Cell {
        if older.is_key() {
            return older;
        }
        if older.is_counter() || newer.is_counter() {
            return reconcile_counters(older, newer);
        }
        if older.order(&newer) == Ordering::Less { newer } else { older }
    }

    /// `Cells.resolveRegular` as an order: the greater cell wins.
    fn order(&self, other: &Cell) -> Ordering {
        self.timestamp
            .cmp(&other.timestamp)
            .then_with(|| self.finality().cmp(&other.finality()))
            .then_with(|| self.ends_at().cmp(&other.ends_at()))
            .then_with(|| self.live_bytes().cmp(other.live_bytes()))
            // Cassandra leaves this case open; without a rule the order of arrival would decide the
            // result of `ttl()`.
            .then_with(|| {
                self.expiry.map(|expiry| expiry.ttl).cmp(&other.expiry.map(|expiry| expiry.ttl))
            })
    }

    /// CASSANDRA-14592: at one timestamp a tombstone beats an expiring cell, which beats a
    /// permanent one.
    fn finality(&self) -> u8 {
        match (&self.value, self.expiry) {
            (CellValue::Tombstone { .. }, _) => 2,
            (_, Some(_)) => 1,
            (_, None) => 0,
        }
    }

    fn ends_at(&self) -> i64 {
        match (&self.value, self.expiry) {
            (CellValue::Tombstone { local }, _) => *local,
            (_, Some(expiry)) => expiry.at,
            (_, None) => i64::MAX,
        }
    }

    fn live_bytes(&self) -> &[u8] {
        match &self.value {
            CellValue::Live(bytes) => bytes,
            _ => &[],
        }
    }
}

/// A delta adds to the value before it; a value or tombstone replaces it. A delta on a tombstone
/// becomes a value, so that a merge with cells before the tombstone cannot restore them.
fn reconcile_counters(older: Cell, newer: Cell) -> Cell {
    let CellValue::CounterDelta(added) = newer.value else { return newer };
    let value = match older.value {
        CellValue::Counter(sum) => CellValue::Counter(sum.wrapping_add(added)),
        CellValue::CounterDelta(sum) => CellValue::CounterDelta(sum.wrapping_add(added)),
        CellValue::Tombstone { .. } | CellValue::Live(_) => CellValue::Counter(added),
    };
    Cell { timestamp: older.timestamp.max(newer.timestamp), value, ..newer }
}
