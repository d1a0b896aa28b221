//! Transactions, as one core of a proxy carries them out: their partitions are locked, what they write is put down in a redo record, and
//! then it is written.
//!
//! Without I/O, clock or threads: what clients ask, times and outcomes of statements come in, statements to be made go out through a
//! [`Sink`]. What a transaction reads and writes lies with the caller; here it is a list of partitions and a number of writes.
//!
//! | file | what happens there |
//! |---|---|
//! | `begin.rs` | a transaction is taken on, and its partitions are locked, in one order for all, first come first served |
//! | `commit.rs` | it is decided, its record is written, and what it writes is written, until nodes have acknowledged it |
//! | `time.rs` | deadlines, and what is repeated because its outcome is unknown |
//! | `ownership.rs` | leases, and shards that come and go |
//! | `partitions.rs` | who has a partition locked, and who waits for it |
//! | `log.rs` | the places of records in the log, and which of them are done with |
//! | `record.rs` | a record as bytes |
//! | `recovery.rs` | what a dead member left undone is done |
//!
//! A transaction is committed from the moment at which a quorum has its record and this member, after it has heard that, still has a
//! valid lease. From then on its writes are repeated until a quorum has each of them, by this member or by the one that takes its shards
//! over; they have the timestamp that the record says, so that repeating them changes nothing.
//!
//! What may never happen, whatever comes in which order:
//! - a transaction of which a part of the writes stays, and a part is never made;
//! - a write of a transaction before its record is acknowledged, or after its member was sealed without the record;
//! - a transaction that reads what another, which holds a partition of it, has written in part;
//! - a timestamp that is not above those of all transactions of the shard before, on any proxy;
//! - the word that nothing was written, where something was or may be written; two answers to one ticket, or none.

mod begin;
mod commit;
mod log;
mod ownership;
mod partitions;
pub mod record;
pub mod recovery;
mod time;
mod transactions;
mod types;
#[cfg(test)]
mod weakened;

#[cfg(test)]
mod tests;

pub use commit::Refused;
pub use log::{BUCKET_RECORDS, Position};
pub use transactions::Transactions;
pub use types::{
    Asked, Counters, Decision, Limits, Mode, NotExecuted, Outcome, Partition, Sink, Ticket, TransactionId,
};
