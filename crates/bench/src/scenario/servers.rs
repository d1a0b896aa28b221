//! The servers that a scenario starts. Each is a separate process (Cassandra several), with its own
//! ports, and ends with the scenario.

use std::{
    io,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::certificates::Certificates;
use super::file::{Server, ServerKind};
use crate::peers::{OwnProcess, haproxy_command, proxy_command, stub_command, wait_until_served};

/// Number of ports per server: clients, the admin address, the statistics, and spare ones.
const PORTS_EACH: u16 = 10;

/// The reason why a server does not run.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// This machine lacks a requirement; the reason is for the report.
    Missing(String),
    Failed(io::Error),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Paths, ports and CPUs of a run.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// The binary with the load generator and the stub nodes: this one, so that two compared
    /// binaries have the same surroundings.
    pub(super) bench: PathBuf,
    /// The measured shunt binary.
    pub(super) shunt: PathBuf,
    /// The binary to compare with.
    pub(super) base: Option<PathBuf>,
    /// The project's directory, which contains `scripts/ring`.
    pub(super) project: PathBuf,
    /// The first port.
    pub(super) port: u16,
    /// True if nothing is measured, so that slow nodes are enough.
    pub(super) is_smoke: bool,
    /// CPUs that this process was allowed at its start.
    pub(super) cpus: Vec<usize>,
}

impl Surroundings {
    /// Returns the allowed CPU number `wanted`; numbers beyond the last start again at the first.
    pub(super) fn cpu(&self, wanted: usize) -> usize {
        self.cpus[wanted % self.cpus.len()]
    }
}

/// A started server.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) name: String,
    /// Addresses for clients.
    pub(super) addresses: Vec<SocketAddr>,
    /// Admin address of a proxy.
    pub(super) admin: Option<SocketAddr>,
    /// Statistics address of a stub.
    pub(super) statistics: Option<SocketAddr>,
    /// Certificate of the authority with which clients verify a server that speaks TLS.
    pub(super) authority: Option<PathBuf>,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Own(OwnProcess),
    Ring { scripts: PathBuf, name: String, pids: Vec<u32> },
}

impl Running {
    /// Returns the ids of its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        match &self.process {
            Process::Own(child) => vec![child.pid()],
            Process::Ring { pids, .. } => pids.clone(),
        }
    }

    /// True if it ended on its own.
    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.process {
            Process::Own(child) => child.has_ended(),
            Process::Ring { pids, .. } => {
                pids.iter().any(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Process::Ring { scripts, name, .. } = self {
            let stop = Command::new(&*scripts)
                .args(["--name", name, "stop", "--wipe"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .process_group(0)
                .status();
            if !stop.is_ok_and(|status| status.success()) {
                eprintln!(
                    "the ring '{name}' could not be stopped: {} --name {name} stop",
                    scripts.display()
                );
            }
        }
    }
}

/// Starts `server` and waits until it serves. `position` is its number in the scenario and
/// determines its ports; `behind` is the server that its `of` names.
pub(super) fn start(
    server: &Server,
    position: u16,
    behind: Option<&Running>,
    around: &Surroundings,
) -> Result<Running, NotStarted> {
    let port = around.port + position * PORTS_EACH;
    let own = SocketAddr::from(([127, 0, 0, 1], port));
    let near = |offset: u16| SocketAddr::from(([127, 0, 0, 1], port + offset));
    let nodes = behind.map(|behind| behind.addresses.as_slice()).unwrap_or_default();
    let shunt = match &around.base {
        Some(base) if server.base => base,
        None if server.base => {
            return Err(NotStarted::Missing("no --base FILE was given".to_owned()));
        }
        _ => &around.shunt,
    };
    let certificates = server.tls.then(|| Certificates::make(server)).transpose()?;
    let authority = behind.and_then(|behind| behind.authority.as_deref());
    let mut command;
    let (mut addresses, mut admin, mut statistics, mut leftovers) =
        (vec![own], None, None, Vec::new());
    match server.kind {
        ServerKind::Stub => {
            addresses =
                (1..=server.nodes).map(|last| ([127, 0, 0, last as u8], port).into()).collect();
            statistics = Some(near(2));
            command = stub_command(&around.bench, own, server.nodes.into());
            command.args(["--statistics", &near(2).to_string()]);
        }
        ServerKind::Proxy => {
            admin = Some(near(1));
            command = proxy_command(shunt, own, near(1), nodes);
        }
        ServerKind::Node => {
            let data = format!("shunt-bench-{}-{}", std::process::id(), server.name);
            let data = std::env::temp_dir().join(data);
            admin = Some(near(1));
            command = node_command(shunt, own, near(1), &data);
            leftovers.push(data);
        }
        ServerKind::Other => command = other(server, own, nodes, around),
        ServerKind::Cassandra => return start_ring(server, around),
        ServerKind::Haproxy => {
            let file;
            let both = certificates.as_ref().map(|files| files.both.as_path());
            (command, file) = haproxy_command(&server.name, own, nodes, (both, authority))?;
            leftovers.push(file);
        }
    }
    encrypt(&mut command, server.kind, certificates.as_ref(), authority);
    leftovers.extend(certificates.as_ref().map(|files| files.directory.clone()));
    command.args(&server.arguments).envs(&server.environment).stdout(Stdio::null());
    // A stub ends when this pipe closes, however this process ends.
    command.stdin(if server.kind == ServerKind::Stub { Stdio::piped() } else { Stdio::null() });
    // Keeps the terminal's Ctrl-C from the servers: they must end after the processes that measure
    // them, and proxies before their nodes.
    command.process_group(0);
    let cpu = server.cpu.map(|wanted| around.cpu(wanted));
    let mut process =
        OwnProcess::spawn(&mut command, cpu, leftovers).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                NotStarted::Missing(format!("{} is not installed", command.get_program().display()))
            }
            _ => NotStarted::Failed(error),
        })?;
    wait_until_served(&server.name, &addresses, admin, || process.has_ended())?;
    Ok(Running {
        name: server.name.clone(),
        addresses,
        admin,
        statistics,
        authority: certificates.map(|files| files.authority),
        process: Process::Own(process),
    })
}

