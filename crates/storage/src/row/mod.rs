//! The data model: rows as sets of timestamped cells, partition headers, and the rules for merging
//! fragments.
//!
//! A write is a [`Row`] too, with the few cells it touches: a *fragment*. A reader sees the merge
//! of all fragments of its key. Merging follows Apache Cassandra 5's reconciliation (`Cells`,
//! `Row.Merger`, `DeletionTime`). It is associative, commutative and idempotent, so the engine may
//! merge any neighbours at any time and may replay them. Counters and [`ColumnId::KEY_AS_WRITTEN`]
//! depend on the order: the older fragment is the left one.

mod cell;
mod header;
mod merge;
#[cfg(test)]
pub(crate) mod strategies;
#[cfg(test)]
mod tests;

pub use cell::{Cell, CellValue, Expiry};
pub use header::{Cut, Header, RangeTombstone};

/// Owned bytes of keys, paths and values.
pub type Bytes = Vec<u8>;

/// A table, as numbered by the node. `u32::MAX` is reserved for the storage's own records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// A column within its table; never reused for another column of the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnId(pub u32);

impl ColumnId {
    /// Not a column, but the row's clustering values as first written, for tables whose keys
    /// preserve less. It does not make a row live, no deletion removes it, and it disappears with
    /// the last cell of the row.
    pub const KEY_AS_WRITTEN: ColumnId = ColumnId(u32::MAX);
}

/// A partition: 8 bytes of token (big endian, sign bit flipped), then the bytes of the CQL
/// partition key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey<'a>(pub &'a [u8]);

/// Deletes everything below it that was written at `timestamp` (µs) or before.
///
/// Ordered by superseding: the greater timestamp, then the greater local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deletion {
    /// Timestamp of the delete as given by the client, in µs.
    pub timestamp: i64,
    /// Second in which the node received the delete, the start of the grace period before
    /// collection.
    pub local: i64,
}

impl Deletion {
    /// True if data written at `timestamp` is deleted.
    pub fn covers(&self, timestamp: i64) -> bool {
        timestamp <= self.timestamp
    }
}

/// Marks a row as inserted, even if all its cells are null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// Timestamp of the INSERT, in µs.
    pub timestamp: i64,
    /// Expiry from the INSERT's TTL.
    pub expiry: Option<Expiry>,
}

impl Liveness {
    /// True if this keeps the row alive at `now` (s).
    pub fn is_live(&self, now: i64) -> bool {
        self.expiry.is_none_or(|expiry| now < expiry.at)
    }

    /// `LivenessInfo.supersedes`: at the same timestamp an expiring one wins over a permanent one,
    /// and a later expiry over an earlier one.
    fn rank(&self) -> (i64, Option<(i64, u32)>) {
        (self.timestamp, self.expiry.map(|expiry| (expiry.at, expiry.ttl)))
    }
}

/// A row, or a fragment of one: the content of a write, or the merge of several.
///
/// In canonical form, which [`Row::canonicalise`] produces, `complex` is sorted by column and
/// `cells` by column and path, each at most once, and the row contains nothing that its own
/// deletions cover.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Liveness from an INSERT.
    pub liveness: Option<Liveness>,
    /// Deletion of the whole row.
    pub deletion: Option<Deletion>,
    /// Deletions of all elements of a collection (it was overwritten).
    pub complex: Vec<(ColumnId, Deletion)>,
    /// Values, sorted by column and path.
    pub cells: Vec<Cell>,
}

/// Change that one write makes to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fragment {
    /// Change to a row, static or not.
    Row(Row),
    /// Change to a partition's header.
    Header(Header),
}
