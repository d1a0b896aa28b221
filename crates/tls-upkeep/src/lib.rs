//! TLS in service: reads the files of certificates, keys and tokens again while connections stay,
//! and counts and logs handshakes.
//!
//! ```text
//! event loops, HTTP listeners -- a session for each connection --> ServerTls
//! dispatchers' loops --------- a session for each connection --> ClientTls
//!                                                                     ^ once a second
//! TlsMetrics <- handshakes, results of reloads, certificates --- main thread
//! ```
//! The proxy, its admin pages, dispatchers and sidecars all keep their TLS with this crate.

mod client;
mod lines;
mod metrics;
mod server;
#[cfg(test)]
mod tests;
mod tokens;
mod warnings;
mod watch;

pub use client::ClientTls;
pub use lines::Lines;
pub use metrics::{
    HandshakeResult, HeaderResult, Listener, ReloadResult, Servers, SharedFamily, TlsMetrics,
};
pub use server::{Prepared, Refusal, ServerTls, http_refusal};
pub use tokens::WatchedTokens;
pub use warnings::{PagesGuard, expires_soon};
pub use watch::{FileWatch, InUse, LOOK_EVERY};

use shunt_wire::printable::printable_to;

/// Bytes that a log line shows of a name from a certificate or from a client.
const NAME_SHOWN_BYTES_MAX: usize = 64;

/// A name from a certificate or from a client, for the log.
fn shown(name: &str) -> String {
    printable_to(name, NAME_SHOWN_BYTES_MAX)
}
