//! Multigets over several Redis or Valkey servers: one datagram asks, the network or the client
//! splits it, the client merges.
//!
//! ```text
//! multiget ── client ── whole request ──> switch ── parts ──> shim ── MGET ──> its server
//!              merge <─────────────── replies ───────────────┘
//! ```
//! | file | what is there |
//! |---|---|
//! | `mode.rs` | who splits: the client, a server's shim, or the network |
//! | `place.rs` | which server has a key |
//! | `client/` | the client's side: requests made, repeated, merged |
//! | `shim/` | the server's side: requests checked, let in, answered |
//! | `store/` | the shim as a process: datagrams on one side, a connection to its server on the other |
//! | `sidecar/` | the client as a process: applications speak RESP to it |
//! | `login.rs` | how a connection to a server begins |
//! | `metrics.rs`, `admin.rs` | what is seen from outside |
//!
//! `client` and `shim` read no clock and no socket: events go in, datagrams and outcomes come out.
//! `tests/` is a simulation of both with a network that loses, doubles and reorders between them.

mod admin;
pub mod client;
pub mod limits;
mod login;
mod metrics;
pub mod mode;
pub mod place;
pub mod shim;
mod sidecar;
mod store;
#[cfg(test)]
mod tests;

pub use admin::{ShimAdmin, SidecarAdmin};
pub use login::Login;
pub use sidecar::{Sidecar, SidecarOptions};
pub use store::{Store, StoreOptions};

/// An order of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mail {
    /// Take nothing new, finish what there is, and end.
    Drain,
    /// End now.
    End,
}
