//! The proxy as a part of the process: messages of its threads, and its drain.

mod drain;
mod reload;

mod option_change;

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::json;
use shunt_locks_http::Order;
use shunt_proxy::admin::{Admin, ChangeResult, ConfigChange};
use shunt_proxy::config::Config;
use shunt_proxy::control::CoreMail;
use shunt_proxy::metrics::CoreMetrics;
use shunt_proxy::tls::{IdentityFiles, Outgoing, PreparedOutgoing};
use shunt_reactor::{Acceptor, Mailer};
use shunt_tls_upkeep::{Lines, Listeners, PreparedListeners};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::exit::Exit;
pub(crate) use crate::proxy::part::reload::Reload;
use crate::supervise::Part;
use drain::{Drain, Step, Times};

/// Time limit for cores to close their clients after the drain's time is over. By then the cores
/// wait for no client.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Messages taken at one look. An answer to one may bring the next, and the supervisor has signals
/// and heartbeats to attend to between looks.
const NOTICES_PER_LOOK: usize = 16;

/// A message from one of the proxy's threads.
#[derive(Debug)]
pub(super) enum Notice {
    /// No contact point answered in the time given by `require_ring_ms`.
    RingTimeout,
    /// The ring does not match the configuration.
    Unfit(String),
    /// A core's thread has ended.
    CoreEnded {
        /// Number of the core.
        index: usize,
        /// The reason, if the thread should not have ended.
        failure: Option<String>,
    },
    /// The control thread has ended.
    ControlEnded {
        /// The reason, if the thread should not have ended.
        failure: Option<String>,
    },
    /// An operator has asked for a change at the admin address.
    ConfigChange(ConfigChange),
    /// The thread of locks over HTTP has ended.
    HttpEnded {
        /// The reason, if the thread should not have ended.
        failure: Option<String>,
    },
}

/// The proxy while it runs, and the handles to end it.
pub(crate) struct ProxyPart {
    /// `None`: nothing to reload.
    reload: Option<Reload>,
    config: watch::Sender<Arc<Config>>,
    pages: Arc<Admin>,
    /// `None` once the proxy was told to end.
    acceptor: Option<Acceptor>,
    listeners: Listeners,
    outgoing: Outgoing,
    identity_files: IdentityFiles,
    /// True if the accepting thread had died when it was stopped, and nothing has reported that
    /// yet.
    accepting_died: bool,
    mailers: Vec<Mailer<CoreMail>>,
    /// Metrics of the core that runs the membership.
    metrics: Arc<CoreMetrics>,
    /// True once the metrics have shown that an operator has told the proxy to leave.
    told_to_leave: bool,
    /// The drain that a signal or an operator has begun.
    drain: Option<Drain>,
    /// True once the cores have been told, during a drain, to leave the fleet without a notice.
    leaves_silently: bool,
    /// Limit on the lines about options that stay as they are.
    refusals: Lines,
    /// Mail that did not fit into a core's mailbox.
    waiting: Vec<(usize, CoreMail)>,
    /// Channel for orders to the thread of locks over HTTP, while it runs.
    http: Option<watch::Sender<Order>>,
    notices: Receiver<Notice>,
    cores_running: usize,
    control_runs: bool,
}

/// The files of a configuration, read.
struct Files {
    listeners: PreparedListeners,
    outgoing: PreparedOutgoing,
}

/// The inputs of the part.
pub(super) struct Running {
    pub(super) config: watch::Sender<Arc<Config>>,
    pub(super) pages: Arc<Admin>,
    pub(super) acceptor: Acceptor,
    pub(super) listeners: Listeners,
    pub(super) outgoing: Outgoing,
    pub(super) mailers: Vec<Mailer<CoreMail>>,
    pub(super) metrics: Arc<CoreMetrics>,
    pub(super) http: Option<watch::Sender<Order>>,
    pub(super) notices: Receiver<Notice>,
}

