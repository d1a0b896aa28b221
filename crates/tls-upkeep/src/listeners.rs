//! TLS of all listeners of a process, and the tokens of its admin pages.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use shunt_tls::{ClientAuth, Server, ServerNames, ServerOptions, TlsError, Tokens};
use tracing::warn;

use crate::lines::Lines;
use crate::metrics::{Listener, TlsMetrics};
use crate::reloader::{Prepared, Reloader, TokenFile};
use crate::server::{Refusal, ServerTls, http_refusal};
use crate::warnings::expires_soon;

/// The options of the listeners' files. A listener without options has no TLS.
#[derive(Clone, Default)]
pub struct ListenerOptions {
    /// TLS of the data path.
    pub clients: Option<ServerOptions>,
    /// Answer to clients of the data path without TLS; `None`: they are served.
    pub client_refusal: Option<Refusal>,
    /// TLS of the admin pages.
    pub admin: Option<ServerOptions>,
    /// TLS of locks over HTTP.
    pub locks_http: Option<ServerOptions>,
    /// The tokens of the admin pages.
    pub tokens: Option<TokenFile>,
}

/// Names and addresses by which clients reach each listener. None: these are not known.
#[derive(Clone, Debug, Default)]
pub struct ListenerHosts {
    /// Hosts of the data path.
    pub clients: Vec<String>,
    /// Hosts of the admin pages.
    pub admin: Vec<String>,
    /// Hosts of locks over HTTP.
    pub locks_http: Vec<String>,
}

impl ListenerOptions {
    /// Checks the files. Returns warnings, also about certificates for other hosts.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn check(self, hosts: &ListenerHosts) -> Result<Vec<String>, TlsError> {
        let mut warnings = Vec::new();
        let all = [
            (self.clients, &hosts.clients),
            (self.admin, &hosts.admin),
            (self.locks_http, &hosts.locks_http),
        ];
        for (options, hosts) in all {
            let Some(options) = options else { continue };
            let server = Server::open(options)?;
            warnings.extend(server.hosts_warning(hosts));
            warnings.extend(server.files().iter().filter_map(expires_soon));
            warnings.extend(server.warnings());
        }
        if let Some(TokenFile { option, path }) = self.tokens {
            warnings.extend(Tokens::open(option, path)?.warnings());
        }
        Ok(warnings)
    }
}

/// The options of a listener that has TLS if it has a certificate with a key. Its clients need
/// certificates if there is an authority to verify them.
pub fn server_options(
    names: ServerNames,
    [certificate, key, client_ca]: [&Option<PathBuf>; 3],
) -> Option<ServerOptions> {
    let client_auth = if client_ca.is_some() { ClientAuth::Required } else { ClientAuth::None };
    Some(ServerOptions {
        names,
        certificate: certificate.clone()?,
        key: key.clone()?,
        client_ca: client_ca.clone(),
        client_auth,
        ticket_keys: None,
    })
}

/// TLS of all listeners, and the tokens of the admin pages.
#[derive(Clone, Default)]
pub struct Listeners {
    /// TLS with clients of the data path; `None`: clear text.
    pub clients: Option<Arc<ServerTls>>,
    /// TLS of the admin pages; `None`: clear text.
    pub admin: Option<Arc<ServerTls>>,
    /// TLS of locks over HTTP; `None`: clear text.
    pub locks_http: Option<Arc<ServerTls>>,
    tokens: Option<Arc<Reloader<Tokens>>>,
    /// Limit on the lines about connections that are refused before TLS.
    pub refusal_lines: Arc<Lines>,
}

impl Listeners {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(options: ListenerOptions, metrics: &Arc<TlsMetrics>) -> Result<Self, TlsError> {
        let ListenerOptions { clients, client_refusal, admin, locks_http, tokens } = options;
        let open = |listener, options: Option<_>, refusal| {
            let open = |options| ServerTls::open(listener, options, refusal, Arc::clone(metrics));
            options.map(open).transpose()
        };
        let http = Some(http_refusal as Refusal);
        let tokens = tokens.map(|file| Reloader::open(file, Arc::clone(metrics)));
        Ok(Self {
            clients: open(Listener::Clients, clients, client_refusal)?,
            admin: open(Listener::Admin, admin, http)?,
            locks_http: open(Listener::LocksHttp, locks_http, http)?,
            tokens: tokens.transpose()?.map(Arc::new),
            refusal_lines: Arc::default(),
        })
    }

    /// The tokens of the admin pages, if they have any.
    pub fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.as_ref().map(|tokens| tokens.current())
    }

    /// True if no listener has TLS and the admin pages have no tokens.
    pub fn is_empty(&self) -> bool {
        self.servers().next().is_none() && self.tokens.is_none()
    }

    fn servers(&self) -> impl Iterator<Item = &Arc<ServerTls>> {
        self.clients.iter().chain(&self.admin).chain(&self.locks_http)
    }

    /// Reads the files that new options name for clients of the data path, if they name others.
    /// The files of HTTP listeners need a restart.
    ///
    /// # Errors
    /// A file cannot be used. The former ones stay in use.
    pub fn prepare(&self, clients: Option<ServerOptions>) -> Result<PreparedListeners, TlsError> {
        let prepare = |tls: &Arc<ServerTls>| tls.prepare(clients);
        self.clients.as_ref().map(prepare).transpose().map(PreparedListeners)
    }

    /// Uses the files of new options from now on. Clients that are connected stay.
    pub fn apply(&self, prepared: PreparedListeners) {
        if let Some((tls, prepared)) = self.clients.as_ref().zip(prepared.0) {
            tls.apply(prepared);
        }
    }

    /// Reads the files again because an operator asks for it. Returns the faults of those that
    /// cannot be used, which the log has too.
    pub fn reload(&self) -> Vec<TlsError> {
        let servers = self.servers().filter_map(|tls| tls.reload().err());
        let tokens = self.tokens.iter().filter_map(|tokens| tokens.reload().err());
        servers.chain(tokens).collect()
    }

    /// Reads files again that are due, and logs how many lines were left out. Called about once a
    /// second.
    pub fn tick(&self, now: Instant) {
        self.servers().for_each(|tls| tls.tick(now));
        if let Some(tokens) = &self.tokens {
            tokens.tick(now);
        }
        for (why, suppressed) in self.refusal_lines.overdue(now) {
            warn!(why, suppressed, "refused more connections for the same reason");
        }
    }
}

/// The result of [`Listeners::prepare`].
pub struct PreparedListeners(Option<Prepared<Server>>);
