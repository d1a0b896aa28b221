//! TLS of clients and of the admin pages of a command, and the tokens of the pages. While the
//! command runs, its [`RelayTls`] keeps these and TLS with its servers up to date. `shunt node` and
//! `shunt up` have the options of the pages too.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use shunt_admin::{Access, Encoder, Json, Map, Part, State};
#[cfg(feature = "node")]
use shunt_proxy::config::Config;
use shunt_proxy::config::{AdminAddress, Kind as _, Tls};
use shunt_reactor::{HandshakeLimits, Security};
use shunt_tls::{ClientAuth, Server, ServerNames, ServerOptions, Sessions, TlsError, Tokens};
use shunt_tls_upkeep::{
    ListenerHosts, ListenerOptions, Listeners, PagesExposure, Refusal, Servers, TlsMetrics,
    TokenFile, server_options,
};

use super::outgoing::Outgoing;
use crate::faults::{Fault, Faults};

/// Threads for handshakes by default, and at most.
const THREADS: usize = 1;
const THREADS_MAX: usize = 64;
/// The option with the tokens of the admin pages.
const TOKEN_FILE: &str = "--admin-token-file";

/// TLS of the admin pages, and their tokens.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AdminTls {
    /// Certificate of the admin pages and its intermediate certificates (PEM); switches TLS on
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    admin_tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    admin_tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign certificates for the admin pages' clients (PEM);
    /// each client then needs one
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    admin_tls_client_ca: Option<PathBuf>,
    /// File with the tokens that `/metrics` and `/status` ask for, one on each line
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    admin_token_file: Option<PathBuf>,
}

impl AdminTls {
    /// The options of TLS, if it is on.
    fn options(&self) -> Option<ServerOptions> {
        let files = [&self.admin_tls_certificate, &self.admin_tls_key, &self.admin_tls_client_ca];
        server_options(ServerNames::ADMIN_FLAGS, files)
    }

    fn tokens(&self) -> Option<TokenFile> {
        let path = self.admin_token_file.clone()?;
        Some(TokenFile { option: TOKEN_FILE, path })
    }

    /// Gives these options to a proxy in the same process.
    #[cfg(feature = "node")]
    pub(crate) fn configure(&self, config: &mut Config) {
        let Self { admin_tls_certificate, admin_tls_key, admin_tls_client_ca, admin_token_file } =
            self.clone();
        config.admin_tls_certificate = admin_tls_certificate;
        config.admin_tls_key = admin_tls_key;
        config.admin_tls_client_ca = admin_tls_client_ca;
        config.admin_token_file = admin_token_file;
    }

    /// Finds faults in these options and their files, for pages at these addresses. A Unix socket
    /// has neither TLS nor tokens.
    pub(crate) fn check(&self, pages: Option<&AdminAddress>, faults: &mut Faults) {
        let files = [
            ("admin-tls-certificate", &self.admin_tls_certificate),
            ("admin-tls-key", &self.admin_tls_key),
            ("admin-tls-client-ca", &self.admin_tls_client_ca),
            ("admin-token-file", &self.admin_token_file),
        ];
        let lacking = match pages.map(AdminAddress::tcp) {
            None => Some("--admin"),
            Some(None) => Some("an address in --admin"),
            Some(Some(_)) => None,
        };
        if let Some(lacking) = lacking {
            for (flag, file) in files {
                faults.refuse_idle(flag, file.is_none(), lacking);
            }
        }
        match (&self.admin_tls_certificate, &self.admin_tls_key) {
            (Some(_), None) => {
                faults.add("admin-tls-certificate", "needs its private key; set --admin-tls-key")
            }
            (None, Some(_)) => {
                faults.add("admin-tls-key", "needs its certificate; set --admin-tls-certificate")
            }
            (None, None) if self.admin_tls_client_ca.is_some() => faults.add(
                "admin-tls-client-ca",
                "needs TLS; set --admin-tls-certificate and --admin-tls-key",
            ),
            _ => {}
        }
        if let Some(options) = self.options() {
            faults.take(Server::open(options).map_err(fault));
        }
        if let Some(TokenFile { option, path }) = self.tokens() {
            faults.take(Tokens::open(option, path).map_err(fault));
        }
    }

