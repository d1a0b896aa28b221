//! Opening of links: one per core, pool and node of the local datacentre (`links_per_node` of
//! them), as far as the nodes' back-off and the bound on logins at a time ([`super::openings`])
//! allow.

use shunt_reactor::Io;
use shunt_topology::{NodeId, RoutingTable};
use shunt_wire::cql::envelope::Header;

use crate::core::{Core, Peer};
use crate::handover::policy;
use crate::ids::{LinkKey, PoolId};
use crate::limits;
use crate::link::links::{LinkAndNode, Links};
use crate::link::{Link, LinkWriter, Opening, Pool, Role};

/// Timer of a turn that opens links of pools that wait.
pub(crate) const TIMER: u64 = 10;

/// Writes a handshake message. They travel one at a time, so they need no stream table.
pub(crate) fn write_handshake(links: &mut Links, io: &mut Io, key: LinkKey, op: u8, body: &[u8]) {
    let Some(LinkAndNode { link, dirty, .. }) = links.get_with_node(key) else { return };
    let header = Header {
        version: link.version,
        response: false,
        flags: 0,
        stream: 0,
        opcode: op,
        length: body.len() as u32,
    };
    let out = io.output(link.conn);
    match &mut link.writer {
        LinkWriter::Segments(writer) => {
            writer.push(out, &header.to_bytes(), body);
            if !std::mem::replace(&mut link.dirty, true) {
                dirty.push(key);
            }
        }
        LinkWriter::Envelopes | LinkWriter::Aggregate(_) => {
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(body);
        }
    }
}

/// The counter for another link of a pool, by which its login costs a node a password hash; none:
/// there is no login, or it is the proxy's own.
fn opening_of(pool: &Pool) -> Option<Opening> {
    let is_counted = pool.key.login.is_some() && !pool.key.is_own;
    // The configuration vouches for the login of an identity.
    let is_doubtful = pool.is_doubtful() && pool.key.identity.is_none();
    let host = pool.tried_by.filter(|_| is_doubtful);
    is_counted.then_some(Opening { account: pool.account, host, is_doubtful })
}

/// True if a pool may open another link now. If not, the pool is in line for room.
pub(crate) fn has_room(core: &mut Core, id: PoolId) -> bool {
    let Some(opening) = core.router.pools.get(id).and_then(opening_of) else { return true };
    let has_room = core.links.openings.has_room(opening);
    if !has_room {
        core.links.openings.wait(id, opening);
    }
    has_room
}

/// Opens links of the pools that wait for another turn, at the end of each. They have an allowance
/// of their own: those that ask in each turn could use it up for ever.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    core.links.allowance.renew(io.now_ns());
    for _ in 0..core.links.allowance.waiting() {
        if core.links.allowance.is_spent() {
            break;
        }
        let Some(pool) = core.links.allowance.next() else { break };
        ensure_links(core, io, pool);
    }
    core.links.allowance.renew(io.now_ns());
    let waits = core.links.allowance.waiting() > 0;
    if waits && !std::mem::replace(&mut core.links.allowance.is_timed, true) {
        io.set_timer(io.now_ns() + core.links.allowance.pause_ns(), TIMER);
    }
}

/// True if the keyspace of a pool is in no schema that the proxy has seen and no node has accepted
/// it. It may have been made a moment ago.
fn is_keyspace_doubtful(pool: &Pool, routing: &RoutingTable) -> bool {
    let is_known = |name: &str| routing.keyspace(name).is_some();
    pool.ready == 0 && !pool.admitted && !pool.key.keyspace.as_deref().is_none_or(is_known)
}

