//! `shunt agent`: its options and its event loops.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use shunt_agent::{Agent, AgentAdmin, AgentMail, AgentOptions, Anywhere, PacketFilter};
use shunt_handover::limits::FLOWS_MAX;
use shunt_handover::session::SharedKey;
use shunt_reactor::HandshakeLimits;
use shunt_reactor::moving::Mover;
use tracing::{info, warn};

use super::peer_tls::AgentServerTls;
use super::steering::Means;
use super::{
    Common, Key, Orders, Role, Shown, bytes, duration, listen, nanos, patience, resolve, secret,
    serve,
};
use crate::exit::{Exit, Failure};
use crate::faults::{Fault, Faults, Sources};

/// Most control connections of a process.
const SESSIONS_MAX: usize = 1024;

/// Protocol of the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Protocol {
    /// HTTP/1.1
    Http,
    /// CQL, for `shunt proxy`
    Cql,
}

impl Protocol {
    fn spoken(self) -> shunt_handover::session::Protocol {
        match self {
            Self::Http => shunt_handover::session::Protocol::Http,
            Self::Cql => shunt_handover::session::Protocol::Cql,
        }
    }
}

/// `shunt agent`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AgentCommand {
    /// Address for dispatchers or proxies. A program with the key can use the server through it, so
    /// keep it on a private network
    #[arg(long, value_name = "ADDR", required = true, help_heading = "Addresses")]
    listen: SocketAddr,
    /// The stock server, on this host
    #[arg(long, value_name = "HOST:PORT", required = true, help_heading = "Addresses")]
    upstream: String,
    /// Protocol of the server
    #[arg(long, value_name = "PROTOCOL", default_value = "http", help_heading = "Addresses")]
    protocol: Protocol,
    /// Least size of an answer that the agent offers for hand-over, or `off`
    #[arg(long, value_name = "BYTES", default_value = "64KiB", value_parser = threshold, help_heading = "Limits")]
    handover_threshold: Threshold,
    /// Longest time the agent holds back an answer of unknown size, to learn whether it is large;
    /// after that it relays
    #[arg(long, value_name = "MS", default_value = "20ms", value_parser = duration, help_heading = "Times")]
    hold_ms: Duration,
    /// Virtual address and port of dispatchers whose clients' connections the agent may take;
    /// repeatable. Without it the agent relays all answers. With it there is one event loop
    #[arg(long = "vip", value_name = "ADDR:PORT", help_heading = "Hand-over")]
    vips: Vec<SocketAddr>,
    /// The transport of connections.
    #[command(flatten)]
    means: Means,
    /// Most connections to the server; further requests wait, further links of proxies are refused
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Limits")]
    upstream_connections_max: u32,
    /// Longest silence of the server before or within an answer
    #[arg(long, value_name = "MS", default_value = "60s", value_parser = patience, help_heading = "Times")]
    upstream_timeout_ms: Duration,
    /// TLS with dispatchers.
    #[command(flatten)]
    tls: AgentServerTls,
    /// Options shared with the dispatcher.
    #[command(flatten)]
    pub(super) common: Common,
    /// The shared key.
    #[command(flatten)]
    key: Key,
}

/// Smallest answer to offer for hand-over, in bytes; `None`: never.
#[derive(Clone, Copy, Debug)]
struct Threshold(Option<u64>);

fn threshold(text: &str) -> Result<Threshold, String> {
    match text {
        "off" => Ok(Threshold(None)),
        _ => bytes(text).map(|bytes| Threshold(Some(bytes.max(1)))),
    }
}

impl AgentCommand {
    /// Reads the key and the server's address, as far as possible.
    fn read(&self, faults: &mut Faults) -> Option<(SharedKey, SocketAddr)> {
        self.common.check(faults);
        self.tls.check(faults);
        self.means.check(!self.vips.is_empty(), "--vip", faults);
        if !self.vips.is_empty() && self.common.cores > 1 {
            let why = "with --cores above 1: an owner that returns for a connection has to find \
            its event loop";
            faults.add("vip", why);
        }
        let key = faults.take(secret::key("key-file", &self.key.key_file));
        let upstream = faults.take(resolve("upstream", &self.upstream));
        key.zip(upstream)
    }

