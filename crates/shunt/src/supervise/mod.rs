//! The main thread of whatever runs until it is told to end: `shunt proxy`, `shunt node`, `shunt
//! up`.
//!
//! ```text
//! signals thread ---- signals ----> supervisor <---- look! ---- threads of the parts
//!                                       |  reload, drain, cut off
//!                                       v
//!                                     parts
//! ```
//! A role is the list of its [parts](Part), in the order in which they end: who is served by
//! another ends before it, so that of `shunt up` is the proxy, then the nodes. An order to end
//! drains one part after the other. Each has a limit for that, after which it cuts off who still
//! waits, and a second one to close, after which it is given up.
//!
//! Signals that arrive within [`ONE_ORDER`] of the first are one order with it: an orchestrator and
//! a terminal both send one, or the group of processes gets one and the process another. A later
//! one ends the process at once.
//!
//! What the supervisor may never do; `tests.rs` has a test of each:
//! - *Lose an acknowledged write.* A part is told to end only when those before it have ended or
//!   were given up, and no process ends before each of its parts was told to and had its time,
//!   whatever became of the others. Only a later signal ends it sooner, like a crash, from which
//!   each keyspace is as safe as its durability says.
//! - *End with 0 when a thread has died*, be it while serving or while draining, or when a part was
//!   given up. Most threads do not tell that they die, so each part is asked for the dead every
//!   [`LOOK_EVERY`]. `docs/internals/threads.md` lists the threads, and how the death of each is
//!   noticed.
//! - *Hang.* Once it is told to end, the limits of the parts add up to the longest that it takes,
//!   and a later signal is taken at any moment of that. So this thread waits for no client, core or
//!   store, not even by dropping the parts. Two things take it a moment: the proxy's accepting
//!   thread is joined, which looks for that order at every turn, and SIGHUP reads a file.

mod signals;
pub(crate) mod threads;

#[cfg(test)]
mod tests;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use crate::exit::{Exit, Failure};

/// Signals within this time of the first are one order with it.
const ONE_ORDER: Duration = Duration::from_secs(1);
/// Parts are looked at so often at least: a thread that has died may have told nobody.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a part that could not do something tries it again.
const RETRY: Duration = Duration::from_millis(20);

/// A part of a running process, as the supervisor sees it. None of the methods waits for clients,
/// cores or stores.
pub(crate) trait Part {
    /// Takes what its threads have told, looks for those that ended without a word, and tries again
    /// what could not be done before. Of the first that died, or another reason not to go on, it
    /// says so in the log and returns the status to end with; it is called again for the rest.
    fn look(&mut self) -> Option<Exit>;

    /// Whether there is something to be tried again.
    fn has_retry(&self) -> bool {
        false
    }

    /// Reads the configuration again, after SIGHUP while it serves.
    fn reload(&mut self);

    /// Takes nothing new, and finishes what it has. `signal` is who asked for it, unless it was the
    /// death of a thread. Returns how long that may take.
    fn drain(&mut self, signal: Option<&'static str>) -> Duration;

    /// That time is over: whoever still waits is cut off. Returns how long closing may take.
    fn cut_off(&mut self) -> Duration;

    /// Whether nothing of it is left to wait for.
    fn has_ended(&self) -> bool;

    /// That time is over as well: says in the log what did not end.
    fn give_up(&self);
}

/// The meaning of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// To read the configuration again.
    Reload,
    /// To end: a terminal was closed.
    #[cfg_attr(not(feature = "node"), allow(dead_code, reason = "only `shunt up` ends at it"))]
    End,
}

/// Something for the supervisor to act upon.
#[derive(Debug)]
enum Event {
    /// A signal to end, by name, and when it arrived.
    Stop { signal: &'static str, at: Instant },
    /// SIGHUP, and when it arrived.
    Hangup { at: Instant },
    /// A part has been told something by one of its threads.
    Look,
    /// The thread that waits for signals has ended.
    Deaf,
}

/// Where events come together: made first, for parts need it to start.
pub(crate) struct Events {
    /// Kept, so that there is always somebody who could send.
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }

    /// For the threads of a part, and for the part to see what they tell.
    pub(crate) fn teller<T>(&self) -> (Teller<T>, Receiver<T>) {
        let (notices, told) = channel();
        (Teller { notices, events: self.sender.clone() }, told)
    }

    /// Catches signals from the moment this returns; those before it end the process as is usual.
    ///
    /// # Errors
    /// The system refuses a thread or a handler.
    pub(crate) fn catch_signals(&self) -> Result<(), Failure> {
        signals::catch(self.sender.clone())
            .map_err(|error| Failure::internal("signals cannot be caught", error))
    }
}

