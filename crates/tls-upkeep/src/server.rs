//! TLS of a listener: decides about each connection by its first byte, counts and logs handshakes,
//! and keeps the certificates up to date.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use shunt_admin::Label as _;
use shunt_reactor::{Accepted, Admission, Security, Session, SessionFault, SessionInfo};
use shunt_tls::{
    CLEAR_TEXT, HANDSHAKE_RECORD, Server, ServerOptions, Sessions, TlsError, Turns,
    clear_text_answer,
};
use tracing::{debug, warn};

use crate::lines::Lines;
use crate::metrics::{HandshakeResult, Listener, ReloadResult, TlsMetrics};
use crate::shown;
use crate::watch::{FileWatch, InUse};

/// Makes the answer to a client without TLS from the leading bytes that it sent.
pub type Refusal = fn(&[u8]) -> Vec<u8>;

/// The answer of a listener of HTTP to a client without TLS.
pub fn http_refusal(_: &[u8]) -> Vec<u8> {
    clear_text_answer()
}

/// The server's side of TLS as of now.
struct Serving {
    options: ServerOptions,
    server: Arc<Server>,
}

/// TLS of a listener.
pub struct ServerTls {
    listener: Listener,
    /// Answer to clients without TLS; `None`: they are served.
    refusal: Option<Refusal>,
    serving: RwLock<Serving>,
    metrics: Arc<TlsMetrics>,
    lines: Lines,
    watch: FileWatch,
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
        let server = Arc::new(Server::open(options.clone())?);
        let usage = options.names.clients;
        debug_assert_eq!(usage, listener.text(), "metrics of handshakes and of files differ");
        metrics.set_certificates(usage, server.files());
        let watch = FileWatch::new(usage, Arc::clone(&metrics));
        Ok(Arc::new(Self {
            listener,
            refusal,
            serving: RwLock::new(Serving { options, server }),
            metrics,
            lines: Lines::default(),
            watch,
            turns: Turns::default(),
        }))
    }

    fn server(&self) -> Arc<Server> {
        Arc::clone(&self.serving.read().unwrap_or_else(PoisonError::into_inner).server)
    }

    /// Reads the files that new options name, if they name others.
    ///
    /// # Errors
    /// A file cannot be used. The former ones stay in use.
    pub fn prepare(&self, options: Option<ServerOptions>) -> Result<Prepared, TlsError> {
        let is_known = |options: &ServerOptions| {
            self.serving.read().unwrap_or_else(PoisonError::into_inner).options == *options
        };
        let Some(options) = options.filter(|options| !is_known(options)) else {
            return Ok(Prepared(None));
        };
        match Server::open_after(options.clone(), &self.server()) {
            Ok(server) => Ok(Prepared(Some(Serving { options, server: server.into() }))),
            Err(error) => {
                self.metrics.reloads.count(ReloadResult::Failed);
                Err(error)
            }
        }
    }

    /// Uses the files of new options from now on. Clients that are connected stay.
    pub fn apply(&self, prepared: Prepared) {
        let Some(serving) = prepared.0 else { return };
        let in_use = InUse::from(&*serving.server);
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = serving;
        self.watch.note_change(in_use);
        self.watch.hurry();
    }

    /// Reads the files again because an operator asks for it.
    pub fn reload(&self) {
        self.watch.forget_error();
        self.look_at_files();
    }

    /// Does what is due: reads the files again, and logs how many lines were left out. Called about
    /// once a second.
    pub fn look(&self, now: Instant) {
        for (why, suppressed) in self.lines.overdue(now) {
            let listener = self.listener.text();
            warn!(listener, why, suppressed, "more TLS handshakes failed for the same reason");
        }
        if self.watch.is_due(now) {
            self.look_at_files();
        }
    }

    fn look_at_files(&self) {
        let server = self.server();
        self.watch.note(server.reload(SystemTime::now()), || InUse::from(&*server));
    }

    #[cfg(test)]
    pub(crate) fn last_error(&self) -> Option<String> {
        self.watch.last_error()
    }

    fn count(&self, result: HandshakeResult) {
        self.metrics.handshakes_of(self.listener).count(result);
    }

    /// Counts and logs a client without TLS, which the listener refuses.
    fn note_clear_text(&self, peer: &dyn fmt::Display) {
        self.count(HandshakeResult::ClearText);
        let SessionFault(why) = CLEAR_TEXT;
        if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
            let (listener, reason) = (self.listener.text(), HandshakeResult::ClearText.text());
            warn!(listener, reason, address = %peer, why, suppressed, "closed a client");
        }
    }

    fn note_handshake(&self, peer: &dyn fmt::Display, outcome: Result<&SessionInfo, SessionFault>) {
        let SessionFault(why) = match outcome {
            Ok(session) => {
                let result =
                    if session.resumed { HandshakeResult::Resumed } else { HandshakeResult::Ok };
                self.count(result);
                return self.tell_session(peer, session);
            }
            Err(CLEAR_TEXT) => return self.note_clear_text(peer),
            Err(fault) => fault,
        };
        self.count(HandshakeResult::Failed);
        if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
            let listener = self.listener.text();
            warn!(listener, address = %peer, why, suppressed, "a TLS handshake with a client failed");
        }
    }

    fn tell_session(&self, peer: &dyn fmt::Display, session: &SessionInfo) {
        let name = session.server_name.as_deref().map(shown);
        let certificate = session.peer_names.first().map(|name| shown(&name.to_string()));
        let (version, cipher, resumed) = (session.version, session.cipher, session.resumed);
        let listener = self.listener.text();
        debug!(listener, address = %peer, version, cipher, resumed, name, peer = certificate, "a client has TLS");
    }
}

/// The result of [`ServerTls::prepare`].
pub struct Prepared(Option<Serving>);

impl Security for ServerTls {
    fn admit(&self, origin: &Accepted, head: &[u8]) -> Admission {
        match (head.first(), self.refusal) {
            (Some(&HANDSHAKE_RECORD), _) => Admission::Session(self.server().session()),
            (_, None) => Admission::Plain,
            (_, Some(refusal)) => {
                self.note_clear_text(&origin.peer);
                Admission::Refused(refusal(head))
            }
        }
    }

    fn handshake_ended(&self, origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        self.note_handshake(&origin.peer, outcome);
    }
}

impl Sessions for ServerTls {
    fn session(&self) -> Box<dyn Session> {
        self.server().session()
    }

    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn handshake_ended(&self, peer: SocketAddr, outcome: Result<&SessionInfo, SessionFault>) {
        self.note_handshake(&peer, outcome);
    }
}
