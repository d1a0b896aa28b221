//! `shunt multiget serve`: its options and its event loops.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::{Args, ValueEnum};
use shunt_multiget::limits::SERVERS_MAX;
use shunt_multiget::mode::Mode;
use shunt_multiget::{Login, Mail, Sidecar, SidecarAdmin, SidecarOptions};
use shunt_reactor::moving::Mover;
use tracing::{info, warn};

use super::login::ServerLogin;
use super::server_tls::{ServerTlsOptions, to_servers};
use super::{Gso, datagrams};
use crate::exit::{Exit, Failure};
use crate::faults::{Fault, Faults, Sources};
use crate::relay::{
    ClientTls, Common, Orders, Role, Shown, clients, duration, listen, nanos, patience, random,
    resolve, serve,
};

/// Default of the options that only shims need.
const RESEND: Duration = Duration::from_millis(20);
const SHIM_PORT: u16 = 9700;
const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// `shunt multiget serve`.
#[derive(Args, Clone, Debug)]
pub(super) struct Serve {
    /// Addresses for applications. The sidecar has no login: keep it on the loopback interface
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:6380",
        value_delimiter = ',',
        help_heading = "Addresses"
    )]
    listen: Vec<SocketAddr>,
    /// Redis or Valkey servers, in the same order for each sidecar: the order places the keys.
    /// Add =HOST:PORT where a shim is not at --shim-port of its server's address
    #[arg(long, value_name = "HOST:PORT", required = true, num_args = 1.., value_delimiter = ',', help_heading = "Addresses")]
    server: Vec<String>,
    /// Port of the shims
    #[arg(long, value_name = "PORT", default_value_t = SHIM_PORT, help_heading = "Addresses")]
    shim_port: u16,
    /// Source address of datagrams, on the network of the shims
    #[arg(long, value_name = "ADDR", default_value_t = FROM, help_heading = "Addresses")]
    from: SocketAddr,
    /// Place of split and merge. `tcp`: this sidecar, without shims. `cli`: this sidecar, by
    /// datagrams to shims. `coordinator`: the shim of one server, started with --peer. `netmc`: the
    /// network splits at --switch, and this sidecar merges
    #[arg(long, value_name = "MODE", default_value = "tcp", help_heading = "Multigets")]
    mode: Splits,
    /// Destination of multigets with --mode netmc: --vip of `shunt switch load --role
    /// multiget-client` on this host, or of multiget-gateway on another
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Multigets")]
    switch: Option<SocketAddr>,
    /// The servers are nodes of a Redis Cluster, which publish its slots and nodes. Start the shims
    /// with --cluster, too
    #[arg(long, help_heading = "Multigets")]
    cluster: bool,
    /// Most connections of applications; the sidecar closes any beyond at once
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clients, help_heading = "Limits")]
    clients_max: usize,
    /// Deadline of a command
    #[arg(long, value_name = "MS", default_value = "2s", value_parser = patience, help_heading = "Times")]
    timeout_ms: Duration,
    /// Silence after which the sidecar asks for keys again: three times by datagram, then over TCP
    #[arg(long, value_name = "MS", default_value = "20", value_parser = duration, help_heading = "Times")]
    resend_ms: Duration,
    /// Requests of one size to one shim leave as one message, which the kernel or the network card
    /// cuts into datagrams (GSO). With --mode netmc each leaves by itself
    #[arg(long, value_name = "on|off", default_value = "on", help_heading = "Multigets")]
    gso: Gso,
    /// TLS with applications.
    #[command(flatten)]
    tls: ClientTls,
    /// TLS with servers.
    #[command(flatten)]
    server_tls: ServerTlsOptions,
    /// Login at the servers.
    #[command(flatten)]
    login: ServerLogin,
    /// Options of all commands of this kind.
    #[command(flatten)]
    pub(super) common: Common,
}

/// Servers, each with its shim.
type Servers = Vec<(SocketAddr, SocketAddr)>;

/// The place where multigets are split.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Splits {
    Tcp,
    Cli,
    Coordinator,
    Netmc,
}

