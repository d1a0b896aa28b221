//! The login of an identity: a role with the file of its password, or a certificate with its key,
//! which nodes with Cassandra's `MutualTlsAuthenticator` accept as the login.
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
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use shunt_reactor::Session;
use shunt_tls::{
    CertificateFile, Client, ClientOptions, OptionNames, Renewed, SubjectDigest, TlsError,
};

use super::role_password::{Candidates, RolePassword};
use super::values::Secret;

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

    /// A maker with these options and the files' present content, if either has changed. `clock` is
    /// the time by which the age of files counts.
    ///
    /// # Errors
    /// A file cannot be used.
    fn renewed(
        &self,
        options: &ClientOptions,
        clock: SystemTime,
    ) -> Result<Renewed<Arc<dyn NodeSessions>>, TlsError>;
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

    fn renewed(
        &self,
        options: &ClientOptions,
        clock: SystemTime,
    ) -> Result<Renewed<Arc<dyn NodeSessions>>, TlsError> {
        let renewed = if self.options() == options {
            Client::renewed(self, clock)?
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

    fn renewed(&self, rules: &ClientOptions, clock: SystemTime) -> Result<Renewed<Self>, TlsError> {
        let options = ClientOptions {
            names: OptionNames::IDENTITIES,
            certificate: Some(self.certificate.clone()),
            key: Some(self.key.clone()),
            ..rules.clone()
        };
        let renewed = match &self.sessions {
            Some(sessions) => sessions.renewed(&options, clock)?,
            None => Renewed::Changed(Arc::new(Client::open(options)?) as Arc<dyn NodeSessions>),
        };
        Ok(renewed.map(|sessions| Self { sessions: Some(sessions), ..self.clone() }))
    }
}

/// The role, or the certificate's file.
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
                return Err("an identity logs in to nodes with a password or with a certificate, \
                    not both: set `username` and `password_file`, or `certificate` and `key`"
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
    /// TLS no certificate is read. `clock` is the time by which the age of files counts.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(super) fn renewed(
        &self,
        rules: Option<&ClientOptions>,
        clock: SystemTime,
        candidates: &mut Candidates,
    ) -> Result<Renewed<Self>, TlsError> {
        match (self, rules) {
            (Self::Password(role), _) => Ok(role.renewed(clock, candidates)?.map(Self::Password)),
            (Self::Certificate(certificate), Some(rules)) => {
                Ok(certificate.renewed(rules, clock)?.map(Self::Certificate))
            }
            (Self::Certificate(_), None) => Ok(Renewed::Unchanged),
        }
    }
}
