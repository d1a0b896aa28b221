//! Metrics, health, readiness and status of the proxy, as seen from outside.
//!
//! The pages only read: counters of the cores, the last known ring and the configuration. They ask
//! the cores for their clients, their slow queries, the members of the fleet and the locks that
//! clients wait for. The main thread makes the changes.

mod alert_kinds;
mod alerts;
pub(crate) mod core_answers;
mod clients;
mod connections;
mod failed_logins;
mod fleet;
mod digests;
mod errors;
mod group_metrics;
mod hot_keys;
mod eviction;
mod lock_list;
mod node_drain;
mod config_changes;
mod settings;
mod slow_queries;
mod status;
mod tenants;
mod rules;
mod windows;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use shunt_admin::{
    Change, Encoder, Exemplar, Heartbeats, Json, Map, MetricState, Part, Reading, State, Unit,
};
use shunt_topology::RoutingTable;
use tokio::sync::{mpsc, watch};

use crate::config::{Config, Switch};
use crate::control::datacentre;
use crate::control::{ControlRequest, Mailbox};
use crate::metrics::exposition::Sources;
use crate::metrics::{Outcome, Snapshot};
use clients::Clients;
pub use config_changes::{Answer, ChangeResult, ConfigChange};
pub use settings::{Source, SourceMap};

/// The pages of the admin address and their sources.
#[derive(Debug)]
pub struct Admin {
    sources: Sources,
    config: watch::Receiver<Arc<Config>>,
    listening: Vec<SocketAddr>,
    draining: AtomicBool,
    heartbeats: Heartbeats,
    alerts: alerts::Seen,
    clients: Clients,
    connections: connections::Connections,
    failed_logins: failed_logins::FailedLogins,
    lock_list: lock_list::LockList,
    locks: fleet::Locks,
    slow_queries: slow_queries::Records,
    digests: digests::Digests,
    hot_keys: hot_keys::HotKeys,
    settings: settings::Settings,
    config_changes: config_changes::ConfigChanges,
    evictions: eviction::Evictions,
    node_drain: node_drain::NodeDrain,
    windows: windows::Windows,
}

impl Admin {
    /// `listening`: addresses bound for clients. `mailboxes`: those of the cores, in order.
    pub fn new(
        sources: Sources,
        config: watch::Receiver<Arc<Config>>,
        listening: Vec<SocketAddr>,
        mailboxes: Vec<Mailbox>,
    ) -> Arc<Self> {
        let heartbeats = Heartbeats::new(sources.cores.len());
        let mailboxes: Arc<[Mailbox]> = mailboxes.into();
        let clients = Clients::new(Arc::clone(&mailboxes));
        let connections = connections::Connections::new(Arc::clone(&mailboxes));
        let failed_logins = failed_logins::FailedLogins::new(Arc::clone(&mailboxes));
        let lock_list = lock_list::LockList::new(Arc::clone(&mailboxes));
        let locks = fleet::Locks::new(Arc::clone(&mailboxes));
        let hot_keys = hot_keys::HotKeys::new(Arc::clone(&mailboxes));
        let digests = digests::Digests::new(Arc::clone(&mailboxes));
        let slow_queries = slow_queries::Records::new(Arc::clone(&mailboxes));
        let evictions = eviction::Evictions::new(mailboxes);
        Arc::new(Self {
            sources,
            config,
            listening,
            draining: AtomicBool::new(false),
            heartbeats,
            alerts: alerts::Seen::default(),
            clients,
            connections,
            failed_logins,
            lock_list,
            locks,
            slow_queries,
            windows: windows::Windows::default(),
            digests,
            hot_keys,
            settings: settings::Settings::new(),
            config_changes: config_changes::ConfigChanges::default(),
            evictions,
            node_drain: node_drain::NodeDrain::default(),
        })
    }

    /// Checks that the ring has this datacentre. Passes without a name and while the ring is
    /// unknown.
    ///
    /// # Errors
    /// The ring has no such datacentre; the text names the existing ones.
    pub fn has_datacentre(&self, name: Option<&str>) -> Result<(), String> {
        let (Some(name), Some(cluster)) = (name, self.sources.cluster.get()) else { return Ok(()) };
        datacentre::choose(Some(name), cluster.routing.nodes(), &[]).map(|_| ())
    }

