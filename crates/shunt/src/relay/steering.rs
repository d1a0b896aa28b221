//! Steering for the dispatcher and the agent: the kernel's tables, and the hardware addresses of agents.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use shunt_agent::Own;
use shunt_dispatch::Steer;
use shunt_handover::Flow;
use shunt_steering::{Error, Mac, Steering, neighbours};
use tracing::warn;

/// How long a hardware address is known before it is looked up again.
const KNOWN: Duration = Duration::from_secs(10);

/// The kernel's tables on one host.
#[derive(Debug)]
pub(super) struct Kernel {
    steering: Steering,
    macs: HashMap<IpAddr, Mac>,
    looked_up: Option<Instant>,
    /// It was said that an agent's hardware address is not known.
    is_told: bool,
}

impl Kernel {
    /// Opens what `shunt switch load` has pinned, and removes what is over.
    pub(super) fn open(pins: &Path) -> Result<Kernel, Error> {
        let mut steering = Steering::open(pins)?;
        steering.sweep();
        Ok(Kernel { steering, macs: HashMap::new(), looked_up: None, is_told: false })
    }

    /// The hardware address of a host of this network.
    fn mac(&mut self, address: IpAddr) -> Option<Mac> {
        let is_old = self.looked_up.is_none_or(|at| at.elapsed() > KNOWN);
        if is_old || !self.macs.contains_key(&address) {
            // The kernel knows it, for there is a connection to the agent.
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
        done.inspect_err(|error| warn!(%error, "a connection cannot be steered")).is_ok()
    }

    fn unsteer(&mut self, of: Flow) {
        self.steering.unsteer(&flow(of));
    }
}

impl Own for Kernel {
    fn expect(&mut self, of: Flow, lease_ms: u64) {
        let done = self.steering.expect(&flow(of), Duration::from_millis(lease_ms));
        // Without an entry its packets are dropped all the same.
        done.unwrap_or_else(|error| warn!(%error, "a connection is not noted before it comes"));
    }

    fn own(&mut self, of: Flow, lease_ms: u64) {
        let done = self.steering.own(&flow(of), Duration::from_millis(lease_ms));
        done.unwrap_or_else(|error| warn!(%error, "packets of a connection do not reach it"));
    }

    fn disown(&mut self, of: Flow) {
        self.steering.disown(&flow(of));
    }

    fn tidy(&mut self) {
        self.steering.sweep();
    }
}
