//! Renewal of links after a change of the certificates or CAs of TLS to nodes.
//!
//! TLS asks for certificates only at the handshake, so a link goes on with those that it was opened
//! with. A new link takes the place of each such link. The former one gets no further queries, and
//! closes after the last answer to those in flight; the deadlines of these queries bound that.
//!
//! A renewal must never
//! - lose a query: the former link serves until the new one is ready;
//! - leave a node with fewer links: a core renews one link at a time, and if the new link cannot be
//!   opened, because the node refuses the certificate for example, the former one goes on serving;
//! - speak against a node or a pool: neither a failed handshake nor a refused login of a new link
//!   changes which nodes get queries, or which clients are served;
//! - hurry: a core begins at most one in each tick, and leaves a node alone after a failure, for
//!   pauses that grow;
//! - keep others waiting: a link that was tried comes after those that were not;
//! - happen without a change of content ([`crate::tls::Generation`], or that of an identity's own
//!   certificate, which its pools note).

use shunt_reactor::Io;
use shunt_topology::NodeId;

use crate::core::Core;
use crate::ids::{LinkKey, LinkRef, PoolId};
use crate::link::{Role, closing, open};
use crate::log_limits::Logged;

/// Begins to renew a link of a former generation, if there is one and no renewal is under way.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    if core.context.draining {
        return;
    }
    let Some(key) = next(core, io.now_ns()) else { return };
    let Some(link) = core.links.get_mut(key) else { return };
    link.renewal_tried_ns = io.now_ns();
    let (old, pool, node) = (LinkRef { key, conn: link.conn }, link.pool, link.node);
    if open::open(core, io, pool, node, Role::Renews(old))
        && let Some(link) = core.links.get_mut(key)
    {
        link.is_being_replaced = true;
    }
}

/// The link to renew now: of those from a former generation the one that was not tried for longest.
fn next(core: &Core, now_ns: u64) -> Option<LinkKey> {
    let current = core.context.outgoing.links.current();
    if core.links.iter().any(|(_, link)| matches!(link.role, Role::Renews(..))) {
        return None;
    }
    let generation = |pool: PoolId| match core.router.pools.get(pool) {
        Some(pool) if pool.key.certificate.is_some() => pool.certificate_content,
        _ => current,
    };
    let may_be_tried = |node: NodeId| {
        let state = core.links.node(node);
        state.is_some_and(|state| state.renewal.not_before_ns <= now_ns)
    };
    let former = core.links.iter().filter(|(_, link)| {
        link.generation != generation(link.pool)
            && link.is_ready()
            && !link.is_being_replaced
            && may_be_tried(link.node)
    });
    former.min_by_key(|(_, link)| link.renewal_tried_ns).map(|(key, _)| key)
}

/// Notes that a new link to this node has taken the place of a former one.
pub(crate) fn succeeded(core: &mut Core, node: NodeId) {
    if let Some(state) = core.links.node_mut(node) {
        state.renewal.backoff.reset();
        state.metrics.links_renewed.add(1);
    }
}

/// Notes that a new link cannot be opened; the former one goes on serving.
pub(crate) fn failed(core: &mut Core, io: &mut Io, key: LinkKey, why: &str) {
    let Some(node) = core.links.get(key).map(|link| link.node) else { return };
    let (now_ns, random) = (io.now_ns(), core.context.random());
    let state = core.links.node_mut(node);
    let retry_ns = state.map_or(0, |state| state.renewal.failed(now_ns, random));
    if let Some(suppressed) = core.context.log_limits.admit(Logged::Renewal, now_ns) {
        tracing::warn!(
            core = core.context.index,
            node = %core.router.node_named(node),
            why,
            retry_in_ms = retry_ns / 1_000_000,
            suppressed,
            "a link could not be renewed with the present certificates; the former one stays in use"
        );
    }
    closing::close(core, io, key);
}
