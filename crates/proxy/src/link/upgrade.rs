//! From ordinary links to those that carry aggregated frames.
//!
//! A node may take frames on a separate port and name it in SUPPORTED. The proxy opens links to the
//! ordinary port all the same, and they serve at once; beside each it opens a second one to the
//! other port, which takes the first one's place once it is ready. So a port that is closed,
//! filtered or of another program holds up no query. The proxy asks nodes again now and then,
//! because the other port may open later than the ordinary one.
//!
//! A node that takes frames on its ordinary port gets them from the start. If a link breaks before
//! a frame was answered, because something on the route passes the offer on but not the frames, the
//! next link is an ordinary one, and frames are tried again less and less often.

use shunt_reactor::Io;
use shunt_wire::aggregate::{Offer, SUPPORTED_KEY};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::Supported;

use crate::config::Aggregate;
use crate::core::Core;
use crate::ids::{LinkKey, LinkRef};
use crate::limits;
use crate::link::links::LinkAndNode;
use crate::link::{Role, Step, closing, lifecycle, open, renewal};
use crate::reply::Answer;

/// Reads from SUPPORTED the offer of aggregated frames on this very connection, if they are wanted;
/// otherwise notes the port where the node takes them.
///
/// # Errors
/// The message is malformed.
pub(crate) fn read_offer(
    core: &mut Core,
    io: &Io,
    key: LinkKey,
    supported: &[u8],
) -> Result<Option<Offer>, String> {
    let supported =
        Supported::decode(supported).map_err(|error| format!("SUPPORTED is malformed: {error}"))?;
    let offer = supported.options.get(SUPPORTED_KEY).and_then(|values| Offer::parse(values.iter()));
    // A large answer inside a frame could not be handed over.
    let offer = offer
        .filter(|_| core.context.config.aggregate == Aggregate::Auto && core.handover.is_none());
    let is_ordinary = is_at_ordinary_port(core, key);
    let Some(LinkAndNode { link, node: Some(node), .. }) = core.links.get_with_node(key) else {
        return Ok(None);
    };
    link.offer_asked_ns = io.now_ns();
    let here = offer.filter(|offer| offer.port.is_none_or(|port| port == link.port));
    node.upgrade.port = offer.map(|offer| offer.port.unwrap_or(link.port));
    let is_tried = match link.role {
        Role::Replaces(..) => true,
        // The former link carries frames on that port.
        Role::Renews(..) if !is_ordinary => true,
        _ => io.now_ns() >= node.upgrade.not_before_ns,
    };
    Ok(here.filter(|_| is_tried))
}

/// True of a link to the port of its node that takes links without aggregated frames.
pub(crate) fn is_at_ordinary_port(core: &Core, key: LinkKey) -> bool {
    core.links.get(key).is_some_and(|link| {
        let cluster = core.router.cluster.as_ref();
        let node = cluster.and_then(|cluster| cluster.routing.node(link.node));
        node.is_some_and(|node| node.address.port() == link.port)
    })
}

/// True if it is time to ask the node of an ordinary link again.
pub(crate) fn may_have_new_offer(core: &Core, key: LinkKey, now_ns: u64) -> bool {
    let Some(link) = core.links.get(key) else { return false };
    let ordinary = link.is_ready() && link.aggregate.is_none() && !link.is_being_replaced;
    ordinary
        && core.context.config.aggregate == Aggregate::Auto
        && now_ns.saturating_sub(link.offer_asked_ns) > limits::OFFER_CHECK_NS
}

/// Handles the answer to a probe. An unreadable one means nothing: the link itself works.
#[cold]
pub(crate) fn heard_offer(core: &mut Core, io: &mut Io, key: LinkKey, answer: &Answer<'_>) {
    let Some(link) = core.links.get_mut(key) else { return };
    link.offer_asked_ns = io.now_ns();
    if answer.opcode != opcode::SUPPORTED
        || link.aggregate.is_some()
        || core.context.config.aggregate != Aggregate::Auto
    {
        return;
    }
    let (max, mut plain) = (limits::HANDSHAKE_BYTES_MAX, Vec::new());
    let Some(body) = core.links.plain_body(key, answer.flags, answer.body, max, &mut plain) else {
        return;
    };
    if read_offer(core, io, key, body).is_ok() {
        begin(core, io, key);
    }
}