    /// Warnings about pages at this address.
    pub(crate) fn warnings(&self, pages: &AdminAddress) -> Vec<String> {
        let exposure = PagesExposure {
            names: ServerNames::ADMIN_FLAGS,
            token_file: TOKEN_FILE,
            has_tls: self.admin_tls_certificate.is_some(),
            has_client_ca: self.admin_tls_client_ca.is_some(),
            has_tokens: self.admin_token_file.is_some(),
        };
        let (admin, tokens) = (self.options(), self.tokens());
        let files = ListenerOptions { admin, tokens, ..ListenerOptions::default() };
        let hosts = pages.http.as_ref().map(|http| http.hosts()).unwrap_or_default();
        let hosts = ListenerHosts { admin: hosts, ..ListenerHosts::default() };
        let exposed = pages.tcp().and_then(|listen| exposure.warning("--admin", listen));
        exposed.into_iter().chain(files.check(&hosts).unwrap_or_default()).collect()
    }
}

/// TLS with clients.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientTls {
    /// TLS with clients: off, optional or required. `optional` also serves clear text
    #[arg(long, value_name = "WHEN", default_value = "off", value_parser = tls, help_heading = "TLS")]
    tls: Tls,
    /// Certificate for clients and its intermediate certificates (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign clients' certificates (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_client_ca: Option<PathBuf>,
    /// Certificates of clients: none, optional or required
    #[arg(long, value_name = "WHEN", default_value = "none", help_heading = "TLS")]
    tls_client_auth: ClientAuth,
    /// File of keys for session tickets that several processes share: base64, one key a line
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_ticket_keys: Option<PathBuf>,
    /// Threads for TLS handshakes, 1 to 64. More than one helps where thousands of clients connect
    /// at once
    #[arg(long, value_name = "N", default_value_t = THREADS, value_parser = threads, help_heading = "TLS")]
    tls_threads: usize,
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    threads.ok_or_else(|| format!("1 to {THREADS_MAX} are allowed"))
}

fn tls(text: &str) -> Result<Tls, String> {
    Tls::from_text(text).map_err(|_| "expected off, optional or required".to_owned())
}

impl ClientTls {
    /// The options of TLS, if it is on.
    fn options(&self) -> Option<ServerOptions> {
        if self.tls == Tls::Off {
            return None;
        }
        Some(ServerOptions {
            names: ServerNames::CLIENT_FLAGS,
            certificate: self.tls_certificate.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
            client_auth: self.tls_client_auth,
            ticket_keys: self.tls_ticket_keys.clone(),
        })
    }

    /// The options of TLS, if it is on, and the answer to clients without it if they are refused.
    pub(crate) fn listener(&self, refusal: Refusal) -> Option<(ServerOptions, Option<Refusal>)> {
        self.options().map(|options| (options, self.is_required().then_some(refusal)))
    }

    /// Bounds on handshakes.
    pub(crate) fn handshakes(&self) -> HandshakeLimits {
        HandshakeLimits { threads: self.tls_threads, ..HandshakeLimits::default() }
    }

    /// True if no client is served without TLS.
    pub(crate) fn is_required(&self) -> bool {
        self.tls == Tls::Required
    }

    /// Finds faults in these options and their files.
    pub(crate) fn check(&self, faults: &mut Faults) {
        if self.tls == Tls::Off {
            let on = "--tls optional or required";
            faults.refuse_idle("tls-certificate", self.tls_certificate.is_none(), on);
            faults.refuse_idle("tls-key", self.tls_key.is_none(), on);
            faults.refuse_idle("tls-client-ca", self.tls_client_ca.is_none(), on);
            faults.refuse_idle("tls-client-auth", self.tls_client_auth == ClientAuth::None, on);
            faults.refuse_idle("tls-ticket-keys", self.tls_ticket_keys.is_none(), on);
            faults.refuse_idle("tls-threads", self.tls_threads == THREADS, on);
            return;
        }
        if self.tls_certificate.is_none() {
            faults.add("tls", "needs a certificate; set --tls-certificate, or --tls off");
        }
        if self.tls_key.is_none() {
            faults.add("tls", "needs the certificate's private key; set --tls-key");
        }
        match (self.tls_client_auth, &self.tls_client_ca) {
            (ClientAuth::None, Some(_)) => faults.add(
                "tls-client-ca",
                "clients are not asked for a certificate: set --tls-client-auth, or remove \
                --tls-client-ca",
            ),
            (ClientAuth::Optional | ClientAuth::Required, None) => faults.add(
                "tls-client-auth",
                "clients' certificates need an authority that verifies them; set --tls-client-ca",
            ),
            _ => {
                if let Some(options) = self.options() {
                    faults.take(Server::open(options).map_err(fault));
                }
            }
        }
    }

