//! Starts the nodes of a process: a listener and an event loop for each, and reports of durable
//! writes from its store.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_reactor::{Acceptor, CoreSlot, IoChoice, LoopOptions, Mailer, listen, mailbox, run};
use shunt_storage::StoreOptions;
use shunt_storage::store::StoreFigures;

use crate::admin::NodesAdmin;
use crate::cluster::ClusterInfo;
use crate::control::Control;
use crate::execute::Executor;
use crate::layout;
use crate::mail::NodeMail;
use crate::metrics::LoopMetrics;
use crate::serve::NodeService;
use crate::serve::workers::Workers;
use crate::shared::Shared;
pub use crate::stop_outcome::Stopped;
use crate::upkeep::Upkeep;

/// Most messages and new connections waiting for one loop; the accepting thread waits when it is
/// full.
const MAILBOX_CAPACITY: usize = 4096;
/// Default limit on a loop's connections.
const CONNECTIONS_MAX: usize = 60_000;

/// Options for starting nodes.
pub struct NodesOptions {
    /// Name of the cluster.
    pub cluster_name: String,
    /// CQL address of each node. The data of a directory belongs to one number of nodes.
    pub listen: Vec<SocketAddr>,
    /// Data directory.
    pub directory: PathBuf,
    /// Options of each node's store. The row cache on SSD has a directory per node below the given
    /// one.
    pub store: StoreOptions,
    /// I/O backend of the loops.
    pub io: IoChoice,
    /// Event loops of each node; at least one.
    pub loops_per_node: usize,
    /// Most connections of each loop; further ones are closed immediately.
    pub connections_max: usize,
    /// Called when a loop ends, with the reason if that was unexpected.
    pub ended: LoopEnded,
}

/// Called when a node's loop ends: the node's number, and the reason if that was unexpected.
pub type LoopEnded = Arc<dyn Fn(usize, Option<String>) + Send + Sync>;

impl NodesOptions {
    /// Nodes at these addresses with their data in a directory, and default options.
    pub fn new(directory: PathBuf, listen: Vec<SocketAddr>) -> Self {
        NodesOptions {
            cluster_name: "Shunt".to_owned(),
            listen,
            directory,
            store: StoreOptions::default(),
            io: IoChoice::Auto,
            loops_per_node: 1,
            connections_max: CONNECTIONS_MAX,
            ended: Arc::new(|node, failure| {
                if let Some(failure) = failure {
                    tracing::error!(node, %failure, "a node's loop failed");
                }
            }),
        }
    }
}

/// Reasons why nodes could not be started.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be bound; the data has not been touched.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// Any other error with its subject: mostly the data.
    Other(String),
}

