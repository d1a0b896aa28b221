//! What goes into [`crate::Transactions`] and what comes out.

use crate::log::Position;

/// A partition of a table: a hash of both. Two partitions under one hash wait for each other, and nothing worse.
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
    /// It makes so many writes; at least one.
    Write(u16),
    /// It failed while it read, or it is refused: nothing is written, and whoever asked has been answered.
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
    /// Its partitions were not free in time.
    Locked,
    /// What it reads was not there in time.
    Late,
    /// Its record could not be sent to any node.
    Store,
    /// There are as many transactions as there may be.
    Many,
    /// It has more partitions than there may be, or none.
    Partitions,
}

/// How much there may be on one core.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Transactions under way, those that wait for a partition too.
    pub transactions: usize,
    /// Partitions of one transaction.
    pub partitions: usize,
    /// Records that are written and not done with. Less than [`crate::BUCKET_RECORDS`].
    pub records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { transactions: 16_384, partitions: 100, records: 1_024 }
    }
}

/// Where statements and answers go. Called from within methods of [`crate::Transactions`].
pub trait Sink {
    /// The transaction has its partitions: its caller reads, and calls [`crate::Transactions::decided`].
    fn locked(&mut self, transaction: TransactionId, ticket: Ticket);
    /// The answer to a ticket.
    fn reply(&mut self, ticket: Ticket, outcome: Outcome);
    /// The record is to be written at QUORUM, with this timestamp in it; [`crate::Transactions::appended`] is to be called later, once.
    /// It may be asked for again: it is the same record then.
    fn append(&mut self, transaction: TransactionId, position: Position, timestamp_us: i64);
    /// One of the writes is to be made at QUORUM with this timestamp; [`crate::Transactions::applied`] is to be called later, once.
    fn apply(&mut self, transaction: TransactionId, write: u16, timestamp_us: i64);
    /// Nothing more comes of the transaction.
    fn forget(&mut self, transaction: TransactionId);
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that were committed.
    pub committed: u64,
    /// That read and wrote nothing.
    pub read: u64,
    /// Of which nothing was carried out.
    pub not_executed: u64,
    /// Whose client was told that it is in doubt.
    pub in_doubt: u64,
    /// Records and writes that were repeated.
    pub repeated: u64,
    /// Writes of committed transactions that nodes have refused for good.
    pub refused: u64,
}
