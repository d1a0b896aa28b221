//! Connection hand-over: a client's TCP connection goes from the process that owns its session (the
//! dispatcher) to an agent beside the backend that has a large answer, and comes back when the
//! answer is out.
//!
//! Without I/O, clock or threads: events and the time come in, actions go out. What loops have in
//! common is in `clients.rs` alone.
//!
//! | file | what is there |
//! |---|---|
//! | `owner/` | the side that clients connect to: which connections are elsewhere, on their way, or coming back |
//! | `agent/` | the side beside a backend: answers that are offered, and connections to send them on |
//! | `message/` | the control protocol: messages as bytes, and bytes as messages |
//! | `session.rs` | both sides show that they have the key, and what follows from it |
//! | `clients.rs` | which clients' connections the event loops of one process have |
//! | `steer.rs` | what sends the packets of a connection elsewhere |
//! | `types.rs` | what both sides have in common; a TCP connection as plain data is the reactor's |
//! | `deadlines.rs`, `limits.rs` | what is due when; bounds |
//!
//! What may never happen, whatever comes in which order, and whoever of the two ends at whichever
//! step:
//! - two ends of one connection that are alive at a time, or a copy that is used after the
//!   connection went on elsewhere;
//! - a byte of an answer that reaches the client twice, not at all, or among those of another,
//!   unless the connection is closed visibly;
//! - an answer that is cut and looks whole;
//! - a packet of the client that finds no connection while there is one;
//! - something that is kept for ever.
//!
//! `docs/internals/handover.md` draws the states.

pub mod agent;
mod clients;
mod deadlines;
pub mod limits;
pub mod message;
pub mod owner;
pub mod session;
mod steer;
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
