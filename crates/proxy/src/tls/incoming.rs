//! The listeners with TLS, and the tokens of the admin pages.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_reactor::HandshakeLimits;
use shunt_tls::{ClientAuth, Server, ServerNames, ServerOptions, TlsError, Tokens};
use shunt_tls_upkeep::{
    Lines, Listener, PagesGuard, Prepared, ServerTls, TlsMetrics, WatchedTokens, expires_soon,
    http_refusal,
};
use shunt_wire::cql::envelope::{Header, append, opcode};
use shunt_wire::cql::message::{encode, error_code};
use tracing::warn;

use crate::config::{Config, Tls};

/// The option with the tokens of the admin pages.
const ADMIN_TOKEN_FILE: &str = "admin_token_file";
/// Answer to a CQL client without TLS.
pub(super) const NO_TLS: &str =
    "this proxy requires TLS (tls = required): switch TLS on in the driver";

/// The options of TLS with clients. `None` if the configuration has no TLS, or lacks a file, which
/// [`Config::problems`] reports.
fn client_options(config: &Config) -> Option<ServerOptions> {
    if config.tls == Tls::Off {
        return None;
    }
    Some(ServerOptions {
        names: ServerNames::CLIENTS,
        certificate: config.tls_certificate.clone()?,
        key: config.tls_key.clone()?,
        client_ca: config.tls_client_ca.clone(),
        client_auth: config.tls_client_auth,
        ticket_keys: config.tls_ticket_keys.clone(),
    })
}

/// The options of a listener of HTTP, which has TLS if it has a certificate.
fn http_options(names: ServerNames, files: [&Option<PathBuf>; 3]) -> Option<ServerOptions> {
    let [certificate, key, client_ca] = files.map(Clone::clone);
    let client_auth = if client_ca.is_some() { ClientAuth::Required } else { ClientAuth::None };
    Some(ServerOptions {
        names,
        certificate: certificate?,
        key: key?,
        client_ca,
        client_auth,
        ticket_keys: None,
    })
}

fn admin_options(config: &Config) -> Option<ServerOptions> {
    let Config { admin_tls_certificate, admin_tls_key, admin_tls_client_ca, .. } = config;
    let files = [admin_tls_certificate, admin_tls_key, admin_tls_client_ca];
    config.admin.as_ref().and_then(|_| http_options(ServerNames::ADMIN, files))
}

fn locks_http_options(config: &Config) -> Option<ServerOptions> {
    let files = [
        &config.locks_http_tls_certificate,
        &config.locks_http_tls_key,
        &config.locks_http_tls_client_ca,
    ];
    config.locks_http.as_ref().and_then(|_| http_options(ServerNames::LOCKS_HTTP, files))
}

/// Bounds on handshakes of clients.
pub fn handshake_limits(config: &Config) -> HandshakeLimits {
    HandshakeLimits {
        threads: config.tls_threads,
        time_max: Duration::from_millis(config.handshake_timeout_ms),
        ..HandshakeLimits::default()
    }
}

/// TLS of all listeners, and the tokens of the admin pages.
#[derive(Clone, Default)]
pub struct Incoming {
    /// TLS with CQL clients; `None`: clear text.
    pub clients: Option<Arc<ServerTls>>,
    /// TLS of the admin pages; `None`: clear text.
    pub admin: Option<Arc<ServerTls>>,
    /// TLS of locks over HTTP; `None`: clear text.
    pub locks_http: Option<Arc<ServerTls>>,
    tokens: Option<Arc<WatchedTokens>>,
    /// Limit on the lines about connections that [`crate::admission`] refuses.
    pub(crate) lines: Arc<Lines>,
}

impl Incoming {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(config: &Config, metrics: &Arc<TlsMetrics>) -> Result<Self, TlsError> {
        let is_required = config.tls == Tls::Required;
        let cql = is_required.then_some(clear_text_refusal as fn(&[u8]) -> Vec<u8>);
        let open = |listener, options: Option<_>, refusal| {
            let open = |options| ServerTls::open(listener, options, refusal, Arc::clone(metrics));
            options.map(open).transpose()
        };
        let http = Some(http_refusal as fn(&[u8]) -> Vec<u8>);
        let token_file = config.admin_token_file.clone().filter(|_| config.admin.is_some());
        let tokens =
            token_file.map(|path| WatchedTokens::open(ADMIN_TOKEN_FILE, path, Arc::clone(metrics)));
        Ok(Self {
            clients: open(Listener::Clients, client_options(config), cql)?,
            admin: open(Listener::Admin, admin_options(config), http)?,
            locks_http: open(Listener::LocksHttp, locks_http_options(config), http)?,
            tokens: tokens.transpose()?.map(Arc::new),
            lines: Arc::default(),
        })
    }