    /// Connects changes with the main thread, which gets each of them through `sender`.
    pub fn take_config_changes(&self, sender: impl Fn(ConfigChange) + Send + Sync + 'static) {
        self.config_changes.connect(Box::new(sender));
    }

    /// Connects changes of the routing with the control plane.
    pub fn take_control(&self, requests: mpsc::WeakSender<ControlRequest>) {
        self.node_drain.connect(requests);
    }

    /// Notes a configuration that was read, and the sources of its options.
    pub fn set_settings(&self, wanted: Arc<Config>, sources: SourceMap) {
        self.settings.set(wanted, sources);
    }

    /// Notes that an option has its value by a request, or no longer.
    pub fn set_by_request(&self, key: &'static str, is_by_request: bool) {
        self.settings.set_by_request(key, is_by_request);
    }

    /// The configuration as it was last read; `None` for a process without one.
    pub fn wanted_settings(&self) -> Option<Arc<Config>> {
        self.settings.wanted()
    }

    /// Notes that a configuration was refused, for these reasons.
    pub fn refuse_settings(&self, problems: Vec<String>) {
        self.settings.refuse(problems);
    }

    /// Makes `/readyz` report "not ready", so that load balancers send new clients elsewhere, or no
    /// longer.
    pub fn set_draining(&self, is_draining: bool) {
        self.draining.store(is_draining, Ordering::Relaxed);
    }

    /// True if the cores have clients, as they counted last.
    pub fn has_clients(&self) -> bool {
        self.sources.cores.iter().any(|core| core.clients.get() > 0)
    }
}

