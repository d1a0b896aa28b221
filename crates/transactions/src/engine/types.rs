//! What goes into [`crate::Transactions`] and what comes out.

use crate::engine::log::{Generation, Place, Position};

/// A partition of a table: a hash of both. Two partitions under one hash wait for each other, and
/// nothing worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u128);

/// With whom a partition is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// With transactions that only read it.
    Shared,
    /// With nobody.
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
pub struct Asked<'a> {
    /// Its name.
    pub ticket: Ticket,
    /// The shard of its domain.
    pub shard: u8,
    /// What it reads and writes, in any order; 1 to [`Limits::partitions`].
    pub partitions: &'a [(Partition, Mode)],
    /// When its client is answered at the latest, by the boot-time clock, milliseconds.
    pub deadline_ms: u64,
}

/// What a transaction does, now that it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It writes nothing: its conditions do not hold, or it only reads.
    Nothing,
    /// It makes so many writes; at least one. Whoever asked is told when they are there.
    Write(u16),
    /// The same, and whoever asked is told as soon as it is committed: for tables that are read by
    /// transactions alone, which wait for the writes. Of those that were told so
    /// [`Limits::told_early`] writes are under way at most; the others are told when all is there.
    WriteAndTell(u16),
    /// It makes one write, which nodes carry out as a whole or not at all, and needs no record: if
    /// nobody knows what has become of it, nobody makes it again. It takes so many timestamps.
    Alone(u16),
    /// It failed while it read, or it is refused: nothing is written, and whoever asked has been
    /// answered.
    GiveUp,
}

/// The answer to a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its writes are made, or will be whatever fails.
    Committed {
        /// The timestamp of its writes, microseconds.
        timestamp_us: i64,
    },
    /// It has read, and writes nothing.
    Read {
        /// Its place among the others of the shard, microseconds.
        timestamp_us: i64,
    },
    /// Nothing was written, and nothing will be.
    NotExecuted(NotExecuted),
    /// It may be committed, or may be yet.
    InDoubt,
}

/// Why nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExecuted {
    /// The shard is another proxy's, or about to be.
    Elsewhere,
    /// This proxy has no valid lease.
    LeaseOver,
    /// The shard is this proxy's, but what its former owners left undone was not done in time.
    NotOpen,
    /// Its partitions were not free in time.
    Locked,
    /// What it reads was not there in time.
    Late,
    /// Its record could not be sent to any node.
    Store,
    /// There are as many transactions or records as there may be, of all shards or of this one.
    Many,
    /// It has more partitions than there may be, or none.
    Partitions,
}

/// How much there may be on one core, and of one shard: so that no domain takes all.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Transactions under way, those that wait for a partition or for their shard too.
    pub transactions: usize,
    /// The same of one shard.
    pub transactions_of_shard: usize,
    /// Partitions of one transaction.
    pub partitions: usize,
    /// Records that are written and not done with.
    pub records: usize,
    /// The same of one shard. Less than [`crate::BUCKET_RECORDS`].
    pub records_of_shard: usize,
    /// Writes of transactions of which clients were told that they are committed while these were
    /// being made. Far less than one role may have writes under way: a client that is told, and
    /// asks for the next, must not take with one table's writes, which hang, what those of its
    /// other tables need.
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

/// Where statements and answers go. Called from within methods of [`crate::Transactions`].
pub trait Sink {
    /// The transaction has its partitions: its caller reads, and calls
    /// [`crate::Transactions::decided`].
    fn locked(&mut self, transaction: TransactionId, ticket: Ticket);
    /// The answer to a ticket.
    fn reply(&mut self, ticket: Ticket, outcome: Outcome);
    /// The record is to be written at QUORUM at this place of its shard's log, with this timestamp
    /// in it; [`crate::Transactions::appended`] is to be called later, once. It may be asked for
    /// again: it is the same record then, at the same place, or, when it is committed, at another
    /// further on.
    fn append(&mut self, transaction: TransactionId, shard: u8, place: Place, timestamp_us: i64);
    /// One of the writes is to be made at QUORUM, with this timestamp and as many microseconds more
    /// as its number says; [`crate::Transactions::applied`] is to be called later, once.
    fn apply(&mut self, transaction: TransactionId, write: u16, timestamp_us: i64);
    /// What it writes alone is to be written at QUORUM, with this timestamp and as many more as
    /// were asked for; [`crate::Transactions::written_alone`] is to be called later, once.
    fn write_alone(&mut self, transaction: TransactionId, timestamp_us: i64);
    /// Nothing more comes of the transaction.
    fn forget(&mut self, transaction: TransactionId);
    /// Records of this log below `low` are done with. That is to be written at QUORUM, `USING
    /// TIMESTAMP` the position itself, so that a mark which comes late does not hide a later one;
    /// [`crate::Transactions::low_written`] is to be called later, once. Only from within
    /// [`crate::Transactions::tell_lows`].
    fn write_low(&mut self, shard: u8, generation: Generation, low: Position);
    /// A partition of the log that nobody reads any more may be deleted. Nothing is wrong if it is
    /// not.
    fn delete_bucket(&mut self, shard: u8, generation: Generation, bucket: u64);
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that were committed.
    pub committed: u64,
    /// Of which clients were told so before the writes were there, of [`Counters::committed`].
    pub told_early: u64,
    /// That read and wrote nothing.
    pub read: u64,
    /// That were committed by one write and no record, of [`Counters::committed`].
    pub alone: u64,
    /// Of which nothing was carried out.
    pub not_executed: u64,
    /// Whose client was told that it is in doubt.
    pub in_doubt: u64,
    /// Records and writes that were repeated.
    pub repeated: u64,
    /// Records that were written once more, further on in the log.
    pub carried_forward: u64,
    /// Writes of committed transactions that nodes have refused for good.
    pub refused: u64,
}
