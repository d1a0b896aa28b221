//! One core: a single-threaded proxy that owns its clients, its links and everything between them.
//!
//! Sans-IO: it is a [`Service`] of the event loop and never touches a socket, a clock or another thread. The methods
//! of [`Core`] are spread over the modules of the data path; this file holds the state they share, hands events to
//! them, and does what is due once per turn and once per tick.

use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_topology::{Health, NodeId};
use slab::Slab;
use tokio::sync::mpsc;

use crate::aggregate::WindowControl;
use crate::census::Census;
use crate::client::{Client, ClientRef, Stall};
use crate::config::Config;
use crate::control::state::{ClusterState, ControlRequest, CoreMail};
use crate::limits;
use crate::log_limits::LogLimits;
use crate::metrics::CoreMetrics;
use crate::node::{Link, NodeState, Pools};
use crate::prepared::{PreparedCache, PreparedStore};
use crate::reprepare::Repair;
use crate::schema_change::AwaitingAgreement;
use crate::who::Drivers;

/// What a core is made from.
pub struct CoreOptions {
    /// Number of this core, from 0.
    pub index: usize,
    /// Settings; replaced by [`CoreMail::Reload`].
    pub config: Arc<Config>,
    /// Where this core counts.
    pub metrics: Arc<CoreMetrics>,
    /// Prepared statements of all cores.
    pub prepared: Arc<PreparedStore>,
    /// How often all cores together may write log lines that clients cause.
    pub log_limits: Arc<LogLimits>,
    /// Requests to the control plane.
    pub control: mpsc::Sender<ControlRequest>,
    /// Seed of the core's random choices (jitter of reconnects).
    pub seed: u64,
}

/// Whose connection a [`ConnId`] is.
#[derive(Clone, Copy)]
enum Owner {
    Nobody,
    Client { generation: u32, slot: u32 },
    Link { generation: u32, link: u32 },
}

/// The timer that comes round.
const TICK: u64 = 1;
/// A frame has gathered long enough.
pub(crate) const GATHER_TIMER: u64 = 2;
/// The next clients are to be counted.
pub(crate) const CENSUS_TIMER: u64 = 3;

/// One event loop's share of the proxy.
pub struct Core {
    pub(crate) index: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) control: mpsc::Sender<ControlRequest>,
    pub(crate) cluster: Option<Arc<ClusterState>>,
    /// Class of the authenticator that every node asks for a login with, while the cluster's state has none.
    pub(crate) login_asked: Option<String>,
    /// Counts the routing tables seen, so that a placement of an old one is recognised.
    pub(crate) generation: u32,

    pub(crate) clients: Slab<Client>,
    pub(crate) drivers: Drivers,
    pub(crate) census: Option<Census>,
    pub(crate) log_limits: Arc<LogLimits>,
    pub(crate) links: Slab<Link>,
    pub(crate) pools: Pools,
    /// By node id.
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) health: Health,
    pub(crate) prepared: PreparedCache,
    /// Requests that wait for something before they can go on.
    pub(crate) repairs: BTreeMap<u32, Repair>,
    /// Answers to schema changes that wait for agreement.
    pub(crate) awaiting: BTreeMap<u64, AwaitingAgreement>,
    pub(crate) tickets: u32,
    /// Bytes of requests that do not lie in a sent log.
    pub(crate) copies: Slab<Vec<u8>>,

    owners: Vec<Owner>,
    pub(crate) next_client_id: u32,
    /// Links and clients with something to finish before this turn's flush.
    pub(crate) dirty_links: Vec<u32>,
    /// When the next [`GATHER_TIMER`] is due, nanoseconds; `u64::MAX`: none is set.
    pub(crate) gather_timer_ns: u64,
    pub(crate) dirty_clients: Vec<u32>,
    /// Clients that may be read again.
    pub(crate) wake: Vec<ClientRef>,
    pub(crate) draining: bool,
    /// Where the search for any node starts.
    pub(crate) cursor: usize,
    pub(crate) window: WindowControl,
    random: u64,
    ticks: u64,

    pub(crate) key_scratch: Vec<u8>,
    pub(crate) body_scratch: Vec<u8>,
    pub(crate) segment_scratch: Vec<u8>,
    pub(crate) message_scratch: Vec<u8>,
}