impl ProxyPart {
    pub(super) fn new(
        running: Running,
        identity_files: IdentityFiles,
        reload: Option<Reload>,
    ) -> Self {
        let Running {
            config,
            pages,
            acceptor,
            listeners,
            outgoing,
            mailers,
            metrics,
            http,
            notices,
        } = running;
        let (acceptor, cores_running) = (Some(acceptor), mailers.len());
        let (accepting_died, waiting, control_runs) = (false, Vec::new(), true);
        if let Some(reload) = &reload {
            pages.set_settings(Arc::clone(&config.borrow()), reload.sources.clone());
        }
        Self {
            reload,
            config,
            pages,
            acceptor,
            listeners,
            outgoing,
            identity_files,
            accepting_died,
            mailers,
            metrics,
            told_to_leave: false,
            drain: None,
            leaves_silently: false,
            refusals: Lines::default(),
            waiting,
            http,
            notices,
            cores_running,
            control_runs,
        }
    }

    /// Handles a message; returns the process's exit status if the message ends the process.
    fn take(&mut self, notice: Notice) -> Option<Exit> {
        let is_ending = self.acceptor.is_none();
        match notice {
            Notice::RingTimeout if !is_ending => {
                error!("no contact point answered within require_ring_ms, so the proxy ends");
                Some(Exit::NoRing)
            }
            Notice::Unfit(why) if !is_ending => {
                error!(%why, "the configuration does not match the ring, so the proxy ends");
                Some(Exit::Unfit)
            }
            Notice::RingTimeout | Notice::Unfit(_) => None,
            Notice::ConfigChange(change) => {
                self.change_config(change);
                None
            }
            Notice::CoreEnded { index, failure } => {
                self.cores_running = self.cores_running.saturating_sub(1);
                match failure {
                    Some(failure) => {
                        error!(core = index, %failure, "a core has died, so the proxy ends")
                    }
                    None if is_ending => return None,
                    None => {
                        error!(core = index, "a core has ended without an order, so the proxy ends")
                    }
                }
                Some(Exit::Internal)
            }
            Notice::ControlEnded { failure } => {
                self.control_runs = false;
                if is_ending && failure.is_none() {
                    return None;
                }
                let failure = failure.unwrap_or_else(|| "it ended without an order".to_owned());
                error!(%failure, "the control plane has died, so the proxy ends");
                Some(Exit::Internal)
            }
            Notice::HttpEnded { failure } => {
                self.http = None;
                if is_ending && failure.is_none() {
                    return None;
                }
                let failure = failure.unwrap_or_else(|| "it ended without an order".to_owned());
                error!(%failure, "the thread of locks over HTTP has died, so the proxy ends");
                Some(Exit::Internal)
            }
        }
    }

    /// A proxy that ends hands over its locks through the nodes. If it reaches no node and holds no
    /// lock, this skips the wait.
    fn leave_untold(&mut self) {
        let has_left = self.drain.is_some_and(|drain| drain.has_left());
        if has_left
            && !self.leaves_silently
            && self.config.borrow().fleet.is_some()
            && self.pages.is_cut_off()
            && !self.pages.has_held_locks()
        {
            self.leaves_silently = true;
            self.send_all(&CoreMail::LeaveSilently);
        }
    }

    /// Makes a change that an operator has asked for, unless the operator no longer waits for it.
    fn change_config(&mut self, change: ConfigChange) {
        if change.is_abandoned() {
            return;
        }
        let is_ending = self.acceptor.is_none();
        match change {
            ConfigChange::Reload(answer) => {
                let verdict = match is_ending {
                    true => Err(json!({ "error": "the proxy is ending" })),
                    false => self.reload_for_operator(),
                };
                answer.send(verdict);
            }
            ConfigChange::LogLevel(level, answer) => {
                let verdict = self.set_option("log", Some(&level));
                answer.send(verdict.map(|_| json!({ "level": level })));
            }
            ConfigChange::SetOption { name, value, answer } => {
                answer.send(self.set_option(&name, value.as_deref()));
            }
            ConfigChange::Drain { drains, answer } => {
                answer.send(self.drain_by_order(drains));
            }
        }
    }

