//! TLS of a listener: decides about each connection by its first byte, counts and logs handshakes,
//! and keeps the certificates up to date.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use shunt_admin::Label as _;
use shunt_reactor::{Accepted, Admission, Security, Session, SessionFault, SessionInfo};
use shunt_tls::{
    CLEAR_TEXT, HANDSHAKE_RECORD, Server, ServerOptions, Sessions, TlsError, Turns,
    clear_text_answer,
};
use tracing::{debug, warn};

use crate::lines::Lines;
use crate::metrics::{HandshakeResult, Listener, TlsMetrics};
use crate::reloader::{Prepared, Reloader};
use crate::shown;

/// Makes the answer to a client without TLS from the leading bytes that it sent.
pub type Refusal = fn(&[u8]) -> Vec<u8>;

/// The answer of a listener of HTTP to a client without TLS.
pub fn http_refusal(_: &[u8]) -> Vec<u8> {
    clear_text_answer()
}

/// TLS of a listener.
pub struct ServerTls {
    listener: Listener,
    /// Answer to clients without TLS; `None`: they are served.
    refusal: Option<Refusal>,
    reloader: Reloader<Server>,
    metrics: Arc<TlsMetrics>,
    lines: Lines,
    /// Turns of handshakes on a thread that serves HTTP.
    turns: Turns,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(
        listener: Listener,
        options: ServerOptions,
        refusal: Option<Refusal>,
        metrics: Arc<TlsMetrics>,
    ) -> Result<Arc<Self>, TlsError> {
        let usage = options.names.clients;
        debug_assert_eq!(usage, listener.text(), "metrics of handshakes and of files differ");
        Ok(Arc::new(Self {
            listener,
            refusal,
            reloader: Reloader::open(options, Arc::clone(&metrics))?,
            metrics,
            lines: Lines::default(),
            turns: Turns::default(),
        }))
    }

    /// Reads the files that new options name, if they name others.
    ///
    /// # Errors
    /// A file cannot be used. The former ones stay in use.
    pub fn prepare(&self, options: Option<ServerOptions>) -> Result<Prepared<Server>, TlsError> {
        self.reloader.prepare(options)
    }

    /// Uses the files of new options from now on. Clients that are connected stay.
    pub fn apply(&self, prepared: Prepared<Server>) {
        self.reloader.apply(prepared);
    }

    /// Reads the files again because an operator asks for it.
    ///
    /// # Errors
    /// A file cannot be used, as the log says. The former content stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.reloader.reload().map(|_| ())
    }

    /// Reads the files again if that is due, and logs how many lines were left out. Called about
    /// once a second.
    pub fn tick(&self, now: Instant) {
        for (why, suppressed) in self.lines.overdue(now) {
            let listener = self.listener.text();
            warn!(listener, why, suppressed, "more TLS handshakes failed for the same reason");
        }
        self.reloader.tick(now);
    }

    #[cfg(test)]
    pub(crate) fn last_error(&self) -> Option<String> {
        self.reloader.last_error()
    }

    fn count(&self, result: HandshakeResult) {
        self.metrics.handshakes_of(self.listener).count(result);
    }

    /// Counts and logs a client without TLS, which the listener refuses.
    fn record_clear_text(&self, peer: &dyn fmt::Display) {
        self.count(HandshakeResult::ClearText);
        let SessionFault(why) = CLEAR_TEXT;
        if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
            let (listener, reason) = (self.listener.text(), HandshakeResult::ClearText.text());
            warn!(listener, reason, address = %peer, why, suppressed, "closed a client");
        }
    }

    fn record_handshake(
        &self,
        peer: &dyn fmt::Display,
        outcome: Result<&SessionInfo, SessionFault>,
    ) {
        let SessionFault(why) = match outcome {
            Ok(session) => {
                let result =
                    if session.resumed { HandshakeResult::Resumed } else { HandshakeResult::Ok };
                self.count(result);
                return self.log_session(peer, session);
            }
            Err(CLEAR_TEXT) => return self.record_clear_text(peer),
            Err(fault) => fault,
        };
        self.count(HandshakeResult::Failed);
        if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
            let listener = self.listener.text();
            warn!(listener, address = %peer, why, suppressed, "a TLS handshake with a client failed");
        }
    }

    fn log_session(&self, peer: &dyn fmt::Display, session: &SessionInfo) {
        let name = session.server_name.as_deref().map(shown);
        let certificate = session.peer_names.first().map(|name| shown(&name.to_string()));
        let (version, cipher, resumed) = (session.version, session.cipher, session.resumed);
        let listener = self.listener.text();
        debug!(listener, address = %peer, version, cipher, resumed, name, peer = certificate, "a client has TLS");
    }
}

impl Security for ServerTls {
    fn admit(&self, origin: &Accepted, head: &[u8]) -> Admission {
        match (head.first(), self.refusal) {
            (Some(&HANDSHAKE_RECORD), _) => Admission::Session(self.reloader.current().session()),
            (_, None) => Admission::Plain,
            (_, Some(refusal)) => {
                self.record_clear_text(&origin.peer);
                Admission::Refused(refusal(head))
            }
        }
    }

    fn handshake_ended(&self, origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        self.record_handshake(&origin.peer, outcome);
    }
}

impl Sessions for ServerTls {
    fn session(&self) -> Box<dyn Session> {
        self.reloader.current().session()
    }

    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn handshake_ended(&self, peer: SocketAddr, outcome: Result<&SessionInfo, SessionFault>) {
        self.record_handshake(&peer, outcome);
    }
}
