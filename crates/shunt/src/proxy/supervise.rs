//! The main thread while the proxy runs: waits for signals and for threads that end, drains, reloads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use shunt_proxy::admin::Admin;
use shunt_proxy::config::Config;
use shunt_proxy::control::CoreMail;
use shunt_reactor::{Acceptor, Mailer};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::start::Started;
use crate::exit::Exit;
use crate::logging::FilterHandle;
use crate::settings::SettingsError;

/// How often mail that did not fit a core's mailbox is tried again.
const RETRY: Duration = Duration::from_millis(20);
/// How long cores may take to close their clients after the drain's time is over; they wait for nobody then.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A message of another thread to the supervisor.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A signal to end.
    Stop(&'static str),
    /// A signal to read the configuration again.
    Reload,
    /// No contact point answered in the time given by `require_ring_ms`.
    RingTimeout,
    /// The ring does not go with the configuration.
    Unfit(String),
    /// A core's thread has ended.
    CoreEnded {
        /// Which.
        index: usize,
        /// Why, if it should not have.
        failure: Option<String>,
    },
    /// The control thread has ended.
    ControlEnded,
    /// A loop of a node in this process has ended.
    #[cfg(feature = "node")]
    NodeEnded {
        /// Which node.
        node: usize,
        /// Why, if it should not have.
        failure: Option<String>,
    },
}

/// Reads the configuration again.
pub(crate) type Reload = Box<dyn Fn() -> Result<Config, SettingsError>>;

/// How far the proxy is in ending.
enum Phase {
    Running,
    /// Queries in flight are being finished.
    Draining {
        until: Instant,
    },
    /// The drain took too long; clients are being cut off.
    Closing {
        until: Instant,
    },
}

/// Holds what keeps the proxy running.
pub(crate) struct Supervisor {
    /// Without one, SIGHUP ends the process: a terminal was closed.
    reload: Option<Reload>,
    filter: FilterHandle,
    config: watch::Sender<Arc<Config>>,
    pages: Arc<Admin>,
    acceptor: Option<Acceptor>,
    mailers: Vec<Mailer<CoreMail>>,
    /// Mail that did not fit a core's mailbox.
    waiting: Vec<(usize, CoreMail)>,
    notices: Receiver<Notice>,
    cores_running: usize,
    phase: Phase,
}

impl Supervisor {
    pub(crate) fn new(started: Started, reload: Option<Reload>, filter: FilterHandle) -> Self {
        Self {
            reload,
            filter,
            config: started.config,
            pages: started.admin_pages,
            acceptor: Some(started.acceptor),
            cores_running: started.mailers.len(),
            mailers: started.mailers,
            waiting: Vec::new(),
            notices: started.notices,
            phase: Phase::Running,
        }
    }

    /// Until the process should end.
    pub(crate) fn run(mut self) -> Exit {
        loop {
            let ended = match self.next_notice() {
                Some(notice) => self.take(notice),
                None => self.time_is_up(),
            };
            if let Some(exit) = ended {
                return exit;
            }
            self.retry();
        }
    }

