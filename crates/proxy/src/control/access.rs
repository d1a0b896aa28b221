//! The way of the control plane and of the commands to a server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use shunt_reactor::Session;
use shunt_tls::Client;

use crate::config::Credentials;
use crate::tls::OutgoingTls;

/// Login, encryption and time limit.
#[derive(Clone, Debug)]
pub struct Access {
    /// Login; `None`: the server must not ask for one.
    pub credentials: Option<Credentials>,
    /// True if no certificate of this side may stand for a login: it speaks for others.
    pub by_password: bool,
    /// Maker of TLS sessions; `None`: clear text.
    pub tls: Option<Arc<Client>>,
    /// Counts the handshakes of these sessions; `None` in commands.
    pub counts: Option<Arc<OutgoingTls>>,
    /// Name of the server to verify; `None`: its address.
    pub name: Option<Arc<str>>,
    /// Time limit of each step.
    pub limit: Duration,
}

impl Access {
    /// Access in clear text.
    pub fn plain(credentials: Option<Credentials>, limit: Duration) -> Self {
        Self { credentials, by_password: false, tls: None, counts: None, name: None, limit }
    }

    /// True if this side shows a certificate.
    pub(super) fn shows_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.options().certificate.is_some())
    }

    /// A session with the server at this address; `None` for clear text.
    pub(super) fn session(&self, ip: IpAddr) -> Option<Box<dyn Session>> {
        let tls = self.tls.as_ref()?;
        Some(match &self.name {
            Some(name) => tls.session(name),
            None => tls.session(&ip.to_canonical().to_string()),
        })
    }
}
