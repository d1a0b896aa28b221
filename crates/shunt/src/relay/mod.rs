//! `shunt dispatch` and `shunt agent`: a dispatcher or proxy asks, and an agent beside each stock
//! server fetches the answer. `shunt multiget` runs its event loops with this module as well.

mod agent;
pub(crate) mod cql;
mod dispatch;
pub(crate) mod outgoing;
mod part;
mod peer_tls;
mod secret;
mod steering;
mod tls;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use shunt_admin::Pages;
use shunt_handover::limits::{RECEIVE_BYTES, UNREAD_BYTES_MAX};
use shunt_proxy::config::{Admin, Kind as _, LogFormat, Millis};
use shunt_reactor::moving::{Intake, Mover};
use shunt_reactor::{
    Acceptor, CoreSlot, HandshakeLimits, IoChoice, LoopOptions, Service, mailbox, run,
};
use shunt_tls::ServerOptions;
use shunt_tls_upkeep::Refusal;
use tracing::warn;

pub(crate) use agent::AgentCommand;
pub(crate) use dispatch::DispatchCommand;
use outgoing::Outgoing;
use part::{AcceptsUntil, DrainTimes, LoopsPart, Notice};
pub(crate) use part::{Orders, Shown};
pub(crate) use secret::{private_file, random};
pub(crate) use tls::{AdminTls, ClientTls, RelayTls};

use crate::admin;
use crate::exit::{Exit, Failure};
use crate::faults::{Fault, Faults, Sources};
use crate::logging;
use crate::open_files;
use crate::supervise::{Events, Hangup, Supervisor, Teller, threads};
use crate::systemd::sockets;

/// Waiting mail and new connections of one loop; the accepting thread waits when the mailbox is
/// full.
const MAILBOX_CAPACITY: usize = 4096;
/// Most event loops.
const CORES_MAX: usize = 1024;

/// Runs `shunt dispatch`.
pub(crate) fn dispatch(command: &DispatchCommand, sources: &Sources) -> Exit {
    command.run(sources).unwrap_or_else(Failure::report)
}

/// Runs `shunt agent`.
pub(crate) fn agent(command: &AgentCommand, sources: &Sources) -> Exit {
    command.run(sources).unwrap_or_else(Failure::report)
}

/// Runs `shunt check dispatch`.
pub(crate) fn check_dispatch(command: &DispatchCommand, sources: &Sources) -> Exit {
    let mut faults = Faults::default();
    let warnings = [command.common.warnings(), command.check(&mut faults)].concat();
    checked(faults.finish(sources).map(|()| warnings))
}

/// Runs `shunt check agent`.
pub(crate) fn check_agent(command: &AgentCommand, sources: &Sources) -> Exit {
    let mut faults = Faults::default();
    let warnings = [command.common.warnings(), command.check(&mut faults)].concat();
    checked(faults.finish(sources).map(|()| warnings))
}

/// Prints the outcome of a check. Warnings are about features that this host lacks.
pub(crate) fn checked(outcome: Result<Vec<String>, Failure>) -> Exit {
    match outcome {
        Ok(warnings) => {
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            crate::print("valid\n");
            Exit::Done
        }
        Err(failure) => {
            eprintln!("error: {}", failure.message);
            failure.exit
        }
    }
}

/// The option that dispatcher and agent have beside [`Common`].
#[derive(Args, Clone, Debug)]
struct Key {
    /// File with the key that dispatchers and agents share: 16 to 4096 bytes, readable by its owner
    /// only
    #[arg(long, value_name = "FILE", help_heading = "Key")]
    key_file: std::path::PathBuf,
}

/// Options that all commands of event loops have.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// TOML file with options, `_` for `-` in their names; flags override it
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    config: Option<std::path::PathBuf>,
    /// Address of metrics, health and status, such as 127.0.0.1:9180 or unix:/run/shunt/admin.sock,
    /// with accepted host names after commas; or `off`
    #[arg(long, value_name = "ADDR", default_value = "off", value_parser = admin_address, help_heading = "Addresses")]
    admin: Admin,
    /// TLS and tokens of these pages.
    #[command(flatten)]
    tls: AdminTls,
    /// Event loops, one thread each
    #[arg(long, value_name = "N", default_value = "1", value_parser = cores, help_heading = "Event loop")]
    pub(crate) cores: usize,
    /// Longest time SIGTERM waits for answers under way
    #[arg(long, value_name = "MS", default_value = "30s", value_parser = duration, help_heading = "Times")]
    drain_timeout_ms: Duration,
    /// Level: error, warn, info, debug or trace; or directives, such as `info,shunt_dispatch=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Logs")]
    log: String,
    /// Format: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format, help_heading = "Logs")]
    log_format: LogFormat,
}

