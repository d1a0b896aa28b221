//! TLS of the connections that a command opens: makes their sessions, and keeps the certificates up
//! to date.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use shunt_reactor::Session;
use shunt_tls::{Client, ClientOptions, TlsError};

use crate::metrics::TlsMetrics;
use crate::watch::{FileWatch, InUse};

/// TLS to servers of one kind.
pub struct ClientTls {
    client: Client,
    metrics: Arc<TlsMetrics>,
    watch: FileWatch,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("client", &self.client).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(options: ClientOptions, metrics: Arc<TlsMetrics>) -> Result<Self, TlsError> {
        let usage = options.names.servers;
        let client = Client::open(options)?;
        metrics.set_certificates(usage, client.files());
        let watch = FileWatch::new(usage, Arc::clone(&metrics));
        Ok(Self { client, metrics, watch })
    }

    /// A session with this host, a name or an address, at the start of its handshake.
    pub fn session(&self, host: &str) -> Box<dyn Session> {
        self.client.session(host)
    }

    /// The metrics that have these certificates.
    pub fn metrics(&self) -> Arc<TlsMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Reads the files again because an operator asks for it.
    pub fn reload(&self) {
        self.watch.forget_error();
        self.look_at_files();
    }

    /// Reads the files again if that is due. Called about once a second.
    pub fn look(&self, now: Instant) {
        if self.watch.is_due(now) {
            self.look_at_files();
        }
    }

    fn look_at_files(&self) {
        self.watch.note(self.client.reload(SystemTime::now()), || InUse::from(&self.client));
    }
}
