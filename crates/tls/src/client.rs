//! The connecting side: to nodes, to the other proxies of a fleet, and in commands.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use shunt_reactor::{Session, SessionFault, SessionInfo};

use crate::candidate::Candidate;
use crate::certificate::{CertificateFile, SubjectDigest};
use crate::chain::Bounded;
use crate::error::TlsError;
use crate::files::{self, File};
use crate::resumption::{ClientConnection, Sessions};
use crate::session::{FaultySession, TlsSession};
use crate::verification::NamelessVerifier;
use crate::{PROVIDER, Reloaded, fault};

/// Names of the options in messages, and of the servers in metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionNames {
    /// The servers, in the plural.
    pub servers: &'static str,
    /// The option that switches TLS on.
    pub tls: &'static str,
    /// The option of [`ClientOptions::ca`].
    pub ca: &'static str,
    /// The option of [`ClientOptions::certificate`].
    pub certificate: &'static str,
    /// The option of [`ClientOptions::key`].
    pub key: &'static str,
    /// The option of [`ClientOptions::name`].
    pub name: &'static str,
}

impl OptionNames {
    /// Options of a proxy's connections to nodes.
    pub const NODES: OptionNames = OptionNames {
        servers: "nodes",
        tls: "node_tls",
        ca: "node_tls_ca",
        certificate: "node_tls_certificate",
        key: "node_tls_key",
        name: "node_tls_name",
    };

    /// Options of a proxy's connections to the other proxies of its fleet, which see its own
    /// certificate.
    pub const FLEET: OptionNames = OptionNames {
        servers: "fleet",
        tls: "fleet_tls",
        ca: "fleet_tls_ca",
        certificate: "tls_certificate",
        key: "tls_key",
        name: "fleet_tls_name",
    };

    /// Options of a proxy's connections to agents.
    pub const AGENTS: OptionNames = OptionNames {
        servers: "agents",
        tls: "handover_tls",
        ca: "handover_tls_ca",
        certificate: "handover_tls_certificate",
        key: "handover_tls_key",
        name: "handover_tls_name",
    };

    /// Flags of a dispatcher's connections to agents.
    pub const AGENT_FLAGS: OptionNames = OptionNames {
        servers: "agents",
        tls: "--agent-tls",
        ca: "--agent-tls-ca",
        certificate: "--agent-tls-certificate",
        key: "--agent-tls-key",
        name: "--agent-tls-name",
    };

    /// Flags of a sidecar's connections to Redis or Valkey servers.
    pub const SERVER_FLAGS: OptionNames = OptionNames {
        servers: "redis",
        tls: "--server-tls",
        ca: "--server-tls-ca",
        certificate: "--server-tls-certificate",
        key: "--server-tls-key",
        name: "--server-tls-name",
    };

    /// Options of connections to nodes on behalf of an identity, whose table names the certificate
    /// and the key.
    pub const IDENTITIES: OptionNames = OptionNames {
        servers: "identities",
        certificate: "certificate",
        key: "key",
        ..Self::NODES
    };

    /// Options of a command.
    pub const COMMAND: OptionNames = OptionNames {
        servers: "servers",
        tls: "--tls",
        ca: "--tls-ca",
        certificate: "--tls-certificate",
        key: "--tls-key",
        name: "--tls-name",
    };
}

impl Default for OptionNames {
    fn default() -> Self {
        Self::NODES
    }
}

/// Proof that a node's certificate must give.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Verify {
    /// The certificate comes from one of the CAs, and is for the node's name or address.
    #[default]
    Full,
    /// The certificate comes from one of the CAs.
    Ca,
    /// Any certificate will do. Anyone between the two sides can read and change everything.
    None,
}

impl Verify {
    fn name(self) -> &'static str {
        match self {
            Verify::Full => "full",
            Verify::Ca => "ca",
            Verify::None => "none",
        }
    }
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Verify {
    type Err = String;

    fn from_str(text: &str) -> Result<Verify, String> {
        [Verify::Full, Verify::Ca, Verify::None]
            .into_iter()
            .find(|verify| verify.name() == text)
            .ok_or_else(|| format!("`{text}` is not one of full, ca, none"))
    }
}