impl From<String> for StartError {
    fn from(message: String) -> Self {
        StartError::Other(message)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            StartError::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for StartError {}

/// Nodes running on threads of this process.
pub struct Nodes {
    addresses: Vec<SocketAddr>,
    admin: Arc<NodesAdmin>,
    control: Option<Control>,
    mailers: Vec<Mailer<NodeMail>>,
    threads: Vec<JoinHandle<()>>,
    acceptors: Vec<Acceptor>,
    workers: Workers,
    upkeep: Upkeep,
    shared: Arc<Shared>,
    /// Held by every loop while it runs.
    alive: Sender<()>,
    all_ended: Receiver<()>,
}

/// Parts for starting a loop.
struct LoopParts {
    shared: Arc<Shared>,
    node: usize,
    io: IoChoice,
    connections_max: usize,
    metrics: Arc<LoopMetrics>,
    ended: LoopEnded,
}

impl Nodes {
    /// Opens the stores, binds the addresses and starts the loops.
    ///
    /// # Errors
    /// The object that cannot be opened, bound or started.
    pub fn start(options: NodesOptions) -> Result<Nodes, StartError> {
        let listeners: Vec<TcpListener> =
            options.listen.iter().map(bind).collect::<Result<_, _>>()?;
        let bound =
            listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>();
        let addresses = bound.map_err(|error| error.to_string())?;
        let info = ClusterInfo::new(&options.cluster_name, &addresses);
        let shared = Arc::new(Shared::open(&options.directory, info, &options.store)?);
        let of_node =
            |_| (0..options.loops_per_node.max(1)).map(|_| Arc::<LoopMetrics>::default()).collect();
        let loops: Vec<Vec<Arc<LoopMetrics>>> = (0..listeners.len()).map(of_node).collect();
        let admin = Arc::new(NodesAdmin::new(Arc::clone(&shared), loops.clone()));
        let (mailers, threads, acceptors) = (Vec::new(), Vec::new(), Vec::new());
        let (alive, all_ended) = channel();
        let workers = Workers::start(&shared)
            .map_err(|error| format!("workers cannot be started: {error}"))?;
        let upkeep =
            Upkeep::start(&shared).map_err(|error| format!("upkeep cannot be started: {error}"))?;
        let mut nodes = Nodes {
            addresses,
            admin,
            control: None,
            mailers,
            threads,
            acceptors,
            workers,
            upkeep,
            shared: Arc::clone(&shared),
            alive,
            all_ended,
        };
        for (node, (listener, metrics)) in listeners.into_iter().zip(loops).enumerate() {
            let parts = |metrics: Arc<LoopMetrics>| LoopParts {
                shared: Arc::clone(&shared),
                node,
                io: options.io,
                connections_max: options.connections_max,
                metrics,
                ended: Arc::clone(&options.ended),
            };
            let failed =
                |error: std::io::Error| format!("node {node} could not be started: {error}");
            let slots: Vec<CoreSlot<NodeMail>> = metrics
                .into_iter()
                .map(|metrics| nodes.start_loop(parts(metrics)))
                .collect::<Result<_, _>>()
                .map_err(failed)?;
            nodes.acceptors.push(Acceptor::start(vec![listener], slots).map_err(failed)?);
        }
        shared.set_mailers(nodes.mailers.clone());
        match Control::start(&shared) {
            Ok(control) => nodes.control = Some(control),
            Err(error) => {
                let path = layout::control_socket(&options.directory);
                tracing::warn!(path = %path.display(), %error, "no snapshots can be asked for while the nodes run");
            }
        }
        Ok(nodes)
    }

    fn start_loop(&mut self, parts: LoopParts) -> std::io::Result<CoreSlot<NodeMail>> {
        let LoopParts { shared, node, io, connections_max, metrics, ended } = parts;
        let (mailer, inbox) = mailbox(MAILBOX_CAPACITY)?;
        let load = Arc::new(AtomicUsize::new(0));
        let service = NodeService::new(
            Executor::new(Arc::clone(&shared), node),
            self.workers.link(mailer.clone()),
            metrics,
        );
        let options = LoopOptions {
            load: Some(Arc::clone(&load)),
            connections_max,
            ..LoopOptions::default()
        };
        let serve = move || {
            // Dropped at the end: the store closes with its last owner.
            let mut service = service;
            run(io, options, &mut service, inbox)
        };
        self.threads.push(spawn_loop(node, serve, ended, self.alive.clone())?);
        let told = mailer.clone();
        shared.stores()[node].subscribe(Box::new(move |synced| {
            let mail = match synced {
                Ok(ticket) => NodeMail::Durable(ticket.0),
                Err(error) => NodeMail::DurabilityLost(error.to_string()),
            };
            // A loop that is gone has no waiting clients.
            let _ = told.post(mail);
        }));
        self.mailers.push(mailer.clone());
        Ok(CoreSlot { mailer, load })
    }

    /// Names of threads that have ended without being told to: they have panicked. Loops are
    /// excluded, since each reports its end.
    pub fn dead_threads(&self) -> Vec<String> {
        let acceptors =
            self.acceptors.iter().enumerate().filter(|(_, acceptor)| acceptor.has_died());
        let mut dead: Vec<String> =
            acceptors.map(|(node, _)| format!("accept of node {node}")).collect();
        dead.extend(self.workers.dead_threads());
        dead.extend(self.upkeep.dead_threads());
        dead.extend(self.control.iter().flat_map(Control::dead_threads));
        dead.extend(self.shared.dead_threads());
        dead
    }

    /// Returns the figures of each node's store.
    pub fn figures(&self) -> Vec<StoreFigures> {
        self.shared.stores().iter().map(|store| store.figures()).collect()
    }

    /// Bound addresses of the nodes.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Admin view of the nodes.
    pub fn admin(&self) -> Arc<NodesAdmin> {
        Arc::clone(&self.admin)
    }

    /// Stops accepting connections, answers waiting requests, closes the stores; late if a client
    /// or a snapshot delays it by more than `limit`.
    pub fn stop(self, limit: Duration) -> Stopped {
        self.admin.set_draining();
        let until = Instant::now() + limit;
        let accepting_died =
            self.acceptors.into_iter().map(Acceptor::stop).filter(|well| !well).count() > 0;
        self.shared.stores().iter().for_each(|store| store.stop_sweeping());
        for mailer in &self.mailers {
            let _ = mailer.post(NodeMail::Drain);
        }
        // No message is ever sent: the last loop to end closes the channel.
        drop(self.alive);
        let left = || until.saturating_duration_since(Instant::now());
        let drained = self.all_ended.recv_timeout(left()) != Err(RecvTimeoutError::Timeout);
        let finished = self.control.map_or(Stopped::InTime, |control| control.stop(left()));
        if finished == Stopped::Late {
            tracing::warn!(
                "a snapshot was not finished in time; what there is of the copy does not open"
            );
        }
        // Waiting callers have their answer, or will get none.
        let at_rest = self.workers.stop(left()).max(self.upkeep.stop(left()));
        let ended = Stopped::of(drained, self.threads).max(at_rest).max(finished);
        // With a late loop the stores stay open until it, or the process, ends.
        let closed_well = if ended == Stopped::Late {
            self.shared.dead_threads().is_empty()
        } else {
            self.shared.close()
        };
        if accepting_died || !closed_well { Stopped::Died } else { ended }
    }
}

/// The thread of a loop; reports its end in any case.
fn spawn_loop(
    node: usize,
    serve: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ended: LoopEnded,
    alive: Sender<()>,
) -> std::io::Result<JoinHandle<()>> {
    let body = move || {
        let failure = match catch_unwind(AssertUnwindSafe(serve)) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it panicked; the log says where".to_owned()),
        };
        ended(node, failure);
        drop(alive);
    };
    std::thread::Builder::new().name(format!("node-{node}")).spawn(body)
}

fn bind(address: &SocketAddr) -> Result<TcpListener, StartError> {
    listen(*address).map_err(|error| StartError::Listen { address: *address, error })
}

#[cfg(test)]
mod tests;
