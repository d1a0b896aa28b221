//! Event loops that take connections, as a part of the process.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use shunt_reactor::{Acceptor, Mailer};
use tracing::{error, info, warn};

use super::tls::RelayTls;
use crate::exit::Exit;
use crate::supervise::Part;

/// Time limit for loops to end after the drain's time is over. By then the loops wait for no peer.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A thread has ended.
#[derive(Debug)]
pub(super) enum Notice {
    /// A loop's thread has ended.
    LoopEnded {
        /// Number of the loop.
        index: usize,
        /// The reason, if the loop should not have ended.
        failure: Option<String>,
    },
    /// The thread of the admin pages has ended.
    AdminEnded {
        /// The reason, if the thread died. It also ends when the pages cannot be served; the log
        /// has that error.
        failure: Option<String>,
    },
}

/// Mail that tells a loop to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders<M> {
    /// Finish the work under way, then end.
    pub(crate) drain: M,
    /// End at once.
    pub(crate) end: M,
}

/// A part of the admin pages that learns of a drain.
pub(crate) trait Shown: shunt_admin::Part {
    /// Marks the part as draining: no client should be sent here from now on.
    fn set_draining(&self);
}

/// The loops while they run, and the handles to end them.
pub(super) struct LoopsPart<M> {
    name: &'static str,
    shown: Arc<dyn Shown>,
    tls: RelayTls,
    /// `None` once the loops were told to end, or have ended.
    acceptor: Option<Acceptor>,
    accepts_until: AcceptsUntil,
    /// The loops were told to end.
    is_leaving: bool,
    /// The accepting thread had died when it was stopped, which is not reported yet.
    accepting_died: bool,
    mailers: Vec<Mailer<M>>,
    orders: Orders<M>,
    /// Orders that did not fit into a mailbox.
    waiting: Vec<(usize, M)>,
    notices: Receiver<Notice>,
    running: usize,
    times: DrainTimes,
    /// While draining: the time until which new connections are taken.
    takes_new_until: Option<Instant>,
}

/// The end of accepting connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AcceptsUntil {
    /// Accept until the loops are told to end.
    Told,
    /// Accept until the loops have ended. Until then, each loop refuses the connections that it
    /// does not need.
    Ended,
}

/// Times of the steps of a drain.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainTimes {
    /// Time in which new connections are still taken: a load balancer may not have noticed the
    /// drain yet.
    pub(super) delay: Duration,
    /// Time after that for answers under way.
    pub(super) limit: Duration,
}

impl<M: Copy + Send + 'static> LoopsPart<M> {
    pub(super) fn new(
        name: &'static str,
        (shown, tls): (Arc<dyn Shown>, RelayTls),
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
            tls,
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

    /// Finishes the work under way. From now on takes only connections that the loops need for
    /// that.
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

    /// Delivers waiting orders as far as the mailboxes have room. Drops an order to a loop that has
    /// ended.
    fn retry(&mut self) {
        let mailers = &self.mailers;
        self.waiting.retain(|(index, mail)| {
            mailers[*index].post(*mail).is_err() && !mailers[*index].is_closed()
        });
    }
}

impl<M: Copy + Send + 'static> Part for LoopsPart<M> {
    fn look(&mut self) -> Option<Exit> {
        self.tls.tick(Instant::now());
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
                    "an event loop has ended without an order, so the {} ends", self.name
                ),
            }
            return Some(Exit::Internal);
        }
        if self.running == 0 {
            self.stop_accepting();
        }
        self.look_at_acceptor()
    }

    fn is_stuck(&self, now: Instant) -> bool {
        !self.shown.stuck(now).is_empty()
    }

    fn has_retry(&self) -> bool {
        !self.waiting.is_empty() || self.takes_new_until.is_some()
    }

    fn reload(&mut self) {
        self.tls.reload();
        info!(
            "the {} reads its certificates and tokens again; other changes need a restart",
            self.name
        );
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        let DrainTimes { delay, limit } = self.times;
        info!(
            signal,
            ?delay,
            ?limit,
            "draining: no new connections after the delay, answers under way are finished"
        );
        self.shown.set_draining();
        // A death of a thread gives no reason to wait.
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
        warn!(loops = self.running, "the drain took too long, remaining connections are cut off");
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
            let mut part = LoopsPart::new(
                "agent",
                (shown, RelayTls::default()),
                accepting,
                vec![mailer],
                orders,
                notices,
                times,
            );
            assert!(TcpStream::connect(address).is_ok());
            part.drain(None);
            assert_eq!((TcpStream::connect(address).is_ok(), part.look()), (gets_more, None));
            teller.send(Notice::LoopEnded { index: 0, failure: None }).expect("it is listened to");
            assert_eq!((part.look(), part.has_ended()), (None, true));
            assert!(TcpStream::connect(address).is_err(), "nobody is there any more");
        }
    }
}
