//! `shunt dispatch`: its options and its event loops.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use shunt_dispatch::{
    Anywhere, DispatchAdmin, DispatchMail, DispatchOptions, Dispatcher, Handover, Steer,
};
use shunt_handover::Clients;
use shunt_handover::session::SharedKey;
use shunt_reactor::moving::Mover;
use shunt_tls_upkeep::http_refusal;
use tracing::{info, warn};

use super::peer_tls::{DispatcherTls, to_agents};
use super::steering::Means;
use super::{
    ClientTls, Common, Key, Orders, Role, Shown, bytes, clients, duration, listen, nanos, patience,
    resolve, secret, serve,
};
use crate::exit::{Exit, Failure};
use crate::faults::{Faults, Sources};

/// `shunt dispatch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DispatchCommand {
    /// Addresses that clients connect to
    #[arg(
        long,
        value_name = "ADDR",
        required = true,
        value_delimiter = ',',
        help_heading = "Addresses"
    )]
    listen: Vec<SocketAddr>,
    /// Agents, the primary first; requests other than GET and HEAD go to it alone
    #[arg(long, value_name = "HOST:PORT", required = true, num_args = 1.., value_delimiter = ',', help_heading = "Addresses")]
    backend: Vec<String>,
    /// Name of this dispatcher for the agents; a restarted dispatcher regains its connections by
    /// it. Each dispatcher needs another one [default: the host's name]
    #[arg(long, value_name = "NAME", help_heading = "Hand-over")]
    name: Option<String>,
    /// Send large answers from the agent's host over the client's own connection
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "off",
        help_heading = "Hand-over"
    )]
    handover: When,
    /// The transport of connections.
    #[command(flatten)]
    means: Means,
    /// Most connections of clients; the dispatcher closes any beyond at once
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clients, help_heading = "Limits")]
    clients_max: usize,
    /// Largest body of a request; a larger one gets 413
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes, help_heading = "Limits")]
    body_bytes_max: u64,
    /// Longest time a connection may be idle
    #[arg(long, value_name = "MS", default_value = "60s", value_parser = patience, help_heading = "Times")]
    idle_timeout_ms: Duration,
    /// Deadline of the head of a request
    #[arg(long, value_name = "MS", default_value = "10s", value_parser = patience, help_heading = "Times")]
    head_timeout_ms: Duration,
    /// Longest pause of a client within a body or an answer
    #[arg(long, value_name = "MS", default_value = "30s", value_parser = patience, help_heading = "Times")]
    body_timeout_ms: Duration,
    /// Least rate of a body, in bytes a second over --body-timeout-ms; 0 accepts any byte
    #[arg(long, value_name = "BYTES", default_value = "256", value_parser = bytes, help_heading = "Limits")]
    body_rate_min: u64,
    /// Deadline of the begin of an answer, and of more of it. Make it longer than the agents'
    /// --upstream-timeout-ms, whose errors name the cause
    #[arg(long, value_name = "MS", default_value = "75s", value_parser = patience, help_heading = "Times")]
    answer_timeout_ms: Duration,
    /// Time after SIGTERM in which the dispatcher still accepts connections, while `/readyz` fails.
    /// Make it longer than the load balancer takes to notice
    #[arg(long, value_name = "MS", default_value = "0", value_parser = duration, help_heading = "Times")]
    drain_delay_ms: Duration,
    /// TLS with clients.
    #[command(flatten)]
    tls: ClientTls,
    /// TLS with agents.
    #[command(flatten)]
    agent_tls: DispatcherTls,
    /// Options shared with the agent.
    #[command(flatten)]
    pub(super) common: Common,
    /// The shared key.
    #[command(flatten)]
    key: Key,
}

/// The policy of hand-over.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum When {
    /// Never
    Off,
    /// Where an agent offers an answer; a host that cannot logs that once, and relays
    Auto,
}

impl DispatchCommand {
    /// Returns the kernel's tables for a loop, or the reason why answers are relayed.
    fn steering(&self) -> Result<Box<dyn Steer>, String> {
        if self.handover == When::Off {
            return Err("off".to_owned());
        }
        match self.means.tables() {
            Ok(Some(kernel)) => Ok(Box::new(kernel)),
            Ok(None) => Ok(Box::new(Anywhere)),
            Err(error) => {
                warn!(%error, "large answers are relayed");
                Err(format!("all answers are relayed: {error}"))
            }
        }
    }

