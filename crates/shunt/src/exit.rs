//! Exit codes. They are part of the interface: scripts and supervisors rely on them.

use std::process::ExitCode;

/// The table for `shunt --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done; for the proxy: stopped by a signal, after draining
  1    a bench command failed
  2    wrong command line or configuration; for bench: it ran, but answers were wrong
  3    an address cannot be listened on
  4    no contact point answered within --require-ring-ms
  70   internal error, such as a core that died
  130  stopped by a second signal, without waiting for the drain";

/// Why the process ends, other than a bench command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Configuration,
    CannotListen,
    NoRing,
    Internal,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Configuration => 2,
            Exit::CannotListen => 3,
            Exit::NoRing => 4,
            Exit::Internal => 70,
            Exit::Interrupted => 130,
        })
    }
}
