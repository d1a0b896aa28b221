//! The life of open links: ready ones join their pool, lost or abandoned ones leave it, and the
//! requests in flight on them go to the second attempts ([`crate::retry`]), which begin when the
//! event is over.

use shunt_admin::Label as _;
use shunt_reactor::{CloseReason, Io};

use crate::client::{Stall, login};
use crate::control::state::ControlRequest;
use crate::core::Core;
use crate::handover::policy;
use crate::ids::LinkKey;
use crate::link::{Role, Step, closing, open, renewal, upgrade};
use crate::log_limits::Logged;
use crate::metrics::GivenUp;

/// Ends the handshake: the link takes queries.
pub(crate) fn ready(core: &mut Core, io: &mut Io, key: LinkKey) {
    if !upgrade::take_place(core, io, key) {
        return;
    }
    core.links.opened(key);
    let Some(link) = core.links.get_mut(key) else { return };
    link.choose_layout();
    (link.last_received_ns, link.ready_ns) = (io.now_ns(), io.now_ns());
    let aggregates = link.aggregate.is_some();
    let (node, pool_id, conn) = (link.node, link.pool, link.conn);
    let on_ready = std::mem::take(&mut link.on_ready);
    core.retries.linked.extend(on_ready.into_iter().map(|repair| (repair, true)));
    io.keep_sent(conn);
    core.links.health.link_opened(node);
    if let Some(state) = core.links.node_mut(node) {
        state.metrics.links.add(1);
        state.metrics.aggregated_links.add(u64::from(aggregates));
        state.silent = false;
    }
    let Some(pool) = core.router.pools.get_mut(pool_id) else {
        retire(core, io, key);
        return;
    };
    pool.ready += 1;
    pool.accepted_by(node);
    if pool.key.is_own {
        core.fleet.transactions.hurry();
    }
    for client in login::take_switching(core, pool_id, false) {
        login::complete_switch(core, io, client, pool_id);
    }
    // The others wait for a link, or for a login that does not concern this link.
    let logins = login::take_switching(core, pool_id, true);
    if let Some(pool) = core.router.pools.get_mut(pool_id) {
        let held = std::mem::replace(&mut pool.waiting, logins);
        core.clients.unstall_all(&core.context.metrics, held, Stall::POOL);
    }
    upgrade::begin(core, io, key);
    open::ensure_links(core, io, pool_id);
    login::resume(core, io);
}

/// Handles the end of a link's connection, or its failure to open.
pub(crate) fn lost(core: &mut Core, io: &mut Io, key: LinkKey, reason: CloseReason) {
    policy::failed(core, io.now_ns(), key);
    let Some(link) = core.links.get(key) else { return };
    let is_through_agent = link.via.is_some();
    let is_unanswered = match link.step {
        Step::Connecting => true,
        Step::Agent => is_through_agent,
        Step::Options => !is_through_agent,
        _ => false,
    };
    let tls = (core.context.outgoing.of_link(is_through_agent), is_unanswered);
    core.context.note_tls_end(io, tls, &core.router.node_named(link.node), reason);
    match link.role {
        Role::Replaces(..) => {
            return upgrade::failed(core, io, key, &cause(reason, link.step));
        }
        Role::Renews(..) => return renewal::failed(core, io, key, &cause(reason, link.step)),
        Role::Serves | Role::Verifies => {}
    }
    let (node, pool_id, step, role) = (link.node, link.pool, link.step, link.role);
    let in_flight = link.streams.len();
    upgrade::broke(core, io.now_ns(), key);
    let now = io.now_ns();
    blame(core, now, key);
    let named = core.router.node_named(node);
    // While a node is down every pool makes many attempts; the control plane logs once that it is
    // down.
    if step != Step::Ready {
        tracing::debug!(core = core.context.index, node = %named, ?reason, ?step, "no link to a node");
    } else if let Some(suppressed) = core.context.log_limits.admit(Logged::LinkLost, now) {
        tracing::info!(core = core.context.index, node = %named, ?reason, in_flight, suppressed, "lost a link to a node");
    }
    closing::forget(core, io, key);
    if role == Role::Verifies || step != Step::Ready {
        login::verification_interrupted(core, io, pool_id);
    }
    open::ensure_links(core, io, pool_id);
    login::resume(core, io);
}