    /// Returns the kernel's tables for a loop, if the agent takes connections.
    fn steering(&self) -> Result<Option<Box<dyn PacketFilter>>, shunt_steering::Error> {
        if self.vips.is_empty() {
            return Ok(None);
        }
        Ok(Some(match self.means.tables()? {
            Some(kernel) => Box::new(kernel),
            None => Box::new(Anywhere),
        }))
    }

    /// Finds everything that would be refused, starting nothing; returns warnings.
    pub(super) fn check(&self, faults: &mut Faults) -> Vec<String> {
        let read = self.read(faults);
        if let Err(failure) = self.steering() {
            faults.add("vip", failure);
        }
        let far_away = read.and_then(|(_, upstream)| far_away(upstream));
        far_away.into_iter().chain(self.tls.warnings()).collect()
    }

    pub(super) fn run(&self, sources: &Sources) -> Result<Exit, Failure> {
        let mut faults = Faults::default();
        let read = self.read(&mut faults);
        self.common.begin(faults, sources)?;
        let Some((key, upstream)) = read else { return Ok(Exit::Configuration) };
        far_away(upstream)
            .into_iter()
            .chain(self.tls.warnings())
            .for_each(|warning| warn!("{warning}"));
        let listeners = listen(&[self.listen])?;
        let filters =
            (0..self.common.cores).map(|_| self.steering()).collect::<Result<Vec<_>, _>>();
        let mut filters = filters.map_err(|error| Fault::new("vip", error))?;
        let (instance, cores) = (secret::instance(), self.common.cores);
        let service = |core: usize| {
            Agent::new(AgentOptions {
                protocol: self.protocol.spoken(),
                vips: self.vips.clone(),
                packet_filter: filters.get_mut(core).and_then(Option::take),
                upstream,
                key: key.clone(),
                instance,
                threshold_bytes: self.handover_threshold.0,
                hold_ns: nanos(self.hold_ms),
                upstream_connections_max: (self.upstream_connections_max as usize).div_ceil(cores),
                upstream_timeout_ns: nanos(self.upstream_timeout_ms),
                random: Box::new(secret::random),
            })
        };
        let services: Vec<Agent> = (0..cores).map(service).collect();
        let metrics = services.iter().map(Agent::metrics).collect();
        let role = Role {
            name: "agent",
            listeners,
            connections_max: SESSIONS_MAX + self.upstream_connections_max as usize + FLOWS_MAX,
            orders: Orders { drain: AgentMail::Drain, end: AgentMail::End },
            drain_delay: Duration::ZERO,
            datagrams: Vec::new(),
            datagrams_in_groups: false,
            is_agent: true,
            tls: self.tls.listener(),
            handshakes: HandshakeLimits::default(),
            servers: None,
            shown: AgentAdmin::new(metrics, upstream, self.vips.clone()),
            mover: if self.vips.is_empty() { Mover::None } else { self.means.mover()? },
        };
        serve(&self.common, role, services, |listening| {
            for address in listening {
                crate::print(&format!(
                    "listening for dispatchers on {address}, protocol {:?}\n",
                    self.protocol
                ));
            }
            info!(?listening, %upstream, version = env!("CARGO_PKG_VERSION"), "started");
        })
    }
}

/// Returns a warning if the server is on another host.
fn far_away(upstream: SocketAddr) -> Option<String> {
    let is_here = upstream.ip().to_canonical().is_loopback();
    (!is_here).then(|| {
        format!(
            "--upstream {upstream} is no loopback address: an agent should run on its server's host"
        )
    })
}

impl Shown for AgentAdmin {
    fn set_draining(&self) {
        AgentAdmin::set_draining(self);
    }
}
