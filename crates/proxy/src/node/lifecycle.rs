//! Which links are open: one per core, pool and node of the local datacentre, opened when a pool is first used,
//! opened again with growing pauses when lost, probed when silent, closed when their node leaves or their pool idles.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_admin::Label as _;
use shunt_reactor::{CloseReason, Io};
use shunt_topology::{Node, NodeId};
use shunt_wire::cql::envelope::opcode;

use crate::client::{ClientRef, Stall};
use crate::control::state::{ClusterState, ControlRequest};
use crate::core::Core;
use crate::limits;
use crate::metrics::{GivenUp, PoolState};
use crate::node::{Link, LinkWriter, NodeState, Pending, PoolId, PoolKey, Purpose, Retained, Role, Step, Upgrade};
use crate::route::Plan;

impl Core {
    /// The ring or its schema changed: route by the new table, let go of nodes that left, reach for new ones.
    pub(crate) fn cluster_changed(&mut self, io: &mut Io, cluster: Arc<ClusterState>) {
        let routing = Arc::clone(&cluster.routing);
        let first = self.cluster.is_none();
        self.generation = self.generation.wrapping_add(1);
        let count = routing.nodes().iter().map(|node| usize::from(node.id.0) + 1).max().unwrap_or(0);
        for index in self.nodes.len()..count {
            let metrics = self.metrics.nodes.node(NodeId(index as u16));
            self.nodes.push(NodeState {
                in_flight: 0,
                penalty: 0,
                orphaned: 0,
                silent: false,
                stranger: false,
                upgrade: Upgrade::default(),
                metrics,
            });
        }
        for node in routing.nodes() {
            let Some(old) = self.cluster.as_ref().and_then(|old| old.routing.node(node.id)) else { continue };
            // What was thought of another address, or of whoever was there, says nothing of this one.
            if node.up && !old.up || leads_to(node) != leads_to(old) {
                self.health.event_up(node.id);
            }
        }
        // Those that links are opened to, in order of their numbers.
        let local = routing.local_nodes();
        let gone: Vec<u32> = self
            .links
            .iter()
            .filter(|(_, link)| {
                let before = self.cluster.as_ref().and_then(|old| old.routing.node(link.node)).map(leads_to);
                let now = routing.node(link.node).filter(|node| local.binary_search(&node.id).is_ok()).map(leads_to);
                now.is_none() || (before.is_some() && before != now)
            })
            .map(|(key, _)| key as u32)
            .collect();
        self.prepared.resolve(&routing);
        self.login_asked = None;
        self.cluster = Some(cluster);
        for link in gone {
            self.retire_link(io, link);
        }
        for pool in self.pools.ids() {
            self.ensure_links(io, pool);
        }
        if first {
            let slots: Vec<u32> = self.clients.iter().map(|(slot, _)| slot as u32).collect();
            for slot in slots {
                self.unstall(slot, Stall::CLUSTER);
            }
        }
    }

    /// Opens the links a pool is missing, as far as the nodes' back-off allows. A pool whose login nothing speaks for
    /// opens one only, so that a wrong password is tried once and not on every node.
    pub(crate) fn ensure_links(&mut self, io: &mut Io, pool_id: PoolId) {
        let Some(cluster) = self.cluster.clone() else { return };
        let now = io.now_ns();
        let candidates = cluster.routing.local_nodes();
        for offset in 0..candidates.len() {
            let Some(pool) = self.pools.get(pool_id) else { return };
            if pool.clients == 0 && pool.ready == 0 && pool.waiting.is_empty() {
                return;
            }
            let doubtful = pool.is_doubtful();
            if doubtful && pool.links().next().is_some() {
                return;
            }
            let node = candidates[(self.cursor + offset) % candidates.len()];
            let stranger = self.nodes.get(usize::from(node.0)).is_some_and(|state| state.stranger);
            let wanted = if doubtful || stranger { pool.missing(node).min(1) } else { pool.missing(node) };
            if self.health.is_usable(node, now) && pool.may_ask(node, now) && !self.is_being_identified(node) {
                for _ in 0..wanted {
                    self.open_link(io, pool_id, node, Role::Serves);
                }
            }
        }
    }