/// Options of the connecting side. It says "nodes" for all servers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClientOptions {
    /// Names of these options.
    pub names: OptionNames,
    /// PEM file of the CAs that nodes' certificates must come from. Without it, the system's CAs.
    pub ca: Option<PathBuf>,
    /// PEM file of the certificate for nodes that require one.
    pub certificate: Option<PathBuf>,
    /// PEM file of its private key.
    pub key: Option<PathBuf>,
    /// Proof that a node's certificate must give.
    pub verify: Verify,
    /// Name that all nodes' certificates have, in place of each node's name or address.
    pub name: Option<String>,
}

/// Configuration that new sessions use.
struct Current {
    config: Arc<ClientConfig>,
    sessions: Arc<Sessions>,
    /// SHA-256 of each file, or of each CA of the system.
    digests: Vec<[u8; 32]>,
    system: Vec<CertificateDer<'static>>,
    /// Reason why some CAs were missing when `system` was read.
    system_fault: Option<String>,
    files: Vec<CertificateFile>,
    warnings: Vec<String>,
    /// Digest of the names in the own certificate; `None`: there is none.
    subject: Option<SubjectDigest>,
}

/// Reads the CAs of the system, and returns why some of them cannot be read.
type SystemCas = fn() -> (Vec<CertificateDer<'static>>, Option<String>);

/// The files as they were read.
struct Files {
    ca: Option<File>,
    /// CAs of the system, in order; none if a file names the CAs, or none are needed.
    system: Vec<CertificateDer<'static>>,
    /// Why some of these cannot be read.
    system_fault: Option<String>,
    pair: Option<(File, File)>,
}

impl Files {
    fn read(options: &ClientOptions, system_cas: SystemCas) -> Result<Files, TlsError> {
        let is_verified = options.verify != Verify::None;
        let ca = options.ca.as_deref().filter(|_| is_verified);
        let names = &options.names;
        let ca = ca.map(|path| File::read(names.ca, path)).transpose()?;
        let (mut system, system_fault) =
            if is_verified && ca.is_none() { system_cas() } else { Default::default() };
        system.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
        let pair = match (&options.certificate, &options.key) {
            (Some(certificate), Some(key)) => {
                Some((File::read(names.certificate, certificate)?, File::read(names.key, key)?))
            }
            (None, None) => None,
            (Some(_), None) => {
                let message = format!("a certificate needs its key: {}", names.key);
                return Err(TlsError::option(names.certificate, message));
            }
            (None, Some(_)) => {
                let message = format!("a key needs its certificate: {}", names.certificate);
                return Err(TlsError::option(names.key, message));
            }
        };
        Ok(Files { ca, system, system_fault, pair })
    }

    fn all(&self) -> impl Iterator<Item = &File> + Clone {
        let pair = self.pair.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca.iter().chain(pair)
    }

    fn digests(&self) -> Vec<[u8; 32]> {
        let files = self.all().map(|file| file.digest);
        files.chain(self.system.iter().map(|der| files::sha256(der))).collect()
    }
}

/// CAs of the system, as far as they can be read.
fn system_cas() -> (Vec<CertificateDer<'static>>, Option<String>) {
    let found = rustls_native_certs::load_native_certs();
    let mut faults: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    // A directory lists its files in any order.
    faults.sort();
    (found.certs, (!faults.is_empty()).then(|| faults.join("; ")))
}

/// The verifier's form of the system's CAs.
fn system_roots(names: &OptionNames, files: &Files) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(files.system.iter().cloned());
    if roots.is_empty() {
        let message = match &files.system_fault {
            Some(fault) => format!("the CAs of the system cannot be read: {fault}"),
            None => "the system has no CAs (package ca-certificates)".to_owned(),
        };
        return Err(TlsError::option(names.ca, message + ": name a file of CAs"));
    }
    Ok(roots)
}

