//! The nodes as a part of the process: the end of their loops, the drain, the closing of the
//! stores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use shunt_node::run::{LoopEnded, Nodes, Stopped};
use tracing::{error, info, warn};

use crate::exit::Exit;
use crate::relay::RelayTls;
use crate::supervise::threads::KnownDead;
use crate::supervise::{Events, Part, Teller};

/// Time limit for closing the stores after everything else has ended.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A message from one of the nodes' threads.
enum Notice {
    /// A loop of a node has ended.
    LoopEnded {
        /// Number of the node.
        node: usize,
        /// The reason, if the loop should not have ended.
        failure: Option<String>,
    },
    /// The thread of the admin pages has ended.
    AdminEnded {
        /// The reason, if the thread died. It also ends when the pages cannot be served; the log
        /// has that error.
        failure: Option<String>,
    },
    /// The nodes have closed, or failed to.
    Stopped(Stopped),
}

/// Channels on which the nodes report; created before the nodes start.
pub(super) struct Telling {
    teller: Teller<Notice>,
    notices: Receiver<Notice>,
}

impl Telling {
    pub(super) fn new(events: &Events) -> Self {
        let (teller, notices) = events.teller();
        Self { teller, notices }
    }

    /// Returns the callback for the end of a loop.
    pub(super) fn loops(&self) -> LoopEnded {
        let teller = self.teller.clone();
        Arc::new(move |node, failure| teller.tell(Notice::LoopEnded { node, failure }))
    }

    /// Returns the callback for the end of the admin pages' thread.
    pub(super) fn admin(&self) -> impl FnOnce(Option<String>) + Send + 'static {
        let teller = self.teller.clone();
        move |failure| teller.tell(Notice::AdminEnded { failure })
    }
}

/// Differences between `shunt node` and `shunt up`.
pub(super) struct Manner {
    /// Time limit of a drain.
    pub(super) drain_limit: Duration,
    /// Log message for a drain that exceeds the limit.
    pub(super) late: &'static str,
    /// Log message for a dead loop.
    pub(super) died: &'static str,
}

/// The nodes while they run, and the handles to end them.
pub(super) struct NodesPart {
    /// `None` once the nodes were told to end.
    nodes: Option<Nodes>,
    telling: Telling,
    manner: Manner,
    /// TLS and tokens of the nodes' own pages; `shunt up` has its pages at the proxies.
    tls: RelayTls,
    dead: KnownDead,
    /// True if nothing is left to wait for.
    has_ended: bool,
}

impl NodesPart {
    pub(super) fn new(nodes: Nodes, telling: Telling, manner: Manner, tls: RelayTls) -> Self {
        let (nodes, dead) = (Some(nodes), KnownDead::default());
        Self { nodes, telling, manner, tls, dead, has_ended: false }
    }

    /// Finds a thread that died without a message and was not reported before.
    fn find_dead(&mut self) -> Option<Exit> {
        let thread = self.dead.first_new(self.nodes.as_ref()?.dead_threads())?;
        error!(thread, "a thread of the nodes has died, so the process ends; the log says where");
        Some(Exit::Internal)
    }

    /// Handles a message; returns the process's exit status if the message ends the process.
    fn take(&mut self, notice: Notice) -> Option<Exit> {
        let outcome = match notice {
            Notice::LoopEnded { failure: None, .. } if self.nodes.is_none() => return None,
            Notice::LoopEnded { node, failure } => {
                let failure = failure.unwrap_or_else(|| "it ended without an order".to_owned());
                error!(node, %failure, "{}", self.manner.died);
                return Some(Exit::Internal);
            }
            Notice::AdminEnded { failure: None } => return None,
            Notice::AdminEnded { failure: Some(failure) } => {
                error!(%failure, "the thread of the admin pages has died, so the process ends");
                return Some(Exit::Internal);
            }
            Notice::Stopped(outcome) => outcome,
        };
        self.has_ended = true;
        match outcome {
            Stopped::InTime => None,
            Stopped::Late => {
                warn!("{}", self.manner.late);
                None
            }
            Stopped::Died => {
                error!("a thread of the nodes has died");
                Some(Exit::Internal)
            }
        }
    }
}

impl Part for NodesPart {
    fn look(&mut self) -> Option<Exit> {
        self.tls.tick(Instant::now());
        while let Ok(notice) = self.telling.notices.try_recv() {
            if let Some(exit) = self.take(notice) {
                return Some(exit);
            }
        }
        self.find_dead()
    }

    fn reload(&mut self) {
        self.tls.reload();
        info!("the node reads its certificates and tokens again; other changes need a restart");
    }

    fn drain(&mut self, signal: Option<&'static str>) -> Duration {
        let limit = self.manner.drain_limit;
        info!(signal, ?limit, "draining: the node ends once its answers are delivered");
        if let Some(nodes) = self.nodes.take() {
            let teller = self.telling.teller.clone();
            let stop = move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| nodes.stop(limit)));
                teller.tell(Notice::Stopped(outcome.unwrap_or(Stopped::Died)));
            };
            if let Err(error) = std::thread::Builder::new().name("closing".to_owned()).spawn(stop) {
                error!(%error, "the system refuses a thread to close the nodes");
                self.telling.teller.tell(Notice::Stopped(Stopped::Died));
            }
        }
        limit
    }

    /// The nodes cut off their waiting clients themselves and log it.
    fn cut_off(&mut self) -> Duration {
        CLOSE_LIMIT
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn give_up(&self) {
        error!("the nodes do not end");
    }
}
