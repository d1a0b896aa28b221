//! The main thread of each command that runs until told to end: `shunt proxy`, `shunt node`, `shunt
//! up`.
//!
//! ```text
//! signals thread ---- signals ----> supervisor <---- look! ---- threads of the parts
//!                                       |  reload, drain, cut off
//!                                       v
//!                                     parts
//! ```
//! A role is a list of [parts](Part), in the order in which they end. A part that is a client of
//! another ends before it: in `shunt up` the proxy ends before the nodes. An order to end drains
//! one part after the other. Each part has a limit for its drain, after which it cuts off its
//! waiting clients, and a second limit to close, after which the supervisor gives it up.
//!
//! Signals that arrive within [`ONE_ORDER`] of the first are one order with it: an orchestrator and
//! a terminal may both send one, or the process group gets one and the process another. A later
//! signal ends the process at once.
//!
//! The supervisor must never do the following; `tests.rs` tests each:
//! - *Lose an acknowledged write.* A part is told to end only after those before it have ended or
//!   were given up. The process ends only after each of its parts was told to end and had its time,
//!   whatever happened to the others. Only a later signal ends it sooner, like a crash; each
//!   keyspace then survives as its durability promises.
//! - *End with 0 when a thread has died*, while serving or draining, or when a part was given up.
//!   Most threads die without a message, so each part looks for dead threads every [`LOOK_EVERY`].
//!   `docs/internals/threads.md` lists the threads, and how the death of each is noticed.
//! - *Hang.* After an order to end, the limits of the parts add up to the longest time, and a later
//!   signal takes effect at any moment of it. So this thread waits for no client, core or store,
//!   not even by dropping the parts. Two operations take a moment: joining the proxy's accepting
//!   thread, which checks for the order at every turn, and reading files: the configuration on
//!   SIGHUP, and certificates once a minute, too.
//! - *Tell the service manager that all is well* while an event loop stands still
//!   ([`Manager`] has the rest).

mod signals;
pub(crate) mod threads;

#[cfg(test)]
mod tests;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::exit::{Exit, Failure};
use crate::systemd::manager::Manager;

/// Signals within this time after the first are one order with it.
const ONE_ORDER: Duration = Duration::from_secs(1);
/// Longest time between two looks at the parts: a thread may have died without a message.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time that the service manager is to wait beyond a limit of ours.
const GRACE: Duration = Duration::from_secs(5);
/// Interval at which a part retries an operation.
const RETRY: Duration = Duration::from_millis(20);

/// A part of a running process, as the supervisor sees it. No method waits for clients, cores or
/// stores.
pub(crate) trait Part {
    /// Handles the messages of its threads, looks for threads that died without a message, and
    /// retries delayed operations. For the first dead thread, or another reason to end, it logs
    /// that and returns the exit status; further calls report the rest.
    fn look(&mut self) -> Option<Exit>;

    /// True if a thread has been busy with one thing for so long that the part does not serve.
    fn is_stuck(&self, _now: Instant) -> bool {
        false
    }

    /// True if an operation waits for a retry.
    fn has_retry(&self) -> bool {
        false
    }

    /// Reloads the configuration; called on SIGHUP while the part serves.
    fn reload(&mut self);

    /// Takes no new work and finishes the work under way. `signal` names the signal that asked for
    /// it; `None` after the death of a thread. Returns the drain's time limit.
    fn drain(&mut self, signal: Option<&'static str>) -> Duration;

    /// Cuts off all waiting clients, when the drain's time is over. Returns the time limit for
    /// closing.
    fn cut_off(&mut self) -> Duration;

    /// True if nothing of the part is left to wait for.
    fn has_ended(&self) -> bool;

    /// Logs what did not end, when the time for closing is over as well.
    fn give_up(&self);
}

/// The meaning of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// Reload the configuration.
    Reload,
    /// End: a terminal was closed.
    #[cfg_attr(not(feature = "node"), allow(dead_code, reason = "only `shunt up` ends at it"))]
    End,
}