impl Serve {
    /// Returns where the requests to these servers are split.
    fn mode(&self, servers: &[(SocketAddr, SocketAddr)]) -> Result<Mode, Fault> {
        match (self.mode, self.switch) {
            (Splits::Tcp, None) => Ok(Mode::Tcp),
            (Splits::Cli, None) => Ok(Mode::Cli),
            (Splits::Coordinator, None) => Ok(Mode::Coordinator),
            (Splits::Netmc, None) => Err(Fault::new(
                "mode",
                "netmc: give --switch, the destination of multigets (--vip of `shunt switch load`)",
            )),
            (Splits::Tcp | Splits::Cli | Splits::Coordinator, Some(switch)) => {
                Err(Fault::new("switch", format_args!("--mode netmc alone sends to {switch}")))
            }
            (Splits::Netmc, Some(switch)) if switch.is_ipv4() != self.from.is_ipv4() => {
                let why = format_args!(
                    "{} cannot reach --switch {switch}: give one of its kind",
                    self.from
                );
                Err(Fault::new("from", why))
            }
            (Splits::Netmc, Some(switch)) if servers.iter().any(|(_, shim)| *shim == switch) => {
                let why =
                    format_args!("{switch} is a shim of --server: give an address of its own");
                Err(Fault::new("switch", why))
            }
            (Splits::Netmc, Some(switch)) => Ok(Mode::Netmc { switch }),
        }
    }

    /// True if multigets travel in datagrams.
    fn has_shims(&self) -> bool {
        !matches!(self.mode, Splits::Tcp)
    }

    /// Each server with its shim.
    fn servers(&self, faults: &mut Faults) -> Servers {
        let mut servers = Servers::new();
        for text in &self.server {
            if let Some(server) = faults.take(self.server(text, &servers)) {
                servers.push(server);
            }
        }
        if self.server.len() > SERVERS_MAX {
            let count = self.server.len();
            faults.add(
                "server",
                format_args!("{count} are named, at most {SERVERS_MAX} are possible"),
            );
        }
        servers
    }

    /// Parses a server with its shim, and checks it against the earlier ones.
    fn server(
        &self,
        text: &str,
        others: &[(SocketAddr, SocketAddr)],
    ) -> Result<(SocketAddr, SocketAddr), Fault> {
        let refused = |why: String| Err(Fault::new("server", why));
        let has_shims = self.has_shims();
        let (server, shim) =
            text.split_once('=').map_or((text, None), |(server, shim)| (server, Some(shim)));
        if let Some(shim) = shim.filter(|_| !has_shims) {
            return refused(format!(
                "{text}: --mode tcp uses no shims; leave ={shim} out, or give --mode cli"
            ));
        }
        let server = resolve("server", server)?;
        let shim = match shim {
            Some(shim) => resolve("server", shim)?,
            None => SocketAddr::new(server.ip(), self.shim_port),
        };
        if has_shims && shim.is_ipv4() != self.from.is_ipv4() {
            let why =
                format_args!("{} cannot reach the shim {shim}: give one of its kind", self.from);
            return Err(Fault::new("from", why));
        }
        if others.iter().any(|(other, _)| *other == server) {
            return refused(format!("{text} is named twice; give each server once"));
        }
        if has_shims && others.iter().any(|(_, other)| *other == shim) {
            return refused(format!(
                "{text}: its shim {shim} is named twice; give shims by =HOST:PORT where several are on one host"
            ));
        }
        Ok((server, shim))
    }

    /// Finds options that contradict each other.
    fn check_together(&self, faults: &mut Faults) {
        if !self.has_shims() {
            let without = "--mode cli, coordinator or netmc";
            faults.refuse_idle("resend-ms", self.resend_ms == RESEND, without);
            faults.refuse_idle("shim-port", self.shim_port == SHIM_PORT, without);
            faults.refuse_idle("from", self.from == FROM, without);
            faults.refuse_idle("gso", self.gso == Gso::On, without);
            return;
        }
        if self.resend_ms < Duration::from_millis(1) {
            faults.add("resend-ms", "every request would be repeated at once; 1ms is the least");
        } else if self.resend_ms >= self.timeout_ms {
            let (resend, timeout) = (self.resend_ms, self.timeout_ms);
            faults.add(
                "resend-ms",
                format_args!(
                    "{resend:?} is not less than --timeout-ms, {timeout:?}: no request \
                would be repeated"
                ),
            );
        }
        if self.common.cores > 1 && self.from.port() != 0 {
            let why = "each event loop needs a separate port; give port 0, or leave --cores at 1";
            faults.add("from", format_args!("{}: {why}", self.from));
        }
    }