impl Part for Admin {
    fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let cores = &self.sources.cores;
        let ages = self.heartbeats.ages(cores.iter().map(|core| core.turns.get()), Instant::now());
        let ages = cores.iter().zip(ages);
        let ages = ages
            .map(|(core, age)| (vec![("core", core.core.to_string())], age.as_secs_f64()))
            .collect::<Vec<_>>();
        let help =
            "Time since the event loop was last seen to have turned; Shunt looks once a second.";
        encoder.gauge("shunt_loop_turn_age", help, Some(&Unit::Seconds), &ages)?;
        self.settings.metrics(encoder)?;
        tenants::metrics(&self.config.borrow().tenant, encoder)?;
        rules::metrics(&self.config.borrow().rule, encoder)?;
        self.sources.write(encoder)
    }

    fn exemplars(&self) -> (&'static str, Vec<Exemplar>) {
        ("shunt_query_duration_seconds", self.sources.traces.exemplars.all())
    }

    fn look(&self) {
        alerts::look(self);
    }

    fn stuck(&self, now: Instant) -> Map<String, Json> {
        let cores = &self.sources.cores;
        let stuck = self.heartbeats.stuck(cores.iter().map(|core| core.turns.get()), now);
        let stuck: Vec<usize> = stuck.into_iter().map(|index| cores[index].core).collect();
        let entry = (!stuck.is_empty()).then(|| ("cores".to_owned(), stuck.into()));
        entry.into_iter().collect()
    }

    fn status(&self) -> State<'_> {
        Box::pin(status::status(self))
    }

    fn reading(&self) -> Option<Reading> {
        let mut latency = Snapshot::default();
        let cores = self.sources.cores.iter();
        cores.clone().for_each(|core| core.latency_ns.add_to(&mut latency));
        let failures = [Outcome::Error, Outcome::Overloaded, Outcome::TimedOut, Outcome::LinkLost];
        let failed = cores.flat_map(|core| failures.map(|outcome| core.outcomes.of(outcome).get()));
        Some(Reading { answered: latency.count(), failed: failed.sum(), latency })
    }

    fn pages(&self) -> &'static [&'static str] {
        &[
            slow_queries::PAGE,
            digests::PAGE,
            hot_keys::PAGE,
            settings::PAGE,
            connections::CLIENTS_PAGE,
            connections::LINKS_PAGE,
            lock_list::PAGE,
            failed_logins::PAGE,
            tenants::PAGE,
            rules::PAGE,
        ]
    }

    fn page(&self, name: &str) -> Option<State<'_>> {
        match name {
            slow_queries::PAGE => Some(Box::pin(self.slow_queries.page())),
            digests::PAGE => {
                let is_on = self.config.borrow().digests == Switch::On;
                Some(Box::pin(self.digests.page(is_on)))
            }
            hot_keys::PAGE => {
                let with_values = self.config.borrow().log_values == Switch::On;
                Some(Box::pin(self.hot_keys.page(with_values)))
            }
            connections::CLIENTS_PAGE => {
                Some(Box::pin(self.connections.page(connections::CLIENTS_PAGE)))
            }
            connections::LINKS_PAGE => {
                Some(Box::pin(self.connections.page(connections::LINKS_PAGE)))
            }
            failed_logins::PAGE => Some(Box::pin(self.failed_logins.page())),
            tenants::PAGE => {
                let page = tenants::page(&self.config.borrow().tenant);
                Some(Box::pin(std::future::ready(page)))
            }
            rules::PAGE => {
                let page = rules::page(&self.config.borrow().rule);
                Some(Box::pin(std::future::ready(page)))
            }
            lock_list::PAGE => {
                let fleet = self.config.borrow().fleet.clone();
                Some(Box::pin(async move { self.lock_list.page(fleet.as_deref()).await }))
            }
            settings::PAGE => {
                let page = self.settings.page(&self.config.borrow().clone());
                Some(Box::pin(std::future::ready(page)))
            }
            _ => None,
        }
    }

    fn metric_pages(&self) -> &'static [&'static str] {
        &[group_metrics::PAGE]
    }

    fn metric_page(&self, name: &str) -> Option<MetricState<'_>> {
        (name == group_metrics::PAGE).then(|| Box::pin(self.clients.metrics()) as MetricState<'_>)
    }

    fn changes(&self) -> &'static [&'static str] {
        &[
            config_changes::RELOAD,
            config_changes::LOG_LEVEL,
            config_changes::SET_OPTION,
            config_changes::DRAIN,
            config_changes::UNDRAIN,
            eviction::KICK,
            node_drain::DRAIN,
            node_drain::UNDRAIN,
        ]
    }

    fn change(&self, name: &str, parameters: &Json, from: IpAddr) -> Option<Change<'_>> {
        match name {
            eviction::KICK => Some(self.evictions.kick(parameters, from)),
            node_drain::DRAIN | node_drain::UNDRAIN => {
                let ring = (&self.sources.cluster, &self.sources.cores[..]);
                let drained = name == node_drain::DRAIN;
                Some(self.node_drain.change(parameters, drained, ring, from))
            }
            _ => self.config_changes.change(name, parameters, from),
        }
    }

    fn not_ready(&self) -> Option<String> {
        if self.draining.load(Ordering::Relaxed) {
            return Some("draining".to_owned());
        }
        let Some(cluster) = self.sources.cluster.get() else {
            return Some("the ring is not known yet".to_owned());
        };
        let routing = &cluster.routing;
        if routing.local_nodes().is_empty() {
            let (name, there) = (&cluster.datacentre, datacentre::list(routing.nodes()));
            return Some(format!("no node is in the local datacentre {name:?}; there are {there}"));
        }
        let mut local = routing.local_nodes().iter().filter_map(|id| routing.node(*id));
        if !local.any(|node| node.up) {
            return Some("no node of the local datacentre is up".to_owned());
        }
        if self.is_cut_off() {
            return Some("no node can be reached".to_owned());
        }
        let is_in_doubt = self.sources.cores.iter().any(|core| core.modes_in_doubt.get() > 0);
        is_in_doubt
            .then(|| "no quorum of shunt_meta has told the tables' modes and rules".to_owned())
    }
}

impl Admin {
    /// True if the proxy reaches no node: it has no control connection and no link. The list of
    /// nodes that are up does not tell, because it is out of date without a control connection.
    pub fn is_cut_off(&self) -> bool {
        let links = self.sources.cluster.get().map_or(0, |cluster| self.links(&cluster.routing));
        self.sources.control.connected.get() == 0 && links == 0
    }

    /// True if a client holds a lock of this proxy, as its cores counted at their last ticks.
    pub fn has_held_locks(&self) -> bool {
        self.sources.cores.iter().any(|core| core.locks.held.get() > 0)
    }

    /// Open links of all cores to all nodes.
    fn links(&self, routing: &RoutingTable) -> u64 {
        let cores = self.sources.cores.iter();
        let of_cores = cores.flat_map(|core| {
            routing.nodes().iter().filter_map(move |node| core.nodes.get(node.id))
        });
        of_cores.map(|node| node.links.get()).sum()
    }
}
