//! The side that clients connect to.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls_pki_types::CertificateDer;
use shunt_reactor::{Session, SessionInfo};

use crate::candidate::Candidate;
use crate::certificate::CertificateFile;
use crate::chain::Bounded;
use crate::error::TlsError;
use crate::files::{self, File};
use crate::names::NamedResolver;
use crate::session::{FaultySession, TlsSession};
use crate::tickets::TicketKeys;
use crate::{PROVIDER, Reloaded, fault, issuers};

/// Tickets for each full handshake. A client that opens several connections gets several.
const TICKETS: usize = 1;

/// Names of the certificate that a warning shows.
const HOSTS_SHOWN_MAX: usize = 4;

/// Certificates that clients must show.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum ClientAuth {
    /// Clients are not asked for one.
    #[default]
    None,
    /// A client may have one. If it has, the certificate must be valid.
    Optional,
    /// Each client must have one.
    Required,
}

impl ClientAuth {
    fn name(self) -> &'static str {
        match self {
            ClientAuth::None => "none",
            ClientAuth::Optional => "optional",
            ClientAuth::Required => "required",
        }
    }
}

impl fmt::Display for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ClientAuth {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientAuth, String> {
        let all = [ClientAuth::None, ClientAuth::Optional, ClientAuth::Required];
        all.into_iter()
            .find(|auth| auth.name() == text)
            .ok_or_else(|| format!("`{text}` is not one of none, optional, required"))
    }
}

/// Names of the options in messages, and of the clients in metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerNames {
    /// The clients, as metrics name them.
    pub clients: &'static str,
    /// The option of [`ServerOptions::certificate`].
    pub certificate: &'static str,
    /// The option of [`ServerOptions::key`].
    pub key: &'static str,
    /// The option of [`ServerOptions::client_ca`].
    pub client_ca: &'static str,
    /// The option of [`ServerOptions::client_auth`].
    pub client_auth: &'static str,
    /// The option of [`ServerOptions::ticket_keys`].
    pub ticket_keys: &'static str,
}

impl ServerNames {
    /// Options of a proxy's clients.
    pub const CLIENTS: ServerNames = ServerNames {
        clients: "clients",
        certificate: "tls_certificate",
        key: "tls_key",
        client_ca: "tls_client_ca",
        client_auth: "tls_client_auth",
        ticket_keys: "tls_ticket_keys",
    };

    /// Options of a proxy's admin pages.
    pub const ADMIN: ServerNames = ServerNames {
        clients: "admin",
        certificate: "admin_tls_certificate",
        key: "admin_tls_key",
        client_ca: "admin_tls_client_ca",
        client_auth: "admin_tls_client_ca",
        ticket_keys: "admin_tls_certificate",
    };

    /// Options of a proxy's locks over HTTP.
    pub const LOCKS_HTTP: ServerNames = ServerNames {
        clients: "locks_http",
        certificate: "locks_http_tls_certificate",
        key: "locks_http_tls_key",
        client_ca: "locks_http_tls_client_ca",
        client_auth: "locks_http_tls_client_ca",
        ticket_keys: "locks_http_tls_certificate",
    };

    /// Flags of the clients of a dispatcher, an agent or a sidecar.
    pub const CLIENT_FLAGS: ServerNames = ServerNames {
        clients: "clients",
        certificate: "--tls-certificate",
        key: "--tls-key",
        client_ca: "--tls-client-ca",
        client_auth: "--tls-client-auth",
        ticket_keys: "--tls-ticket-keys",
    };

    /// Flags of the admin pages of a command.
    pub const ADMIN_FLAGS: ServerNames = ServerNames {
        clients: "admin",
        certificate: "--admin-tls-certificate",
        key: "--admin-tls-key",
        client_ca: "--admin-tls-client-ca",
        client_auth: "--admin-tls-client-ca",
        ticket_keys: "--admin-tls-certificate",
    };
}