    /// Starts to open a link; `false` when the node or the pool is not known any more.
    pub(crate) fn open_link(&mut self, io: &mut Io, pool_id: PoolId, node: NodeId, role: Role) -> bool {
        let Some(mut address) = self.cluster.as_ref().and_then(|c| c.routing.node(node)).map(|node| node.address)
        else {
            return false;
        };
        if let Role::Replaces(..) = role {
            let port = self.nodes.get(usize::from(node.0)).and_then(|state| state.upgrade.port);
            address.set_port(port.unwrap_or(address.port()));
        }
        let Some(pool) = self.pools.get_mut(pool_id) else { return false };
        let timeout_ns = self.config.connect_timeout_ms * 1_000_000;
        let conn = io.connect(address, timeout_ns);
        let in_flight_max = (self.config.in_flight_max as usize).min(limits::STREAMS_PER_CONNECTION_MAX);
        let mut link = Link::new(conn, node, address.port(), pool_id, pool.key.version, in_flight_max);
        link.role = role;
        link.open_deadline_ns = io.now_ns() + timeout_ns;
        let key = self.links.insert(link) as u32;
        if role == Role::Serves {
            pool.add_link(node, key);
        }
        self.own_link(conn, key);
        true
    }

    /// The handshake is done: the link takes queries.
    pub(crate) fn link_ready(&mut self, io: &mut Io, key: u32) {
        if !self.take_place(io, key) {
            return;
        }
        self.choose_layout(key);
        let Some(link) = self.links.get_mut(key as usize) else { return };
        link.step = Step::Ready;
        (link.last_received_ns, link.ready_ns) = (io.now_ns(), io.now_ns());
        let aggregates = link.aggregate.is_some();
        let (node, pool_id, conn) = (link.node, link.pool, link.conn);
        let on_ready = std::mem::take(&mut link.on_ready);
        io.keep_sent(conn);
        self.health.link_opened(node);
        if let Some(state) = self.nodes.get_mut(usize::from(node.0)) {
            state.metrics.links.add(1);
            state.metrics.aggregated_links.add(u64::from(aggregates));
            state.silent = false;
        }
        let Some(pool) = self.pools.get_mut(pool_id) else {
            self.retire_link(io, key);
            return;
        };
        pool.ready += 1;
        pool.accepted_by(node);
        for client in self.take_switching(pool_id, false) {
            self.complete_switch(io, client, pool_id);
        }
        // Who is left waits for a link, or for a login that this link is not about.
        let logins = self.take_switching(pool_id, true);
        if let Some(pool) = self.pools.get_mut(pool_id) {
            let mut held = std::mem::replace(&mut pool.waiting, logins);
            self.unstall_all(&mut held, Stall::POOL);
        }
        for repair in on_ready {
            self.continue_repair(io, repair);
        }
        self.upgrade_link(io, key);
        self.ensure_links(io, pool_id);
    }

    /// The connection of a link ended, or never came about.
    pub(crate) fn link_lost(&mut self, io: &mut Io, key: u32, reason: CloseReason) {
        let Some(link) = self.links.get(key as usize) else { return };
        if matches!(link.role, Role::Replaces(..)) {
            self.upgrade_failed(io, key, &format!("{reason:?} in {:?}", link.step));
            return;
        }
        let (conn, node, pool_id, step) = (link.conn, link.node, link.pool, link.step);
        self.upgraded_link_broke(io.now_ns(), key);
        self.disown(conn);
        let log = io.take_sent_log(conn);
        let mut link = self.links.remove(key as usize);
        let now = io.now_ns();
        let random = self.random();
        let until_ns = self.health.failed(node, now, random);
        let (named, in_flight) = (self.node_named(node), link.streams.len());
        let retry_in_ms = until_ns.saturating_sub(now) / 1_000_000;
        // Of attempts there are many while a node is down, from every pool; that it is, the control plane says once.
        if step == Step::Ready {
            tracing::info!(core = self.index, node = %named, ?reason, in_flight, retry_in_ms, "link to a node is lost");
        } else {
            tracing::debug!(core = self.index, node = %named, ?reason, ?step, retry_in_ms, "no link to a node");
        }
        self.detach_link(key, &link);
        let _ = self.control.try_send(ControlRequest::NodeUnreachable(node));
        let mut waiting = std::mem::take(&mut link.waiting);
        self.unstall_all(&mut waiting, Stall::LINK);
        for repair in std::mem::take(&mut link.on_ready) {
            self.fail_repair(io, repair);
        }
        for pending in link.streams.take_all() {
            self.request_lost(io, node, &pending, &log);
        }
        if link.role == Role::Verifies || step != Step::Ready {
            self.verification_interrupted(io, pool_id);
        }
        self.ensure_links(io, pool_id);
    }

