//! The life of the control plane: get a control connection, follow the ring on it, get another when
//! it is lost.
//!
//! ```text
//! connect to any known node -> register for events -> read ring and schema -> publish
//!       ^                                                                      |
//!       +---- lost <- events, requests of cores, periodic reading, heartbeat <-+
//! ```

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shunt_topology::{Backoff, Node, RoutingTable};
use shunt_transactions::catalogue::modes::InitialModes;
use shunt_wire::printable::printable_to;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

use super::access::Access;
use super::agreement::Answer;
use super::contact;
use super::datacentre::{self, Resolved};
use super::down_nodes::{Change, DownNodes};
use super::drained_nodes::DrainedNodes;
use super::error::{ControlError, Step};
use super::follow;
use super::handshake::{Session, Substitute};
use super::inventory::Inventories;
use super::log_budget::LogBudget;
use super::post::{Mailbox, Post};
use super::probes::Probes;
use super::requests::{hand_on, refuse_meanwhile};
use super::ring::{self, KnownNodes, Ring};
use super::ring_identity::{self, Members};
use super::round::{Candidates, Failures, try_round};
use super::schema::Schema;
use super::state::{ClusterState, ControlRequest, CoreMail};
use crate::config::Config;
use crate::limits;
use crate::metrics::ControlMetrics;
use crate::tls::OutgoingTls;

/// First wait between two rounds over all known addresses.
const RECONNECT_FIRST: Duration = Duration::from_millis(250);
/// Longest such wait.
const RECONNECT_MAX: Duration = Duration::from_secs(10);
/// Age from which on a session that nobody reads is not used.
const NEXT_AGE_MAX: Duration = Duration::from_secs(10);
/// Keyspaces without token routing that a line names.
const UNPLACED_SHOWN_MAX: usize = 8;

/// The parts that the control plane is made from.
pub struct ControlOptions {
    /// Settings, and their changes.
    pub config: watch::Receiver<Arc<Config>>,
    /// Mailboxes of the cores, by index.
    pub mailboxes: Vec<Mailbox>,
    /// Requests of the cores.
    pub requests: mpsc::Receiver<ControlRequest>,
    /// Publishes the ring for the admin interface; from [`super::ClusterView::new`].
    pub view: watch::Sender<Option<Arc<ClusterState>>>,
    /// Counters of the control plane.
    pub metrics: Arc<ControlMetrics>,
    /// TLS to nodes; `None`: clear text.
    pub tls: Option<Arc<OutgoingTls>>,
    /// Seed of jitter and of the order in which nodes are tried.
    pub seed: u64,
}

/// The reason why a proxy with this configuration must not serve clients of this ring. The plane
/// finds it before the cores hear of a ring.
#[derive(Debug)]
pub struct Unfit(pub String);

/// State of the control plane; outlives control connections.
pub struct ControlPlane {
    pub(super) config: watch::Receiver<Arc<Config>>,
    /// The configuration that the choice of the datacentre goes by.
    applied: Arc<Config>,
    pub(super) post: Post,
    pub(super) requests: mpsc::Receiver<ControlRequest>,
    pub(super) metrics: Arc<ControlMetrics>,
    pub(super) known: KnownNodes,
    /// The ring as last read; `None` before.
    pub(super) ring: Option<Ring>,
    /// Host ids of the ring's nodes.
    pub(super) members: HashSet<u128>,
    pub(super) schema: Schema,
    /// The schema as clients know it from events.
    pub(super) inventories: Inventories,
    /// The local datacentre if none is configured: that of the contact points, for the life of the
    /// process.
    home: Option<String>,
    /// Look-ups of the contact points for a changed configuration.
    pub(super) lookups: JoinSet<Vec<Resolved>>,
    /// Contact points that were looked up for the present control connection.
    resolved: Vec<Resolved>,
    /// Nodes believed down.
    pub(super) down: DownNodes,
    /// Hash of the names of the keyspaces that have no replicas in the last routing table; `None`:
    /// all have.
    unplaced: Option<u64>,
    /// Log lines about nodes.
    pub(super) lines: LogBudget,
    /// Nodes that an operator has taken out of routing.
    pub(super) drained: DrainedNodes,
    /// The attempt to get a control connection that goes to no drained node.
    pub(super) moves: JoinSet<Option<Substitute>>,
    /// The control connection that takes the place of the present one.
    pub(super) next: Option<Substitute>,
    /// Age from which on `next` is not used: nobody reads it or keeps it alive.
    pub(super) next_age_max: Duration,
    /// The node whose control connection was lost last.
    lost: Option<SocketAddr>,
    /// Probes of nodes in progress.
    pub(super) probes: Probes,
    /// Checks of schema agreement in progress, on the nodes that changed the schema.
    pub(super) agreements: JoinSet<Answer>,
    view: watch::Sender<Option<Arc<ClusterState>>>,
    tls: Option<Arc<OutgoingTls>>,
    generation: u64,
    random: u64,
}

