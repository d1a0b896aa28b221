//! Locks with fencing tokens, as one core of a proxy keeps them: holders, waiting requests, and
//! their times.
//!
//! The crate has no I/O, clock or threads: requests, times and outcomes of writes come in; answers
//! and writes go out through a [`Sink`]. [`Locks`] is the state machine:
//!
//! | file | content |
//! |---|---|
//! | `locks.rs` | the state machine |
//! | `expiry.rs` | holds, waits and writes whose time is over |
//! | `acquire.rs` | requests for a lock: granted, refused, or queued in order |
//! | `release.rs` | end of a hold by its owner, an operator or its time, and the next grant; renewals; queries |
//! | `durable.rs` | outcomes of writing a grant's row |
//! | `load.rs` | rows of a shard's earlier owner, read before its locks are served |
//! | `obsolete_rows.rs` | obsolete rows, for deletion |
//! | `ownership.rs` | leases, and shards that come and go |
//! | `state.rs`, `table.rs`, `list.rs` | locks, holds, requests and writes, and the lists between them |
//! | `wheel.rs`, `text.rs`, `slab.rs` | timers; names, owners and roles; entries under numbers |
//!
//! Four things must never happen, in any order of events:
//! - two holders of a lock, one of them exclusive, neither of whose time has run out;
//! - a fence that is not above all fences granted before for that lock, on any proxy;
//! - a grant, a renewal or a report of a holder without a valid lease, or a durable grant without
//!   one after its row was acknowledged;
//! - two answers to a ticket, or none.

mod acquire;
mod durable;
mod expiry;
mod list;
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
mod obsolete_rows;
#[cfg(any(test, feature = "weakened"))]
mod weakened;
mod wheel;

#[cfg(test)]
mod tests;

pub use locks::Locks;
pub use obsolete_rows::Unneeded;
pub use types::{
    Asked, Counters, Handle, Holder, Lease, Limits, LoadId, Mode, Namespace, NotServed, Now,
    Outcome, Quota, Row, Sink, Ticket, Write, WriteId, Written,
};
pub use types::{BUCKETS, SHARDS, bucket_of, shard_of, shard_of_bucket};
#[cfg(feature = "weakened")]
pub use weakened::Without;
