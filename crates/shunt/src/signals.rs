//! The signals that the program takes.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To read the configuration again.
    Reload,
    /// To end; the name of the signal.
    Stop(&'static str),
}

/// The signals that are caught.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Needs to be called inside the runtime. Signals are caught from the moment this returns.
    pub(crate) fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            // A reload asked for before the end is still done, and told in the log.
            biased;
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
        }
    }
}