impl ControlPlane {
    /// Makes a control plane that knows nothing yet.
    pub fn new(options: ControlOptions) -> Self {
        let applied = Arc::clone(&options.config.borrow());
        Self {
            applied,
            config: options.config,
            post: Post::new(options.mailboxes, Arc::clone(&options.metrics)),
            requests: options.requests,
            metrics: options.metrics,
            known: KnownNodes::default(),
            ring: None,
            members: HashSet::new(),
            schema: Schema::default(),
            inventories: Inventories::default(),
            home: None,
            lookups: JoinSet::new(),
            resolved: Vec::new(),
            down: DownNodes::default(),
            unplaced: None,
            lines: LogBudget::default(),
            drained: DrainedNodes::default(),
            moves: JoinSet::new(),
            next: None,
            next_age_max: NEXT_AGE_MAX,
            lost: None,
            probes: Probes::default(),
            agreements: JoinSet::new(),
            view: options.view,
            tls: options.tls,
            generation: 0,
            random: options.seed | 1,
        }
    }

    /// Runs for the life of the process; ends when all cores have dropped their request channels.
    /// Needs a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// The ring at the first read contradicts the configuration, see [`Unfit`].
    pub async fn run(mut self) -> Result<(), Unfit> {
        let (hand, taken) = mpsc::channel(1);
        let requests = std::mem::replace(&mut self.requests, taken);
        // A silent node must not delay the end by as long as one step may take.
        tokio::select! {
            ended = self.live() => ended,
            () = hand_on(requests, hand) => Ok(()),
        }
    }

    async fn live(&mut self) -> Result<(), Unfit> {
        let mut backoff = Backoff::new(RECONNECT_FIRST, RECONNECT_MAX);
        while let Some(connected) = self.connect().await {
            let session = connected?;
            let since = Instant::now();
            let address = session.connection.address;
            info!(%address, version = session.connection.version, "control connection to the ring");
            if session.is_proxy {
                warn!(
                    %address,
                    "the control connection goes to another Shunt proxy, which routes all queries \
                    of this one: name nodes as contact points, unless you want such a chain"
                );
            }
            self.metrics.connected.set(1);
            let outcome = follow::follow(self, session).await;
            self.metrics.connected.set(0);
            let error = match outcome {
                Ok(()) => break,
                Err(ControlError::Unfit(why)) => return Err(Unfit(why)),
                Err(ControlError::Drained) => {
                    info!(%address, "the control connection leaves a drained node");
                    continue;
                }
                Err(error) => error,
            };
            self.metrics.connections_lost.add(1);
            self.lost = Some(address);
            warn!(%address, %error, "control connection lost");
            // A node may accept the connection and then fail to describe the ring; that must not
            // become a busy loop.
            if since.elapsed() > RECONNECT_MAX {
                backoff.reset();
                continue;
            }
            let pause = backoff.next(self.random());
            if refuse_meanwhile(&mut self.requests, &mut self.post, sleep(pause)).await.is_none() {
                break;
            }
        }
        debug!("all cores are gone, the control plane ends");
        Ok(())
    }

    pub(super) fn settings(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }

    /// The way to reach a node.
    pub(super) fn access(&self) -> Access {
        let config = self.config.borrow();
        Access {
            credentials: config.credentials(),
            by_password: false,
            tls: self.tls.as_ref().map(|tls| tls.client()),
            counts: self.tls.clone(),
            name: None,
            limit: Duration::from_millis(config.connect_timeout_ms),
        }
    }