impl Core {
    /// A core that knows no ring yet; it takes clients' queries from its first [`CoreMail::Cluster`] on.
    pub fn new(options: CoreOptions) -> Self {
        let base = std::time::Duration::from_millis(limits::RECONNECT_FIRST_MS);
        let max = std::time::Duration::from_millis(limits::RECONNECT_MAX_MS);
        Self {
            index: options.index,
            window: WindowControl::new(options.config.window),
            config: options.config,
            metrics: options.metrics,
            control: options.control,
            cluster: None,
            login_asked: None,
            generation: 0,
            clients: Slab::new(),
            drivers: Drivers::default(),
            census: None,
            log_limits: options.log_limits,
            links: Slab::new(),
            pools: Pools::default(),
            nodes: Vec::new(),
            health: Health::new(base, max),
            prepared: PreparedCache::new(options.prepared),
            repairs: BTreeMap::new(),
            awaiting: BTreeMap::new(),
            tickets: 0,
            copies: Slab::new(),
            owners: Vec::new(),
            next_client_id: 1,
            dirty_links: Vec::new(),
            gather_timer_ns: u64::MAX,
            dirty_clients: Vec::new(),
            wake: Vec::new(),
            draining: false,
            cursor: options.index,
            random: options.seed | 1,
            ticks: 0,
            key_scratch: Vec::new(),
            body_scratch: Vec::new(),
            segment_scratch: Vec::new(),
            message_scratch: Vec::new(),
        }
    }

    /// A number for jitter; xorshift, seeded, so that a simulated run can be replayed.
    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// The client a reference means, if it is still there.
    #[inline]
    pub(crate) fn client(&mut self, client: ClientRef) -> Option<&mut Client> {
        self.clients.get_mut(client.slot as usize).filter(|found| found.id == client.id)
    }

    pub(crate) fn client_ref(&self, slot: u32) -> ClientRef {
        ClientRef { slot, id: self.clients.get(slot as usize).map_or(0, |client| client.id) }
    }

    pub(crate) fn own_client(&mut self, conn: ConnId, slot: u32) {
        *self.owner_mut(conn) = Owner::Client { generation: conn.generation, slot };
    }

    pub(crate) fn own_link(&mut self, conn: ConnId, link: u32) {
        *self.owner_mut(conn) = Owner::Link { generation: conn.generation, link };
    }

    pub(crate) fn disown(&mut self, conn: ConnId) {
        *self.owner_mut(conn) = Owner::Nobody;
    }

    fn owner_mut(&mut self, conn: ConnId) -> &mut Owner {
        let index = conn.index as usize;
        if self.owners.len() <= index {
            self.owners.resize(index + 1, Owner::Nobody);
        }
        &mut self.owners[index]
    }

    /// The link on this connection.
    pub(crate) fn link_on(&self, conn: ConnId) -> Option<u32> {
        match self.owner(conn) {
            Owner::Link { link, .. } => Some(link),
            _ => None,
        }
    }

    #[inline]
    fn owner(&self, conn: ConnId) -> Owner {
        match self.owners.get(conn.index as usize).copied() {
            Some(Owner::Client { generation, slot }) if generation == conn.generation => {
                Owner::Client { generation, slot }
            }
            Some(Owner::Link { generation, link }) if generation == conn.generation => Owner::Link { generation, link },
            _ => Owner::Nobody,
        }
    }

    /// A node as logs name it: by its address, or by its number once it has left the ring.
    pub(crate) fn node_named(&self, node: NodeId) -> String {
        let found = self.cluster.as_ref().and_then(|cluster| cluster.routing.node(node));
        found.map_or_else(|| format!("number {}", node.0), |node| node.address.to_string())
    }

