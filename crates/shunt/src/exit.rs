//! Exit codes. They are part of the interface: scripts and supervisors rely on them.

use std::fmt;
use std::process::ExitCode;

/// A code, the commands that end with it, and its meaning there.
type Meaning = (u8, &'static [&'static str], &'static str);

/// Commands that run until a signal ends them.
const SERVERS: &[&str] = &["up", "proxy", "node", "dispatch", "agent", "multiget"];

/// Commands that ask a running proxy, in the order in which `shunt --help` lists them.
pub(crate) const CONSOLE: &[&str] = &[
    "ready",
    "top",
    "clients",
    "connections",
    "failed-logins",
    "nodes",
    "slow",
    "queries",
    "hot",
    "rules",
    "tenants",
    "alerts",
    "config",
    "log-level",
    "kick",
    "drain",
    "undrain",
    "reload",
];

/// The meanings of the codes. [`help`] shows each command its own.
const MEANINGS: &[Meaning] = &[
    (0, SERVERS, "stopped by a signal, after draining"),
    (0, &["check"], "the configuration is valid"),
    (0, &["fleet", "locks", "switch", "generate", "bench"], "done"),
    (0, CONSOLE, "done; ready: the proxy takes clients"),
    (0, &["doctor"], "no finding"),
    (1, &["fleet"], "drain: the member has not left in time, or died"),
    (1, &["ready"], "the proxy is not ready, and says why"),
    (1, &["reload"], "the new configuration or a file has faults; the previous one stays in use"),
    (1, &["kick"], "some cores did not answer in time, and may have clients left"),
    (1, &["doctor"], "warnings"),
    (1, &["bench"], "a measurement failed"),
    (1, &["generate"], "a file could not be written"),
    (2, SERVERS, "wrong command line or configuration"),
    (2, &["check", "switch", "generate"], "wrong command line or configuration"),
    (2, &["fleet", "lock", "locks"], "wrong command line, or the request was refused"),
    (2, CONSOLE, "wrong command line, or the proxy refused the request"),
    (2, &["doctor"], "errors, or no node answered"),
    (2, &["bench"], "wrong command line, wrong answers, or an incomplete run"),
    (3, SERVERS, "cannot listen on an address"),
    (4, &["proxy"], "no contact point answered within --require-ring-ms"),
    (4, &["fleet", "lock"], "no contact point answered"),
    (4, CONSOLE, "the proxy did not answer at --admin"),
    (4, &["locks"], "some proxies did not answer"),
    (5, &["up", "node"], "the data directory cannot be used; node check: the data is damaged"),
    (6, &["up", "proxy"], "no such local datacentre, or the contact points span several rings"),
    (70, SERVERS, "internal error, such as a thread that died"),
    (75, &["lock"], "still held by another owner when --wait expired; -E sets another code"),
    (76, &["lock"], "the lock was lost, and the command was stopped"),
    (127, &["lock"], "the command could not be started; other codes are the command's own"),
    (130, &["top"], "ended by Ctrl-C or a signal"),
    (130, SERVERS, "stopped by a second signal, without waiting for the drain"),
];

/// Returns the exit codes of a command, for the end of its help.
pub(crate) fn help(command: &str) -> String {
    let own = MEANINGS.iter().filter(|(_, commands, _)| commands.contains(&command));
    let lines = own.map(|(code, _, meaning)| format!("  {code:<4} {meaning}\n"));
    format!("Exit codes:\n{}", lines.collect::<String>())
}

/// Another owner held the lock: EX_TEMPFAIL of sysexits.h, which flock(1) suggests for `-E`.
pub(crate) const LOCK_HELD: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOCK_LOST: u8 = 76;

/// The reason why the process ends, for all but bench commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Configuration,
    CannotListen,
    NoRing,
    #[cfg(feature = "node")]
    Data,
    Unfit,
    Internal,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Configuration => 2,
            Exit::CannotListen => 3,
            Exit::NoRing => 4,
            #[cfg(feature = "node")]
            Exit::Data => 5,
            Exit::Unfit => 6,
            Exit::Internal => 70,
            Exit::Interrupted => 130,
        })
    }
}

/// The reason why something could not start.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn internal(what: &str, error: impl fmt::Display) -> Self {
        Self { exit: Exit::Internal, message: format!("{what}: {error}") }
    }

    /// Logs the failure, each line as a separate event.
    pub(crate) fn report(self) -> Exit {
        for line in self.message.lines() {
            tracing::error!("{}", line.strip_prefix("error: ").unwrap_or(line));
        }
        self.exit
    }
}