    /// Takes a link out of its pool and its node's figures.
    fn detach_link(&mut self, key: u32, link: &Link) {
        if let Role::Replaces(old, conn) = link.role
            && let Some(old) = self.replaced(old, conn)
        {
            old.is_being_replaced = false;
        }
        if let Some(state) = self.nodes.get_mut(usize::from(link.node.0)) {
            state.in_flight = state.in_flight.saturating_sub(link.streams.len() as u32);
            state.metrics.in_flight.set(u64::from(state.in_flight));
            if link.step == Step::Ready {
                state.metrics.links.sub(1);
                state.metrics.aggregated_links.sub(u64::from(link.aggregate.is_some()));
                state.metrics.links_lost.add(u64::from(!link.retiring));
            } else if link.role != Role::Verifies {
                state.metrics.connect_failures.add(1);
            }
        }
        if let Some(pool) = self.pools.get_mut(link.pool) {
            pool.remove_link(link.node, key);
            if link.step == Step::Ready && !link.retiring {
                pool.ready = pool.ready.saturating_sub(1);
            }
        }
    }

    /// No new queries on this link; it closes when what is in flight is answered.
    pub(crate) fn retire_link(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        if !link.retiring && link.step == Step::Ready {
            let (node, pool) = (link.node, link.pool);
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.ready = pool.ready.saturating_sub(1);
                pool.remove_link(node, key);
            }
        }
        let Some(link) = self.links.get_mut(key as usize) else { return };
        link.retiring = true;
        let (pool, opening) = (link.pool, link.step != Step::Ready);
        // Whom it held back had better look at other links.
        let mut waiting = std::mem::take(&mut link.waiting);
        if link.is_unused() || opening {
            self.drop_link(io, key);
        }
        self.unstall_all(&mut waiting, Stall::LINK);
        if opening {
            self.verification_interrupted(io, pool);
        }
    }

    /// Closes a link from this side. What is in flight on it is treated as lost.
    pub(crate) fn drop_link(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get(key as usize) else { return };
        let conn = link.conn;
        let log = io.take_sent_log(conn);
        io.abort(conn);
        self.disown(conn);
        let mut link = self.links.remove(key as usize);
        self.detach_link(key, &link);
        let mut waiting = std::mem::take(&mut link.waiting);
        self.unstall_all(&mut waiting, Stall::LINK);
        for repair in std::mem::take(&mut link.on_ready) {
            self.fail_repair(io, repair);
        }
        for pending in link.streams.take_all() {
            self.request_lost(io, link.node, &pending, &log);
        }
    }

    /// A link that misbehaved or fell silent is given up as if it had broken by itself.
    pub(crate) fn break_link(&mut self, io: &mut Io, key: u32, reason: GivenUp, why: &str) {
        let Some(link) = self.links.get(key as usize) else { return };
        self.count_given_up(link.node, reason);
        let (node, pool_id, step, role) = (link.node, link.pool, link.step, link.role);
        if matches!(role, Role::Replaces(..)) {
            self.upgrade_failed(io, key, why);
            return;
        }
        self.upgraded_link_broke(io.now_ns(), key);
        tracing::warn!(core = self.index, node = %self.node_named(node), why, "giving up a link to a node");
        let (now, random) = (io.now_ns(), self.random());
        self.health.failed(node, now, random);
        let _ = self.control.try_send(ControlRequest::NodeUnreachable(node));
        self.drop_link(io, key);
        if role == Role::Verifies || step != Step::Ready {
            self.verification_interrupted(io, pool_id);
        }
    }

    /// Gives up a link for queries to come, and lets it finish those in flight.
    pub(crate) fn replace_link(&mut self, io: &mut Io, key: u32, reason: GivenUp) {
        let link = self.links.get(key as usize).filter(|link| !link.retiring);
        if let Some(node) = link.map(|link| link.node) {
            self.count_given_up(node, reason);
            let (node, reason) = (self.node_named(node), reason.text());
            tracing::info!(core = self.index, node, reason, "replacing a link to a node");
        }
        self.retire_link(io, key);
    }

    pub(crate) fn count_given_up(&self, node: NodeId, reason: GivenUp) {
        if let Some(state) = self.nodes.get(usize::from(node.0)) {
            state.metrics.links_given_up.of(reason).add(1);
        }
    }

    pub(crate) fn close_links(&mut self, io: &mut Io) {
        let conns: Vec<_> = self.links.iter().map(|(_, link)| link.conn).collect();
        for conn in conns {
            io.close(conn);
            self.disown(conn);
        }
        self.links.clear();
    }

    /// A client no longer uses a pool; nodes that keep state per client are told.
    pub(crate) fn leave_pool(&mut self, io: &mut Io, pool_id: PoolId, client_id: u32) {
        let now = io.now_ns();
        let Some(pool) = self.pools.get_mut(pool_id) else { return };
        pool.clients = pool.clients.saturating_sub(1);
        if pool.clients == 0 {
            pool.idle_since_ns = now;
        }
        for key in pool.links() {
            let Some(link) = self.links.get_mut(key as usize) else { continue };
            if let LinkWriter::Aggregate(writer) = &mut link.writer
                && link.step == Step::Ready
            {
                writer.push_client_gone(io.output(link.conn), client_id);
                if link.becomes_dirty(now) {
                    self.dirty_links.push(key);
                }
            }
        }
    }

    /// The pool of `key`, see [`crate::node::Pools::find_or_create`]. Where there are as many as there may be, the one that
    /// has been idle longest makes room: keeping links for clients that may come back must not refuse those who are there.
    pub(crate) fn pool_for(&mut self, io: &mut Io, key: &PoolKey, verified_ns: u64) -> Option<PoolId> {
        let (per_node, now) = (self.config.links_per_node, io.now_ns());
        let found = self.pools.find_or_create(key, per_node, verified_ns, now);
        if found.is_some() || !self.pools.is_full() {
            return found;
        }
        let idlest = self.pools.idlest()?;
        self.close_pool(io, idlest);
        self.pools.find_or_create(key, per_node, verified_ns, now)
    }

    /// A client begins to use a pool.
    pub(crate) fn join_pool(&mut self, io: &mut Io, slot: u32, pool_id: PoolId) {
        if let Some(pool) = self.pools.get_mut(pool_id) {
            pool.clients += 1;
            pool.admitted = true;
        }
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.pool = Some(pool_id);
        }
        self.ensure_links(io, pool_id);
    }

    /// Reconnects and idle pools.
    pub(crate) fn tick_pools(&mut self, io: &mut Io) {
        let now = io.now_ns();
        for id in self.pools.ids() {
            let Some(pool) = self.pools.get(id) else { continue };
            let unused = pool.links().next().is_none() || now.saturating_sub(pool.idle_since_ns) > limits::POOL_IDLE_NS;
            let idle = pool.clients == 0 && unused;
            if idle {
                self.close_pool(io, id);
            } else {
                self.ensure_links(io, id);
                self.tick_refusals(io, id);
            }
        }
        self.count_pools();
    }

    fn count_pools(&self) {
        let (mut pools, mut clients) = ([0; PoolState::COUNT], [0; PoolState::COUNT]);
        for pool in self.pools.iter() {
            let state = pool.state().index();
            pools[state] += 1;
            clients[state] += pool.clients as u64;
        }
        for state in PoolState::ALL {
            self.metrics.pools.of(*state).set(pools[state.index()]);
            self.metrics.pool_clients.of(*state).set(clients[state.index()]);
        }
    }

    /// Lets go of a pool that no client uses.
    fn close_pool(&mut self, io: &mut Io, id: PoolId) {
        let links: Vec<u32> = self.pools.get(id).map(|pool| pool.links().collect()).unwrap_or_default();
        for link in links {
            self.retire_link(io, link);
        }
        self.remove_pool_if_unused(id);
    }

    /// A pool's place is given away only when no client, no link and no request that waits refers to it: what was asked
    /// under one login is not sent under another.
    pub(crate) fn remove_pool_if_unused(&mut self, id: PoolId) {
        let clients = self.pools.get(id).map_or(0, |pool| pool.clients);
        let referred = self.links.iter().any(|(_, link)| link.pool == id)
            || self.repairs.values().any(|repair| repair.pool() == id);
        if clients == 0 && !referred {
            self.pools.remove(id);
        }
    }

    /// Deadlines, heartbeats and silence of links.
    pub(crate) fn tick_links(&mut self, io: &mut Io) {
        let now = io.now_ns();
        for node in &mut self.nodes {
            node.metrics.in_flight.set(u64::from(node.in_flight));
            node.penalty -= node.penalty.div_ceil(4);
            node.orphaned = 0;
        }
        for (_, link) in &self.links {
            if let Some(node) = self.nodes.get_mut(usize::from(link.node.0)) {
                node.orphaned += link.orphans as u64;
            }
        }
        self.nodes.iter().for_each(|node| node.metrics.streams_orphaned.set(node.orphaned));
        let keys: Vec<u32> = self.links.iter().map(|(key, _)| key as u32).collect();
        for key in keys {
            self.expire_requests(io, key);
            let Some(link) = self.links.get(key as usize) else { continue };
            if link.step != Step::Ready {
                if now > link.open_deadline_ns {
                    self.break_link(io, key, GivenUp::HandshakeTimeout, "the handshake took too long");
                }
                continue;
            }
            if link.retiring && link.is_unused() {
                self.drop_link(io, key);
                continue;
            }
            if now.saturating_sub(link.ready_ns) > limits::RECONNECT_MAX_MS * 1_000_000 {
                self.health.link_lasted(link.node);
            }
            let silent_ns = now.saturating_sub(link.last_received_ns);
            // A long answer may be on its way in front of the one to the probe.
            let probed_ns = now.saturating_sub(link.probe_sent_ns).min(silent_ns);
            let busy = link.streams.len() > 0;
            if link.probe_sent_ns != 0 && probed_ns > limits::LINK_SILENCE_MAX_NS {
                self.break_link(io, key, GivenUp::Silent, "it did not answer OPTIONS");
            } else if link.orphans > limits::LINK_ORPHANS_MAX.min(link.streams.max() / 2) {
                self.break_link(io, key, GivenUp::TimedOutQueries, "too many of its queries timed out");
            } else if link.probe_sent_ns != 0 {
                let node = usize::from(link.node.0);
                if let Some(state) = self.nodes.get_mut(node) {
                    state.silent |= probed_ns > limits::LINK_SILENCE_PROBE_NS;
                }
            } else if (busy && silent_ns > limits::LINK_SILENCE_PROBE_NS)
                || silent_ns > self.config.heartbeat_interval_ms * 1_000_000
                || self.may_have_new_offer(key, now)
            {
                self.probe_link(io, key);
            }
        }
    }

    fn probe_link(&mut self, io: &mut Io, key: u32) {
        let pending = Pending {
            purpose: Purpose::Heartbeat,
            client: ClientRef::PROXY,
            pool: PoolId::NONE,
            stream: 0,
            opcode: opcode::OPTIONS,
            flags: 0,
            retries: 0,
            fate_unknown: false,
            reprepares: 0,
            plan: Plan::anywhere(),
            received_ns: io.now_ns(),
            sent_ns: io.now_ns(),
            retained: Retained::Nothing,
        };
        if self.send_on_link(io, key, pending, &[])
            && let Some(link) = self.links.get_mut(key as usize)
        {
            link.probe_sent_ns = io.now_ns();
        }
    }
}

/// Where links to a node lead, and to whom.
fn leads_to(node: &Node) -> (SocketAddr, u128) {
    (node.address, node.host_id)
}