/// Opens the links a pool is missing, as far as the nodes' back-off, the number of logins at a time
/// and the turn's allowance permit. A pool with a doubtful login opens only one, so that a wrong
/// password is tried once and not on every node. Nor does the USE of a keyspace that nobody knows
/// cost every node a login: another node is asked only if one does not answer in time.
pub(crate) fn ensure_links(core: &mut Core, io: &mut Io, pool_id: PoolId) {
    let Some(cluster) = core.router.cluster.clone() else { return };
    let now = io.now_ns();
    let candidates = cluster.routing.local_nodes();
    let timeout_ns = core.context.config.connect_timeout_ms * 1_000_000;
    let spare_ns = timeout_ns - limits::LOGIN_PATIENCE_NS.min(timeout_ns / 4);
    let Some(pool) = core.router.pools.get(pool_id) else { return };
    if pool.clients == 0 && pool.ready == 0 && pool.waiting.is_empty() {
        return;
    }
    let is_doubtful = pool.is_doubtful();
    if is_doubtful && (pool.links().next().is_some() || pool.has_recent_verdict(now)) {
        return;
    }
    let is_recent = |link: LinkKey| {
        let link = core.links.get(link);
        link.is_some_and(|link| now < link.open_deadline_ns.saturating_sub(spare_ns))
    };
    let tries_keyspace = is_keyspace_doubtful(pool, &cluster.routing);
    if tries_keyspace && pool.links().any(is_recent) {
        return;
    }
    let tries_one = is_doubtful || tries_keyspace;
    // A pool that opens one link does not wait: its clients have a deadline for their login.
    if !tries_one && core.links.allowance.is_spent() {
        core.links.allowance.wait(pool_id);
        return;
    }
    // A few steps for each node: clients come here with each STARTUP, login and USE.
    for offset in 0..candidates.len() {
        core.links.allowance.look();
        let Some(pool) = core.router.pools.get(pool_id) else { return };
        let node = candidates[(core.router.cursor + offset) % candidates.len()];
        let is_stranger = core.links.node(node).is_some_and(|state| state.stranger);
        let missing = pool.missing(node);
        let wanted = if tries_one || is_stranger { missing.min(1) } else { missing };
        let may_open = wanted > 0
            && core.links.health.is_usable(node, now)
            && !pool.is_spared(node, now)
            && !is_being_identified(&core.links, node);
        for _ in 0..if may_open { wanted } else { 0 } {
            if !has_room(core, pool_id) {
                return;
            }
            if !tries_one && core.links.allowance.is_full() {
                core.links.allowance.wait(pool_id);
                return;
            }
            core.links.allowance.open();
            if open(core, io, pool_id, node, Role::Serves) && tries_one {
                return;
            }
        }
    }
}

/// Starts to open a link; `false` if the node or the pool is no longer known, or the configuration
/// no longer has the certificate that the pool's links show.
pub(crate) fn open(
    core: &mut Core,
    io: &mut Io,
    pool_id: PoolId,
    node: NodeId,
    role: Role,
) -> bool {
    let Some(mut address) =
        core.router.cluster.as_ref().and_then(|c| c.routing.node(node)).map(|node| node.address)
    else {
        return false;
    };
    let port = match role {
        Role::Replaces(..) => core.links.node(node).and_then(|state| state.upgrade.port),
        Role::Renews(old) => core.links.find(old).map(|link| link.port),
        Role::Serves | Role::Verifies => None,
    };
    address.set_port(port.unwrap_or(address.port()));
    let via = policy::way(core, pool_id, node, io.now_ns());
    if matches!(role, Role::Replaces(..)) && core.handover.is_some() && via.is_none() {
        return false;
    }
    let Some(pool) = core.router.pools.get_mut(pool_id) else { return false };
    let timeout_ns = core.context.config.connect_timeout_ms * 1_000_000;
    // Before the session is made, which may be of a later generation.
    let mut generation = core.context.outgoing.links.current();
    let config = &core.context.config;
    let conn = if let Some(subject) = pool.key.certificate {
        let name = pool.key.identity.as_deref().unwrap_or_default();
        let shown = config.identity.sessions_of(name, subject).filter(|_| via.is_none());
        let Some((sessions, content)) = shown else { return false };
        (pool.certificate_content, generation) = (content, content);
        let session = sessions.session(&address.ip().to_canonical().to_string());
        io.connect_with(address, timeout_ns, session)
    } else {
        match (&core.context.outgoing.nodes, via) {
            (_, Some((_, agent))) => core.context.outgoing.connect_to_agent(io, agent, timeout_ns),
            (Some(tls), None) => io.connect_with(address, timeout_ns, tls.session(address.ip())),
            (None, None) => io.connect(address, timeout_ns),
        }
    };
    let in_flight_max =
        (core.context.config.in_flight_max as usize).min(limits::STREAMS_PER_CONNECTION_MAX);
    let mut link = Link::new(conn, node, address.port(), pool_id, &pool.key, in_flight_max);
    (link.role, link.via) = (role, via.map(|(agent, _)| agent));
    link.generation = generation;
    link.open_deadline_ns = io.now_ns() + timeout_ns;
    link.opening = opening_of(pool).filter(|_| matches!(role, Role::Serves | Role::Verifies));
    if let Some(opening) = link.opening {
        core.links.openings.begin(opening);
    }
    let key = core.links.insert(link);
    pool.attach(node, key, role);
    core.connections.set(conn, Peer::Link(key));
    true
}

/// True if another node had the address of this node at the last check, and a link is checking it
/// right now: then no other login needs to be shown there.
pub(crate) fn is_being_identified(links: &Links, node: NodeId) -> bool {
    links.node(node).is_some_and(|state| state.stranger && state.opening > 0)
}
