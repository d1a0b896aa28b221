//! `shunt multiget shim`: its options and its event loops.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use shunt_multiget::limits::SERVERS_MAX;
use shunt_multiget::shim::{CoordinatorOptions, Prefix, ShimOptions};
use shunt_multiget::{Login, Mail, ShimAdmin, Store, StoreOptions};
use shunt_reactor::HandshakeLimits;
use shunt_reactor::moving::Mover;
use tracing::info;

use super::login::ServerLogin;
use super::{Gso, datagrams};
use crate::exit::{Exit, Failure};
use crate::faults::{Faults, Sources};
use crate::relay::{Common, Orders, Role, Shown, nanos, patience, random, resolve, serve};

/// `shunt multiget shim`.
#[derive(Args, Clone, Debug)]
pub(super) struct Shim {
    /// Address for datagrams of sidecars and switches
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9700", help_heading = "Addresses")]
    listen: SocketAddr,
    /// The Redis or Valkey server beside the shim
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:6379",
        help_heading = "Addresses"
    )]
    server: String,
    /// Shims of all servers, this one included, in the order of the sidecars' --server. The shim
    /// coordinates for sidecars with --mode coordinator
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1.., help_heading = "Addresses")]
    peer: Vec<String>,
    /// The server is a node of a Redis Cluster
    #[arg(long, conflicts_with = "peer", help_heading = "Addresses")]
    cluster: bool,
    /// Networks of sidecars, which get complete answers
    #[arg(long, value_name = "PREFIX", default_values = ["127.0.0.0/8", "::1"], value_delimiter = ',', num_args = 1.., help_heading = "Limits")]
    allow: Vec<Prefix>,
    /// Most requests a second from each address in --allow; the shim drops more
    #[arg(long, value_name = "N", default_value = "200000", help_heading = "Limits")]
    rate_max: u32,
    /// Most requests a second from all other addresses together; 0 drops them. An answer has at
    /// most three times the bytes of its request, so a forged source gains little
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Limits")]
    others_rate_max: u32,
    /// Deadline of an answer of the server
    #[arg(long, value_name = "MS", default_value = "500", value_parser = patience, help_heading = "Times")]
    timeout_ms: Duration,
    /// Answers of one size to one sidecar leave as one message, which the kernel or the network
    /// card cuts into datagrams (GSO)
    #[arg(long, value_name = "on|off", default_value = "on", help_heading = "Addresses")]
    gso: Gso,
    /// Login at the server.
    #[command(flatten)]
    login: ServerLogin,
    /// Options of all commands of this kind.
    #[command(flatten)]
    pub(super) common: Common,
}

impl Shim {
    /// Finds everything that would be refused, and reads the server, the shims that this one
    /// coordinates, and the login.
    pub(super) fn read(&self, faults: &mut Faults) -> Option<(SocketAddr, Vec<SocketAddr>, Login)> {
        self.common.check(faults);
        let server = faults.take(resolve("server", &self.server));
        let login = faults.take(self.login.read());
        let peers = self.peers(faults);
        Some((server?, peers, login?))
    }

    /// The shims that this one coordinates.
    fn peers(&self, faults: &mut Faults) -> Vec<SocketAddr> {
        let mut peers: Vec<SocketAddr> = Vec::new();
        for text in &self.peer {
            let Some(peer) = faults.take(resolve("peer", text)) else { continue };
            if peers.contains(&peer) {
                faults.add("peer", format_args!("{peer} is named twice; give each shim once"));
            }
            peers.push(peer);
        }
        if peers.is_empty() {
            return peers;
        }
        if peers.len() > SERVERS_MAX {
            faults.add(
                "peer",
                format_args!("{} are named, at most {SERVERS_MAX} are possible", peers.len()),
            );
        }
        if !peers.contains(&self.listen) {
            let why = "of this shim is not among them; give all shims, as sidecars name them";
            faults.add("peer", format_args!("--listen {} {why}", self.listen));
        }
        if self.common.cores > 1 {
            let why = "the answers of other shims reach a single event loop; leave --cores at 1, \
            or coordinate at another shim";
            faults.add("peer", why);
        }
        peers
    }

    pub(super) fn run(&self, sources: &Sources) -> Result<Exit, Failure> {
        let mut faults = Faults::default();
        let read = self.read(&mut faults);
        self.common.begin(faults, sources)?;
        let Some((server, peers, login)) = read else { return Ok(Exit::Configuration) };
        let sockets = datagrams("--listen", self.listen, self.common.cores)?;
        let listening =
            sockets.first().and_then(|socket| socket.local_addr().ok()).unwrap_or(self.listen);
        // The kernel assigns each source port to one loop. So each loop has the whole rate of each
        // allowed source, but only a share of the rate of all others.
        let cores = u32::try_from(self.common.cores).unwrap_or(u32::MAX);
        let options = ShimOptions {
            allow: self.allow.clone(),
            rate: self.rate_max,
            others_rate: self.others_rate_max.div_ceil(cores),
        };
        let coordinator = (!peers.is_empty()).then(|| {
            let mut seed = [0; 8];
            random(&mut seed);
            CoordinatorOptions { peers, own: self.listen, seed: u64::from_ne_bytes(seed) }
        });
        let store = |_| {
            Store::new(StoreOptions {
                shim: options.clone(),
                server,
                is_in_cluster: self.cluster,
                login: login.clone(),
                coordinator: coordinator.clone(),
                timeout_ns: nanos(self.timeout_ms),
            })
        };
        let services: Vec<Store> = (0..self.common.cores).map(store).collect();
        let role = Role {
            name: "shim",
            listeners: Vec::new(),
            connections_max: 0,
            orders: Orders { drain: Mail::Drain, end: Mail::End },
            drain_delay: Duration::ZERO,
            datagrams: sockets,
            datagrams_in_groups: self.gso == Gso::On,
            is_agent: false,
            tls: None,
            handshakes: HandshakeLimits::default(),
            servers: None,
            shown: ShimAdmin::new(services.iter().map(Store::metrics).collect(), server),
            mover: Mover::None,
        };
        serve(&self.common, role, services, |_| {
            crate::print(&format!(
                "listening for datagrams on {listening}, for the server {server}\n"
            ));
            info!(%listening, %server, version = env!("CARGO_PKG_VERSION"), "started");
        })
    }
}

impl Shown for ShimAdmin {
    fn set_draining(&self) {
        ShimAdmin::set_draining(self);
    }
}