    /// Stops reading from a client for a reason.
    pub(crate) fn stall(&mut self, io: &mut Io, slot: u32, reason: Stall) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if !client.stalls.any() {
            io.pause_reading(client.conn);
            self.metrics.client_pauses.add(1);
            self.metrics.clients_paused.add(1);
        }
        if (reason == Stall::POOL || reason == Stall::LINK) && client.stalled_since_ns == 0 {
            client.stalled_since_ns = io.now_ns();
        }
        if !client.stalls.has(reason) {
            for new in reason.reasons() {
                self.metrics.clients_stalled.of(new).add(1);
                self.metrics.client_stalls.of(new).add(1);
            }
        }
        client.stalls.set(reason);
    }

    /// Takes a reason away; with the last one gone the client is read again before this turn ends.
    pub(crate) fn unstall(&mut self, slot: u32, reason: Stall) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if !client.stalls.has(reason) {
            return;
        }
        client.stalls.clear(reason);
        for ended in reason.reasons() {
            self.metrics.clients_stalled.of(ended).sub(1);
        }
        if !client.stalls.has(Stall::POOL) && !client.stalls.has(Stall::LINK) {
            client.stalled_since_ns = 0;
        }
        if !client.stalls.any() {
            self.metrics.clients_paused.sub(1);
            let client = ClientRef { slot, id: client.id };
            self.wake.push(client);
        }
    }

    /// Reads on where woken clients were stopped.
    fn run_woken(&mut self, io: &mut Io) {
        while let Some(woken) = self.wake.pop() {
            let Some(client) = self.client(woken) else { continue };
            if client.stalls.any() {
                continue;
            }
            let conn = client.conn;
            if client.partial_since_ns != 0 {
                // What is missing was held up by the proxy; the client's time begins now.
                client.partial_since_ns = io.now_ns();
            }
            self.pump_carry(io, woken.slot);
            if self.client(woken).is_some_and(|client| !client.stalls.any()) {
                io.resume_reading(conn);
            }
        }
    }

    fn tick(&mut self, io: &mut Io) {
        self.ticks += 1;
        self.tick_links(io);
        self.tick_pools(io);
        self.tick_repairs(io);
        self.tick_clients(io, self.ticks.is_multiple_of(8));
        self.tell_suppressed(io);
        self.window.tick(io, &self.metrics);
        self.metrics.idle_buffer_bytes.set(io.idle_buffer_bytes() as u64);
        if self.draining {
            self.drain_step(io);
        }
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }
}

impl Service for Core {
    type Mail = CoreMail;

    fn started(&mut self, io: &mut Io) {
        self.window.start(io);
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        self.accept_client(io, conn, origin);
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        if let Owner::Link { link, .. } = self.owner(conn) {
            self.link_connected(io, link);
        }
    }

    #[inline]
    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        match self.owner(conn) {
            Owner::Client { slot, .. } => self.client_received(io, slot, data),
            Owner::Link { link, .. } => self.link_received(io, link, data),
            Owner::Nobody => data.len(),
        }
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        match self.owner(conn) {
            Owner::Client { slot, .. } => self.client_lost(io, slot, reason),
            Owner::Link { link, .. } => self.link_lost(io, link, reason),
            Owner::Nobody => {}
        }
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        match self.owner(conn) {
            Owner::Client { slot, .. } => self.unstall(slot, Stall::REPLIES),
            Owner::Link { link, .. } => self.reconsider_full(io, link),
            Owner::Nobody => {}
        }
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        match key {
            TICK => self.tick(io),
            CENSUS_TIMER => self.continue_census(io),
            // What is due is found at the end of the turn.
            _ => self.gather_timer_ns = u64::MAX,
        }
    }

    fn mail(&mut self, io: &mut Io, mail: CoreMail) {
        match mail {
            CoreMail::Cluster(cluster) => self.cluster_changed(io, cluster),
            CoreMail::SchemaEvent(body) => self.schema_event(io, &body),
            CoreMail::SchemaAgreed { ticket, .. } => self.schema_agreed(io, ticket),
            CoreMail::Drain => self.start_drain(io),
            CoreMail::CloseAll => self.close_all(io),
            CoreMail::Census(answer) => self.start_census(io, answer),
            CoreMail::Reload(config) => {
                self.window = WindowControl::new(config.window);
                self.config = config;
                self.window.start(io);
            }
        }
    }

    #[inline]
    fn turn_ended(&mut self, io: &mut Io) {
        if !self.wake.is_empty() {
            self.run_woken(io);
        }
        self.finish_links(io);
        self.finish_clients(io);
        self.metrics.turns.add(1);
    }
}