    /// Sends clients to other proxies, or no longer, as an operator has asked.
    fn drain_by_order(&mut self, drains: bool) -> ChangeResult {
        if self.acceptor.is_none() || self.drain.is_some_and(|drain| drain.ends) {
            return Err(json!({ "error": "the proxy is ending, which cannot be taken back" }));
        }
        if drains {
            self.drain.get_or_insert_with(|| Drain::new(Instant::now(), false));
            info!("draining by order: the proxy closes idle clients, and still accepts new ones");
        } else if self.drain.take().is_some() {
            // A core that stands still gets only the last order, like the last configuration.
            self.waiting.retain(|(_, mail)| !matches!(mail, CoreMail::CloseIdle(_)));
            self.send_all(&CoreMail::CloseIdle(false));
            info!("the drain was taken back: the proxy serves its clients as before");
        }
        self.pages.set_draining(drains);
        self.go_on_draining();
        Ok(json!({ "draining": drains }))
    }

    fn drain_times(&self) -> Times {
        let config = self.config.borrow();
        let [delay, close] =
            [config.drain_delay_ms, config.drain_close_ms].map(Duration::from_millis);
        Times { delay, close }
    }

    /// Takes the steps of the drain that are due.
    fn go_on_draining(&mut self) {
        let (times, now) = (self.drain_times(), Instant::now());
        while let Some(drain) = &mut self.drain
            && let Some(step) = drain.step(now, times, self.pages.has_clients())
        {
            match step {
                Step::Close => {
                    if drain.ends {
                        self.stop_accepting();
                    }
                    self.send_all(&CoreMail::CloseIdle(true));
                }
                Step::Leave => self.leave(),
            }
        }
    }

    fn stop_accepting(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            self.accepting_died = !acceptor.stop();
        }
    }

    /// Tells the cores to end.
    fn leave(&mut self) {
        self.stop_accepting();
        // Sent first: the thread must stop its requests before the cores stop reading.
        self.order_http(Order::Drain);
        self.send_all(&CoreMail::Drain);
    }

    /// Puts a configuration into force.
    fn apply(&mut self, config: Config) {
        let config = Arc::new(config);
        self.identity_files.applied(&self.config.borrow(), &config);
        // A slow core gets only the last configuration, because operators may ask for many changes.
        self.waiting.retain(|(_, mail)| !matches!(mail, CoreMail::Reload(_)));
        self.send_all(&CoreMail::Reload(Arc::clone(&config)));
        self.config.send_replace(config);
    }

    fn order_http(&self, order: Order) {
        if let Some(http) = &self.http {
            http.send_replace(order);
        }
    }

    fn send_all(&mut self, mail: &CoreMail) {
        for core in 0..self.mailers.len() {
            self.waiting.push((core, mail.clone()));
        }
        self.retry();
    }

    /// Delivers waiting mail as far as the mailboxes have room, in order for each core. Drops mail
    /// to a core that has ended.
    fn retry(&mut self) {
        let mut full = vec![false; self.mailers.len()];
        for (core, mail) in std::mem::take(&mut self.waiting) {
            let mailer = &self.mailers[core];
            let refused = if full[core] { Some(mail) } else { mailer.post(mail).err() };
            if let Some(mail) = refused.filter(|_| !mailer.is_closed()) {
                full[core] = true;
                self.waiting.push((core, mail));
            }
        }
    }
}

impl Part for ProxyPart {
    fn look(&mut self) -> Option<Exit> {
        self.go_on_draining();
        self.retry();
        self.listeners.tick(Instant::now());
        self.outgoing.tick(Instant::now());
        self.reload_identities();
        self.tell_left_out_refusals();
        let dead = self.acceptor.take_if(|acceptor| acceptor.has_died());
        if dead.is_some() || std::mem::take(&mut self.accepting_died) {
            error!("the accepting thread has died, so the proxy ends; the log says where");
            return Some(Exit::Internal);
        }
        // Each message wakes the supervisor, so those left are taken at the next looks.
        for _ in 0..NOTICES_PER_LOOK {
            let Ok(notice) = self.notices.try_recv() else { break };
            if let Some(exit) = self.take(notice) {
                return Some(exit);
            }
        }
        self.leave_untold();
        // Once is enough: the gauge keeps its value.
        let is_told = self.metrics.locks.told_to_leave.get() > 0 && !self.told_to_leave;
        self.told_to_leave |= is_told;
        is_told.then_some(Exit::Done)
    }

