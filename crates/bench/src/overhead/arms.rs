//! The processes that are compared, each on the CPU that is measured, and how they are started and ended.

use std::{io, net::SocketAddr, process::Stdio};

use crate::{
    overhead::{Arm, OverheadArgs},
    peers::{OwnProcess, haproxy_command, proxy_command, stub_command, wait_until_served},
};

/// A started process and where clients connect to it.
pub(super) struct Running {
    pub(super) arm: Arm,
    pub(super) process: OwnProcess,
    pub(super) targets: Vec<SocketAddr>,
    /// Admin address of a proxy.
    pub(super) admin: Option<SocketAddr>,
}

/// Where everything listens: ports counted from `--port`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    port: u16,
}

/// Nodes of the ring.
pub(super) const NODES: u8 = 3;

impl Places {
    pub(super) fn new(port: u16) -> Self {
        Self { port }
    }

    /// The ring behind proxy and HAProxy: 127.0.0.1 to 127.0.0.3, one port.
    pub(super) fn ring(self) -> Vec<SocketAddr> {
        (1..=NODES).map(|last| ([127, 0, 0, last], self.port).into()).collect()
    }

    /// The same with nodes that take aggregated frames.
    pub(super) fn aggregating_ring(self) -> Vec<SocketAddr> {
        (1..=NODES).map(|last| ([127, 0, 0, last], self.port + 1).into()).collect()
    }

    fn own(self, arm: Arm) -> SocketAddr {
        ([127, 0, 0, 1], self.port + 2 + arm as u16).into()
    }

    fn admin(self, arm: Arm) -> SocketAddr {
        ([127, 0, 0, 1], self.port + 12 + arm as u16).into()
    }
}

/// Starts the process of `arm` and waits until it serves. `None` when its program is not installed.
pub(super) fn start(arm: Arm, args: &OverheadArgs, places: Places) -> io::Result<Option<Running>> {
    let own = places.own(arm);
    let shunt = match &args.shunt {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let (mut targets, mut admin, mut leftovers) = (vec![own], None, Vec::new());
    let mut command = match arm {
        Arm::Echo | Arm::Direct => {
            let nodes = if arm == Arm::Direct { NODES } else { 1 };
            targets = (1..=nodes).map(|last| ([127, 0, 0, last], own.port()).into()).collect();
            let mut command = stub_command(&shunt, own, nodes.into());
            command.args(["--io", &args.io]).args((arm == Arm::Echo).then_some("--echo"));
            command
        }
        Arm::Proxy | Arm::Aggregate => {
            let ring = if arm == Arm::Aggregate { places.aggregating_ring() } else { places.ring() };
            admin = Some(places.admin(arm));
            let mut command = proxy_command(&shunt, own, places.admin(arm), &ring);
            command.args(["--cores", "1"]).args(&args.proxy_arguments);
            command
        }
        Arm::Haproxy => {
            let (command, file) = haproxy_command(&args.haproxy, arm.name(), own, &places.ring())?;
            leftovers.push(file);
            command
        }
    };
    command.stdin(if matches!(arm, Arm::Echo | Arm::Direct) { Stdio::piped() } else { Stdio::null() });
    let mut process = match OwnProcess::spawn(command.stdout(Stdio::null()), Some(args.cpu), leftovers) {
        Err(error) if arm == Arm::Haproxy && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    wait_until_served(arm.name(), &targets, admin, || process.has_ended())?;
    Ok(Some(Running { arm, process, targets, admin }))
}

#[cfg(test)]
mod tests {
    use super::Places;
    use crate::overhead::Arm;

    #[test]
    fn no_two_listen_at_one_place() {
        let places = Places::new(20_000);
        let mut all = places.ring();
        all.extend(places.aggregating_ring());
        for arm in [Arm::Echo, Arm::Direct, Arm::Proxy, Arm::Haproxy, Arm::Aggregate] {
            all.extend([places.own(arm), places.admin(arm)]);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
