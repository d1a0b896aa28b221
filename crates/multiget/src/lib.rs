//! Multigets over several Redis or Valkey servers: the client sends one datagram, the network or
//! the client splits it, the client merges the replies.
//!
//! ```text
//! multiget ── client ── whole request ──> switch ── parts ──> shim ── MGET ──> its server
//!              merge <─────────────── replies ───────────────┘
//! ```
//! | file | content |
//! |---|---|
//! | `mode.rs` | place of the split: the client, a server's shim, or the network |
//! | `place.rs` | placement of keys on servers |
//! | `client/` | the client's side: requests made, repeated, merged |
//! | `shim/` | the server's side: requests checked, admitted, answered |
//! | `store/` | the shim as a process: datagrams on one side, a connection to its server on the other |
//! | `sidecar/` | the client as a process: applications speak RESP to it |
//! | `login.rs` | first commands of a connection to a server |
//! | `server_tls.rs` | TLS of such a connection |
//! | `metrics.rs`, `admin.rs` | metrics and status |
//!
//! `client` and `shim` read no clock and no socket: events go in, datagrams and outcomes come out.
//! `tests/` simulates both with a network that loses, duplicates and reorders datagrams.

mod admin;
pub mod client;
pub mod limits;
mod login;
mod metrics;
pub mod mode;
pub mod place;
mod server_tls;
pub mod shim;
mod sidecar;
mod store;
#[cfg(test)]
mod tests;

pub use admin::{ShimAdmin, SidecarAdmin};
pub use login::Login;
pub use metrics::{KnownServer, ServerState};
pub use server_tls::ServerTls;
pub use sidecar::{Sidecar, SidecarOptions};
pub use store::{Store, StoreOptions};

/// Order from the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mail {
    /// Take nothing new, finish the work under way, and end.
    Drain,
    /// End now.
    End,
}
