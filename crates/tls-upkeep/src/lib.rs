//! TLS in service: reads the files of certificates, keys and tokens again while connections stay,
//! and counts and logs handshakes.
//!
//! ```text
//! event loops, HTTP listeners -- a session for each connection --> Listeners: ServerTls, Tokens
//! connections to servers ------- a session for each connection --> Reloader<Client>
//!                                                                     ^ tick, once a second
//! TlsMetrics <- handshakes, results of reloads, certificates --- main thread
//! ```
//! The proxy, its admin pages, dispatchers and sidecars all keep their TLS with this crate.

mod lines;
mod listeners;
mod metrics;
mod reloader;
mod server;
#[cfg(test)]
mod tests;
mod warnings;
mod watch;

pub use lines::Lines;
pub use listeners::{ListenerHosts, ListenerOptions, Listeners, PreparedListeners, server_options};
pub use metrics::{
    HandshakeResult, HeaderResult, Listener, ReloadResult, Servers, SharedFamily, TlsMetrics,
};
pub use reloader::{FileBacked, Prepared, Reloader, TokenFile};
pub use server::{Refusal, ServerTls, http_refusal};
pub use warnings::{PagesExposure, expires_soon};
pub use watch::{CHECK_INTERVAL, InUse};

use shunt_wire::printable::printable_to;

/// Bytes that a log line shows of a name from a certificate or from a client.
const NAME_SHOWN_BYTES_MAX: usize = 64;

/// A name from a certificate or from a client, for the log.
fn shown(name: &str) -> String {
    printable_to(name, NAME_SHOWN_BYTES_MAX)
}
