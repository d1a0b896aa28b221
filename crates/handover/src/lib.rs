//! Connection hand-over: a client's TCP connection goes from the process that owns its session (the
//! dispatcher) to an agent beside the backend that has a large answer, and comes back when the
//! answer is out.
//!
//! The crate has no I/O, clock or threads: events and the time come in, actions go out. Only
//! `clients.rs` is shared between loops.
//!
//! | file | content |
//! |---|---|
//! | `owner/` | the side that clients connect to: connections that are elsewhere, on their way, or coming back |
//! | `agent/` | the side beside a backend: offered answers, and connections to send them on |
//! | `message/` | the control protocol: messages as bytes, and bytes as messages |
//! | `keys.rs` | the shared key, and the keys of a session |
//! | `session.rs` | the handshake, in which both sides prove that they have the key, and the session's keys |
//! | `clients.rs` | clients' connections of all event loops of one process |
//! | `turns.rs` | turns of exchanges on a control connection that is full |
//! | `steer.rs` | redirection of a connection's packets |
//! | `types.rs` | types of both sides; a TCP connection as plain data is the reactor's |
//! | `deadlines.rs`, `limits.rs` | deadlines; bounds |
//!
//! Five things must never happen, in any order of events, and whichever side ends at whichever
//! step:
//! - two live ends of one connection at a time, or use of a copy after the connection went on
//!   elsewhere;
//! - a byte of an answer that reaches the client twice, not at all, or among those of another,
//!   unless the connection is closed visibly;
//! - an answer that is cut and looks whole;
//! - a packet of the client that finds no connection while there is one;
//! - state that is kept for ever.
//!
//! `docs/internals/handover.md` draws the states.

pub mod agent;
mod clients;
mod deadlines;
mod keys;
pub mod limits;
pub mod message;
pub mod outage;
pub mod owner;
pub mod session;
mod steer;
pub mod turns;
mod types;
mod weakened;

#[cfg(test)]
mod tests;

pub use clients::Clients;
pub use shunt_reactor::moving::{Frozen, NotFrozen, TcpState, Window};
pub use steer::{Anywhere, Steer};
pub use types::{Flow, Unexpected};
#[cfg(any(test, feature = "weakened"))]
pub use weakened::Step;