impl Current {
    fn build(files: &Files, options: &ClientOptions) -> Result<Current, TlsError> {
        let (names, verify) = (&options.names, options.verify);
        let (mut all, mut warnings) = (Vec::new(), Vec::new());
        let roots = match (&files.ca, verify) {
            (_, Verify::None) => None,
            (Some(file), _) => {
                let (roots, facts) = files::roots(file, names.servers)?;
                all.push(facts);
                Some(roots)
            }
            (None, _) => {
                let fault = files.system_fault.iter();
                warnings.extend(fault.map(|fault| {
                    format!("{}: some CAs of the system cannot be read: {fault}", names.ca)
                }));
                Some(system_roots(names, files)?)
            }
        };
        let versions = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::option(names.tls, error.to_string()))?;
        let verified = match roots {
            Some(roots) if verify == Verify::Full => {
                let provider = PROVIDER.clone();
                let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .map_err(|error| TlsError::option(names.ca, error.to_string()))?;
                let verifier = Arc::new(Bounded(verifier));
                versions.dangerous().with_custom_certificate_verifier(verifier)
            }
            roots => {
                let verifier = Arc::new(NamelessVerifier(roots));
                versions.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut subject = None;
        let config = match &files.pair {
            None => verified.with_no_client_auth(),
            Some((certificate, key)) => {
                let (certified, facts, chain_warnings) =
                    files::certified_key(certificate, key, names.servers)?;
                all.push(facts);
                subject = certified.cert.first().and_then(SubjectDigest::of);
                warnings.extend(key.readers_warning().into_iter().chain(chain_warnings));
                verified.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
        };
        let (config, sessions) = (Arc::new(config), Arc::default());
        let (system, system_fault) = (files.system.clone(), files.system_fault.clone());
        let digests = files.digests();
        Ok(Current {
            config,
            sessions,
            digests,
            system,
            system_fault,
            files: all,
            warnings,
            subject,
        })
    }
}

/// Result of another reading of files that were in use.
#[derive(Debug)]
pub enum Renewed<T> {
    /// The files have the same content as before.
    Unchanged,
    /// Somebody is perhaps still writing this one: they must be read again soon.
    Unsettled(TlsError),
    /// The new content.
    Changed(T),
}

impl<T> Renewed<T> {
    /// The same result with `form` of the new content.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Renewed<U> {
        match self {
            Renewed::Unchanged => Renewed::Unchanged,
            Renewed::Unsettled(file) => Renewed::Unsettled(file),
            Renewed::Changed(content) => Renewed::Changed(form(content)),
        }
    }
}

/// Sessions of connections to servers.
pub struct Client {
    options: ClientOptions,
    system_cas: SystemCas,
    current: RwLock<Arc<Current>>,
    /// New content that may not be whole; held by a reload.
    reload: Mutex<Candidate>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the files and checks them.
    ///
    /// # Errors
    /// A file cannot be read or used, or the files do not belong together.
    pub fn open(options: ClientOptions) -> Result<Client, TlsError> {
        Self::open_with(options, system_cas)
    }

    /// Same as [`Client::open`], with another source of the system's CAs.
    pub(crate) fn open_with(
        options: ClientOptions,
        system_cas: SystemCas,
    ) -> Result<Client, TlsError> {
        if let Some(name) = &options.name
            && ServerName::try_from(name.as_str()).is_err()
        {
            let message = format!("`{name}` is neither a DNS name nor an IP address");
            return Err(TlsError::option(options.names.name, message));
        }
        let files = Files::read(&options, system_cas)?;
        let current = RwLock::new(Arc::new(Current::build(&files, &options)?));
        Ok(Client { options, system_cas, current, reload: Mutex::default() })
    }