/// Options of the side that clients connect to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerOptions {
    /// Names of these options.
    pub names: ServerNames,
    /// PEM file of the certificate, followed by those of intermediate CAs.
    pub certificate: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// PEM file of the CAs that clients' certificates must come from.
    pub client_ca: Option<PathBuf>,
    /// Certificates that clients must show.
    pub client_auth: ClientAuth,
    /// File of keys of session tickets. Without it this process has keys of its own.
    pub ticket_keys: Option<PathBuf>,
}

/// Configuration that new sessions use.
pub(crate) struct Current {
    pub(crate) config: Arc<ServerConfig>,
    /// SHA-256 of each file, in the order of [`Files`].
    digests: Vec<[u8; 32]>,
    /// Digest that tickets are bound to.
    binding: [u8; 32],
    /// The server's own.
    certificate: CertificateDer<'static>,
    files: Vec<CertificateFile>,
    warnings: Vec<String>,
}

/// The files as they were read.
struct Files {
    certificate: File,
    key: File,
    client_ca: Option<File>,
    ticket_keys: Option<File>,
}

impl Files {
    fn read(options: &ServerOptions) -> Result<Files, TlsError> {
        let names = &options.names;
        let client_ca = match (options.client_auth, &options.client_ca) {
            (ClientAuth::None, _) => None,
            (_, Some(path)) => Some(File::read(names.client_ca, path)?),
            (auth, None) => {
                let ca = names.client_ca;
                let message = format!("`{auth}` needs {ca}, the CAs of clients' certificates");
                return Err(TlsError::option(names.client_auth, message));
            }
        };
        let ticket_keys = options.ticket_keys.as_deref();
        Ok(Files {
            certificate: File::read(names.certificate, &options.certificate)?,
            key: File::read(names.key, &options.key)?,
            client_ca,
            ticket_keys: ticket_keys.map(|path| File::read(names.ticket_keys, path)).transpose()?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &File> + Clone {
        let optional = self.client_ca.iter().chain(&self.ticket_keys);
        [&self.certificate, &self.key].into_iter().chain(optional)
    }

    fn digests(&self) -> Vec<[u8; 32]> {
        self.all().map(|file| file.digest).collect()
    }

    /// A ticket is a proof that its client was verified: whatever decides that goes in here.
    fn binding(&self, auth: ClientAuth) -> [u8; 32] {
        let mut bytes = auth.name().as_bytes().to_vec();
        bytes.extend(self.client_ca.iter().flat_map(|file| file.digest));
        files::sha256(&bytes)
    }
}

impl Current {
    fn build(
        files: &Files,
        options: &ServerOptions,
        former: Option<&Current>,
    ) -> Result<Current, TlsError> {
        let (names, auth) = (&options.names, options.client_auth);
        let usage = names.clients;
        let (certified, facts, chain_warnings) =
            files::certified_key(&files.certificate, &files.key, usage)?;
        let certificate = certified.cert[0].clone();
        issuers::check_server(&files.certificate, &certificate)?;
        let mut all = vec![facts];
        let versions = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::option(names.certificate, error.to_string()))?;
        let verified = match &files.client_ca {
            None => versions.with_no_client_auth(),
            Some(file) => {
                let (roots, facts) = files::roots(file, usage)?;
                all.push(facts);
                let provider = PROVIDER.clone();
                let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                let builder = match auth {
                    ClientAuth::Required => builder,
                    _ => builder.allow_unauthenticated(),
                };
                let verifier = builder.build().map_err(|error| file.error(error.to_string()))?;
                versions.with_client_cert_verifier(Arc::new(Bounded(verifier)))
            }
        };
        let mut config = verified.with_cert_resolver(Arc::new(NamedResolver(Arc::new(certified))));
        let binding = files.binding(auth);
        config.ticketer = ticketer(files, names, &binding, former)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = TICKETS;
        let secrets = [&files.key].into_iter().chain(&files.ticket_keys);
        let warnings = secrets.filter_map(File::readers_warning).chain(chain_warnings).collect();
        let (config, digests) = (Arc::new(config), files.digests());
        Ok(Current { config, digests, binding, certificate, files: all, warnings })
    }
}

/// Tickets by the keys of the file. Without one, the former ones go on while they mean the same.
fn ticketer(
    files: &Files,
    names: &ServerNames,
    binding: &[u8; 32],
    former: Option<&Current>,
) -> Result<Arc<dyn ProducesTickets>, TlsError> {
    if let Some(file) = &files.ticket_keys {
        return Ok(Arc::new(TicketKeys::parse(file, binding)?));
    }
    match former.filter(|former| former.binding == *binding) {
        Some(former) => Ok(former.config.ticketer.clone()),
        None => {
            Ticketer::new().map_err(|error| TlsError::option(names.ticket_keys, error.to_string()))
        }
    }
}

/// Sessions of connections that clients open.
pub struct Server {
    options: ServerOptions,
    current: RwLock<Arc<Current>>,
    /// New content that may not be whole; held by a reload.
    reload: Mutex<Candidate>,
}

impl Server {
    /// Reads the files and checks them.
    ///
    /// # Errors
    /// A file cannot be read or used, or the files do not belong together.
    pub fn open(options: ServerOptions) -> Result<Server, TlsError> {
        Self::open_with(options, None)
    }

    /// Same as [`Server::open`], in place of a former one: its tickets go on while they mean the
    /// same.
    ///
    /// # Errors
    /// The same as those of [`Server::open`].
    pub fn open_after(options: ServerOptions, former: &Server) -> Result<Server, TlsError> {
        // Keys of a file go with it.
        let has_own_keys = former.options.ticket_keys.is_none();
        Self::open_with(options, has_own_keys.then(|| former.current()).as_deref())
    }

    fn open_with(options: ServerOptions, former: Option<&Current>) -> Result<Server, TlsError> {
        let files = Files::read(&options)?;
        let current = RwLock::new(Arc::new(Current::build(&files, &options, former)?));
        Ok(Server { options, current, reload: Mutex::default() })
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A session at the start of its handshake.
    pub fn session(&self) -> Box<dyn Session> {
        match UnbufferedServerConnection::new(self.current().config.clone()) {
            Ok(connection) => Box::new(TlsSession::new(connection, true)),
            Err(error) => Box::new(FaultySession(fault::of(&error), SessionInfo::default())),
        }
    }

    /// Reads the files again. New sessions use them if their content has changed. `now` is the time
    /// by which the age of files counts.
    ///
    /// # Errors
    /// The same as those of [`Server::open`]. The configuration stays as it was.
    pub fn reload(&self, now: SystemTime) -> Result<Reloaded, TlsError> {
        let mut candidate = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let files = Files::read(&self.options)?;
        let former = self.current();
        if files.digests() == former.digests {
            return Ok(Reloaded::Unchanged);
        }
        if let Some(file) = candidate.unsettled(files.all(), now) {
            return Ok(Reloaded::Unsettled(file));
        }
        let current = Current::build(&files, &self.options, Some(&former))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        Ok(Reloaded::Changed)
    }

    /// Warnings about the files in use.
    pub fn warnings(&self) -> Vec<String> {
        self.current().warnings.clone()
    }

    /// A warning if clients that verify the host accept the certificate at none of these names and
    /// addresses.
    pub fn hosts_warning(&self, hosts: &[String]) -> Option<String> {
        let current = self.current();
        let certificate = &current.certificate;
        if hosts.is_empty() || hosts.iter().any(|host| issuers::is_for(certificate, host)) {
            return None;
        }
        let mut own = issuers::hosts(certificate).unwrap_or_default();
        let more = if own.len() > HOSTS_SHOWN_MAX { ", .." } else { "" };
        own.truncate(HOSTS_SHOWN_MAX);
        let own = if own.is_empty() { "no host".to_owned() } else { own.join(", ") };
        let hosts = hosts.join(", ");
        let ServerOptions { names, certificate, .. } = &self.options;
        Some(format!(
            "{} {}: the certificate is for {own}{more}, and clients reach {hosts}: unless they \
             connect by another of its names, add that to subjectAltName",
            names.certificate,
            certificate.display()
        ))
    }

    /// The files of certificates in use.
    pub fn files(&self) -> Vec<CertificateFile> {
        self.current().files.clone()
    }
}
