//! TLS with clients: decides about each connection by its first byte, counts and logs handshakes,
//! and keeps the certificates up to date.
//!
//! ```text
//! accept thread -> handshake threads -> cores
//!                      ^ sessions, decisions
//!                  ClientTls <- reload, every second - main thread
//! ```
//! The cores have no part in it: a connection comes to them with its session ready.

mod files;
mod identities;
mod outgoing;

pub use identities::IdentityFiles;
pub use outgoing::{Outgoing, OutgoingTls, PreparedOutgoing, check_outgoing};

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shunt_admin::Label as _;
use shunt_reactor::{Accepted, Admission, HandshakeLimits, Security, SessionFault, SessionInfo};
use shunt_tls::{CertificateFile, ClientAuth, Server, ServerOptions, TlsError};
use shunt_wire::cql::envelope::{Header, append, opcode};
use shunt_wire::cql::message::{encode, error_code};
use shunt_wire::printable::printable_to;
use tracing::{debug, warn};

use self::files::FileWatch;
use crate::config::{Config, Tls};
use crate::limits;
use crate::metrics::{HandshakeResult, ReloadResult, TlsMetrics};

/// Type of a TLS record with a part of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// The peers, as metrics name them.
const CLIENTS: &str = "clients";
/// Answer to a client without TLS.
const NO_TLS: &str = "this proxy requires TLS (tls = required): switch TLS on in the driver";
/// Remaining time of a certificate at which a check warns.
const EXPIRES_SOON_S: i64 = 14 * DAY_S;
const DAY_S: i64 = 24 * 60 * 60;

/// The options that name files, or say what clients must show. `None` if the configuration has no
/// TLS, or lacks a file, which [`Config::problems`] reports.
fn server_options(config: &Config) -> Option<ServerOptions> {
    if config.tls == Tls::Off {
        return None;
    }
    Some(ServerOptions {
        certificate: config.tls_certificate.clone()?,
        key: config.tls_key.clone()?,
        client_ca: config.tls_client_ca.clone(),
        client_auth: config.tls_client_auth,
        ticket_keys: config.tls_ticket_keys.clone(),
    })
}

/// The server's side of TLS as of now.
struct Serving {
    options: ServerOptions,
    server: Arc<Server>,
}

/// TLS with clients.
pub struct ClientTls {
    is_required: bool,
    serving: RwLock<Serving>,
    metrics: Arc<TlsMetrics>,
    lines: Lines,
    watch: FileWatch,
}

impl ClientTls {
    /// Reads the files; `None` if TLS is off.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(config: &Config, metrics: Arc<TlsMetrics>) -> Result<Option<Arc<Self>>, TlsError> {
        let Some(options) = server_options(config) else { return Ok(None) };
        let server = Arc::new(Server::open(options.clone())?);
        metrics.set_certificates(CLIENTS, server.files());
        let watch = FileWatch::new(CLIENTS, Arc::clone(&metrics));
        Ok(Some(Arc::new(Self {
            is_required: config.tls == Tls::Required,
            serving: RwLock::new(Serving { options, server }),
            metrics,
            lines: Lines::default(),
            watch,
        })))
    }

    /// Bounds on handshakes.
    pub fn limits(config: &Config) -> HandshakeLimits {
        HandshakeLimits {
            threads: config.tls_threads,
            time_max: Duration::from_millis(config.handshake_timeout_ms),
            ..HandshakeLimits::default()
        }
    }

    fn server(&self) -> Arc<Server> {
        Arc::clone(&self.serving.read().unwrap_or_else(PoisonError::into_inner).server)
    }

    /// Reads the files that a new configuration names, if it names others.
    ///
    /// # Errors
    /// A file cannot be used. The former ones stay in use.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, TlsError> {
        let is_known = |options: &ServerOptions| {
            self.serving.read().unwrap_or_else(PoisonError::into_inner).options == *options
        };
        let Some(options) = server_options(config).filter(|options| !is_known(options)) else {
            return Ok(Prepared(None));
        };
        match Server::open(options.clone()) {
            Ok(server) => Ok(Prepared(Some(Serving { options, server: server.into() }))),
            Err(error) => {
                self.metrics.reloads.count(ReloadResult::Failed);
                Err(error)
            }
        }
    }

    /// Uses the files of a new configuration from now on. Clients that are connected stay.
    pub fn apply(&self, prepared: Prepared) {
        let Some(serving) = prepared.0 else { return };
        self.metrics.set_certificates(CLIENTS, serving.server.files());
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = serving;
        self.metrics.reloads.count(ReloadResult::Changed);
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
            warn!(why, suppressed, "more TLS handshakes failed for the same reason");
        }
        if self.watch.is_due(now) {
            self.look_at_files();
        }
    }

    fn look_at_files(&self) {
        let server = self.server();
        self.watch.note(server.reload(), || server.files());
    }

    fn refuse(&self, origin: &Accepted, head: &[u8]) -> Admission {
        self.metrics.handshakes.count(HandshakeResult::ClearText);
        if let Some(suppressed) = self.lines.admit(NO_TLS, Instant::now()) {
            let reason = HandshakeResult::ClearText.text();
            warn!(reason, address = %origin.peer, why = NO_TLS, suppressed, "closed a client");
        }
        Admission::Refused(refusal(head, NO_TLS))
    }
}