    /// The same client with another clock.
    #[cfg(test)]
    pub(crate) fn with_time(self, time: Arc<dyn rustls::time_provider::TimeProvider>) -> Client {
        let current = self.current.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut current = Arc::into_inner(current).expect("nobody else has it");
        Arc::make_mut(&mut current.config).time_provider = time;
        Client { current: RwLock::new(Arc::new(current)), ..self }
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A session with `host`, a name or an address, at the start of its handshake. Its first
    /// message is pending.
    pub fn session(&self, host: &str) -> Box<dyn Session> {
        let name = self.options.name.as_deref().unwrap_or(host);
        let faulty = |fault| Box::new(FaultySession(fault, SessionInfo::default()));
        let Ok(name) = ServerName::try_from(name.to_owned()) else {
            return faulty(SessionFault("no certificate can have the node's name"));
        };
        let current = self.current();
        match ClientConnection::new(&current.config, &current.sessions, name) {
            Ok(connection) => {
                Box::new(TlsSession::new(connection, self.options.verify != Verify::None))
            }
            Err(error) => faulty(fault::of(&error)),
        }
    }

    /// Reads the files again, or the CAs of the system if no file names CAs. New sessions use them
    /// if their content has changed. `now` is the time by which the age of files counts.
    ///
    /// The CAs of the system stay as they were while some of them cannot be read that could be read
    /// before. A new certificate is taken all the same.
    ///
    /// # Errors
    /// The same as those of [`Client::open`], or CAs of the system cannot be read any more. The
    /// configuration stays as it was.
    pub fn reload(&self, now: SystemTime) -> Result<Reloaded, TlsError> {
        let mut candidate = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let current = match self.read_changed(&mut candidate, now)? {
            Renewed::Unchanged => return Ok(Reloaded::Unchanged),
            Renewed::Unsettled(file) => return Ok(Reloaded::Unsettled(file)),
            Renewed::Changed(current) => current,
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        Ok(Reloaded::Changed)
    }

    /// A client with the present content of the files, if it is another one. Sessions of this
    /// client go on with the former content.
    ///
    /// # Errors
    /// The same as those of [`Client::reload`].
    pub fn renewed(&self, now: SystemTime) -> Result<Renewed<Client>, TlsError> {
        let renewed = |current| Client {
            options: self.options.clone(),
            system_cas: self.system_cas,
            current: RwLock::new(Arc::new(current)),
            reload: Mutex::default(),
        };
        let mut candidate = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.read_changed(&mut candidate, now)?.map(renewed))
    }

    /// Reads the files, and builds the configuration if their content is another one. `candidate`
    /// is new content that may not be whole.
    fn read_changed(
        &self,
        candidate: &mut Candidate,
        now: SystemTime,
    ) -> Result<Renewed<Current>, TlsError> {
        let mut files = Files::read(&self.options, self.system_cas)?;
        let former = self.current();
        if files.digests() == former.digests {
            return Ok(Renewed::Unchanged);
        }
        if let Some(file) = candidate.unsettled(files.all(), now) {
            return Ok(Renewed::Unsettled(file));
        }
        let new_fault =
            files.system_fault.clone().filter(|_| files.system_fault != former.system_fault);
        if let Some(fault) = &new_fault {
            files.system.clone_from(&former.system);
            if files.digests() == former.digests {
                let message = format!("some CAs of the system cannot be read: {fault}");
                return Err(TlsError::option(self.options.names.ca, message));
            }
        }
        let mut current = Current::build(&files, &self.options)?;
        if new_fault.is_some() {
            // The fault stays a new one: its next reload must not give up the former CAs either.
            current.system_fault.clone_from(&former.system_fault);
        }
        Ok(Renewed::Changed(current))
    }

    /// True if sessions of both clients prove and verify the same.
    pub fn is_alike(&self, other: &Client) -> bool {
        self.content() == other.content()
    }

    /// Digest of all that sessions prove and verify.
    pub fn content(&self) -> [u8; 32] {
        let ClientOptions { verify, name, .. } = &self.options;
        let rules = format!("{verify} {name:?}");
        files::sha256(&[&self.current().digests.concat(), rules.as_bytes()].concat())
    }

    /// The options of this client.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Digest of the names in this side's certificate; `None`: it has no certificate.
    pub fn subject(&self) -> Option<SubjectDigest> {
        self.current().subject
    }

    /// Warnings about the files in use.
    pub fn warnings(&self) -> Vec<String> {
        self.current().warnings.clone()
    }

    /// The files of certificates in use.
    pub fn files(&self) -> Vec<CertificateFile> {
        self.current().files.clone()
    }
}