impl Common {
    /// Finds faults in these options.
    pub(crate) fn check(&self, faults: &mut Faults) {
        faults.take(logging::filter(&self.log).map_err(|why| Fault::new("log", why)));
        self.tls.check(self.admin.0.as_ref(), faults);
    }

    /// Warnings about the admin pages.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let admin = self.admin.0.as_ref();
        admin.map(|admin| self.tls.warnings(admin)).unwrap_or_default()
    }

    /// Begins a process: fails with the faults if any were found, and starts the log otherwise.
    pub(crate) fn begin(&self, faults: Faults, sources: &Sources) -> Result<(), Failure> {
        // The log starts only after its options are known to be right.
        faults
            .finish(sources)
            .and_then(|()| sockets::adopt())
            .inspect_err(|failure| eprintln!("error: {}", failure.message))?;
        logging::start(&self.log, self.log_format).map(drop).map_err(|why| {
            let failure = Failure::from(Fault::new("log", why));
            eprintln!("error: {}", failure.message);
            failure
        })?;
        self.warnings().iter().for_each(|warning| warn!("{warning}"));
        Ok(())
    }
}

/// Differences between the commands as processes.
pub(crate) struct Role<M> {
    /// Name of the role in the log.
    pub(crate) name: &'static str,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) connections_max: usize,
    pub(crate) orders: Orders<M>,
    /// Time in which a draining process still takes new connections.
    pub(crate) drain_delay: Duration,
    /// Hands over and receives connections.
    pub(crate) mover: Mover,
    /// No loop reads from received connections.
    pub(crate) is_agent: bool,
    /// TLS with clients, and the answer to a client that lacks it, if such a client is refused.
    pub(crate) tls: Option<(ServerOptions, Option<Refusal>)>,
    /// Bounds on the handshakes of clients.
    pub(crate) handshakes: HandshakeLimits,
    /// TLS with the servers that the loops connect to.
    pub(crate) servers: Option<Outgoing>,
    /// One socket per loop; empty if the role has none.
    pub(crate) datagrams: Vec<UdpSocket>,
    /// Datagrams of one size for one peer leave as one message.
    pub(crate) datagrams_in_groups: bool,
    /// The admin view of the role.
    pub(crate) shown: Arc<dyn Shown>,
}

/// Runs a service on each loop until the process is told to end. `announce` is the text for
/// standard output once the service listens.
pub(crate) fn serve<S>(
    common: &Common,
    role: Role<S::Mail>,
    services: Vec<S>,
    announce: impl FnOnce(&[SocketAddr]),
) -> Result<Exit, Failure>
where
    S: Service + Send + 'static,
    S::Mail: Copy,
{
    let admin = common.admin.0.clone().map(admin::bind).transpose()?;
    sockets::refuse_others()?;
    let tls = RelayTls::open(&common.tls, role.tls, role.servers)?;
    let security = tls.security(role.handshakes);
    let events = Events::new();
    events.catch_signals()?;
    let handshakes_max = security.as_ref().map_or(0, |(_, limits)| limits.sockets_max());
    open_files::allow_clients(role.connections_max, handshakes_max);
    let (teller, notices) = events.teller();
    let (mut slots, mut mailers) = (Vec::new(), Vec::new());
    let each = role.connections_max.div_ceil(services.len().max(1));
    let mut datagrams = role.datagrams.into_iter();
    for (index, mut service) in services.into_iter().enumerate() {
        let (mailer, inbox) = mailbox(MAILBOX_CAPACITY)
            .map_err(|error| Failure::internal("a mailbox could not be created", error))?;
        let load = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut options = LoopOptions {
            load: Some(load.clone()),
            connections_max: each,
            ..LoopOptions::default()
        };
        options.mover = role.mover.clone();
        options.datagrams = datagrams.next().map(Arc::new);
        options.datagrams_in_groups = role.datagrams_in_groups;
        if role.is_agent {
            options.restored_intake = Intake { bytes: Some(RECEIVE_BYTES), promises_no_more: true };
            options.frozen_limits.unread_bytes_max = UNREAD_BYTES_MAX;
        }
        let work = move || {
            run(IoChoice::Epoll, options, &mut service, inbox).map_err(|error| error.to_string())
        };
        let teller = teller.clone();
        let told = move |failure| teller.tell(Notice::LoopEnded { index, failure });
        threads::spawn(&format!("relay-{index}"), work, told).map_err(|error| {
            Failure::internal("the thread of an event loop could not be started", error)
        })?;
        slots.push(CoreSlot { mailer: mailer.clone(), load });
        mailers.push(mailer);
    }
    let listening: Vec<SocketAddr> =
        role.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let listeners = role.listeners.into_iter().map(Into::into).collect();
    let acceptor = Acceptor::start_with(listeners, slots, security)
        .map_err(|error| Failure::internal("the accepting thread could not be started", error))?;
    let admin_address = admin.as_ref().and_then(|(sockets, _)| sockets.local_addr());
    let start = |bound| start_admin(bound, role.shown.clone(), &tls, &teller);
    let _socket_file = admin.map(start).transpose()?;
    announce(&listening);
    announce_admin(admin_address, &tls);
    admin::announce_unix(common.admin.0.as_ref());
    let times = DrainTimes { delay: role.drain_delay, limit: common.drain_timeout_ms };
    // Owners may have to return to an ending agent for their connections.
    let accepts_until = if role.is_agent { AcceptsUntil::Ended } else { AcceptsUntil::Told };
    let accepting = (acceptor, accepts_until);
    let part = LoopsPart::new(
        role.name,
        (role.shown, tls),
        accepting,
        mailers,
        role.orders,
        notices,
        times,
    );
    Ok(Supervisor::new(vec![Box::new(part)], Hangup::Reload).run(&events))
}

