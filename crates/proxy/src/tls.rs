//! TLS of the proxy: of its clients, its admin pages and locks over HTTP, and to servers.
//!
//! ```text
//! accept thread -> handshake threads -> cores
//!                      ^ sessions, decisions
//!                  Listeners <- reload, tick - main thread
//! ```
//! A client's connection comes to its core with its session ready, and the core's loop carries the
//! records. Handshakes with servers run in the loops. `shunt-tls-upkeep` has the sessions, the
//! decisions and the checks of files; this module has the options.

mod identities;
mod incoming;
mod outgoing;

pub use identities::IdentityFiles;
pub(crate) use incoming::refusal;
pub use incoming::{check, client_options, handshake_limits, open_listeners};
pub use outgoing::{Generation, Outgoing, OutgoingTls, PreparedOutgoing, check_outgoing};

#[cfg(test)]
mod tests;