    fn has_retry(&self) -> bool {
        !self.waiting.is_empty() || self.drain.is_some_and(|drain| drain.has_step())
    }

    fn reload(&mut self) {
        self.reload_on_signal();
    }

    fn is_stuck(&self, now: Instant) -> bool {
        !shunt_admin::Part::stuck(&*self.pages, now).is_empty()
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        let limit = Duration::from_millis(self.config.borrow().drain_timeout_ms);
        let (now, mut times) = (Instant::now(), self.drain_times());
        self.pages.set_draining(true);
        if signal.is_none() {
            // The death of a thread, or an order to leave the fleet, gives no reason to wait.
            times = Times { delay: Duration::ZERO, close: Duration::ZERO };
            self.drain = Some(Drain::ended(now));
            self.leave();
        }
        let drain = self.drain.get_or_insert_with(|| Drain::new(now, true));
        drain.end();
        let wait = drain.rest(now, times);
        info!(signal, ?wait, ?limit, "draining: the proxy ends after the queries in flight");
        self.go_on_draining();
        wait + limit
    }

    fn cut_off(&mut self) -> Duration {
        if !self.drain.is_some_and(|drain| drain.has_left()) {
            self.drain = Some(Drain::ended(Instant::now()));
            self.leave();
        }
        warn!(cores = self.cores_running, "the drain took too long, remaining clients are cut off");
        self.order_http(Order::End);
        self.send_all(&CoreMail::CloseAll);
        CLOSE_LIMIT
    }

    fn has_ended(&self) -> bool {
        // The control thread ends with the last core, but its reason is still unknown.
        self.cores_running == 0 && !self.control_runs && self.http.is_none()
    }

    fn give_up(&self) {
        let http = self.http.is_some();
        error!(cores = self.cores_running, control = self.control_runs, http, "threads do not end");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::start::{bind, start};
    use std::cell::{Cell, RefCell};
    use std::net::SocketAddr;
    use std::rc::Rc;
    use std::sync::mpsc::channel;

    use shunt_proxy::admin::SourceMap;
    use shunt_proxy::config::HttpAddress;
    use tokio::sync::oneshot;

    use super::*;
    use crate::logging::FilterHandle;
    use crate::supervise::Events;

    /// Configuration of a proxy without nodes.
    pub(super) fn config() -> Config {
        Config {
            listen: vec![std::net::SocketAddr::from(([127, 0, 0, 1], 0))].into(),
            contact_points: vec!["127.0.0.1:1".to_owned()],
            admin: None,
            cores: 2,
            ..Config::default()
        }
    }

    fn started_with(config: Config) -> ProxyPart {
        start(bind(config).unwrap(), Vec::new(), None, &Events::new()).unwrap().part
    }

    pub(super) fn started() -> ProxyPart {
        started_with(config())
    }

    /// Calls `look` until the part has ended; returns the statuses found on the way.
    pub(super) fn end(part: &mut ProxyPart) -> Vec<Exit> {
        let mut found = Vec::new();
        part.drain(None);
        while !part.has_ended() {
            found.extend(part.look());
            std::thread::yield_now();
        }
        found
    }

    #[test]
    fn an_order_for_which_nobody_waits_is_not_carried_out() {
        let mut part = started();
        let loads = Rc::new(Cell::new(0));
        let counted = Rc::clone(&loads);
        let load = move || {
            counted.set(counted.get() + 1);
            Ok((config(), SourceMap::default()))
        };
        let (sources, filter) = (SourceMap::default(), FilterHandle::detached());
        part.reload = Some(Reload { load: Box::new(load), sources, filter });
        let (sender, verdict) = oneshot::channel();
        drop(verdict);
        part.change_config(ConfigChange::Reload(sender.into()));
        assert_eq!(loads.get(), 0);
        let (sender, mut verdict) = oneshot::channel();
        part.change_config(ConfigChange::Reload(sender.into()));
        assert!(loads.get() == 1 && verdict.try_recv().is_ok());
        assert_eq!(end(&mut part), []);
    }

    /// A look that waits for the last message would keep the supervisor from signals for ever.
    #[test]
    fn a_look_ends_though_each_answer_brings_another_order() {
        let mut part = started();
        let (notices, told) = channel();
        let threads = std::mem::replace(&mut part.notices, told);
        let loads = Rc::new(Cell::new(0));
        let (counted, next) = (Rc::clone(&loads), notices.clone());
        let order = || {
            let (sender, verdict) = oneshot::channel();
            (Notice::ConfigChange(ConfigChange::Reload(sender.into())), verdict)
        };
        let verdicts = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&verdicts);
        let load = move || {
            counted.set(counted.get() + 1);
            if counted.get() < 1_000 {
                let (notice, verdict) = order();
                kept.borrow_mut().push(verdict);
                next.send(notice).unwrap();
            }
            Ok((config(), SourceMap::default()))
        };
        let (sources, filter) = (SourceMap::default(), FilterHandle::detached());
        part.reload = Some(Reload { load: Box::new(load), sources, filter });
        let (first, _verdict) = order();
        notices.send(first).unwrap();
        for looks in 1..4 {
            assert_eq!(part.look(), None);
            assert_eq!(loads.get(), looks * NOTICES_PER_LOOK);
        }
        part.notices = threads;
        assert_eq!(end(&mut part), []);
    }