/// Starts the admin pages of a role.
fn start_admin(
    (sockets, access): admin::Bound,
    shown: Arc<dyn Shown>,
    tls: &RelayTls,
    teller: &Teller<Notice>,
) -> Result<admin::SocketFile, Failure> {
    let shown: Arc<dyn shunt_admin::Part> = shown;
    let parts = std::iter::once(shown).chain(tls.part()).collect();
    let pages = Pages::with_access(env!("CARGO_PKG_VERSION"), parts, tls.access(access));
    let teller = teller.clone();
    admin::start(sockets, pages, move |failure| teller.tell(Notice::AdminEnded { failure }))
}

fn announce_admin(address: Option<SocketAddr>, tls: &RelayTls) {
    if let Some(address) = address {
        let scheme = admin::scheme(tls.listeners.admin.is_some());
        crate::print(&format!("metrics, health and status on {scheme}://{address}\n"));
    }
}

pub(crate) fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, Failure> {
    let bind = |address: &SocketAddr| match sockets::take(*address) {
        Some(socket) => Ok(socket),
        None => shunt_reactor::listen(*address)
            .map_err(|error| admin::cannot_listen("--listen", *address, &error)),
    };
    addresses.iter().map(bind).collect()
}

/// Resolves `HOST:PORT`, once at the start.
pub(crate) fn resolve(flag: &'static str, text: &str) -> Result<SocketAddr, Fault> {
    let failed = |why: String| {
        Fault::new(flag, format_args!("{text}: {why}; give HOST:PORT, such as 10.0.0.7:7000"))
    };
    let mut found = text.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("the name has no address".to_owned()))
}

fn cores(text: &str) -> Result<usize, String> {
    let cores = text.parse().ok().filter(|cores| (1..=CORES_MAX).contains(cores));
    cores.ok_or_else(|| format!("1 to {CORES_MAX} are allowed"))
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    Millis::from_text(text).map(|millis| Duration::from_millis(millis.into()))
}

/// Shortest deadline for a peer; no peer could answer in less time.
const PATIENCE_MS_MIN: u64 = 10;

/// Parses a deadline for a peer.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    let too_short =
        || format!("no server answers in so short a time; {PATIENCE_MS_MIN}ms is the least");
    duration(text).and_then(|time| {
        if time.as_millis() < PATIENCE_MS_MIN.into() { Err(too_short()) } else { Ok(time) }
    })
}

/// Parses a number of connections.
pub(crate) fn clients(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|clients| *clients > 0)
        .ok_or_else(|| "a number from 1 is expected".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    shunt_proxy::config::Bytes::from_text(text).map(|bytes| bytes.0)
}

fn admin_address(text: &str) -> Result<Admin, String> {
    Admin::from_text(text)
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("there are text and json".to_owned()),
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
