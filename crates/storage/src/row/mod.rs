//! The data model: rows as sets of timestamped cells, partition headers, and the rules by which
//! fragments merge.
//!
//! A write is a [`Row`] too, with the few cells it touches: a *fragment*. What a reader sees is the
//! merge of all fragments of its key. Merging is Apache Cassandra 5's reconciliation (`Cells`,
//! `Row.Merger`, `DeletionTime`): it is associative, commutative and idempotent, so the engine may
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

/// A table, as numbered by the node. `u32::MAX` is kept for the storage's own records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// A column within its table; never given to another column of the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnId(pub u32);

impl ColumnId {
    /// No column, but the values of the row's clustering columns as they were first written, for
    /// tables whose keys keep less than that. It makes no row live, no deletion takes it, and it
    /// goes with the last cell of the row.
    pub const KEY_AS_WRITTEN: ColumnId = ColumnId(u32::MAX);
}

/// A partition: 8 bytes of token (big endian, sign bit flipped), then the bytes of the CQL
/// partition key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey<'a>(pub &'a [u8]);

/// Deletes everything below it that was written at `timestamp` (µs) or before.
///
/// The order is that of superseding: the greater timestamp, then the greater local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deletion {
    /// The time of the delete, in µs, as the client gave it.
    pub timestamp: i64,
    /// When the node took it, in seconds: grace before collection counts from here.
    pub local: i64,
}

impl Deletion {
    /// True if data written at `timestamp` is gone.
    pub fn covers(&self, timestamp: i64) -> bool {
        timestamp <= self.timestamp
    }
}

/// That a row was inserted, even if all its cells are null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// The time of the INSERT, in µs.
    pub timestamp: i64,
    /// The expiry by the INSERT's TTL.
    pub expiry: Option<Expiry>,
}

impl Liveness {
    /// True if the row is still there at `now` (s) because of this.
    pub fn is_live(&self, now: i64) -> bool {
        self.expiry.is_none_or(|expiry| now < expiry.at)
    }

    /// `LivenessInfo.supersedes`: at the same timestamp one that expires wins, then the one that
    /// expires later.
    fn rank(&self) -> (i64, Option<(i64, u32)>) {
        (self.timestamp, self.expiry.map(|expiry| (expiry.at, expiry.ttl)))
    }
}

/// A row, or a fragment of one: what a write says, or the merge of several.
///
/// In canonical form, which [`Row::canonicalise`] brings about, `complex` is sorted by column and
/// `cells` by column and path, each at most once, and nothing is in it that its own deletions
/// cover.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The liveness that an INSERT gives.
    pub liveness: Option<Liveness>,
    /// The deletion of the whole row.
    pub deletion: Option<Deletion>,
    /// The deletions of all elements of a collection (it was overwritten).
    pub complex: Vec<(ColumnId, Deletion)>,
    /// Values, sorted by column and path.
    pub cells: Vec<Cell>,
}

/// The change that one write adds to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fragment {
    /// To a row, static or not.
    Row(Row),
    /// To a partition's header.
    Header(Header),
}