    /// Tries all known addresses until one gives a session; `None` when all cores are gone.
    ///
    /// # Errors
    /// No ring is known, no contact point has described one, and one of them is this proxy itself.
    async fn connect(&mut self) -> Option<Result<Session, Unfit>> {
        let next = self.next.take().filter(|next| next.since.elapsed() < self.next_age_max);
        if let Some(Substitute { session, .. }) = next {
            return Some(Ok(session));
        }
        let mut backoff = Backoff::new(RECONNECT_FIRST, RECONNECT_MAX);
        loop {
            let config = self.settings();
            let candidates = self.candidates(&config);
            let round = try_round(config, candidates, Arc::clone(&self.metrics));
            match refuse_meanwhile(&mut self.requests, &mut self.post, round).await? {
                Ok((session, resolved)) => {
                    self.resolved = resolved;
                    return Some(Ok(session));
                }
                Err(Failures { own: Some(why), .. }) if self.ring.is_none() => {
                    return Some(Err(Unfit(why)));
                }
                Err(Failures { attempts, .. }) => self.report(&attempts),
            }
            let pause = backoff.next(self.random());
            refuse_meanwhile(&mut self.requests, &mut self.post, sleep(pause)).await?;
        }
    }

    /// Known nodes in random order, those that are up first and those that are drained after them,
    /// then the contact points. The address whose connection was lost last comes after all others.
    pub(super) fn candidates(&mut self, config: &Config) -> Candidates {
        let mut nodes: Vec<Node> =
            self.ring.as_ref().map(|ring| ring.nodes.clone()).unwrap_or_default();
        let local = config.local_datacentre.as_deref();
        let mut keyed: Vec<_> = nodes
            .drain(..)
            .map(|node| {
                let remote = local.is_some_and(|local| local != node.datacentre);
                let is_down = self.down.contains(node.host_id);
                let is_drained = self.drained.contains(node.host_id);
                ((is_down, is_drained, remote, self.random()), node.address)
            })
            .collect();
        keyed.sort();
        let mut names = config.contact_points.clone();
        shuffle(&mut names, |bound| (self.random() % bound as u64) as usize);
        let members = self.ring.as_ref().map(Members::of);
        Candidates {
            nodes: keyed.into_iter().map(|(_, address)| address).collect(),
            names,
            last: self.lost,
            members,
            access: self.access(),
        }
    }

    fn report(&self, attempts: &[String]) {
        self.metrics.connect_failures.add(attempts.len() as u64);
        let attempts = attempts.join("; ");
        if self.ring.is_some() {
            warn!(%attempts, "no node could be reached for the control connection; the last known ring stays in use");
        } else {
            error!(%attempts, "no contact point could be reached; clients are refused until one answers");
        }
    }

    /// Begins to build a routing table from the known state, beside the control thread. `None`
    /// before the ring is known and fits the configuration.
    pub(super) fn draft(&mut self) -> Option<Draft> {
        let ring = self.ring.as_ref()?;
        let config = self.settings();
        let datacentre = config.local_datacentre.clone().or_else(|| self.home.clone())?;
        let changes = self.down.publish();
        let changed: HashSet<u128> = changes.iter().map(|change| change.host_id).collect();
        let nodes = ring.nodes.iter().filter(|node| changed.contains(&node.host_id));
        let nodes: HashMap<u128, &Node> = nodes.map(|node| (node.host_id, node)).collect();
        for Change { host_id, is_up, by } in changes {
            let Some(node) = nodes.get(&host_id) else { continue };
            let Some(suppressed) = self.lines.admit(Instant::now()) else { continue };
            if is_up {
                info!(address = %node.address, by, suppressed, "node is up");
            } else {
                warn!(address = %node.address, by, suppressed, "node is down");
            }
        }
        let mut nodes = ring.nodes.clone();
        for node in &mut nodes {
            node.up = !self.down.contains(node.host_id);
        }
        if !nodes.iter().any(|node| node.datacentre == datacentre) {
            let there = datacentre::list(&nodes);
            error!(%datacentre, there, "the ring has no node left in the local datacentre: \
            queries are refused");
        }
        let schema = self.schema.clone();
        let local = datacentre.clone();
        let routing = spawn_blocking(move || {
            RoutingTable::build(nodes, schema.keyspaces, schema.tables, Some(&local))
        });
        Some(Draft { routing, datacentre })
    }

