//! Processes that comparisons start: how they are called, when one serves, and how it
//! ends.

use std::{
    fmt::Write as _,
    fs, io,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use crate::measure::{cpu, http_get};

/// A process that does not serve within this time is given up.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A process of this program's own: killed when this is dropped, and the files that go with it
/// deleted.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    child: Child,
    leftovers: Vec<PathBuf>,
}

impl OwnProcess {
    /// Starts it, on CPU `cpu` if one is given. `leftovers` are files and directories.
    ///
    /// # Errors
    /// `NotFound` when the program is not installed. The leftovers are deleted then too.
    pub(crate) fn spawn(
        command: &mut Command,
        cpu: Option<usize>,
        leftovers: Vec<PathBuf>,
    ) -> io::Result<Self> {
        let spawned = match cpu {
            Some(cpu) => cpu::with_pinned(cpu, || command.spawn()),
            None => command.spawn(),
        };
        match spawned {
            Ok(child) => Ok(Self { child, leftovers }),
            Err(error) => {
                delete(&leftovers);
                Err(error)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True if it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // What has ended already needs no ending; there is nobody to tell either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
        delete(&self.leftovers);
    }
}

fn delete(leftovers: &[PathBuf]) {
    for path in leftovers {
        // They may never have come to be.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

/// `nodes` stub nodes, the first of them at `own`. They end with the pipe that is to be their
/// standard input, and so with this process, however it ends.
pub(crate) fn stub_command(shunt: &Path, own: SocketAddr, nodes: usize) -> Command {
    let mut command = Command::new(shunt);
    command.args([
        "bench",
        "stub",
        "--until-input-closes",
        "--listen",
        &own.to_string(),
        "--nodes",
        &nodes.to_string(),
    ]);
    command
}

/// A Shunt that says only what went wrong.
pub(crate) fn proxy_command(
    shunt: &Path,
    own: SocketAddr,
    admin: SocketAddr,
    ring: &[SocketAddr],
) -> Command {
    let contact_points: Vec<String> = ring.iter().map(SocketAddr::to_string).collect();
    let mut command = Command::new(shunt);
    command.args([
        "proxy",
        "--listen",
        &own.to_string(),
        "--admin",
        &admin.to_string(),
        "--log",
        "error",
    ]);
    command.args(["--contact-points", &contact_points.join(",")]);
    command
}

/// HAProxy, and the file with its configuration, which is named after `name` and is to be deleted.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn haproxy_command(
    program: &Path,
    name: &str,
    own: SocketAddr,
    ring: &[SocketAddr],
) -> io::Result<(Command, PathBuf)> {
    let file = std::env::temp_dir().join(format!("shunt-bench-{}-{name}.cfg", std::process::id()));
    fs::write(&file, haproxy_configuration(own, ring))?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(&file);
    Ok((command, file))
}

/// HAProxy in TCP mode, one thread, no logging: the least a general proxy can do. It works out its
/// own limit of connections from the files it may open.
fn haproxy_configuration(own: SocketAddr, ring: &[SocketAddr]) -> String {
    let mut text = format!(
        "global\n  nbthread 1\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         listen cql\n  bind {own} backlog 4096\n  balance roundrobin\n"
    );
    for (number, node) in ring.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  server node{number} {node}");
    }
    text
}

/// Waits until a process serves: its admin address says ready, or without one every address takes
/// connections.
///
/// # Errors
/// It has ended, or does not serve in time.
pub(crate) fn wait_until_served(
    name: &str,
    addresses: &[SocketAddr],
    admin: Option<SocketAddr>,
    mut has_ended: impl FnMut() -> bool,
) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < START_TIMEOUT {
        if has_ended() {
            return Err(io::Error::other(format!("{name} ended at once; what it said is above")));
        }
        let serves = match admin {
            Some(admin) => http_get(admin, "/readyz").is_ok(),
            None => addresses.iter().all(|address| TcpStream::connect(address).is_ok()),
        };
        if serves {
            return Ok(());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the command's own thread, which serves nobody, waits for a process"
        )]
        thread::sleep(LOOK_AGAIN);
    }
    let seconds = START_TIMEOUT.as_secs();
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{name} does not serve after {seconds} s")))
}

#[cfg(test)]
mod tests {
    use super::haproxy_configuration;

    #[test]
    fn haproxy_gets_every_node() {
        let ring: Vec<_> = (1..=3).map(|last| ([127, 0, 0, last], 20_000).into()).collect();
        let text = haproxy_configuration(([127, 0, 0, 1], 20_001).into(), &ring);
        assert!(
            text.contains("mode tcp") && text.contains("server node2 127.0.0.3:20000\n"),
            "{text}"
        );
    }
}