/// The result of [`ClientTls::prepare`].
pub struct Prepared(Option<Serving>);

impl Security for ClientTls {
    fn admit(&self, origin: &Accepted, head: &[u8]) -> Admission {
        match head.first() {
            Some(&TLS_HANDSHAKE) => Admission::Session(self.server().session()),
            _ if self.is_required => self.refuse(origin, head),
            _ => Admission::Plain,
        }
    }

    fn handshake_ended(&self, origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        let SessionFault(why) = match outcome {
            Ok(session) => {
                let result =
                    if session.resumed { HandshakeResult::Resumed } else { HandshakeResult::Ok };
                self.metrics.handshakes.count(result);
                return tell_session(origin, session);
            }
            Err(fault) => fault,
        };
        self.metrics.handshakes.count(HandshakeResult::Failed);
        if let Some(suppressed) = self.lines.admit(why, Instant::now()) {
            warn!(address = %origin.peer, why, suppressed, "a TLS handshake with a client failed");
        }
    }
}

/// Checks the files. Returns warnings.
///
/// # Errors
/// A file cannot be used.
pub fn check(config: &Config) -> Result<Vec<String>, TlsError> {
    let idle = config.idle_tls();
    if !idle.is_empty() {
        return Ok(vec![format!("tls is off, so these have no effect: {}", idle.join(", "))]);
    }
    let Some(options) = server_options(config) else { return Ok(Vec::new()) };
    let mut warnings: Vec<String> =
        Server::open(options)?.files().iter().filter_map(expires_soon).collect();
    warnings.extend(escape_from_certificates(config).map(str::to_owned));
    warnings.extend(config.identity.open_files());
    Ok(warnings)
}

/// A warning about clients in clear text, which need no certificate although those with TLS do.
fn escape_from_certificates(config: &Config) -> Option<&'static str> {
    let escapes = config.tls == Tls::Optional && config.tls_client_auth == ClientAuth::Required;
    escapes.then_some(
        "tls_client_auth: with tls = optional a client in clear text needs no certificate: give \
        tls = required as soon as all clients have TLS",
    )
}

/// A warning about a certificate that expires soon.
fn expires_soon(file: &CertificateFile) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let left_s = file.expires_s.saturating_sub_unsigned(now);
    (left_s < EXPIRES_SOON_S).then(|| {
        let (option, path) = (file.option, file.path.display());
        format!(
            "{option} {path}: the certificate of {} expires in {} days: renew it",
            shown(&file.subject),
            left_s / DAY_S
        )
    })
}

fn tell_session(origin: &Accepted, session: &SessionInfo) {
    let name = session.server_name.as_deref().map(shown);
    let peer = session.peer_names.first().map(|name| shown(&name.to_string()));
    let (version, cipher, resumed) = (session.version, session.cipher, session.resumed);
    debug!(address = %origin.peer, version, cipher, resumed, name, peer, "a client has TLS");
}

/// A name from a certificate or from a client, for the log.
fn shown(name: &str) -> String {
    printable_to(name, limits::NAME_SHOWN_BYTES_MAX)
}

/// The ERROR frame for a client that has sent these leading bytes. It has the version and stream id
/// of the client's request as far as they are known.
pub(crate) fn refusal(head: &[u8], why: &str) -> Vec<u8> {
    let version = head.first().copied().filter(|version| (3..=5).contains(version)).unwrap_or(4);
    let stream = match head {
        // Protocol v3 to v5, section 2: version, flags, stream.
        [3..=5, _, high, low, ..] => i16::from_be_bytes([*high, *low]).max(0),
        _ => 0,
    };
    let mut bytes = Vec::new();
    let header = Header::response(version, stream, opcode::ERROR);
    append(&mut bytes, header, |body| encode::error(body, error_code::PROTOCOL_ERROR, why));
    bytes
}

/// The limit on log lines of handshakes: one a second for each reason.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Vec<Line>>);

#[derive(Debug)]
struct Line {
    why: &'static str,
    next: Instant,
    suppressed: u64,
}

impl Lines {
    const INTERVAL: Duration = Duration::from_nanos(limits::LOG_INTERVAL_NS);

    /// Returns, if a line with this reason may be written now, the number of those left out before.
    pub(crate) fn admit(&self, why: &'static str, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = now + Self::INTERVAL;
        let Some(line) = lines.iter_mut().find(|line| line.why == why) else {
            // The reasons are constants of the program, so there are few.
            lines.push(Line { why, next, suppressed: 0 });
            return Some(0);
        };
        if now < line.next {
            line.suppressed += 1;
            return None;
        }
        line.next = next;
        Some(std::mem::take(&mut line.suppressed))
    }

    /// Reasons with lines left out, no line since, and a line allowed now, each with the number
    /// left out.
    fn overdue(&self, now: Instant) -> Vec<(&'static str, u64)> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = lines.iter_mut().filter(|line| line.suppressed > 0 && now >= line.next);
        due.map(|line| {
            line.next = now + Self::INTERVAL;
            (line.why, std::mem::take(&mut line.suppressed))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