    /// Publishes a routing table with the known state, and with the modes that the cores begin with
    /// if this is the first.
    pub(super) fn publish(
        &mut self,
        session: &Session,
        draft: Draft,
        routing: RoutingTable,
        modes: Option<InitialModes>,
    ) {
        let Some(ring) = &self.ring else { return };
        self.generation += 1;
        let state = Arc::new(ClusterState {
            generation: self.generation,
            protocol_version_max: version_of_all(ring, session.connection.version),
            authenticator: session.authenticator.clone(),
            cluster_name: ring.cluster_name.clone(),
            release_version: ring.release_version.clone(),
            cql_version: ring.cql_version.clone(),
            partitioner: ring.partitioner.clone(),
            compressions: session.compressions.clone(),
            datacentre: draft.datacentre,
            rack: ring.rack.clone(),
            schema_version: ring.schema_version,
            drained: self.drained.numbers(&routing),
            routing: Arc::new(routing),
            modes,
        });
        self.note_unplaced(&state.routing);
        self.send(state);
    }

    fn send(&mut self, state: Arc<ClusterState>) {
        self.post.send_all(&CoreMail::Cluster(Arc::clone(&state)));
        self.view.send_replace(Some(state));
    }

    /// Takes a node out of routing, or back, and publishes the last state with this change. The
    /// last node that takes queries stays: operators may have asked for others meanwhile.
    pub(super) fn drain_node(&mut self, host_id: u128, is_drained: bool) {
        if is_drained && !self.has_substitute(host_id) {
            warn!("a node stays in routing, because no other one takes queries");
            return;
        }
        let members = &self.members;
        self.drained.set(host_id, is_drained, |host_id| members.contains(&host_id));
        let Some(last) = self.view.borrow().clone() else { return };
        self.generation += 1;
        let drained = self.drained.numbers(&last.routing);
        let generation = self.generation;
        self.send(Arc::new(ClusterState { generation, drained, modes: None, ..(*last).clone() }));
    }

    /// True if another node of the local datacentre takes queries.
    fn has_substitute(&self, host_id: u128) -> bool {
        let view = self.view.borrow();
        let Some(routing) = view.as_ref().map(|state| &state.routing) else { return false };
        let nodes = routing.local_nodes().iter().filter_map(|id| routing.node(*id));
        let mut others = nodes.map(|node| node.host_id).filter(|other| *other != host_id);
        others.any(|other| !self.drained.contains(other) && !self.down.contains(other))
    }

    /// Says which keyspaces have no replicas because ring and schema are too large for it, unless
    /// these are the same as before.
    fn note_unplaced(&mut self, routing: &RoutingTable) {
        let mut hasher = DefaultHasher::new();
        routing.unplaced().for_each(|keyspace| keyspace.name.hash(&mut hasher));
        let keyspaces = routing.unplaced().count() as u64;
        self.metrics.keyspaces_unplaced.set(keyspaces);
        let unplaced = (keyspaces > 0).then(|| hasher.finish());
        if unplaced == self.unplaced {
            return;
        }
        self.unplaced = unplaced;
        let Some(suppressed) = self.lines.admit(Instant::now()) else { return };
        if keyspaces == 0 {
            info!(suppressed, "all keyspaces have token routing again");
            return;
        }
        let examples = routing.unplaced().take(UNPLACED_SHOWN_MAX);
        let examples =
            examples.map(|keyspace| printable_to(&keyspace.name, limits::NAME_SHOWN_BYTES_MAX));
        let examples = examples.collect::<Vec<_>>().join(", ");
        warn!(
            keyspaces,
            examples,
            suppressed,
            "too many tokens and replication settings: these keyspaces have no token routing, and \
            their queries go to any node"
        );
    }

    /// True if a session reports other properties of its node than those published last: the node
    /// may have restarted with other settings.
    pub(super) fn is_news(&self, session: &Session) -> bool {
        let (view, Some(ring)) = (self.view.borrow(), &self.ring) else { return false };
        let version = version_of_all(ring, session.connection.version);
        view.as_ref().is_some_and(|state| {
            state.authenticator != session.authenticator
                || state.compressions != session.compressions
                || state.protocol_version_max != version
        })
    }