/// An event for the supervisor.
#[derive(Debug)]
enum Event {
    /// A signal to end, by name, and when it arrived.
    Stop { signal: &'static str, at: Instant },
    /// SIGHUP, and when it arrived.
    Hangup { at: Instant },
    /// A thread of a part has sent the part a message.
    Look,
    /// The thread that waits for signals has ended.
    Deaf,
}

/// The channel of events. Created first, because parts need it to start.
pub(crate) struct Events {
    /// Kept so that the channel always has a sender.
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }

    /// Returns the sender for the threads of a part, and the receiver for the part.
    pub(crate) fn teller<T>(&self) -> (Teller<T>, Receiver<T>) {
        let (notices, told) = channel();
        (Teller { notices, events: self.sender.clone() }, told)
    }

    /// Catches signals from the moment this returns; earlier signals have their default effect.
    ///
    /// # Errors
    /// The system refuses a thread or a handler.
    pub(crate) fn catch_signals(&self) -> Result<(), Failure> {
        signals::catch(self.sender.clone())
            .map_err(|error| Failure::internal("signals cannot be caught", error))
    }
}

/// Sends messages of a part's threads to the part, and wakes the supervisor.
pub(crate) struct Teller<T> {
    notices: Sender<T>,
    events: Sender<Event>,
}

impl<T> Teller<T> {
    pub(crate) fn tell(&self, notice: T) {
        // No receiver is left when the process is about to end.
        let _ = self.notices.send(notice);
        let _ = self.events.send(Event::Look);
    }
}

impl<T> Clone for Teller<T> {
    fn clone(&self) -> Self {
        Self { notices: self.notices.clone(), events: self.events.clone() }
    }
}

/// Stages of ending.
enum Phase {
    Serving,
    /// Queries in flight are being finished.
    Draining {
        until: Instant,
    },
    /// The drain took too long; waiting clients are being cut off.
    Closing {
        until: Instant,
    },
}

/// Runs a process from its start to its end.
pub(crate) struct Supervisor {
    parts: Vec<Box<dyn Part>>,
    hangup: Hangup,
    phase: Phase,
    /// Index of the part that is ending. Those before it have ended.
    ending: usize,
    /// Arrival of the first signal to end.
    ordered: Option<Instant>,
    /// The exit status.
    exit: Exit,
    manager: Manager,
    /// The log has said that a part is stuck.
    is_stuck: bool,
}

impl Supervisor {
    /// Creates a supervisor of these parts, given in the order in which they end.
    pub(crate) fn new(parts: Vec<Box<dyn Part>>, hangup: Hangup) -> Self {
        Self::with_manager(parts, hangup, Manager::of_process())
    }

    fn with_manager(parts: Vec<Box<dyn Part>>, hangup: Hangup, manager: Manager) -> Self {
        Self {
            parts,
            hangup,
            phase: Phase::Serving,
            ending: 0,
            ordered: None,
            exit: Exit::Done,
            manager,
            is_stuck: false,
        }
    }

    /// Runs until the process should end; the caller must then end it at once.
    pub(crate) fn run(mut self, events: &Events) -> Exit {
        self.manager.started();
        let exit = loop {
            let event = events.receiver.recv_timeout(self.due(Instant::now())).ok();
            if let Some(exit) = self.step(event, Instant::now()) {
                break exit;
            }
        };
        // Dropping a part could wait for its threads.
        std::mem::forget(self);
        exit
    }

    /// Returns the time until the next step without an event.
    fn due(&self, now: Instant) -> Duration {
        let look = if self.parts.iter().any(|part| part.has_retry()) { RETRY } else { LOOK_EVERY };
        match self.phase {
            Phase::Serving => look,
            Phase::Draining { until } | Phase::Closing { until } => {
                look.min(until.saturating_duration_since(now))
            }
        }
    }

