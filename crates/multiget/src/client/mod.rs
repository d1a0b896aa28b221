//! The client's side. A multiget is keys grouped by server; groups are put into requests, sent, and
//! asked for again until each key has an answer, over TCP in the end. Whoever drives it gives it
//! datagrams, the time and what came over TCP, and takes datagrams and [events](Event).
//!
//! What it may never do; the simulation leaves out each step to see that this is noticed:
//! - *Give a key another's value*, or one that is not of its server: an item counts if its request
//!   is under way, it comes from the address of the key's server, or of who was asked for all, and
//!   the key at its position is that key (`merge.rs`).
//! - *Take a part for the whole*: each key counts once, however often it is answered.
//! - *Wait for ever*: every multiget is answered or fails by its deadline (`due.rs`).
//! - *Be flooded by its own answers*: so many groups are under way at a time, and no more
//!   (`send.rs`).

mod coordinated;
mod due;
mod gather;
mod merge;
mod send;
mod state;
mod switched;

pub use gather::Values;
#[cfg(test)]
pub(crate) use state::Weakened;
pub use state::{Client, ClientOptions, Counts, Event, Failure, Refused, Ticket};
