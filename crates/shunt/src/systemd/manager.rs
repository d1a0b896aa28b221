//! Messages to the service manager (sd_notify): started, reloading, stopping, alive.
//!
//! `WatchdogSec=` in the unit asks for a heartbeat; systemd kills and restarts a service that sends
//! none. Heartbeats must never do the following. The tests below and in `supervise` check each
//! point:
//! - *Kill a proxy that serves.* The main thread sends heartbeats at least four times as often as
//!   asked for, or at each look where that is less often, and waits for nothing in between.
//! - *Kill a proxy that drains.* Its loops end one by one, and do not count as hanging.
//! - *Keep a dead proxy alive.* No heartbeat is sent while an event loop hangs.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::debug;

/// Heartbeats in the time that the unit allows between two of them.
const BEATS: u32 = 4;

/// Sends messages.
type Send = Box<dyn FnMut(&[NotifyState<'_>])>;

/// The service manager of the process, if there is one.
pub(crate) struct Manager {
    send: Send,
    heart: Option<Heart>,
}

/// Times of heartbeats.
struct Heart {
    every: Duration,
    last: Option<Instant>,
}

impl Manager {
    /// Finds the manager of this process by its environment.
    pub(crate) fn of_process() -> Self {
        let send = |states: &[NotifyState<'_>]| {
            // Without a manager this does nothing. A manager that gets no message acts on its own.
            if let Err(error) = sd_notify::notify(states) {
                debug!(%error, "cannot notify the service manager");
            }
        };
        Self::new(Box::new(send), sd_notify::watchdog_enabled())
    }

    /// Creates a manager that expects heartbeats no further apart than `watchdog`.
    pub(crate) fn new(send: Send, watchdog: Option<Duration>) -> Self {
        let heart = watchdog.map(|limit| Heart { every: limit / BEATS, last: None });
        Self { send, heart }
    }

    /// The process has bound its addresses and serves.
    pub(crate) fn started(&mut self) {
        (self.send)(&[NotifyState::Ready]);
    }

    /// The process reads its configuration again.
    pub(crate) fn reloading(&mut self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            (self.send)(&[NotifyState::Reloading, now]);
        }
    }

    /// The process is ending; its next step comes within `limit`, whatever the unit's
    /// `TimeoutStopSec=` is.
    pub(crate) fn stopping(&mut self, limit: Duration) {
        // A limit beyond an hour would not fit the message's type.
        let limit = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        (self.send)(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(limit)]);
    }

    /// True if a heartbeat is due.
    pub(crate) fn expects_heartbeat(&self, now: Instant) -> bool {
        let is_due = |last: Instant, every| now.saturating_duration_since(last) >= every;
        self.heart
            .as_ref()
            .is_some_and(|Heart { every, last }| last.is_none_or(|last| is_due(last, *every)))
    }

    /// Sends a heartbeat.
    pub(crate) fn beat(&mut self, now: Instant) {
        if let Some(heart) = &mut self.heart {
            heart.last = Some(now);
            (self.send)(&[NotifyState::Watchdog]);
        }
    }
}