    /// Handles an event or the passage of time; returns the status when the process should end.
    fn step(&mut self, event: Option<Event>, now: Instant) -> Option<Exit> {
        // Look first: a thread that ended before the order has ended without being told to.
        self.look(now);
        let order = match event {
            Some(Event::Stop { signal, at }) => Some((signal, at)),
            Some(Event::Hangup { at }) if self.hangup == Hangup::End => Some(("SIGHUP", at)),
            Some(Event::Hangup { .. }) => {
                self.reload();
                None
            }
            Some(Event::Deaf) => {
                error!("signals are not heard any more, so the process ends");
                self.fail(Exit::Internal, now);
                None
            }
            Some(Event::Look) | None => None,
        };
        if let Some((signal, at)) = order
            && !self.has_time(signal, at, now)
        {
            return Some(Exit::Interrupted);
        }
        self.send_heartbeat(now);
        self.advance(now)
    }

    /// Tells the service manager that the process is alive, unless a part is stuck. A part that
    /// drains stops its loops, so that none of them counts as stuck then.
    fn send_heartbeat(&mut self, now: Instant) {
        if !self.manager.expects_heartbeat(now) {
            return;
        }
        let serves = matches!(self.phase, Phase::Serving);
        let is_stuck = serves && self.parts.iter().any(|part| part.is_stuck(now));
        if is_stuck && !self.is_stuck {
            error!("an event loop hangs, so the service manager gets no heartbeat");
        }
        self.is_stuck = is_stuck;
        if !is_stuck {
            self.manager.beat(now);
        }
    }

    fn look(&mut self, now: Instant) {
        for index in 0..self.parts.len() {
            while let Some(exit) = self.parts[index].look() {
                self.fail(exit, now);
            }
        }
    }

    /// Handles a signal to end; false if the process must end at once.
    fn has_time(&mut self, signal: &'static str, at: Instant, now: Instant) -> bool {
        let Some(first) = self.ordered else {
            self.ordered = Some(at);
            self.end(Some(signal), now);
            return true;
        };
        // The signal thread noted both times on arrival, so a busy supervisor does not distort
        // them.
        let is_later = at.saturating_duration_since(first) >= ONE_ORDER;
        match is_later {
            true => warn!(signal, "second signal, ending without waiting any longer"),
            false => info!(signal, "one order with the signal before it"),
        }
        !is_later
    }

    fn reload(&mut self) {
        if matches!(self.phase, Phase::Serving) {
            self.manager.reloading();
            self.parts.iter_mut().for_each(|part| part.reload());
            self.manager.started();
        }
    }

    /// Sets the exit status instead of 0. The death of a thread takes precedence over every other
    /// status.
    fn fail(&mut self, exit: Exit, now: Instant) {
        if self.exit == Exit::Done || exit == Exit::Internal {
            self.exit = exit;
        }
        self.end(None, now);
    }

    /// Begins to end, unless already begun.
    fn end(&mut self, signal: Option<&'static str>, now: Instant) {
        if matches!(self.phase, Phase::Serving) {
            self.drain(signal, now);
        }
    }

    /// Drains the next part, if one is left.
    fn drain(&mut self, signal: Option<&'static str>, now: Instant) {
        if let Some(part) = self.parts.get_mut(self.ending) {
            let limit = part.drain(signal);
            self.manager.stopping(limit + GRACE);
            self.phase = Phase::Draining { until: now + limit };
        }
    }

    /// Continues the end as far as is possible now.
    fn advance(&mut self, now: Instant) -> Option<Exit> {
        loop {
            // A part may have failed at the last order.
            self.look(now);
            let (until, is_closing) = match self.phase {
                Phase::Serving => return None,
                Phase::Draining { until } => (until, false),
                Phase::Closing { until } => (until, true),
            };
            let Some(part) = self.parts.get_mut(self.ending) else {
                info!("stopped");
                return Some(self.exit);
            };
            if !part.has_ended() {
                if now < until {
                    return None;
                }
                if !is_closing {
                    let limit = part.cut_off();
                    self.manager.stopping(limit + GRACE);
                    self.phase = Phase::Closing { until: now + limit };
                    continue;
                }
                part.give_up();
                self.exit = Exit::Internal;
            }
            self.ending += 1;
            self.drain(None, now);
        }
    }
}
