//! Event loops that take connections, as a part of the process.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

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
pub(super) struct Orders<M> {
    /// Finishing what it has.
    pub(super) drain: M,
    /// At once.
    pub(super) end: M,
}

/// A part of the admin pages that is told of a drain.
pub(super) trait Shown: shunt_admin::Part {
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
    drain_limit: Duration,
}

impl<M: Copy + Send + 'static> LoopsPart<M> {
    pub(super) fn new(
        name: &'static str,
        shown: Arc<dyn Shown>,
        acceptor: Acceptor,
        mailers: Vec<Mailer<M>>,
        orders: Orders<M>,
        notices: Receiver<Notice>,
        drain_limit: Duration,
    ) -> Self {
        let (acceptor, running) = (Some(acceptor), mailers.len());
        let (accepting_died, waiting) = (false, Vec::new());
        Self { name, shown, acceptor, accepting_died, mailers, orders, waiting, notices, running, drain_limit }
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
        !self.waiting.is_empty()
    }

    fn reload(&mut self) {
        info!("nothing is read again while the {} runs: start it anew, which its clients outlive", self.name);
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        info!(signal, limit = ?self.drain_limit, "draining: no new connections, answers that are under way are finished");
        self.shown.set_draining();
        if let Some(acceptor) = self.acceptor.take() {
            self.accepting_died = !acceptor.stop();
        }
        self.order(self.orders.drain);
        self.drain_limit
    }

    fn cut_off(&mut self) -> Duration {
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
