//! The state machine of one core's transactions: partitions are locked, a redo record is written,
//! and then the writes are made.
//!
//! | file | what happens there |
//! |---|---|
//! | `begin.rs` | a transaction is taken on, and its partitions are locked, in one order for all, first come first served |
//! | `commit.rs` | it is decided, its record is written, and what it writes is written, until nodes have acknowledged it |
//! | `forward.rs` | records that hold up the log are carried forward in it |
//! | `time.rs` | deadlines, and what is repeated because its outcome is unknown |
//! | `ownership.rs` | leases, and shards that come and go |
//! | `partitions.rs` | who has a partition locked, and who waits for it |
//! | `log.rs` | the places of records in the log of a shard, and which of them are done with |
//! | `marks.rs` | others are told up to where all is done |
//! | `record.rs` | a record as bytes |
//! | `opening.rs` | whoever gains a shard claims a generation, and seals those before |
//! | `recovery.rs` | what those before left undone is done |
//! | `pauses.rs` | how long what failed waits before it is tried again |
//!
//! Each shard has a log for each generation, which is one owner's time with it. The log lies in
//! three tables; what is said of them here is all that they are used for:
//!
//! ```text
//! shunt_meta.txn_shard (shard int PRIMARY KEY, generation bigint, claim uuid, sealed bigint)    changed by conditional statements only
//! shunt_meta.txn_low   (shard int, generation bigint, low bigint, PRIMARY KEY ((shard), generation))
//! shunt_meta.txn_log   (shard int, generation bigint, bucket bigint, position bigint, body blob,
//!                       PRIMARY KEY ((shard, generation, bucket), position))
//! ```
//!
//! A transaction is committed from the moment at which a quorum has its record and this member,
//! after it has heard that, still has the shard and a valid lease. From then on its writes are
//! repeated until a quorum has each of them, by this member or by whoever gains the shard; they
//! have the timestamp that the record says, so that repeating them changes nothing.
//!
//! A transaction that makes one write, which nodes carry out as a whole or not at all, may be
//! decided to be alone: it has no record, and is committed from the moment at which a quorum has
//! the write and this member, after it has heard that, still has the shard and a valid lease. If it
//! is not heard of, it may be there at any later time. Whoever reads what it is about has to write
//! over that by one with a later timestamp before anything else is decided by it.
//!
//! What may never happen, whatever comes in which order:
//! - a transaction of which a part of the writes stays, and a part is never made;
//! - a write of a transaction before its record is acknowledged, or after its generation was sealed
//!   without the record;
//! - a transaction that reads what another, which holds a partition of it, has written in part;
//! - a timestamp that is not above those of all transactions of the shard before, on any proxy;
//! - a record in a generation that is sealed, whose transaction is committed and not made;
//! - the word that nothing was written, where something was or may be written; two answers to one
//!   ticket, or none.

mod begin;
pub(crate) mod commit;
mod forward;
pub(crate) mod log;
mod marks;
pub(crate) mod opening;
mod ownership;
mod partitions;
mod pauses;
pub mod record;
mod recovery;
mod time;
pub(crate) mod transactions;
pub(crate) mod types;
#[cfg(any(test, feature = "weakened"))]
pub(crate) mod weakened;
