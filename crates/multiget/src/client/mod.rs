//! The client's side. A multiget's keys are grouped by server; groups are put into requests, sent,
//! and repeated until each key has an answer, over TCP in the end. The driver passes in datagrams,
//! the time and values fetched over TCP, and takes datagrams and [events](Event) out.
//!
//! Four things must never happen; the simulation leaves out each safeguard to see that this is
//! noticed:
//! - *A wrong value for a key*, or one not from its server: an item counts only if its request is
//!   under way, it comes from the address of the key's server or of the coordinator, and the key at
//!   its position is that key (`merge.rs`).
//! - *A part taken for the whole*: each key counts once, however often it is answered.
//! - *An endless wait*: every multiget is answered or fails by its deadline (`due.rs`).
//! - *A flood of its own answers*: the number of groups under way is bounded (`send.rs`).

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