/// Adds the arguments of TLS to the command of a stub or a proxy: its certificates, and the
/// authority of the nodes behind it.
fn encrypt(
    command: &mut Command,
    kind: ServerKind,
    certificates: Option<&Certificates>,
    authority: Option<&Path>,
) {
    let is_proxy = kind == ServerKind::Proxy;
    if let Some(files) = certificates.filter(|_| is_proxy || kind == ServerKind::Stub) {
        files.configure(command);
        command.args(if is_proxy { &["--tls", "required"] as &[&str] } else { &[] });
    }
    if let Some(authority) = authority.filter(|_| is_proxy) {
        command.args(["--node-tls", "on", "--node-tls-ca"]).arg(authority);
    }
}

fn node_command(shunt: &Path, listen: SocketAddr, admin: SocketAddr, data: &Path) -> Command {
    let mut command = Command::new(shunt);
    command.args(["node", "--listen", &listen.to_string(), "--admin", &admin.to_string()]);
    command.args(["--log", "error", "--data"]).arg(data);
    command
}

/// Builds the command of another proxy.
fn other(server: &Server, own: SocketAddr, nodes: &[SocketAddr], around: &Surroundings) -> Command {
    let hosts: Vec<String> = nodes.iter().map(|node| node.ip().to_string()).collect();
    let port = nodes.first().map_or(0, SocketAddr::port).to_string();
    let filled = |text: &String| {
        text.replace("{listen}", &own.to_string())
            .replace("{hosts}", &hosts.join(","))
            .replace("{port}", &port)
    };
    let mut words = server.command.iter().map(filled);
    let program = words.next().unwrap_or_default();
    let built = around.project.join("target/peers").join(&program);
    let mut command = Command::new(if built.is_file() { built } else { program.into() });
    command.args(words);
    command
}

/// Starts a ring with the project's script, which fetches, starts and stops Cassandra.
fn start_ring(server: &Server, around: &Surroundings) -> Result<Running, NotStarted> {
    let scripts = around.project.join("scripts/ring");
    if !scripts.is_file() {
        let project = around.project.display();
        return Err(NotStarted::Missing(format!(
            "{project} has no scripts/ring; run this in the project's directory"
        )));
    }
    let name = format!("bench-{}", server.name);
    let mut running = Running {
        name: server.name.clone(),
        addresses: Vec::new(),
        admin: None,
        statistics: None,
        authority: None,
        // From here on the ring is stopped on drop, even if only some nodes come up.
        process: Process::Ring { scripts: scripts.clone(), name: name.clone(), pids: Vec::new() },
    };
    let mut start = Command::new(&scripts);
    start.args(["--name", &name, "start", "--wipe", "--nodes", &server.nodes.to_string()]);
    if !around.is_smoke {
        start.arg("--optimise");
    }
    let started = start
        .args(&server.arguments)
        .envs(&server.environment)
        .stdin(Stdio::null())
        .process_group(0)
        .output()?;
    if !started.status.success() {
        let said = String::from_utf8_lossy(&started.stderr);
        return Err(NotStarted::Missing(
            said.lines().last().unwrap_or("scripts/ring start failed").to_owned(),
        ));
    }
    let status =
        Command::new(&scripts).args(["--name", &name, "status"]).stdin(Stdio::null()).output()?;
    let (addresses, found) = ring_nodes(&String::from_utf8_lossy(&status.stdout));
    if addresses.is_empty() {
        return Err(io::Error::other("scripts/ring status names no node that answers").into());
    }
    running.addresses = addresses;
    if let Process::Ring { pids, .. } = &mut running.process {
        *pids = found;
    }
    Ok(running)
}

/// Reads addresses and process ids from the lines `NAME ADDRESS pid PID answers`.
fn ring_nodes(status: &str) -> (Vec<SocketAddr>, Vec<u32>) {
    let nodes = status.lines().filter_map(|line| -> Option<(SocketAddr, u32)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, address, "pid", pid, "answers"] => Some((address.parse().ok()?, pid.parse().ok()?)),
            _ => None,
        }
    });
    nodes.unzip()
}

#[cfg(test)]
mod tests {
    use super::ring_nodes;

    #[test]
    fn nodes_of_a_status() {
        let (addresses, pids) = ring_nodes(
            "bench-ring 127.0.0.1:19042 pid 77 answers\nbench-ring 127.0.0.2:19042 pid - does not answer\n\
             bench-ring 127.0.0.3:19042 pid 79 answers\n",
        );
        assert_eq!(
            addresses,
            ["127.0.0.1:19042".parse().expect("valid"), "127.0.0.3:19042".parse().expect("valid")]
        );
        assert_eq!(pids, [77, 79]);
    }
}
