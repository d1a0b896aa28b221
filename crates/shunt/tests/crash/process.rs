//! Starts the binary on a data directory, and ends it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shunt_testing::Answer;
use shunt_testing::blocking::Client;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code;

/// Memtables small enough that flushes and compactions are always under way.
const SMALL: [&str; 4] = ["--memtable-bytes", "131072", "--block-cache-bytes", "4194304"];

/// The commands that run nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `shunt node` with two event loops.
    Node,
    /// `shunt up`: three nodes and the proxy, which sends them aggregated frames.
    Up,
}

impl Kind {
    pub(crate) fn nodes(self) -> usize {
        match self {
            Kind::Node => 1,
            Kind::Up => 3,
        }
    }

    /// Returns the command for a data directory, not started yet.
    pub(crate) fn command(self, data: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        match self {
            // Few clients: with a low limit of open files, more clients would cause a warning, and
            // a start must log nothing.
            Kind::Node => {
                let command = command.args(["node", "--cores", "2", "--listen", "127.0.0.1:0"]);
                command.args(["--log", "warn", "--clients-max", "1000"])
            }
            Kind::Up => command.args(["up", "--listen", "127.0.0.1:0", "--node-port", "0"]),
        };
        command.args(["--admin", "off", "--reserve-bytes", "0", "--data"]).arg(data).args(SMALL);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Shortest timeout of a process.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Messages of a proxy after a pause of the machine.
const OF_TIME: [&str; 6] = [
    "the lease has run out before it could be renewed",
    "a silent member was declared dead",
    "no node could be reached for the control connection",
    "control connection lost",
    "node is down",
    "giving up a link to a node",
];

/// A process; killed with the test at the latest.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
    begun: Instant,
    pub(crate) clients: SocketAddr,
}

impl Running {
    /// Starts nodes with a log file, and waits until they accept clients.
    pub(crate) fn start(kind: Kind, data: &Path, log: &Path) -> Self {
        Self::try_start(kind.command(data), log).unwrap_or_else(|| {
            panic!(
                "{} does not start: {}",
                data.display(),
                std::fs::read_to_string(log).unwrap_or_default()
            )
        })
    }

    /// Returns `None` if the process ends before it accepts clients.
    pub(crate) fn try_start(mut command: Command, log: &Path) -> Option<Self> {
        command.stderr(std::fs::File::create(log).expect("log"));
        let begun = Instant::now();
        let mut child = command.spawn().expect("start");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        for line in lines.map_while(Result::ok) {
            if line.contains("clients connect to") || line.starts_with("listening for CQL") {
                let last = line.rsplit(' ').next().unwrap_or_default();
                return Some(Self {
                    child,
                    log: log.to_owned(),
                    begun,
                    clients: last.parse().expect("address"),
                });
            }
        }
        child.wait().expect("wait");
        None
    }

    /// A new client in protocol v4.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.clients, 4)
    }

    /// Checks that a killed node starts again without any message.
    pub(crate) fn started_quietly(&self) {
        let said = std::fs::read_to_string(&self.log).expect("log");
        let may_be_late = self.begun.elapsed() >= LIMIT;
        let is_of_time = |line: &str| may_be_late && OF_TIME.iter().any(|what| line.contains(what));
        assert!(said.lines().all(is_of_time), "{said}");
    }

    /// Kills with SIGKILL; the process must have run until then.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill");
        let status = self.child.wait().expect("wait");
        assert_eq!(status.signal(), Some(9), "it ended by itself: {status}");
    }

    /// Sends SIGTERM and returns the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
        self.child.wait().expect("wait").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            println!("the node had ended: {:?}; its log:\n{log}", self.child.try_wait());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True of an answer that only says that the machine stood still: the node or proxy gave up the
/// request that long after it was sent. The statement may still have been executed.
pub(crate) fn is_given_up(answer: &Answer, asked: Instant) -> bool {
    let of_time = [error_code::OVERLOADED, error_code::WRITE_TIMEOUT, error_code::READ_TIMEOUT];
    asked.elapsed() >= LIMIT
        && answer.opcode() == opcode::ERROR
        && of_time.contains(&answer.error().0)
}

/// Runs `shunt node check`; `None` if the data is sound, otherwise its output.
pub(crate) fn check(data: &Path) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output = command.args(["node", "check"]).arg(data).output().expect("start");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code() == Some(0), said.is_empty(), "{said}");
    (!said.is_empty()).then_some(said)
}
