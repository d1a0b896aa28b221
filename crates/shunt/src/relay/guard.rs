//! TLS of clients and of the admin pages of a command, and the tokens of the pages.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use shunt_admin::{Access, Encoder, Json, Map, Part, State};
use shunt_tls::{ClientAuth, Server, ServerNames, ServerOptions, Sessions, TlsError, Tokens};
use shunt_tls_upkeep::{
    Listener, PagesGuard, ServerTls, TlsMetrics, WatchedTokens, expires_soon, http_refusal,
};

use crate::faults::{Fault, Faults};

/// The option with the tokens of the admin pages.
const TOKEN_FILE: &str = "--admin-token-file";

/// TLS of the admin pages, and their tokens.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AdminGuard {
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

impl AdminGuard {
    /// The options of TLS, if it is on.
    fn options(&self) -> Option<ServerOptions> {
        let client_ca = self.admin_tls_client_ca.clone();
        let client_auth = if client_ca.is_some() { ClientAuth::Required } else { ClientAuth::None };
        Some(ServerOptions {
            names: ServerNames::ADMIN_FLAGS,
            certificate: self.admin_tls_certificate.clone()?,
            key: self.admin_tls_key.clone()?,
            client_ca,
            client_auth,
            ticket_keys: None,
        })
    }

    /// Finds faults in these options and their files. `has_pages`: the admin pages are on.
    pub(super) fn check(&self, has_pages: bool, faults: &mut Faults) {
        let files = [
            ("admin-tls-certificate", &self.admin_tls_certificate),
            ("admin-tls-key", &self.admin_tls_key),
            ("admin-tls-client-ca", &self.admin_tls_client_ca),
            ("admin-token-file", &self.admin_token_file),
        ];
        for (flag, file) in files.iter().filter(|_| !has_pages) {
            faults.refuse_idle(flag, file.is_none(), "--admin");
        }
        match (&self.admin_tls_certificate, &self.admin_tls_key) {
            (Some(_), None) => {
                faults.add("admin-tls-certificate", "needs its private key: give --admin-tls-key")
            }
            (None, Some(_)) => {
                faults.add("admin-tls-key", "needs its certificate: give --admin-tls-certificate")
            }
            (None, None) if self.admin_tls_client_ca.is_some() => faults.add(
                "admin-tls-client-ca",
                "clients show certificates only with TLS: give --admin-tls-certificate too",
            ),
            _ => {}
        }
        if let Some(options) = self.options() {
            faults.take(Server::open(options).map_err(fault));
        }
        if let Some(path) = self.admin_token_file.clone() {
            faults.take(Tokens::open(TOKEN_FILE, path).map_err(fault));
        }
    }

    /// Warnings about pages at this address.
    pub(super) fn warnings(&self, listen: std::net::SocketAddr) -> Vec<String> {
        let guard = PagesGuard {
            names: ServerNames::ADMIN_FLAGS,
            token_file: TOKEN_FILE,
            has_tls: self.admin_tls_certificate.is_some(),
            has_client_ca: self.admin_tls_client_ca.is_some(),
            has_tokens: self.admin_token_file.is_some(),
        };
        let files = self.options().and_then(|options| Server::open(options).ok());
        let files = files.map(|server| server.files()).unwrap_or_default();
        guard
            .warning("--admin", listen)
            .into_iter()
            .chain(files.iter().filter_map(expires_soon))
            .collect()
    }
}

/// A fault of an option that names a file.
fn fault(error: TlsError) -> Fault {
    Fault::new(error.option_name().trim_start_matches("--"), error.message())
}

/// TLS and tokens while a command runs.
#[derive(Default)]
pub(super) struct Guard {
    admin: Option<Arc<ServerTls>>,
    tokens: Option<Arc<WatchedTokens>>,
    metrics: Arc<TlsMetrics>,
}

impl Guard {
    /// Reads the files.
    pub(super) fn open(pages: &AdminGuard) -> Result<Self, Fault> {
        let metrics = Arc::<TlsMetrics>::default();
        let open = |options| {
            let refusal = Some(http_refusal as fn(&[u8]) -> Vec<u8>);
            ServerTls::open(Listener::Admin, options, refusal, Arc::clone(&metrics))
        };
        let tokens = pages
            .admin_token_file
            .clone()
            .map(|path| WatchedTokens::open(TOKEN_FILE, path, Arc::clone(&metrics)));
        Ok(Self {
            admin: pages.options().map(open).transpose().map_err(fault)?,
            tokens: tokens.transpose().map_err(fault)?.map(Arc::new),
            metrics,
        })
    }

    /// True if the admin pages have TLS.
    pub(super) fn has_https(&self) -> bool {
        self.admin.is_some()
    }

    /// Guards the admin pages.
    pub(super) fn access(&self, access: Access) -> Access {
        Access {
            tls: self.admin.clone().map(|tls| tls as Arc<dyn Sessions>),
            tokens: self.tokens.as_ref().map(|tokens| tokens.tokens()),
            ..access
        }
    }

    /// The metrics, if there is something to guard.
    pub(super) fn part(&self) -> Option<Arc<dyn Part>> {
        let is_used = self.admin.is_some() || self.tokens.is_some();
        is_used.then(|| Arc::new(TlsPart(Arc::clone(&self.metrics))) as Arc<dyn Part>)
    }

    /// Reads the files again because an operator asks for it.
    pub(super) fn reload(&self) {
        self.admin.iter().for_each(|tls| tls.reload());
        self.tokens.iter().for_each(|tokens| tokens.reload());
    }

    /// Does what is due. Called about once a second.
    pub(super) fn look(&self, now: Instant) {
        self.admin.iter().for_each(|tls| tls.look(now));
        self.tokens.iter().for_each(|tokens| tokens.look(now));
    }
}

/// The admin view of TLS.
struct TlsPart(Arc<TlsMetrics>);

impl Part for TlsPart {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        self.0.write(encoder)
    }

    fn stuck(&self, _: Instant) -> Map<String, Json> {
        Map::new()
    }

    fn not_ready(&self) -> Option<String> {
        None
    }

    fn status(&self) -> State<'_> {
        Box::pin(std::future::ready(Json::Null))
    }
}