/// The cause of a link's end, for the log.
fn cause(reason: CloseReason, step: Step) -> String {
    match reason {
        CloseReason::Session(fault) => fault.to_string(),
        reason => format!("{reason:?} in {step:?}"),
    }
}

/// Notes a link that failed: its node has a pause, unless the failure may be that of a login that
/// nothing supports. A node may be slow or silent with such a login alone, which anybody can send,
/// so the pause is that of its pool then, and all other pools keep the node.
fn blame(core: &mut Core, now_ns: u64, key: LinkKey) {
    let random = core.context.random();
    let Some(link) = core.links.get(key) else { return };
    let (node, pool) = (link.node, link.pool);
    if link.step == Step::Login && link.opening.is_some_and(|opening| opening.is_doubtful) {
        if let Some(pool) = core.router.pools.get_mut(pool) {
            pool.refused_by(node, None, now_ns, random);
        }
        return;
    }
    core.links.health.failed(node, now_ns, random);
    let _ = core.context.control.try_send(ControlRequest::NodeUnreachable(node));
}

/// Retires a link, and begins a login anew that it was to verify.
pub(crate) fn retire(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(pool) = core.links.get(key).map(|link| link.pool) else { return };
    if closing::retire(core, io, key) {
        login::verification_interrupted(core, io, pool);
    }
}

/// Gives up a link that misbehaved or fell silent, as if it had broken by itself.
pub(crate) fn break_off(core: &mut Core, io: &mut Io, key: LinkKey, reason: GivenUp, why: &str) {
    policy::failed(core, io.now_ns(), key);
    let Some(link) = core.links.get(key) else { return };
    core.links.count_given_up(link.node, reason);
    let (node, pool_id, step, role) = (link.node, link.pool, link.step, link.role);
    match role {
        Role::Replaces(..) => return upgrade::failed(core, io, key, why),
        Role::Renews(..) => return renewal::failed(core, io, key, why),
        Role::Serves | Role::Verifies => {}
    }
    upgrade::broke(core, io.now_ns(), key);
    blame(core, io.now_ns(), key);
    if let Some(suppressed) = core.context.log_limits.admit(Logged::LinkGivenUp, io.now_ns()) {
        let node = core.router.node_named(node);
        tracing::warn!(
            core = core.context.index,
            node,
            why,
            suppressed,
            "giving up a link to a node"
        );
    }
    closing::close(core, io, key);
    if role == Role::Verifies || step != Step::Ready {
        login::verification_interrupted(core, io, pool_id);
    }
    login::resume(core, io);
}

/// Gives up a link for new queries, and lets it finish those in flight.
pub(crate) fn replace(core: &mut Core, io: &mut Io, key: LinkKey, reason: GivenUp) {
    let link = core.links.get(key).filter(|link| !link.retiring);
    if let Some(node) = link.map(|link| link.node) {
        core.links.count_given_up(node, reason);
        let (node, reason) = (core.router.node_named(node), reason.text());
        tracing::info!(core = core.context.index, node, reason, "replacing a link to a node");
    }
    retire(core, io, key);
}

/// Closes all links once their output is sent.
pub(crate) fn close_all(core: &mut Core, io: &mut Io) {
    let conns: Vec<_> = core.links.iter().map(|(_, link)| link.conn).collect();
    for conn in conns {
        io.close(conn);
        core.connections.forget(conn);
    }
    core.links.clear();
}

/// Gives up a link because its node broke the protocol.
#[cold]
pub(crate) fn fault(core: &mut Core, io: &mut Io, key: LinkKey, why: &str) {
    core.context.metrics.node_protocol_errors.add(1);
    break_off(core, io, key, GivenUp::ProtocolError, why);
}