    #[test]
    fn a_core_that_takes_no_mail_has_the_last_order_of_a_drain_waiting() {
        let mut part = started();
        let (mailer, _inbox) = shunt_reactor::mailbox(1).unwrap();
        part.mailers.push(mailer);
        let away = part.mailers.len() - 1;
        part.send_all(&CoreMail::CloseIdle(false));
        for _ in 0..100 {
            for drains in [true, false, true] {
                assert!(part.drain_by_order(drains).is_ok());
                let orders: Vec<bool> = part
                    .waiting
                    .iter()
                    .filter_map(|(core, mail)| match mail {
                        CoreMail::CloseIdle(closes) if *core == away => Some(*closes),
                        _ => None,
                    })
                    .collect();
                assert!(orders.last() == Some(&drains) && orders.len() <= 2, "{orders:?}");
            }
        }
        assert_eq!(end(&mut part), []);
    }

    #[test]
    fn the_part_ends_with_the_control_thread() {
        let mut part = started();
        assert_eq!(part.look(), None);
        assert_eq!(end(&mut part), []);
        assert!(!part.control_runs && part.cores_running == 0);
    }

    #[test]
    fn locks_over_http_end_with_the_proxy_and_not_before_it() {
        let http = HttpAddress::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let with_http =
            Config { locks_http: Some(http), fleet: Some("main".to_owned()), ..config() };
        let mut part = started_with(with_http.clone());
        assert!(part.http.is_some() && part.look().is_none());
        assert_eq!(end(&mut part), []);
        assert!(part.http.is_none());
        let mut part = started_with(with_http);
        let died = Notice::HttpEnded { failure: None };
        assert_eq!(part.take(died), Some(Exit::Internal), "it ended without an order");
        assert!(!part.has_ended());
    }

    #[test]
    fn a_control_thread_that_dies_after_the_last_core_is_a_death() {
        let mut part = started();
        part.drain(None);
        for index in 0..2 {
            assert_eq!(part.take(Notice::CoreEnded { index, failure: None }), None);
        }
        assert!(!part.has_ended(), "how the control thread ends is not known");
        let died = Notice::ControlEnded { failure: Some("as the test wants it".to_owned()) };
        assert_eq!((part.take(died), part.has_ended()), (Some(Exit::Internal), true));
    }
}
