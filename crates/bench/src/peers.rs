//! Processes that comparisons start: their commands, their readiness, and their end.

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

/// Time after which a process that does not serve is given up.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A process that this program started. Dropping it kills the process and deletes its files.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    child: Child,
    leftovers: Vec<PathBuf>,
}

impl OwnProcess {
    /// Starts it, on CPU `cpu` if given. `leftovers` are files and directories to delete.
    ///
    /// # Errors
    /// `NotFound` if the program is not installed; the leftovers are deleted in that case as well.
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

    /// True if it ended on its own.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // Ignores an error: the process may have ended already, and no caller is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
        delete(&self.leftovers);
    }
}

fn delete(leftovers: &[PathBuf]) {
    for path in leftovers {
        // The files may not exist.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

/// Builds the command of `nodes` stub nodes, the first at `own`. They end when their standard input
/// closes, and so with this process, however it ends.
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

/// Builds the command of a proxy that logs only errors.
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

/// Files of TLS for HAProxy: certificate and key for clients, in one file, and certificates of the
/// authority with which it verifies nodes. Without one of them that side has clear text.
type HaproxyTls<'a> = (Option<&'a Path>, Option<&'a Path>);

/// Builds the command of HAProxy, and its configuration file, which is named after `name` and has
/// to be deleted.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn haproxy_command(
    name: &str,
    own: SocketAddr,
    ring: &[SocketAddr],
    tls: HaproxyTls<'_>,
) -> io::Result<(Command, PathBuf)> {
    let file = std::env::temp_dir().join(format!("shunt-bench-{}-{name}.cfg", std::process::id()));
    fs::write(&file, haproxy_configuration(own, ring, tls))?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&file);
    Ok((command, file))
}

/// Configuration of HAProxy in TCP mode with one thread and without a log: the least work that a
/// general proxy can do. HAProxy derives its connection limit from the limit of open files.
fn haproxy_configuration(
    own: SocketAddr,
    ring: &[SocketAddr],
    (certificate, authority): HaproxyTls<'_>,
) -> String {
    let verified = authority.map_or_else(String::new, |file| {
        format!(" ssl verify required ca-file {}", file.display())
    });
    let tls = certificate.map_or_else(String::new, |file| format!(" ssl crt {}", file.display()));
    let mut text = format!(
        "global\n  nbthread 1\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         listen cql\n  bind {own} backlog 4096{tls}\n  balance roundrobin\n"
    );
    for (number, node) in ring.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  server node{number} {node}{verified}");
    }
    text
}

/// Waits until a process serves: until its admin address reports ready, or, without one, until each
/// address accepts connections.
///
/// # Errors
/// The process has ended, or does not serve in time.
pub(crate) fn wait_until_served(
    name: &str,
    addresses: &[SocketAddr],
    admin: Option<SocketAddr>,
    mut has_ended: impl FnMut() -> bool,
) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < START_TIMEOUT {
        if has_ended() {
            return Err(io::Error::other(format!("{name} ended at once; its output is above")));
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
    use std::path::Path;

    use super::haproxy_configuration;

    #[test]
    fn haproxy_gets_every_node() {
        let ring: Vec<_> = (1..=3).map(|last| ([127, 0, 0, last], 20_000).into()).collect();
        let text = haproxy_configuration(([127, 0, 0, 1], 20_001).into(), &ring, (None, None));
        assert!(
            text.contains("mode tcp") && text.contains("server node2 127.0.0.3:20000\n"),
            "{text}"
        );
    }

    #[test]
    fn haproxy_verifies_nodes_with_tls() {
        let (both, authority) = (Path::new("both.pem"), Path::new("ca.pem"));
        let own = ([127, 0, 0, 1], 20_001).into();
        let ring = [([127, 0, 0, 1], 20_000).into()];
        let text = haproxy_configuration(own, &ring, (Some(both), Some(authority)));
        assert!(text.contains("backlog 4096 ssl crt both.pem\n"), "{text}");
        assert!(text.contains("127.0.0.1:20000 ssl verify required ca-file ca.pem\n"), "{text}");
    }
}
