//! Starts the nodes of a process: for each its listener, its event loop, and word from its store of what is durable.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use shunt_reactor::{Acceptor, CoreSlot, IoChoice, LoopOptions, Mailer, listen, mailbox, run};
use shunt_storage::StoreOptions;

use crate::cluster::ClusterInfo;
use crate::execute::Executor;
use crate::serve::{NodeMail, NodeService};
use crate::shared::Shared;

/// Mail and fresh connections that may wait for one loop; the accepting thread waits when it is full.
const MAILBOX_CAPACITY: usize = 4096;

/// What nodes are started from.
pub struct NodesOptions {
    /// Name of the cluster that they are.
    pub cluster_name: String,
    /// Where each listens for CQL. The data of a directory belongs to one number of nodes.
    pub listen: Vec<SocketAddr>,
    /// Where the data is.
    pub directory: PathBuf,
    /// Of each node's store.
    pub store: StoreOptions,
    /// How loops wait for sockets.
    pub io: IoChoice,
}

/// Nodes that run on threads of this process.
pub struct Nodes {
    addresses: Vec<SocketAddr>,
    mailers: Vec<Mailer<NodeMail>>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    acceptors: Vec<Acceptor>,
}

impl Nodes {
    /// Opens the stores, binds the addresses and starts the loops.
    ///
    /// # Errors
    /// What cannot be opened, bound or started, with its name.
    pub fn start(options: NodesOptions) -> Result<Nodes, String> {
        let NodesOptions { cluster_name, listen, directory, store, io } = options;
        check_layout(&directory, listen.len())?;
        let listeners: Vec<TcpListener> = listen.iter().map(bind).collect::<Result<_, _>>()?;
        let bound = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>();
        let addresses = bound.map_err(|error| error.to_string())?;
        let info = ClusterInfo::new(&cluster_name, &addresses);
        let shared = Arc::new(Shared::open(&directory, info, &store)?);
        let mut nodes = Nodes { addresses, mailers: Vec::new(), threads: Vec::new(), acceptors: Vec::new() };
        for (index, listener) in listeners.into_iter().enumerate() {
            let failed = |error: std::io::Error| format!("node {index} could not be started: {error}");
            nodes.start_one(&shared, index, listener, io).map_err(failed)?;
        }
        shared.set_mailers(nodes.mailers.clone());
        Ok(nodes)
    }

    fn start_one(
        &mut self,
        shared: &Arc<Shared>,
        index: usize,
        listener: TcpListener,
        io: IoChoice,
    ) -> std::io::Result<()> {
        let (mailer, inbox) = mailbox(MAILBOX_CAPACITY)?;
        let load = Arc::new(AtomicUsize::new(0));
        let mut service = NodeService::new(Executor::new(Arc::clone(shared), index));
        let options = LoopOptions { load: Some(Arc::clone(&load)), ..LoopOptions::default() };
        let thread = std::thread::Builder::new().name(format!("node-{index}"));
        self.threads.push(thread.spawn(move || run(io, options, &mut service, inbox))?);
        let told = mailer.clone();
        shared.stores()[index].subscribe(Box::new(move |synced| {
            let mail = match synced {
                Ok(ticket) => NodeMail::Durable(ticket.0),
                Err(error) => NodeMail::DurabilityLost(error.to_string()),
            };
            // A loop that is gone has nobody left who waits.
            let _ = told.post(mail);
        }));
        let slot = CoreSlot { mailer: mailer.clone(), load };
        self.acceptors.push(Acceptor::start(vec![listener], vec![slot])?);
        self.mailers.push(mailer);
        Ok(())
    }

    /// Where the nodes listen, as bound.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes no more connections, answers what waits, and ends.
    pub fn stop(self) {
        self.acceptors.into_iter().for_each(Acceptor::stop);
        for mailer in &self.mailers {
            let _ = mailer.post(NodeMail::Drain);
        }
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a node's loop failed"),
                Err(_) => tracing::error!("a node's loop panicked"),
            }
        }
    }
}

fn bind(address: &SocketAddr) -> Result<TcpListener, String> {
    listen(*address).map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// Rows lie with the node that owns their token, and who owns it depends on the number of nodes.
fn check_layout(directory: &Path, nodes: usize) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    let path = directory.join("nodes");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim() == nodes.to_string() => Ok(()),
        Ok(text) => Err(format!(
            "{} has the data of {} node(s) and cannot be opened with {nodes}; use --nodes {} or another directory",
            directory.display(),
            text.trim(),
            text.trim()
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::write(&path, format!("{nodes}\n")).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}
