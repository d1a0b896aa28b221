//! The state machine of one core's transactions: partitions are locked, a redo record is written,
//! and then the writes are made.
//!
//! | file | subject |
//! |---|---|
//! | `begin.rs` | a transaction is accepted, and its partitions are locked, in one order for all, first come first served |
//! | `commit.rs` | it is decided, its record is written, and its writes are repeated until nodes have acknowledged them |
//! | `rewrite.rs` | records that hold up the log are rewritten further on |
//! | `time.rs` | deadlines, and repetition where an outcome is unknown |
//! | `ownership.rs` | leases, and shards that come and go |
//! | `partitions.rs` | locks of partitions, and their queues |
//! | `log.rs` | places of records in a shard's log, and which of them are finished |
//! | `marks.rs` | low marks: up to where all is finished |
//! | `record.rs` | the encoding of a record |
//! | `opening.rs` | the new owner of a shard claims a generation, and seals those before |
//! | `recovery.rs` | unfinished work of former owners is finished |
//! | `backoff.rs` | pauses between attempts |
//!
//! Each shard has a log for each generation, which is one owner's time with it. The log lies in
//! three tables, with no other use than this:
//!
//! ```text
//! shunt_meta.txn_shard (shard int PRIMARY KEY, generation bigint, claim uuid, sealed bigint)
//! changed by conditional statements only
//! shunt_meta.txn_low   (shard int, generation bigint, low bigint, PRIMARY KEY ((shard),
//! generation))
//! shunt_meta.txn_log   (shard int, generation bigint, bucket bigint, position bigint, body blob,
//!                       PRIMARY KEY ((shard, generation, bucket), position))
//! ```
//!
//! A transaction is committed from the moment when a quorum has its record and this member, after
//! it has learned that, still has the shard and a valid lease. From then on its writes are repeated
//! until a quorum has each of them, by this member or by the next owner of the shard. They have the
//! record's timestamp, so that repeating them changes nothing.
//!
//! A transaction with one write, which nodes apply as a whole or not at all, may be decided as
//! `Unlogged`: it has no record, and is committed from the moment when a quorum has the write and
//! this member, after it has learned that, still has the shard and a valid lease. A write of
//! unknown outcome may appear at any later time. Before anything else is decided by the row, it
//! must be overwritten with a later timestamp.
//!
//! These must never happen, whatever comes in which order:
//! - a transaction with some writes that stay and others that are never made;
//! - a write of a transaction before its record is acknowledged, or after its generation was sealed
//!   without the record;
//! - a transaction that reads another's partial writes to a partition that the other still holds;
//! - a timestamp that is not above those of all earlier transactions of the shard, on any proxy;
//! - a record in a sealed generation whose transaction is committed and not finished;
//! - an answer that nothing was written where something was or may be written; two answers to one
//!   ticket, or none.

mod begin;
pub(crate) mod commit;
mod rewrite;
pub(crate) mod log;
mod marks;
pub(crate) mod opening;
mod ownership;
mod partitions;
mod backoff;
pub mod record;
mod recovery;
mod time;
pub(crate) mod transactions;
pub(crate) mod types;
#[cfg(any(test, feature = "weakened"))]
pub(crate) mod weakened;
