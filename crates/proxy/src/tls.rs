//! TLS of the proxy: of its clients, its admin pages and locks over HTTP, and to servers.
//!
//! ```text
//! accept thread -> handshake threads -> cores
//!                      ^ sessions, decisions
//!                  Incoming <- reload, every second - main thread
//! ```
//! A client's connection comes to its core with its session ready, and the core's loop carries the
//! records. Handshakes with servers run in the loops. The sessions, the decisions and the checks of
//! files are those of `shunt-tls-upkeep`; here are the options.

mod identities;
mod incoming;
mod outgoing;

pub use identities::IdentityFiles;
pub(crate) use incoming::refusal;
pub use incoming::{Incoming, PreparedIncoming, check, handshake_limits};
pub use outgoing::{Generation, Outgoing, OutgoingTls, PreparedOutgoing, check_outgoing};

#[cfg(test)]
mod tests;
