//! A sidecar's options of TLS with Redis or Valkey servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use shunt_multiget::ServerTls;
use shunt_proxy::config::Switch;
use shunt_reactor::{Session, SessionInfo};
use shunt_tls::{ClientOptions, OptionNames, Verify};
use shunt_tls_upkeep::Servers;

use crate::faults::{Fault, Faults};
use crate::relay::outgoing::{self, Outgoing, host, switch};

#[derive(Args, Clone, Debug)]
pub(super) struct ServerTlsOptions {
    /// TLS with the servers, all of which must have it: on or off. Only with --mode tcp
    #[arg(long, value_name = "WHEN", default_value = "off", value_parser = switch, help_heading = "TLS to servers")]
    server_tls: Switch,
    /// Certificates of the authorities that sign the servers' certificates (PEM) [default: those of
    /// the system]
    #[arg(long, value_name = "FILE", help_heading = "TLS to servers")]
    server_tls_ca: Option<PathBuf>,
    /// Client certificate for servers that require one, and its intermediate certificates (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS to servers")]
    server_tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS to servers")]
    server_tls_key: Option<PathBuf>,
    /// Proof that a server's certificate must give. full: it is for the host in --server, and a
    /// node of a cluster for its address. ca: it comes from one of the authorities. none: any
    #[arg(long, value_name = "PROOF", default_value = "full", help_heading = "TLS to servers")]
    server_tls_verify: Verify,
    /// Name that the certificate of each server has [default: the host in --server]
    #[arg(long, value_name = "NAME", help_heading = "TLS to servers")]
    server_tls_name: Option<String>,
}

impl ServerTlsOptions {
    /// The options of TLS, if it is on.
    fn options(&self) -> Option<ClientOptions> {
        (self.server_tls == Switch::On).then(|| ClientOptions {
            names: OptionNames::SERVER_FLAGS,
            ca: self.server_tls_ca.clone(),
            certificate: self.server_tls_certificate.clone(),
            key: self.server_tls_key.clone(),
            verify: self.server_tls_verify,
            name: self.server_tls_name.clone(),
        })
    }

    /// Finds faults in these options and their files. `has_shims`: multigets travel in datagrams.
    pub(super) fn check(&self, has_shims: bool, faults: &mut Faults) {
        let Some(options) = self.options() else {
            let on = "--server-tls on";
            let is_full = self.server_tls_verify == Verify::Full;
            faults.refuse_idle("server-tls-ca", self.server_tls_ca.is_none(), on);
            faults.refuse_idle("server-tls-certificate", self.server_tls_certificate.is_none(), on);
            faults.refuse_idle("server-tls-key", self.server_tls_key.is_none(), on);
            faults.refuse_idle("server-tls-verify", is_full, on);
            faults.refuse_idle("server-tls-name", self.server_tls_name.is_none(), on);
            return;
        };
        if has_shims {
            let why = "keys and values travel to shims in datagrams, in clear text: use --mode \
                tcp, or leave --server-tls off";
            faults.add("server-tls", why);
        }
        faults.take(outgoing::check(options));
    }

    /// Warnings about these files, and about servers that nobody verifies.
    pub(super) fn warnings(&self) -> Vec<String> {
        let options = self.options();
        let is_open = options.as_ref().is_some_and(|options| options.verify == Verify::None);
        let open = "--server-tls-verify none: anyone between the sidecar and its servers can read \
            and change everything";
        outgoing::warnings(options).into_iter().chain(is_open.then(|| open.to_owned())).collect()
    }

    /// Reads the files; `None` without TLS.
    pub(super) fn open(&self) -> Result<Option<Outgoing>, Fault> {
        self.options().map(|options| Outgoing::open(Servers::Redis, options)).transpose()
    }
}

/// TLS with servers at these addresses, each with its text `HOST:PORT`.
pub(super) fn to_servers<'n>(
    tls: &Outgoing,
    servers: impl Iterator<Item = (SocketAddr, &'n str)>,
) -> Arc<dyn ServerTls> {
    let hosts = servers.map(|(server, text)| (server, host(text).to_owned())).collect();
    Arc::new(ToServers { tls: tls.clone(), hosts })
}

/// TLS of the event loops with their servers.
#[derive(Debug)]
struct ToServers {
    tls: Outgoing,
    /// Servers with their hosts, as their certificates name them.
    hosts: Vec<(SocketAddr, String)>,
}

impl ServerTls for ToServers {
    fn session(&self, server: SocketAddr) -> Box<dyn Session> {
        match self.hosts.iter().find(|(known, _)| *known == server) {
            Some((_, host)) => self.tls.session(host),
            // A node that the cluster has named.
            None => self.tls.session(&server.ip().to_string()),
        }
    }

    fn handshake_ended(&self, session: Option<&SessionInfo>) {
        self.tls.count(session);
    }
}
