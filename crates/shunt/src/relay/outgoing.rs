//! TLS of the connections that a command opens to its servers: agents, or Redis servers.

use std::sync::Arc;
use std::time::Instant;

use shunt_proxy::config::{Kind as _, Switch};
use shunt_reactor::{Session, SessionInfo};
use shunt_tls::{Client, ClientOptions};
use shunt_tls_upkeep::{HandshakeResult, Reloader, Servers, TlsMetrics, expires_soon};

use super::tls::fault;
use crate::faults::Fault;

/// TLS with the servers of a command.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// Kind of the servers.
    servers: Servers,
    files: Arc<Reloader<Client>>,
}

impl Outgoing {
    /// Reads the files.
    pub(crate) fn open(servers: Servers, options: ClientOptions) -> Result<Self, Fault> {
        let files = Reloader::open(options, Arc::default()).map_err(fault)?;
        Ok(Self { servers, files: Arc::new(files) })
    }

    /// Kind of the servers.
    pub(super) fn servers(&self) -> Servers {
        self.servers
    }

    /// The metrics that have these certificates.
    pub(super) fn metrics(&self) -> Arc<TlsMetrics> {
        self.files.metrics()
    }

    /// A session with a server whose certificate has this host.
    pub(crate) fn session(&self, host: &str) -> Box<dyn Session> {
        self.files.current().session(host)
    }

    /// Counts a handshake that has ended: with this session, or with a failure.
    pub(crate) fn count(&self, session: Option<&SessionInfo>) {
        let result = match session {
            Some(session) if session.resumed => HandshakeResult::Resumed,
            Some(_) => HandshakeResult::Ok,
            None => HandshakeResult::Failed,
        };
        self.metrics().handshakes_with(self.servers).count(result);
    }

    /// Reads the files again because an operator asks for it. The log has the faults.
    pub(super) fn reload(&self) {
        let _ = self.files.reload();
    }

    /// Reads files again that are due. Called about once a second.
    pub(super) fn tick(&self, now: Instant) {
        self.files.tick(now);
    }
}

/// Finds faults in these options and their files.
pub(crate) fn check(options: ClientOptions) -> Result<(), Fault> {
    Client::open(options).map(drop).map_err(fault)
}

/// Warnings about files that can be used. [`check`] reports those that cannot.
pub(crate) fn warnings(options: Option<ClientOptions>) -> Vec<String> {
    let Some(client) = options.and_then(|options| Client::open(options).ok()) else {
        return Vec::new();
    };
    client.files().iter().filter_map(expires_soon).chain(client.warnings()).collect()
}

/// Parses the option that switches TLS on.
pub(crate) fn switch(text: &str) -> Result<Switch, String> {
    Switch::from_text(text).map_err(|_| "expected on or off".to_owned())
}

/// The host of `HOST:PORT`, as a certificate names it.
pub(crate) fn host(text: &str) -> &str {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_must_have_the_host_of_the_option() {
        let hosts = ["agent-1.example:7001", "10.0.0.7:7001", "[2001:db8::7]:7001"].map(host);
        assert_eq!(hosts, ["agent-1.example", "10.0.0.7", "2001:db8::7"]);
    }
}
