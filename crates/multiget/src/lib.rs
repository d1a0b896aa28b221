//! Multigets over several Redis or Valkey servers: one datagram asks, the network or the client splits it, the client merges.
//!
//! ```text
//! multiget ── client ── whole request ──> switch ── parts ──> shim ── MGET ──> its server
//!              merge <─────────────── replies ───────────────┘
//! ```
//! | file | what is there |
//! |---|---|
//! | `place.rs` | which server has a key |
//! | `client/` | the client's side: requests made, repeated, merged |
//! | `shim/` | the server's side: requests checked, let in, answered |
//!
//! Neither reads a clock or a socket: events go in, datagrams and outcomes come out. `tests/` is a simulation of both with a network that loses,
//! doubles and reorders between them.

pub mod client;
pub mod limits;
pub mod place;
pub mod shim;
#[cfg(test)]
mod tests;