    /// Checks, before the cores hear of the ring, that it fits the configuration, and decides the
    /// local datacentre.
    pub(super) async fn settle(&mut self, reached: SocketAddr) -> Step {
        let known = std::mem::take(&mut self.resolved);
        let (config, Some(ring)) = (self.settings(), &self.ring) else { return Ok(()) };
        let resolved = contact::resolve_all(&config, known).await;
        contact::refuse_own(&config, &resolved)?;
        ring_identity::check_contact_points(&self.access(), ring, reached, &resolved).await?;
        let chosen = datacentre::choose(config.local_datacentre.as_deref(), &ring.nodes, &resolved);
        let chosen = chosen.map_err(ControlError::Unfit)?;
        info!(datacentre = %chosen, ring = %ring.cluster_name, "the local datacentre");
        self.home = Some(chosen);
        Ok(())
    }

    /// Applies a changed configuration. `false`: nothing that the plane goes by has changed.
    pub(super) fn apply(&mut self) -> bool {
        let config = self.settings();
        let old = std::mem::replace(&mut self.applied, Arc::clone(&config));
        let place = |config: &Config| (config.node_port, config.local_datacentre.clone());
        if old.contact_points != config.contact_points || place(&old) != place(&config) {
            self.settle_again(config);
            return true;
        }
        let changed = old.reloaded(&config).changed;
        changed.iter().any(|key| !["log", "identity"].contains(key))
    }

    /// Chooses the datacentre again. If the configuration names none, the contact points are looked
    /// up meanwhile; the present one stays until [`ControlPlane::settle_by`] knows them. In a fleet
    /// it stays until a restart.
    fn settle_again(&mut self, config: Arc<Config>) {
        self.lookups.abort_all();
        if self.ring.is_none() || config.local_datacentre.is_some() || config.fleet.is_some() {
            return;
        }
        self.keep_datacentre();
        self.lookups.spawn(async move { contact::resolve_all(&config, Vec::new()).await });
    }

    /// Has the datacentre that is in use stay the local one.
    fn keep_datacentre(&mut self) {
        let now = self.view.borrow().as_ref().map(|state| state.datacentre.clone());
        self.home = now.or(self.home.take());
    }

    /// Decides the local datacentre by the contact points of a changed configuration. If they are
    /// ambiguous, the present one stays.
    pub(super) fn settle_by(&mut self, resolved: &[Resolved]) {
        let (config, Some(ring)) = (self.settings(), &self.ring) else { return };
        if config.local_datacentre.is_some() {
            return;
        }
        match datacentre::choose(None, &ring.nodes, resolved) {
            Ok(chosen) => {
                if let Some(old) = self.home.replace(chosen.clone()).filter(|old| *old != chosen) {
                    warn!(%old, new = %chosen, "the contact points are in another datacentre, \
                    which becomes the local one");
                }
            }
            Err(why) => {
                self.keep_datacentre();
                error!(%why, datacentre = ?self.home, "the local datacentre stays as it is");
            }
        }
    }

    /// True before the ring is first published.
    pub(super) fn is_starting(&self) -> bool {
        self.view.borrow().is_none()
    }

    pub(super) fn count_refresh(&self) {
        self.metrics.refreshes.add(1);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.metrics.refreshed_at_seconds.set(now.as_secs());
    }

    /// xorshift; good enough for jitter, and repeatable from the seed.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// A routing table under way.
pub(super) struct Draft {
    routing: JoinHandle<RoutingTable>,
    datacentre: String,
}

impl Draft {
    /// Waits for the routing table; `None` if the runtime ends.
    pub(super) async fn built(&mut self) -> Option<RoutingTable> {
        match (&mut self.routing).await.map_err(JoinError::try_into_panic) {
            Ok(routing) => Some(routing),
            // The control thread dies of it, as if it had built the table itself.
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => None,
        }
    }
}

/// The port of nodes that do not publish theirs.
pub(super) fn node_port(config: &Config, control: SocketAddr) -> u16 {
    config.node_port.unwrap_or(control.port())
}

/// The minimum of the highest versions of all nodes.
fn version_of_all(ring: &Ring, negotiated: u8) -> u8 {
    let of_node = |node: &Node| ring::protocol_version_max(&node.release_version);
    ring.nodes.iter().filter_map(of_node).chain([negotiated]).min().unwrap_or(negotiated)
}

/// Waits until this time, or for ever.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Shuffles by Fisher-Yates.
fn shuffle<T>(list: &mut [T], mut below: impl FnMut(usize) -> usize) {
    for last in (1..list.len()).rev() {
        list.swap(last, below(last + 1));
    }
}