/// With this a thread of a part tells the part something.
pub(crate) struct Teller<T> {
    notices: Sender<T>,
    events: Sender<Event>,
}

impl<T> Teller<T> {
    pub(crate) fn tell(&self, notice: T) {
        // Nobody listens any more when the process is about to end.
        let _ = self.notices.send(notice);
        let _ = self.events.send(Event::Look);
    }
}

impl<T> Clone for Teller<T> {
    fn clone(&self) -> Self {
        Self { notices: self.notices.clone(), events: self.events.clone() }
    }
}

/// How far the process is in ending.
enum Phase {
    Serving,
    /// Queries in flight are being finished.
    Draining {
        until: Instant,
    },
    /// The drain took too long; who waits is being cut off.
    Closing {
        until: Instant,
    },
}

/// Watches over a process until it should end.
pub(crate) struct Supervisor {
    parts: Vec<Box<dyn Part>>,
    hangup: Hangup,
    phase: Phase,
    /// The part that is ending, when one is. Those before it are through.
    ending: usize,
    /// When the first signal to end arrived.
    ordered: Option<Instant>,
    /// The status to end with.
    exit: Exit,
}

impl Supervisor {
    /// Of these parts, in the order in which they end.
    pub(crate) fn new(parts: Vec<Box<dyn Part>>, hangup: Hangup) -> Self {
        Self { parts, hangup, phase: Phase::Serving, ending: 0, ordered: None, exit: Exit::Done }
    }

    /// Until the process should end; the caller has nothing left to do but that.
    pub(crate) fn run(mut self, events: &Events) -> Exit {
        let exit = loop {
            let event = events.receiver.recv_timeout(self.due(Instant::now())).ok();
            if let Some(exit) = self.step(event, Instant::now()) {
                break exit;
            }
        };
        // To drop a part could mean to wait for its threads.
        std::mem::forget(self);
        exit
    }

    /// How long there is nothing to do, if nothing happens.
    fn due(&self, now: Instant) -> Duration {
        let look = if self.parts.iter().any(|part| part.has_retry()) { RETRY } else { LOOK_EVERY };
        match self.phase {
            Phase::Serving => look,
            Phase::Draining { until } | Phase::Closing { until } => {
                look.min(until.saturating_duration_since(now))
            }
        }
    }

    /// Acts upon an event, or upon time having passed; returns the status when it is time to end.
    fn step(&mut self, event: Option<Event>, now: Instant) -> Option<Exit> {
        // First: what ended before the order to end was not told to.
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
        self.advance(now)
    }

    fn look(&mut self, now: Instant) {
        for index in 0..self.parts.len() {
            while let Some(exit) = self.parts[index].look() {
                self.fail(exit, now);
            }
        }
    }

    /// Takes a signal to end; false if it is one that says not to wait.
    fn has_time(&mut self, signal: &'static str, at: Instant, now: Instant) -> bool {
        let Some(first) = self.ordered else {
            self.ordered = Some(at);
            self.end(Some(signal), now);
            return true;
        };
        // Both were taken down by the one thread that hears signals, when they arrived: a busy
        // supervisor changes nothing.
        let is_later = at.saturating_duration_since(first) >= ONE_ORDER;
        match is_later {
            true => warn!(signal, "second signal, ending without waiting any longer"),
            false => info!(signal, "one order with the signal before it"),
        }
        !is_later
    }

    fn reload(&mut self) {
        if matches!(self.phase, Phase::Serving) {
            self.parts.iter_mut().for_each(|part| part.reload());
        }
    }

    /// The process ends with this status instead of 0. That a thread has died is worse than
    /// anything else.
    fn fail(&mut self, exit: Exit, now: Instant) {
        if self.exit == Exit::Done || exit == Exit::Internal {
            self.exit = exit;
        }
        self.end(None, now);
    }

    /// Begins to end, unless that was begun before.
    fn end(&mut self, signal: Option<&'static str>, now: Instant) {
        if matches!(self.phase, Phase::Serving) {
            self.drain(signal, now);
        }
    }

    /// Drains the part whose turn it is, if one is left.
    fn drain(&mut self, signal: Option<&'static str>, now: Instant) {
        if let Some(part) = self.parts.get_mut(self.ending) {
            self.phase = Phase::Draining { until: now + part.drain(signal) };
        }
    }

    /// Goes on with the end as far as is possible now.
    fn advance(&mut self, now: Instant) -> Option<Exit> {
        loop {
            // A part may have failed at what it was told last.
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
                    self.phase = Phase::Closing { until: now + part.cut_off() };
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