    /// Finds options that a cluster does not allow.
    fn check_cluster(&self, faults: &mut Faults) {
        if self.cluster && self.login.database != 0 {
            faults.add("cluster", "a cluster has only database 0: leave --database out");
        }
        if self.cluster && !matches!(self.mode, Splits::Tcp | Splits::Cli) {
            let why = "shims and switches do not know which node of a cluster has a key: use \
            --mode tcp or cli";
            faults.add("cluster", why);
        }
    }

    /// Finds everything that would be refused, and reads the servers, the login and the place of
    /// the split.
    pub(super) fn read(&self, faults: &mut Faults) -> Option<(Servers, Login, Mode)> {
        self.common.check(faults);
        self.tls.check(faults);
        self.server_tls.check(self.has_shims(), faults);
        self.check_together(faults);
        self.check_cluster(faults);
        let servers = self.servers(faults);
        let (login, mode) = (faults.take(self.login.read()), faults.take(self.mode(&servers)));
        Some((servers, login?, mode?))
    }

    /// Warnings about the files of TLS.
    pub(super) fn tls_warnings(&self) -> Vec<String> {
        [self.tls.warnings(), self.server_tls.warnings()].concat()
    }

    pub(super) fn run(&self, sources: &Sources) -> Result<Exit, Failure> {
        let mut faults = Faults::default();
        let read = self.read(&mut faults);
        self.common.begin(faults, sources)?;
        let Some((servers, login, mode)) = read else { return Ok(Exit::Configuration) };
        self.tls_warnings().iter().for_each(|warning| warn!("{warning}"));
        let listeners = listen(&self.listen)?;
        let mut sockets = Vec::new();
        if self.has_shims() {
            for _ in 0..self.common.cores {
                // Each loop has its own port, so that answers reach the loop that asked.
                sockets.extend(datagrams("--from", self.from, 1)?);
            }
        }
        let outgoing = self.server_tls.open()?;
        let server_tls = outgoing.as_ref().map(|tls| {
            let addresses = servers.iter().map(|(server, _)| *server);
            to_servers(tls, addresses.zip(self.server.iter().map(String::as_str)))
        });
        let sidecar = |_| {
            let mut seed = [0; 8];
            random(&mut seed);
            Sidecar::new(SidecarOptions {
                servers: servers.clone(),
                mode,
                cluster: self.cluster.then_some(self.shim_port),
                login: login.clone(),
                server_tls: server_tls.clone(),
                timeout_ns: nanos(self.timeout_ms),
                resend_ns: nanos(self.resend_ms),
                seed: u64::from_ne_bytes(seed),
            })
        };
        let services: Vec<Sidecar> = (0..self.common.cores).map(sidecar).collect();
        let role = Role {
            name: "sidecar",
            listeners,
            connections_max: self.clients_max,
            orders: Orders { drain: Mail::Drain, end: Mail::End },
            drain_delay: Duration::ZERO,
            datagrams: sockets,
            // The program of the kernel that splits requests leaves uncut messages as they are.
            datagrams_in_groups: self.gso == Gso::On && !matches!(mode, Mode::Netmc { .. }),
            is_agent: false,
            tls: self.tls.listener(redis_refusal),
            handshakes: self.tls.handshakes(),
            servers: outgoing,
            shown: SidecarAdmin::new(
                services.iter().map(Sidecar::metrics).collect(),
                servers.clone(),
                mode,
            ),
            mover: Mover::None,
        };
        serve(&self.common, role, services, |listening| {
            for address in listening {
                crate::print(&format!("listening for applications on {address}\n"));
            }
            let servers: Vec<SocketAddr> = servers.iter().map(|(server, _)| *server).collect();
            info!(
                ?listening,
                ?servers,
                mode = mode.name(),
                version = env!("CARGO_PKG_VERSION"),
                "started"
            );
        })
    }
}

/// The answer to an application without TLS: an error of RESP.
fn redis_refusal(_: &[u8]) -> Vec<u8> {
    b"-ERR this port requires TLS (--tls required): connect with rediss://\r\n".to_vec()
}

impl Shown for SidecarAdmin {
    fn set_draining(&self) {
        SidecarAdmin::set_draining(self);
    }
}
