//! Locks with fencing tokens, as one core of a proxy keeps them: who holds what, who waits for it,
//! until when.
//!
//! Without I/O, clock or threads: requests, times and outcomes of writes come in, answers and
//! writes to be made go out through a [`Sink`]. [`Locks`] is the whole of it:
//!
//! | file | what happens there |
//! |---|---|
//! | `acquire.rs` | a lock is asked for: granted, refused, or waited for in order |
//! | `release.rs` | a hold ends, by its owner, an operator or its time, and the next is granted; renewals; looking |
//! | `durable.rs` | a grant's row was written, or not, or nobody knows |
//! | `load.rs` | rows that an earlier owner of the shard wrote are read before its locks are served |
//! | `unneeded.rs` | rows that say nothing any more, for whoever deletes them |
//! | `ownership.rs` | leases, and shards that come and go |
//! | `state.rs`, `table.rs`, `linked.rs` | what is known of locks, holds, requests and writes, and how they are linked |
//! | `wheel.rs`, `text.rs`, `slab.rs` | what is due when; names, owners and roles; entries under numbers |
//!
//! What may never happen, whatever comes in which order:
//! - two holders of a lock, one of them exclusive, neither of whose time has run out;
//! - a fence that is not above all fences granted of that lock before, on any proxy;
//! - a grant, a renewal or the word of who holds a lock, without a valid lease, and for a durable
//!   grant without one after its row was acknowledged;
//! - two answers to a ticket, or none.

mod acquire;
mod durable;
mod linked;
mod load;
mod locks;
mod longest;
mod ownership;
mod release;
mod slab;
mod state;
mod table;
mod text;
mod types;
mod unneeded;
#[cfg(any(test, feature = "weakened"))]
mod weakened;
mod wheel;

#[cfg(test)]
mod tests;

pub use locks::Locks;
pub use types::{
    Asked, Counters, Handle, Holder, Lease, Limits, LoadId, Mode, Namespace, NotServed, Now,
    Outcome, Quota, Row, Sink, Ticket, Write, WriteId, Written,
};
pub use types::{BUCKETS, SHARDS, bucket_of, shard_of, shard_of_bucket};
pub use unneeded::Unneeded;
#[cfg(feature = "weakened")]
pub use weakened::Without;