/// Opens a link for aggregated frames, if the node takes them, to replace this one.
pub(crate) fn begin(core: &mut Core, io: &mut Io, key: LinkKey) {
    let Some(link) = core.links.get(key) else { return };
    let Some(node) = core.links.node(link.node) else { return };
    let wanted = node.upgrade.port.is_some()
        && link.is_ready()
        && link.aggregate.is_none()
        && !link.is_being_replaced;
    if !wanted || core.context.draining || io.now_ns() < node.upgrade.not_before_ns {
        return;
    }
    let (old, pool, node) = (LinkRef { key, conn: link.conn }, link.pool, link.node);
    if open::open(core, io, pool, node, Role::Replaces(old))
        && let Some(link) = core.links.get_mut(key)
    {
        link.is_being_replaced = true;
    }
}

/// Puts a ready link in the place it was opened for. `false`: the place no longer exists, and the
/// link is closed.
pub(crate) fn take_place(core: &mut Core, io: &mut Io, key: LinkKey) -> bool {
    let Some(link) = core.links.get_mut(key) else { return false };
    let (Role::Replaces(old) | Role::Renews(old)) = link.role else { return true };
    let is_renewed = matches!(link.role, Role::Renews(..));
    link.role = Role::Serves;
    let (pool, node) = (link.pool, link.node);
    if core.links.find(old).is_some() {
        lifecycle::retire(core, io, old.key);
    }
    match core.router.pools.get_mut(pool) {
        Some(pool) if pool.missing(node) > 0 => {
            pool.take_place(node, key);
            if is_renewed {
                renewal::succeeded(core, node);
            }
            true
        }
        _ => {
            closing::close(core, io, key);
            false
        }
    }
}

/// Notes that a link will not replace another; the other one goes on serving.
pub(crate) fn failed(core: &mut Core, io: &mut Io, key: LinkKey, why: &str) {
    let Some(link) = core.links.get(key) else { return };
    if link.via.is_some() {
        // The next attempt comes with the tick, once its pause is over.
        tracing::info!(core = core.context.index, node = %core.router.node_named(link.node), why, "no link through an agent; the present link stays in use");
        return closing::close(core, io, key);
    }
    let (node, port) = (link.node, link.port);
    let (now, random) = (io.now_ns(), core.context.random());
    let retry_ns = core.links.node_mut(node).map_or(0, |node| node.upgrade.failed(now, random));
    tracing::warn!(
        core = core.context.index,
        node = %core.router.node_named(node),
        port,
        why,
        retry_in_ms = retry_ns / 1_000_000,
        "a node offers aggregated frames that cannot be used; ordinary links are used instead"
    );
    closing::close(core, io, key);
}

/// Handles the loss of a link of aggregated frames. If it lasted, or carried frames both ways on
/// the ordinary port, as when its node restarts, frames were no mistake: the next attempt comes at
/// once.
pub(crate) fn broke(core: &mut Core, now_ns: u64, key: LinkKey) {
    let random = core.context.random();
    let Some(LinkAndNode { link, node: Some(node), .. }) = core.links.get_with_node(key) else {
        return;
    };
    if link.step != Step::Ready || link.retiring || link.aggregate.is_none() {
        return;
    }
    let ordinary = core.router.cluster.as_ref().and_then(|cluster| cluster.routing.node(link.node));
    let elsewhere = ordinary.is_some_and(|node| node.address.port() != link.port);
    let lasted = now_ns.saturating_sub(link.ready_ns) > limits::UPGRADE_RETRY_MAX_NS;
    if lasted || !elsewhere && link.heard_frames {
        node.upgrade.backoff.reset();
    } else if elsewhere || link.streams.len() > 0 {
        node.upgrade.failed(now_ns, random);
    }
}
