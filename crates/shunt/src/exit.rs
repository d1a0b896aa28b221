//! Exit codes. They are part of the interface: scripts and supervisors rely on them.

use std::fmt;
use std::process::ExitCode;

/// The table for `shunt --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done; for proxy, node and up: stopped by a signal, after draining
  1    a bench command failed; for fleet drain: it has not left in time; for doctor: warnings
  2    wrong command line or configuration; for bench: wrong answers, or not run to its end; for fleet, lock and locks: refused; for doctor: errors
  3    an address cannot be listened on
  4    no contact point answered within --require-ring-ms; for locks: not every proxy answered; for fleet and lock: nothing did
  5    the data directory cannot be used; for node check: it is damaged
  6    the ring has no such local datacentre, or the contact points leave a choice of datacentre or ring
  70   internal error, such as a thread that died, also while draining
  75   lock: somebody else had it to the end of the wait; -E gives another code
  76   lock: it was lost, and the command was stopped
  127  lock: the command could not be started; all other codes of lock are the command's
  130  stopped by another signal, a second or more after the first, without waiting for the drain";

/// A lock was held by somebody else: EX_TEMPFAIL of sysexits.h, as flock(1) has it by `-E`.
pub(crate) const LOCK_HELD: u8 = 75;
/// A lock was lost while its command ran.
pub(crate) const LOCK_LOST: u8 = 76;

/// Why the process ends, other than a bench command.
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

/// Why something could not be started.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn internal(what: &str, error: impl fmt::Display) -> Self {
        Self { exit: Exit::Internal, message: format!("{what}: {error}") }
    }

    /// Says so in the log, each line as an event of its own.
    pub(crate) fn report(self) -> Exit {
        for line in self.message.lines() {
            tracing::error!("{}", line.strip_prefix("error: ").unwrap_or(line));
        }
        self.exit
    }
}