    /// The next notice; `None` when something is due instead.
    fn next_notice(&self) -> Option<Notice> {
        let due = match self.phase {
            _ if !self.waiting.is_empty() => Some(RETRY),
            Phase::Running => None,
            Phase::Draining { until } | Phase::Closing { until } => {
                Some(until.saturating_duration_since(Instant::now()))
            }
        };
        match due {
            // All senders gone means that all threads are; the notices about that came before.
            None => Some(self.notices.recv().unwrap_or(Notice::ControlEnded)),
            Some(due) => match self.notices.recv_timeout(due) {
                Ok(notice) => Some(notice),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Notice::ControlEnded),
            },
        }
    }

    fn take(&mut self, notice: Notice) -> Option<Exit> {
        let notice = match notice {
            Notice::Reload if self.reload.is_none() => Notice::Stop("SIGHUP"),
            other => other,
        };
        match (notice, &self.phase) {
            (Notice::Stop(signal), Phase::Running) => {
                self.drain(signal);
                None
            }
            (Notice::Stop(signal), _) => {
                warn!(signal, "second signal, ending without waiting any longer");
                Some(Exit::Interrupted)
            }
            (Notice::Reload, Phase::Running) => {
                self.reload();
                None
            }
            (Notice::Reload, _) => None,
            (Notice::RingTimeout, Phase::Running) => {
                error!("no contact point answered within require_ring_ms, so the proxy ends as told");
                Some(Exit::NoRing)
            }
            (Notice::RingTimeout, _) => None,
            (Notice::Unfit(why), Phase::Running) => {
                error!(%why, "the configuration does not go with the ring, so the proxy ends");
                Some(Exit::Unfit)
            }
            (Notice::Unfit(_), _) => None,
            (Notice::CoreEnded { index, failure: Some(failure) }, _) => {
                error!(core = index, %failure, "a core has died, so the proxy ends");
                Some(Exit::Internal)
            }
            (Notice::CoreEnded { index, failure: None }, Phase::Running) => {
                error!(core = index, "a core has ended without being told to, so the proxy ends");
                Some(Exit::Internal)
            }
            (Notice::CoreEnded { .. }, _) => {
                self.cores_running = self.cores_running.saturating_sub(1);
                (self.cores_running == 0).then(|| {
                    info!("stopped");
                    Exit::Done
                })
            }
            (Notice::ControlEnded, Phase::Running) => {
                error!("the control plane has died, so the proxy ends");
                Some(Exit::Internal)
            }
            #[cfg(feature = "node")]
            (Notice::NodeEnded { node, failure }, Phase::Running) => {
                let failure = failure.unwrap_or_else(|| "nobody told it to end".to_owned());
                error!(node, %failure, "a node has died, so the proxy ends");
                Some(Exit::Internal)
            }
            #[cfg(feature = "node")]
            (Notice::NodeEnded { .. }, _) => None,
            // It ends with the last core.
            (Notice::ControlEnded, _) => None,
        }
    }

    fn drain(&mut self, signal: &'static str) {
        let limit = Duration::from_millis(self.config.borrow().drain_timeout_ms);
        info!(signal, ?limit, "draining: no new clients, queries in flight are finished");
        self.pages.set_draining();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop();
        }
        self.send_all(&CoreMail::Drain);
        self.phase = Phase::Draining { until: Instant::now() + limit };
    }

    /// A wait is over: for room in a mailbox, for the drain, or for the cores to close.
    fn time_is_up(&mut self) -> Option<Exit> {
        let now = Instant::now();
        match self.phase {
            Phase::Draining { until } if until <= now => {
                warn!(cores = self.cores_running, "the drain took too long, remaining clients are cut off");
                self.send_all(&CoreMail::CloseAll);
                self.phase = Phase::Closing { until: now + CLOSE_LIMIT };
                None
            }
            Phase::Closing { until } if until <= now => {
                error!(cores = self.cores_running, "cores do not end");
                Some(Exit::Internal)
            }
            _ => None,
        }
    }

    fn reload(&mut self) {
        let Some(reload) = &self.reload else { return };
        let new = match reload() {
            Ok(new) => new,
            Err(problems) => {
                error!("the configuration stays as it is, because the new one is not valid:\n{problems}");
                return;
            }
        };
        let reloaded = self.config.borrow().reloaded(&new);
        // It was valid whole; what of it can be taken over now may not go with what needs a restart.
        if let Some(problem) = reloaded.config.problems().first() {
            let (key, why, restart) = (problem.key, &problem.message, &reloaded.waiting);
            error!(key, why, needs_restart = ?restart, "the configuration stays as it is: the new one is valid only after a restart");
            return;
        }
        if let Err(why) = self.pages.has_datacentre(reloaded.config.local_datacentre.as_deref()) {
            error!(%why, "the configuration stays as it is, because the new one does not go with the ring");
            return;
        }
        if !reloaded.waiting.is_empty() {
            warn!(keys = ?reloaded.waiting, "these keys have changed and need a restart");
        }
        if reloaded.changed.is_empty() {
            info!("configuration read again, nothing to apply");
            return;
        }
        info!(keys = ?reloaded.changed, "configuration applied");
        let config = Arc::new(reloaded.config);
        self.filter.set(&config.log);
        self.send_all(&CoreMail::Reload(Arc::clone(&config)));
        self.config.send_replace(config);
    }

    fn send_all(&mut self, mail: &CoreMail) {
        for core in 0..self.mailers.len() {
            self.waiting.push((core, mail.clone()));
        }
        self.retry();
    }

    /// Delivers what waits, as far as there is room, in order for each core. Mail to a core that has ended is dropped.
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