    /// Reads the key, if possible, and the agents' addresses.
    fn read(&self, faults: &mut Faults) -> (Option<SharedKey>, Vec<SocketAddr>) {
        self.common.check(faults);
        self.tls.check(faults);
        self.agent_tls.check(faults);
        if self.tls.is_required() && self.handover == When::Auto {
            let why = "a connection with TLS is never handed over, and --tls required admits no \
            other: set --tls optional, or remove --handover";
            faults.add("handover", why);
        }
        self.means.check(self.handover == When::Auto, "--handover auto", faults);
        let mut backends = Vec::with_capacity(self.backend.len());
        for text in &self.backend {
            let Some(address) = faults.take(resolve("backend", text)) else { continue };
            if backends.contains(&address) {
                // An agent ends a dispatcher's control connection when the dispatcher opens another
                // one.
                let why = "is given twice; give each agent once, because it has one control \
                connection per event loop";
                faults.add("backend", format_args!("{address} {why}"));
            }
            backends.push(address);
        }
        (faults.take(secret::key("key-file", &self.key.key_file)), backends)
    }

    /// Bytes of a body that must arrive within `--body-timeout-ms`.
    fn body_bytes_per_timeout(&self) -> u64 {
        let millis = u64::try_from(self.body_timeout_ms.as_millis()).unwrap_or(u64::MAX);
        self.body_rate_min.saturating_mul(millis).div_ceil(1000)
    }

    /// Finds everything that would be refused, starting nothing; returns warnings about this host.
    pub(super) fn check(&self, faults: &mut Faults) -> Vec<String> {
        self.read(faults);
        let steering = if self.handover == When::Auto { self.steering().err() } else { None };
        self.tls_warnings().chain(steering).collect()
    }

    fn tls_warnings(&self) -> impl Iterator<Item = String> {
        self.tls.warnings().into_iter().chain(self.agent_tls.warnings())
    }

    pub(super) fn run(&self, sources: &Sources) -> Result<Exit, Failure> {
        let mut faults = Faults::default();
        let (key, backends) = self.read(&mut faults);
        self.common.begin(faults, sources)?;
        let Some(key) = key else { return Ok(Exit::Configuration) };
        self.tls_warnings().for_each(|warning| warn!("{warning}"));
        let listeners = listen(&self.listen)?;
        let (instance, first) = (secret::instance(), self.listen[0]);
        let listening: Vec<SocketAddr> =
            listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let agents = self.agent_tls.open()?;
        let mut handover_is = "auto".to_owned();
        let clients = Clients::default();
        let service = |core| {
            let steer = self.steering().inspect_err(|why| handover_is.clone_from(why)).ok();
            let handover = if steer.is_some() { Handover::Auto } else { Handover::Off };
            Dispatcher::new(DispatchOptions {
                listen: listening.clone(),
                clients: clients.clone(),
                body_bytes_per_timeout: self.body_bytes_per_timeout(),
                backends: backends.clone(),
                agent_tls: agents.as_ref().map(|tls| to_agents(tls, &self.backend)),
                key: key.clone(),
                owner: secret::owner(self.name.as_deref(), first, core),
                instance,
                handover,
                steer,
                body_bytes_max: self.body_bytes_max,
                idle_timeout_ns: nanos(self.idle_timeout_ms),
                head_timeout_ns: nanos(self.head_timeout_ms),
                body_timeout_ns: nanos(self.body_timeout_ms),
                answer_timeout_ns: nanos(self.answer_timeout_ms),
                random: Box::new(secret::random),
            })
        };
        let services: Vec<Dispatcher> = (0..self.common.cores).map(service).collect();
        let metrics = services.iter().map(Dispatcher::metrics).collect();
        let role = Role {
            name: "dispatcher",
            listeners,
            connections_max: self.clients_max,
            orders: Orders { drain: DispatchMail::Drain, end: DispatchMail::End },
            drain_delay: self.drain_delay_ms,
            datagrams: Vec::new(),
            datagrams_in_groups: false,
            is_agent: false,
            tls: self.tls.listener(http_refusal),
            handshakes: self.tls.handshakes(),
            servers: agents.clone(),
            shown: DispatchAdmin::new(metrics, backends.clone(), handover_is),
            mover: if self.handover == When::Auto { self.means.mover()? } else { Mover::None },
        };
        serve(&self.common, role, services, |listening| {
            for address in listening {
                crate::print(&format!("listening for HTTP clients on {address}\n"));
            }
            info!(?listening, ?backends, version = env!("CARGO_PKG_VERSION"), "started");
        })
    }
}

impl Shown for DispatchAdmin {
    fn set_draining(&self) {
        DispatchAdmin::set_draining(self);
    }
}
