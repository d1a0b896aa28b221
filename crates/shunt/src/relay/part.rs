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
    /// Until they are told to end, or have ended.
    acceptor: Option<Acceptor>,
    accepts_until: AcceptsUntil,
    /// They were told to end.
    is_leaving: bool,
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

/// Until when connections are given to the loops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AcceptsUntil {
    /// They are told to end.
    Told,
    /// They have ended: each refuses for itself what it does not need to end.
    Ended,
}

/// How long the steps of a drain take.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainTimes {
    /// Until no new connection is taken: whoever sends them here may not have seen yet that this
    /// process drains.
    pub(super) delay: Duration,
    /// From then on, for answers that are under way.
    pub(super) limit: Duration,
}

impl<M: Copy + Send + 'static> LoopsPart<M> {
    pub(super) fn new(
        name: &'static str,
        shown: Arc<dyn Shown>,
        (acceptor, accepts_until): (Acceptor, AcceptsUntil),
        mailers: Vec<Mailer<M>>,
        orders: Orders<M>,
        notices: Receiver<Notice>,
        times: DrainTimes,
    ) -> Self {
        let (acceptor, running) = (Some(acceptor), mailers.len());
        let (is_leaving, accepting_died, waiting, takes_new_until) =
            (false, false, Vec::new(), None);
        Self {
            name,
            shown,
            acceptor,
            accepts_until,
            is_leaving,
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

    /// Finishes what is under way, and takes no new connection from now on but what the loops need
    /// for that.
    fn leave(&mut self) {
        (self.takes_new_until, self.is_leaving) = (None, true);
        if self.accepts_until == AcceptsUntil::Told {
            self.stop_accepting();
        }
        self.order(self.orders.drain);
    }

    fn stop_accepting(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            self.accepting_died = !acceptor.stop();
        }
    }

    fn look_at_acceptor(&mut self) -> Option<Exit> {
        let dead = self.acceptor.take_if(|acceptor| acceptor.has_died());
        if dead.is_none() && !std::mem::take(&mut self.accepting_died) {
            return None;
        }
        error!("the accepting thread has died, so the {} ends; the log says where", self.name);
        Some(Exit::Internal)
    }

    fn order(&mut self, mail: M) {
        self.waiting.extend((0..self.mailers.len()).map(|index| (index, mail)));
        self.retry();
    }

    /// Delivers what waits, as far as there is room. An order to a loop that has ended is dropped.
    fn retry(&mut self) {
        let mailers = &self.mailers;
        self.waiting.retain(|(index, mail)| {
            mailers[*index].post(*mail).is_err() && !mailers[*index].is_closed()
        });
    }
}

impl<M: Copy + Send + 'static> Part for LoopsPart<M> {
    fn look(&mut self) -> Option<Exit> {
        if self.takes_new_until.is_some_and(|until| until <= Instant::now()) {
            self.leave();
        }
        self.retry();
        if let Some(exit) = self.look_at_acceptor() {
            return Some(exit);
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
                Some(failure) => {
                    error!(index, %failure, "an event loop has died, so the {} ends", self.name)
                }
                None if self.is_leaving => continue,
                None => error!(
                    index,
                    "an event loop has ended without being told to, so the {} ends", self.name
                ),
            }
            return Some(Exit::Internal);
        }
        if self.running == 0 {
            self.stop_accepting();
        }
        self.look_at_acceptor()
    }

    fn has_retry(&self) -> bool {
        !self.waiting.is_empty() || self.takes_new_until.is_some()
    }

    fn reload(&mut self) {
        info!(
            "nothing is read again while the {} runs: start it anew, which its clients outlive",
            self.name
        );
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

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc::channel;

    use shunt_agent::{AgentAdmin, AgentMail};
    use shunt_reactor::{CoreSlot, listen, mailbox};

    use super::*;

    #[test]
    fn loops_that_drain_get_new_connections_only_if_they_need_them_to_end() {
        for (accepts_until, gets_more) in [(AcceptsUntil::Told, false), (AcceptsUntil::Ended, true)]
        {
            let any: SocketAddr = ([127, 0, 0, 1], 0).into();
            let listener = listen(any).expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            let (mailer, _inbox) = mailbox(8).expect("files can be opened");
            let slots = vec![CoreSlot { mailer: mailer.clone(), load: Arc::default() }];
            let acceptor = Acceptor::start(vec![listener], slots).expect("threads can be started");
            let (teller, notices) = channel();
            let orders = Orders { drain: AgentMail::Drain, end: AgentMail::End };
            let times = DrainTimes { delay: Duration::ZERO, limit: Duration::from_secs(1) };
            let shown = AgentAdmin::new(Vec::new(), address, Vec::new());
            let accepting = (acceptor, accepts_until);
            let mut part =
                LoopsPart::new("agent", shown, accepting, vec![mailer], orders, notices, times);
            assert!(TcpStream::connect(address).is_ok());
            part.drain(None);
            assert_eq!((TcpStream::connect(address).is_ok(), part.look()), (gets_more, None));
            teller.send(Notice::LoopEnded { index: 0, failure: None }).expect("it is listened to");
            assert_eq!((part.look(), part.has_ended()), (None, true));
            assert!(TcpStream::connect(address).is_err(), "nobody is there any more");
        }
    }
}
