//! Steering for the dispatcher and the agent: the kernel's tables, and the hardware addresses of
//! agents.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use shunt_agent::PacketFilter;
use shunt_dispatch::Steer;
use shunt_handover::Flow;
use shunt_handover::owner::Seen;
use shunt_reactor::moving::{Mover, Twin};
use shunt_steering::{DEFAULT_PINS, Error, Mac, Steering, neighbours};
use shunt_tls_upkeep::Lines;
use tracing::warn;

use crate::exit::{Exit, Failure};
use crate::faults::Faults;

/// Time for which a known hardware address is kept.
const KNOWN: Duration = Duration::from_secs(10);
/// Time after which an unknown hardware address is looked up again.
const UNKNOWN: Duration = Duration::from_millis(500);

/// The transport of handed-over connections.
#[derive(Args, Clone, Debug)]
pub(super) struct Means {
    /// Directory where `shunt switch load` pinned the kernel's tables
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PINS, help_heading = "Hand-over")]
    handover_pins: PathBuf,
    /// Path of a Unix socket that moves connections between a dispatcher and its agents on one
    /// host, for trials without privileges
    #[arg(long, value_name = "FILE", help_heading = "Hand-over")]
    handover_socket: Option<PathBuf>,
}

impl Means {
    /// Finds options without effect: all of them, if nothing is handed over.
    pub(super) fn check(&self, hands_over: bool, without: &str, faults: &mut Faults) {
        let (socket, pins) =
            (self.handover_socket.is_none(), self.handover_pins == Path::new(DEFAULT_PINS));
        if !hands_over {
            faults.refuse_idle("handover-socket", socket, without);
            faults.refuse_idle("handover-pins", pins, without);
        } else if !socket && !pins {
            faults.add(
                "handover-pins",
                "--handover-socket does not use the kernel's tables: leave one of the two out",
            );
        }
    }

    /// Opens the kernel's tables; `None` if packets need no steering.
    pub(super) fn tables(&self) -> Result<Option<Kernel>, Error> {
        match self.handover_socket {
            Some(_) => Ok(None),
            None => Kernel::open(&self.handover_pins).map(Some),
        }
    }

    /// Returns the mover, which takes connections out of a process and puts them into another.
    pub(super) fn mover(&self) -> Result<Mover, Failure> {
        let Some(path) = &self.handover_socket else { return Ok(Mover::Kernel) };
        Twin::open(path).map(Mover::Twin).map_err(|error| Failure {
            exit: Exit::Configuration,
            message: format!("--handover-socket {}: {error}", path.display()),
        })
    }
}

/// The kernel's tables on one host.
#[derive(Debug)]
pub(super) struct Kernel {
    steering: Steering,
    macs: HashMap<IpAddr, Mac>,
    looked_up: Option<Instant>,
    /// The log has a warning that an agent's hardware address is unknown.
    is_told: bool,
    /// Limit on the warnings about entries: each connection may bring one.
    lines: Lines,
}

impl Kernel {
    /// Opens the tables that `shunt switch load` pinned, and removes stale entries.
    pub(super) fn open(pins: &Path) -> Result<Kernel, Error> {
        let mut steering = Steering::open(pins)?;
        steering.sweep();
        let (macs, lines) = (HashMap::new(), Lines::default());
        Ok(Kernel { steering, macs, looked_up: None, is_told: false, lines })
    }

    /// Tells of an entry that the kernel did not take; true if it took it.
    fn is_taken(&self, done: Result<(), Error>, otherwise: &'static str) -> bool {
        let Err(error) = done else { return true };
        if let Some(suppressed) = self.lines.admit(otherwise, Instant::now()) {
            warn!(%error, suppressed, "{otherwise}");
        }
        false
    }

    /// Returns the hardware address of a host on this network.
    fn mac(&mut self, address: IpAddr) -> Option<Mac> {
        // One lookup reads all entries of the kernel, so that a missing host does not cause a
        // lookup per connection.
        let after = if self.macs.contains_key(&address) { KNOWN } else { UNKNOWN };
        if self.looked_up.is_none_or(|at| at.elapsed() > after) {
            // The kernel has an entry, because a connection to the agent exists.
            self.macs = neighbours().unwrap_or_default();
            self.looked_up = Some(Instant::now());
        }
        let found = self.macs.get(&address).copied();
        if found.is_none() && !std::mem::replace(&mut self.is_told, true) {
            warn!(agent = %address, "the agent is not in this host's layer-2 network, and its answers are relayed: see docs/hand-over.md");
        }
        found
    }
}

fn flow(flow: Flow) -> shunt_steering::Flow {
    shunt_steering::Flow { local: flow.local, peer: flow.peer }
}

impl Steer for Kernel {
    fn steer(&mut self, of: Flow, agent: SocketAddr, lease_ms: u64) -> bool {
        let Some(mac) = self.mac(agent.ip().to_canonical()) else { return false };
        let done = self.steering.steer(&flow(of), mac, Duration::from_millis(lease_ms));
        self.is_taken(done, "a connection cannot be steered")
    }

    fn unsteer(&mut self, of: Flow) {
        self.steering.unsteer(&flow(of));
    }

    fn hold(&mut self, of: Flow, lease_ms: u64) -> bool {
        let done = self.steering.hold(&flow(of), Duration::from_millis(lease_ms));
        self.is_taken(done, "a connection cannot be held")
    }

    fn seen(&self, of: Flow) -> Option<Seen> {
        let seen = self.steering.seen(&flow(of))?;
        let (packets, acknowledged, sequence_end, has_ended) =
            (seen.packets, seen.acknowledged, seen.sequence_end, seen.has_ended);
        Some(Seen { packets, acknowledged, sequence_end, has_ended })
    }
}

impl PacketFilter for Kernel {
    fn expect(&mut self, of: Flow, lease_ms: u64) {
        let done = self.steering.expect(&flow(of), Duration::from_millis(lease_ms));
        // Without an entry, the packets are dropped in any case.
        self.is_taken(
            done,
            "a connection cannot be entered in the kernel's table before it arrives",
        );
    }

    fn own(&mut self, of: Flow, lease_ms: u64) {
        let done = self.steering.own(&flow(of), Duration::from_millis(lease_ms));
        self.is_taken(done, "packets of a connection do not reach it");
    }

    fn let_end(&mut self, of: Flow, lease_ms: u64) {
        let done = self.steering.let_end(&flow(of), Duration::from_millis(lease_ms));
        self.is_taken(done, "a client cannot be told that its connection has ended");
    }

    fn disown(&mut self, of: Flow) {
        self.steering.disown(&flow(of));
    }

    fn keeps_resets_back(&self) -> bool {
        true
    }

    fn tidy(&mut self) {
        self.steering.sweep();
    }
}
