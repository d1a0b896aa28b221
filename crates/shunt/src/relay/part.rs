//! Event loops that take connections, as a part of the process.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use shunt_reactor::{Acceptor, Mailer};
use tracing::{error, info, warn};

use crate::exit::Exit;
use crate::supervise::Part;

/// How long loops may take to end after the drain's time is over; they wait for nobody then.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A thread has ended.
#[derive(Debug)]
pub(super) enum Notice {
    /// That of a loop.
    LoopEnded {
        /// Which.
        index: usize,
        /// Why, if it should not have.
        failure: Option<String>,
    },
    /// That of the admin pages.
    AdminEnded {
        /// Why, if it died; it also ends when the pages cannot be served, which the log has said.
        failure: Option<String>,
    },
}

/// The mail that tells a loop to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders<M> {
    /// Finishing what it has.
    pub(crate) drain: M,
    /// At once.
    pub(crate) end: M,
}

/// A part of the admin pages that is told of a drain.
pub(crate) trait Shown: shunt_admin::Part {
    /// Nobody is to be sent here from now on.
    fn set_draining(&self);
}

/// Holds what keeps the loops running.
pub(super) struct LoopsPart<M> {
    name: &'static str,
    shown: Arc<dyn Shown>,
    /// Until they are told to end.
    acceptor: Option<Acceptor>,
    /// Seen when it was stopped, and not told yet.
    accepting_died: bool,
    mailers: Vec<Mailer<M>>,
    orders: Orders<M>,
    /// Orders that did not fit a mailbox.
    waiting: Vec<(usize, M)>,
    notices: Receiver<Notice>,
    running: usize,
    times: DrainTimes,
    /// It drains, and takes new connections until then.
    takes_new_until: Option<Instant>,
}

/// How long the steps of a drain take.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainTimes {
    /// Until no new connection is taken: whoever sends them here may not have seen yet that this process drains.
    pub(super) delay: Duration,
    /// From then on, for answers that are under way.
    pub(super) limit: Duration,
}

impl<M: Copy + Send + 'static> LoopsPart<M> {
    pub(super) fn new(
        name: &'static str,
        shown: Arc<dyn Shown>,
        acceptor: Acceptor,
        mailers: Vec<Mailer<M>>,
        orders: Orders<M>,
        notices: Receiver<Notice>,
        times: DrainTimes,
    ) -> Self {
        let (acceptor, running) = (Some(acceptor), mailers.len());
        let (accepting_died, waiting, takes_new_until) = (false, Vec::new(), None);
        Self {
            name,
            shown,
            acceptor,
            accepting_died,
            mailers,
            orders,
            waiting,
            notices,
            running,
            times,
            takes_new_until,
        }
    }

    /// Takes no new connection from now on, and finishes what is under way.
    fn leave(&mut self) {
        self.takes_new_until = None;
        if let Some(acceptor) = self.acceptor.take() {
            self.accepting_died = !acceptor.stop();
        }
        self.order(self.orders.drain);
    }

    fn order(&mut self, mail: M) {
        self.waiting.extend((0..self.mailers.len()).map(|index| (index, mail)));
        self.retry();
    }

    /// Delivers what waits, as far as there is room. An order to a loop that has ended is dropped.
    fn retry(&mut self) {
        let mailers = &self.mailers;
        self.waiting.retain(|(index, mail)| mailers[*index].post(*mail).is_err() && !mailers[*index].is_closed());
    }
}

impl<M: Copy + Send + 'static> Part for LoopsPart<M> {
    fn look(&mut self) -> Option<Exit> {
        if self.takes_new_until.is_some_and(|until| until <= Instant::now()) {
            self.leave();
        }
        self.retry();
        let dead = self.acceptor.take_if(|acceptor| acceptor.has_died());
        if dead.is_some() || std::mem::take(&mut self.accepting_died) {
            error!("the accepting thread has died, so the {} ends; the log says where", self.name);
            return Some(Exit::Internal);
        }
        while let Ok(notice) = self.notices.try_recv() {
            let (index, failure) = match notice {
                Notice::LoopEnded { index, failure } => (index, failure),
                Notice::AdminEnded { failure: None } => continue,
                Notice::AdminEnded { failure: Some(failure) } => {
                    error!(%failure, "the thread of the admin pages has died, so the {} ends", self.name);
                    return Some(Exit::Internal);
                }
            };
            self.running = self.running.saturating_sub(1);
            match failure {
                Some(failure) => error!(index, %failure, "an event loop has died, so the {} ends", self.name),
                None if self.acceptor.is_none() => continue,
                None => error!(index, "an event loop has ended without being told to, so the {} ends", self.name),
            }
            return Some(Exit::Internal);
        }
        None
    }

    fn has_retry(&self) -> bool {
        !self.waiting.is_empty() || self.takes_new_until.is_some()
    }

    fn reload(&mut self) {
        info!("nothing is read again while the {} runs: start it anew, which its clients outlive", self.name);
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        let DrainTimes { delay, limit } = self.times;
        info!(
            signal,
            ?delay,
            ?limit,
            "draining: no new connections after the delay, answers that are under way are finished"
        );
        self.shown.set_draining();
        // A thread that has died is no reason to wait.
        match delay.is_zero() || signal.is_none() {
            true => self.leave(),
            false => self.takes_new_until = Some(Instant::now() + delay),
        }
        delay + limit
    }

    fn cut_off(&mut self) -> Duration {
        if self.takes_new_until.is_some() {
            self.leave();
        }
        warn!(loops = self.running, "the drain took too long, what is left is cut off");
        self.order(self.orders.end);
        CLOSE_LIMIT
    }

    fn has_ended(&self) -> bool {
        self.running == 0
    }

    fn give_up(&self) {
        error!(loops = self.running, "event loops do not end");
    }
}