    /// The tokens of the admin pages, if they have any.
    pub fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.as_ref().map(|tokens| tokens.tokens())
    }

    fn listeners(&self) -> impl Iterator<Item = &Arc<ServerTls>> {
        self.clients.iter().chain(&self.admin).chain(&self.locks_http)
    }

    /// Reads the files that a new configuration names for clients, if it names others. Those of
    /// HTTP listeners need a restart.
    ///
    /// # Errors
    /// A file cannot be used. The former ones stay in use.
    pub fn prepare(&self, config: &Config) -> Result<PreparedIncoming, TlsError> {
        let prepare = |tls: &Arc<ServerTls>| tls.prepare(client_options(config));
        self.clients.as_ref().map(prepare).transpose().map(PreparedIncoming)
    }

    /// Uses the files of a new configuration from now on. Clients that are connected stay.
    pub fn apply(&self, prepared: PreparedIncoming) {
        if let Some((tls, prepared)) = self.clients.as_ref().zip(prepared.0) {
            tls.apply(prepared);
        }
    }

    /// Reads the files again because an operator asks for it.
    pub fn reload(&self) {
        self.listeners().for_each(|tls| tls.reload());
        self.tokens.iter().for_each(|tokens| tokens.reload());
    }

    /// Does what is due. Called about once a second.
    pub fn look(&self, now: Instant) {
        self.listeners().for_each(|tls| tls.look(now));
        self.tokens.iter().for_each(|tokens| tokens.look(now));
        for (why, suppressed) in self.lines.overdue(now) {
            warn!(why, suppressed, "refused more connections for the same reason");
        }
    }
}

/// The result of [`Incoming::prepare`].
pub struct PreparedIncoming(Option<Prepared>);

/// Checks the files. Returns warnings.
///
/// # Errors
/// A file cannot be used.
pub fn check(config: &Config) -> Result<Vec<String>, TlsError> {
    let mut warnings = Vec::new();
    let idle = config.idle_tls();
    if !idle.is_empty() {
        warnings.push(format!("tls is off, so these have no effect: {}", idle.join(", ")));
    }
    let listeners = [client_options(config), admin_options(config), locks_http_options(config)];
    for options in listeners.into_iter().flatten() {
        let server = Server::open(options)?;
        warnings.extend(server.files().iter().filter_map(expires_soon));
        warnings.extend(server.warnings());
    }
    if let Some(path) = config.admin_token_file.clone().filter(|_| config.admin.is_some()) {
        warnings.extend(Tokens::open(ADMIN_TOKEN_FILE, path)?.warnings());
    }
    warnings.extend(escape_from_certificates(config).map(str::to_owned));
    warnings.extend(config.identity.open_files());
    warnings.extend(open_admin(config));
    warnings.extend(open_locks(config));
    Ok(warnings)
}

/// A warning about clients in clear text, which need no certificate although those with TLS do.
pub(super) fn escape_from_certificates(config: &Config) -> Option<&'static str> {
    let escapes = config.tls == Tls::Optional && config.tls_client_auth == ClientAuth::Required;
    escapes.then_some(
        "tls_client_auth: with tls = optional a client in clear text needs no certificate: set \
        tls = required as soon as all clients have TLS",
    )
}

/// A warning about admin pages that other machines can read.
fn open_admin(config: &Config) -> Option<String> {
    let guard = PagesGuard {
        names: ServerNames::ADMIN,
        token_file: ADMIN_TOKEN_FILE,
        has_tls: config.admin_tls_certificate.is_some(),
        has_client_ca: config.admin_tls_client_ca.is_some(),
        has_tokens: config.admin_token_file.is_some(),
    };
    guard.warning("admin", config.admin.as_ref()?.listen)
}

/// A warning about logins for locks over HTTP that others can read.
fn open_locks(config: &Config) -> Option<String> {
    let listen = config.locks_http.as_ref()?.listen;
    let is_open = !listen.ip().to_canonical().is_loopback();
    (is_open && config.locks_http_tls_certificate.is_none()).then(|| {
        format!(
            "locks_http: other machines can reach {listen}, and logins travel there in clear text: \
            give locks_http_tls_certificate with locks_http_tls_key"
        )
    })
}

/// The ERROR frame for a client without TLS that has sent these leading bytes.
fn clear_text_refusal(head: &[u8]) -> Vec<u8> {
    refusal(head, NO_TLS)
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