    /// Warnings about these files.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let escapes = self.tls == Tls::Optional && self.tls_client_auth == ClientAuth::Required;
        let escape = "--tls-client-auth: with --tls optional a client in clear text needs no \
            certificate: set --tls required as soon as all clients have TLS";
        let clients = self.options();
        let files = file_warnings(ListenerOptions { clients, ..ListenerOptions::default() });
        files.into_iter().chain(escapes.then(|| escape.to_owned())).collect()
    }
}

/// Warnings about files that can be used. The checks of the options report those that cannot.
pub(super) fn file_warnings(files: ListenerOptions) -> Vec<String> {
    files.check(&ListenerHosts::default()).unwrap_or_default()
}

/// A fault of an option that names a file.
pub(super) fn fault(error: TlsError) -> Fault {
    Fault::new(error.option_name().trim_start_matches("--"), error.message())
}

/// TLS and tokens while a command runs.
#[derive(Default)]
pub(crate) struct RelayTls {
    pub(crate) listeners: Listeners,
    servers: Option<Outgoing>,
    metrics: Arc<TlsMetrics>,
}

impl RelayTls {
    /// Reads the files. `clients` has the options of TLS with clients, and the answer to clients
    /// without it. `servers` has TLS with servers.
    pub(crate) fn open(
        pages: &AdminTls,
        clients: Option<(ServerOptions, Option<Refusal>)>,
        servers: Option<Outgoing>,
    ) -> Result<Self, Fault> {
        let metrics = servers.as_ref().map_or_else(Arc::default, Outgoing::metrics);
        let (clients, refusal) = clients.unzip();
        let options = ListenerOptions {
            clients,
            client_refusal: refusal.flatten(),
            admin: pages.options(),
            locks_http: None,
            tokens: pages.tokens(),
        };
        let listeners = Listeners::open(options, &metrics).map_err(fault)?;
        Ok(Self { listeners, servers, metrics })
    }

    /// The handshakes of clients within these limits, if clients have TLS.
    pub(super) fn security(
        &self,
        limits: HandshakeLimits,
    ) -> Option<(Arc<dyn Security>, HandshakeLimits)> {
        let clients = self.listeners.clients.clone()?;
        Some((clients as Arc<dyn Security>, limits))
    }

    /// Adds TLS and tokens to the admin pages' access.
    pub(crate) fn access(&self, access: Access) -> Access {
        Access {
            tls: self.listeners.admin.clone().map(|tls| tls as Arc<dyn Sessions>),
            tokens: self.listeners.tokens(),
            ..access
        }
    }

    /// The metrics, if there is TLS or a token.
    pub(crate) fn part(&self) -> Option<Arc<dyn Part>> {
        let metrics = Arc::clone(&self.metrics);
        let servers = self.servers.as_ref().map(Outgoing::servers);
        let is_on = !self.listeners.is_empty() || servers.is_some();
        is_on.then(|| Arc::new(TlsPart { metrics, servers }) as Arc<dyn Part>)
    }

    /// Reads the files again because an operator asks for it. The log has the faults.
    pub(crate) fn reload(&self) {
        self.listeners.reload();
        if let Some(tls) = &self.servers {
            tls.reload();
        }
    }

    /// Reads files again that are due. Called about once a second.
    pub(crate) fn tick(&self, now: Instant) {
        self.listeners.tick(now);
        if let Some(tls) = &self.servers {
            tls.tick(now);
        }
    }
}

/// The admin view of TLS.
struct TlsPart {
    metrics: Arc<TlsMetrics>,
    /// Kind of the servers to which the command connects with TLS.
    servers: Option<Servers>,
}

impl Part for TlsPart {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        if let Some(servers) = self.servers {
            self.metrics.write_outgoing(encoder, &[servers])?;
        }
        self.metrics.write(encoder)
    }

    fn status(&self) -> State<'_> {
        let users = |usage: &str| match usage {
            "admin" => "the admin pages".to_owned(),
            usage => format!("connections of {usage}"),
        };
        let certificates = self.metrics.certificates_shown(users);
        let entries = [("certificates".to_owned(), certificates)];
        Box::pin(std::future::ready(Json::Object(Map::from_iter(entries))))
    }
}
