//! The login of an identity: a role with the file of its password, or a certificate with its key,
//! which nodes with Cassandra's `MutualTlsAuthenticator` take for a login.
//!
//! The following must never happen with a certificate:
//! - *Its links show another certificate.* The sessions of an identity are made by its own
//!   [`NodeSessions`], with no resumption of another's sessions. They travel with the identity in
//!   the configuration, so that a core never has the names of one and the sessions of another.
//! - *Files that change put old and new roles into one pool.* A role depends on the names in the
//!   certificate. With other names the identity has [other rights](IdentityLogin::has_rights_of):
//!   its clients are closed, and its pools have another key. Only a certificate of the same names
//!   is a renewal, which new links use.
//! - *A file that cannot be used takes a working login away.* The former one stays, and the log
//!   says so.

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use shunt_reactor::Session;
use shunt_tls::{
    CertificateFile, Client, ClientOptions, OptionNames, Renewed, SubjectDigest, TlsError,
};

use super::values::Secret;
use crate::limits;

/// Keys of a login by password, and of one by certificate.
pub(super) const PASSWORD_KEYS: [&str; 2] = ["username", "password_file"];
pub(super) const CERTIFICATE_KEYS: [&str; 2] = ["certificate", "key"];

/// Maker of sessions that show a certificate to nodes.
pub trait NodeSessions: Send + Sync {
    /// A session with the node at this address, at the start of its handshake.
    fn session(&self, host: &str) -> Box<dyn Session>;

    /// Digest of the names in the certificate; `None`: there is no certificate.
    fn subject(&self) -> Option<SubjectDigest>;

    /// Digest of all that its sessions prove and verify.
    fn content(&self) -> [u8; 32];

    /// The files in use.
    fn files(&self) -> Vec<CertificateFile> {
        Vec::new()
    }

    /// Warnings about any of the files.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The maker with these options and the present content of the files, if this one has not both.
    ///
    /// # Errors
    /// A file cannot be used.
    fn renewed(&self, options: &ClientOptions) -> Result<Renewed<Arc<dyn NodeSessions>>, TlsError>;
}

impl NodeSessions for Client {
    fn session(&self, host: &str) -> Box<dyn Session> {
        Client::session(self, host)
    }

    fn subject(&self) -> Option<SubjectDigest> {
        Client::subject(self)
    }

    fn content(&self) -> [u8; 32] {
        Client::content(self)
    }

    fn files(&self) -> Vec<CertificateFile> {
        Client::files(self)
    }

    fn warnings(&self) -> Vec<String> {
        Client::warnings(self)
    }

    fn renewed(&self, options: &ClientOptions) -> Result<Renewed<Arc<dyn NodeSessions>>, TlsError> {
        let renewed = if self.options() == options {
            Client::renewed(self, SystemTime::now())?
        } else {
            Renewed::Changed(Client::open(options.clone())?)
        };
        Ok(renewed.map(|client| Arc::new(client) as Arc<dyn NodeSessions>))
    }
}

/// The login of an identity with nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityLogin {
    /// A role and its password.
    Password(RolePassword),
    /// A certificate.
    Certificate(NodeCertificate),
}

/// A role with its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolePassword {
    /// The role that nodes see.
    pub username: String,
    /// File with the role's password in its first line.
    pub file: PathBuf,
    /// The password, as the file had it when it was last read.
    pub password: Secret,
}

/// A certificate for nodes.
#[derive(Clone)]
pub struct NodeCertificate {
    /// PEM file of the certificate, and of those between it and its CA.
    pub certificate: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// Maker of the sessions, once the files were read.
    pub sessions: Option<Arc<dyn NodeSessions>>,
}

impl fmt::Debug for NodeCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NodeCertificate");
        shown.field("certificate", &self.certificate).field("key", &self.key);
        shown.field("subject", &self.subject()).finish()
    }
}

impl PartialEq for NodeCertificate {
    fn eq(&self, other: &Self) -> bool {
        let parts = |one: &Self| {
            let content = one.sessions.as_ref().map(|sessions| sessions.content());
            (one.certificate.clone(), one.key.clone(), content)
        };
        parts(self) == parts(other)
    }
}

impl Eq for NodeCertificate {}

impl NodeCertificate {
    /// Digest of the names in the certificate; `None` until the files were read.
    pub fn subject(&self) -> Option<SubjectDigest> {
        self.sessions.as_ref()?.subject()
    }

