//! The processes that are compared, each on the CPU that is measured, and how they are started and ended.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    measure::cpu,
    overhead::{Arm, OverheadArgs},
    peers::{haproxy_configuration, wait_until_served},
};

/// A started process and where clients connect to it.
pub(super) struct Running {
    pub(super) arm: Arm,
    child: Child,
    pub(super) targets: Vec<SocketAddr>,
    /// Admin address of a proxy.
    pub(super) admin: Option<SocketAddr>,
    files: Vec<PathBuf>,
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
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
    let mut running = match arm {
        Arm::Echo | Arm::Direct => start_stub(arm, args, &shunt, own)?,
        Arm::Proxy | Arm::Aggregate => start_proxy(arm, args, &shunt, places)?,
        Arm::Haproxy => match start_haproxy(args, own, &places.ring()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        },
    };
    let Running { child, targets, admin, .. } = &mut running;
    wait_until_served(arm.name(), targets, *admin, || !matches!(child.try_wait(), Ok(None)))?;
    Ok(Some(running))
}

fn start_stub(arm: Arm, args: &OverheadArgs, shunt: &Path, own: SocketAddr) -> io::Result<Running> {
    let nodes = if arm == Arm::Direct { NODES } else { 1 };
    let mut command = Command::new(shunt);
    command.args(["bench", "stub", "--until-input-closes", "--io", &args.io]);
    command.args(["--listen", &own.to_string(), "--nodes", &nodes.to_string()]);
    if arm == Arm::Echo {
        command.arg("--echo");
    }
    // The pipe ends with this process, however it ends, and the stub with the pipe.
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let child = cpu::with_pinned(args.cpu, || command.spawn())?;
    let targets = (1..=nodes).map(|last| ([127, 0, 0, last], own.port()).into()).collect();
    Ok(Running { arm, child, targets, admin: None, files: Vec::new() })
}

fn start_proxy(arm: Arm, args: &OverheadArgs, shunt: &Path, places: Places) -> io::Result<Running> {
    let (own, admin) = (places.own(arm), places.admin(arm));
    let ring = if arm == Arm::Aggregate { places.aggregating_ring() } else { places.ring() };
    let contact_points: Vec<String> = ring.iter().map(SocketAddr::to_string).collect();
    let mut command = Command::new(shunt);
    command.arg("proxy").args(["--listen", &own.to_string(), "--admin", &admin.to_string()]);
    command.args(["--contact-points", &contact_points.join(","), "--cores", "1", "--log", "warn"]);
    command.args(&args.proxy_arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = cpu::with_pinned(args.cpu, || command.spawn())?;
    Ok(Running { arm, child, targets: vec![own], admin: Some(admin), files: Vec::new() })
}

fn start_haproxy(args: &OverheadArgs, own: SocketAddr, ring: &[SocketAddr]) -> io::Result<Running> {
    let file = std::env::temp_dir().join(format!("shunt-overhead-haproxy-{}.cfg", std::process::id()));
    fs::write(&file, haproxy_configuration(own, ring))?;
    let mut command = Command::new(&args.haproxy);
    command.arg("-db").arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let child = cpu::with_pinned(args.cpu, || command.spawn());
    match child {
        Ok(child) => Ok(Running { arm: Arm::Haproxy, child, targets: vec![own], admin: None, files: vec![file] }),
        Err(error) => {
            let _ = fs::remove_file(&file);
            Err(error)
        }
    }
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
