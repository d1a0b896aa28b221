//! Input and output of [`crate::Transactions`].

use crate::engine::log::{Generation, Place, Position};

/// A partition of a table, as a hash of both. Two partitions with one hash merely wait for each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u128);

/// Sharing of a locked partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// With transactions that only read it.
    Shared,
    /// With no other transaction.
    Exclusive,
}

/// The caller's name for a transaction; each is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// A transaction under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A transaction that a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Begin<'a> {
    /// The caller's name for it.
    pub ticket: Ticket,
    /// The shard of its domain.
    pub shard: u8,
    /// The partitions that it reads and writes, in any order; 1 to [`Limits::partitions`].
    pub partitions: &'a [(Partition, Mode)],
    /// Latest time of its answer, by the boot-time clock, milliseconds.
    pub deadline_ms: u64,
}

/// The decision on a transaction that has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No writes: the conditions do not hold, or the transaction only reads.
    Nothing,
    /// This number of writes, at least one. The client is answered when they are made.
    Write(u16),
    /// This number of writes, and the client is answered as soon as they are committed: for tables
    /// that only transactions read, which wait for the writes. At most [`Limits::told_early`]
    /// writes may be outstanding this way; further clients are answered when the writes are made.
    WriteAndTell(u16),
    /// One write, which nodes apply as a whole or not at all. No record is needed, since a write of
    /// unknown outcome is never repeated. The write takes so many timestamps.
    Unlogged(u16),
    /// The transaction failed while it read, or is refused: nothing is written, and the client has
    /// been answered.
    GiveUp,
}

/// The answer to a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The writes are made, or will be whatever fails.
    Committed {
        /// The timestamp of its writes, microseconds.
        timestamp_us: i64,
    },
    /// The transaction has read, and writes nothing.
    Read {
        /// The place among the others of the shard, microseconds.
        timestamp_us: i64,
    },
    /// No writes were made, and none will be.
    NotExecuted(NotExecuted),
    /// The transaction may be committed, now or later.
    InDoubt,
}

/// Reasons why nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExecuted {
    /// The shard is another proxy's, or about to be.
    Elsewhere,
    /// This proxy has no valid lease.
    LeaseOver,
    /// The shard is this proxy's, but the unfinished work of former owners was not finished in
    /// time.
    NotOpen,
    /// The partitions were not free in time.
    Locked,
    /// The rows were not read in time.
    Late,
    /// The record could not be sent to any node.
    Store,
    /// The limit of transactions or records is reached, of all shards or of this one.
    Many,
    /// The transaction has too many partitions, or none.
    Partitions,
}

/// Limits of one core and of one shard, so that no domain takes all.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Transactions under way, including those that wait for a partition or for their shard.
    pub transactions: usize,
    /// Transactions under way in one shard.
    pub transactions_of_shard: usize,
    /// Partitions of one transaction.
    pub partitions: usize,
    /// Records that are written and not finished.
    pub records: usize,
    /// Records of one shard. Less than [`crate::BUCKET_RECORDS`].
    pub records_of_shard: usize,
    /// Writes of transactions whose clients were answered before the writes are made. Far less than
    /// one role may have under way: such a client, which asks for the next transaction at once,
    /// must not use up, with writes that hang, what its other tables need.
    pub told_early: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            transactions: 4_096,
            transactions_of_shard: 1_024,
            // Those of its statements, and of two rows of the fleet's own.
            partitions: 102,
            records: 4_096,
            records_of_shard: 1_024,
            told_early: 96,
        }
    }
}

/// The effects of methods of [`crate::Transactions`], which call these.
pub trait Effects {
    /// The transaction has its partitions. Its caller reads, and calls
    /// [`crate::Transactions::decided`].
    fn locked(&mut self, transaction: TransactionId, ticket: Ticket);
    /// The answer to a ticket.
    fn reply(&mut self, ticket: Ticket, outcome: Outcome);
    /// Writes the record at QUORUM at this place of the shard's log, with this timestamp in it.
    /// [`crate::Transactions::appended`] is called later, once. The same record may be requested
    /// again, at the same place or, once committed, at another further on.
    fn append(&mut self, transaction: TransactionId, shard: u8, place: Place, timestamp_us: i64);
    /// Makes one write at QUORUM, with this timestamp and as many microseconds more as its number.
    /// [`crate::Transactions::applied`] is called later, once.
    fn apply(&mut self, transaction: TransactionId, write: u16, timestamp_us: i64);
    /// Makes the only write at QUORUM, with this timestamp and as many more as were asked for.
    /// [`crate::Transactions::unlogged_written`] is called later, once.
    fn write_unlogged(&mut self, transaction: TransactionId, timestamp_us: i64);
    /// Ends the transaction: no further effects follow.
    fn forget(&mut self, transaction: TransactionId);
    /// Writes at QUORUM that records of this log below `low` are finished, `USING TIMESTAMP` the
    /// position itself, so that a late mark does not hide a later one.
    /// [`crate::Transactions::low_written`] is called later, once. Only
    /// [`crate::Transactions::tell_lows`] calls this.
    fn write_low(&mut self, shard: u8, generation: Generation, low: Position);
    /// Deletes a partition of the log that is no longer read. A failure does no harm.
    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64);
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that were committed.
    pub committed: u64,
    /// Committed transactions whose clients were answered before the writes were made.
    pub told_early: u64,
    /// Transactions that read and wrote nothing.
    pub read: u64,
    /// Committed transactions with one write and no record.
    pub unlogged: u64,
    /// Transactions that were not carried out.
    pub not_executed: u64,
    /// Transactions whose client was told that the outcome is unknown.
    pub in_doubt: u64,
    /// Records and writes that were repeated.
    pub repeated: u64,
    /// Records that were rewritten further on in the log.
    pub carried_forward: u64,
    /// Writes of committed transactions that nodes have refused for good.
    pub refused: u64,
}
