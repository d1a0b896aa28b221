//! TLS for the event loop: sessions over rustls that do no I/O, and the certificates, keys and
//! tickets behind them, which are read again while connections stay
//! ([ADR 34](../../../docs/adr/0034-tls-by-rustls-without-its-buffers.md)).
//!
//! A [`Server`] makes the sessions of connections that clients open, a [`Client`] those of
//! connections that Shunt opens: to nodes, to the other proxies of a fleet, and in commands. Both
//! are shared between threads. A session belongs to one connection. A [`Stream`] carries HTTP
//! through a session, and [`Tokens`] say who may ask there.

mod candidate;
mod certificate;
mod chain;
mod client;
mod error;
mod fault;
mod files;
#[cfg(any(test, feature = "forgery"))]
pub mod forgery;
mod issuers;
mod names;
mod resumption;
mod server;
mod session;
mod small_file;
mod stream;
#[cfg(test)]
mod tests;
mod tickets;
mod tokens;
mod turns;
mod verification;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use crate::certificate::{CertificateFile, SubjectDigest};
pub use crate::client::{Client, ClientOptions, OptionNames, Renewed, Verify};
pub use crate::error::TlsError;
pub use crate::fault::{is_alert, is_of_own_certificate};
pub use crate::server::{ClientAuth, Server, ServerNames, ServerOptions};
pub use crate::small_file::SmallFile;
pub use crate::stream::{
    CLEAR_TEXT, HANDSHAKE_RECORD, Sessions, Stream, accept_http, clear_text_answer,
};
pub use crate::tokens::Tokens;
pub use crate::turns::Turns;

/// Result of a reload that found no fault.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reloaded {
    /// The files have the same content as before.
    Unchanged,
    /// The files have other content, and the writer of this one may not be done: they must be read
    /// again soon. The configuration stays as it was.
    Unsettled(TlsError),
    /// New sessions use the new content. Sessions that exist keep the old one.
    Changed,
}

/// The cryptography under rustls.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