    fn renewed(&self, rules: &ClientOptions) -> Result<Renewed<Self>, TlsError> {
        let options = ClientOptions {
            names: OptionNames::IDENTITIES,
            certificate: Some(self.certificate.clone()),
            key: Some(self.key.clone()),
            ..rules.clone()
        };
        let renewed = match &self.sessions {
            Some(sessions) => sessions.renewed(&options)?,
            None => Renewed::Changed(Arc::new(Client::open(options)?) as Arc<dyn NodeSessions>),
        };
        Ok(renewed.map(|sessions| Self { sessions: Some(sessions), ..self.clone() }))
    }
}

/// The role, or the file of the certificate by which nodes choose one.
impl fmt::Display for IdentityLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password(role) => f.write_str(&role.username),
            Self::Certificate(shown) => shown.certificate.display().fmt(f),
        }
    }
}

impl IdentityLogin {
    /// Reads the login from a table with these keys, whose texts `text` finds.
    pub(super) fn from_table(
        keys: &[&str],
        text: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let has = |some: &[&str]| keys.iter().any(|key| some.contains(key));
        if has(&CERTIFICATE_KEYS) {
            if has(&PASSWORD_KEYS) {
                return Err("an identity logs in with nodes by a password or by a certificate: \
                    set `username` and `password_file`, or `certificate` and `key`"
                    .to_owned());
            }
            let (certificate, key) = (text("certificate")?.into(), text("key")?.into());
            return Ok(Self::Certificate(NodeCertificate { certificate, key, sessions: None }));
        }
        let username = text("username")?;
        if username.is_empty() || username.contains('\0') {
            return Err("`username` must not be empty, nor hold a zero byte".to_owned());
        }
        let file = text("password_file")?.into();
        Ok(Self::Password(RolePassword { username, file, password: Secret::new("") }))
    }

    /// True if nodes give `other` the same role, as far as this side can tell.
    pub fn has_rights_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Password(one), Self::Password(other)) => one.username == other.username,
            (Self::Certificate(one), Self::Certificate(other)) => one.subject() == other.subject(),
            _ => false,
        }
    }

    /// The certificate; `None`: the login is a password.
    pub fn certificate(&self) -> Option<&NodeCertificate> {
        match self {
            Self::Certificate(certificate) => Some(certificate),
            Self::Password(_) => None,
        }
    }

    /// The login with the present content of its files. `rules` are those of TLS to nodes; without
    /// TLS no certificate is read.
    pub(super) fn renewed(&self, rules: Option<&ClientOptions>) -> Result<Renewed<Self>, String> {
        match (self, rules) {
            (Self::Password(role), _) => Ok(Renewed::Changed(Self::Password(role.renewed()?))),
            (Self::Certificate(certificate), Some(rules)) => {
                let renewed = certificate.renewed(rules).map_err(|error| error.to_string())?;
                Ok(renewed.map(Self::Certificate))
            }
            (Self::Certificate(_), None) => Ok(Renewed::Unchanged),
        }
    }
}

impl RolePassword {
    /// The token of the login, for SASL PLAIN.
    pub fn token(&self) -> Arc<[u8]> {
        format!("\0{}\0{}", self.username, self.password.reveal()).into_bytes().into()
    }

    /// True if this token is the login's.
    pub fn has_token(&self, token: &[u8]) -> bool {
        let mut parts = token.splitn(3, |byte| *byte == 0);
        let own = ["", &*self.username, self.password.reveal()];
        own.iter().all(|part| parts.next() == Some(part.as_bytes()))
    }

    fn renewed(&self) -> Result<Self, String> {
        let file = &self.file;
        let failed = |why: &str| format!("password_file {}: {why}", file.display());
        let password = first_line(file).map_err(|why| failed(&why))?;
        match password.as_str() {
            "" => Err(failed("the first line is empty: it must be the password")),
            text if text.contains('\0') => Err(failed("the password holds a zero byte")),
            text => Ok(Self { password: Secret::new(text), ..self.clone() }),
        }
    }
}

/// The first line of a small text file.
fn first_line(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("cannot read the file: {error}");
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("this is not a regular file".to_owned());
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    let most = limits::PASSWORD_FILE_BYTES_MAX;
    file.take(most + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > most {
        return Err(format!("the file is larger than {most} bytes: is it another file?"));
    }
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
