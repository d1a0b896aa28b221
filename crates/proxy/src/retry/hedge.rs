//! Hedged reads: a late read goes to another replica too, and the client gets the first result.
//! [`crate::link::lateness`] knows which reads are late.
//!
//! While the proxy waits for both answers, each of the two requests names the other
//! ([`Purpose::Hedged`]). As soon as one of them ends, in whatever way, the other is either
//! *overtaken*, and its answer will be dropped, or an ordinary request. A hedged read must never
//!
//! - be answered twice, or with another query's rows: the stream id of an overtaken request stays
//!   taken until its own answer comes, or its link is lost;
//! - be lost because one of the two failed: an error, a lost link or a deadline ends that request
//!   alone, and the read goes on with the other;
//! - be anything but a read: what `may_repeat` refuses, and a table whose mode has changed since,
//!   goes to no second node;
//! - go to the same node, to one that is ejected, drained or silent, or to one without the data;
//! - exceed its share of the reads, or go out while more than a third of the last reads are late;
//! - leave a stream id or kept bytes behind: an overtaken request keeps no bytes.

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;

use crate::aggregate;
use crate::core::Core;
use crate::ids::LinkRef;
use crate::link::streams::Leg;
use crate::link::{Kept, Pending, Purpose, legs};
use crate::metrics::HedgeEvent;
use crate::reply::Answer;
use crate::retry::{mode_change, refusals, repeat};
use crate::route::{self, Choice};

/// Looks at the reads whose time has passed, and sends late ones to another node too.
pub(crate) fn due(core: &mut Core, io: &mut Io) {
    core.links.lateness.is_woken();
    while let Some(watched) = core.links.lateness.next_due(io) {
        let link = core.links.find(watched.at);
        let pending = link.and_then(|link| link.streams.get(watched.stream as i16)).copied();
        let late = pending.filter(|pending| watched.is(pending));
        core.links.lateness.learn(late.is_some());
        if let Some(pending) = late {
            send(core, io, watched.at, watched.stream, &pending);
        }
    }
    core.context.metrics.hedge_after_ns.set(core.links.lateness.late_ns());
}

/// Sends a read that is late to another replica, if one can take it.
fn send(core: &mut Core, io: &mut Io, at: LinkRef, stream: u16, pending: &Pending) {
    if core.clients.version_of(pending.client).is_none()
        || core.context.is_too_late(io, &pending.plan, pending.received_ns)
    {
        return;
    }
    if !core.links.lateness.has_credit() {
        core.context.metrics.hedges.of(HedgeEvent::Withheld).add(1);
        return;
    }
    let nodes = other_replicas(core, at, pending);
    if nodes.is_empty() {
        return;
    }
    let Some(body) = core.retained.bytes(io, at.conn, pending.kept) else { return };
    if !repeat::may_repeat(&mut core.router, pending, &body)
        || mode_change::is_taken(core, io, pending, &body)
    {
        return;
    }
    let (pool, asker) = (pending.pool, pending.client);
    let Choice::Link(key) = route::choose_among(&core.router, &core.links, pool, asker, &nodes)
    else {
        return;
    };
    let purpose = Purpose::Hedged { link: at.key, stream, is_second: true };
    let second = Pending { purpose, kept: Kept::Nothing, ..*pending };
    let (links, retained) = (&mut core.links, &mut core.retained);
    let Some(taken) = aggregate::send_under(links, retained, io, key, second, &body) else {
        return;
    };
    if let Some(first) = links.find_mut(at).and_then(|link| link.streams.get_mut(stream)) {
        first.purpose = Purpose::Hedged { link: key, stream: taken, is_second: false };
    }
    links.lateness.pay();
    core.context.metrics.hedges.of(HedgeEvent::Sent).add(1);
}

/// Replicas of the read's partition in the local datacentre, without the node that has the read and
/// without ejected, drained and silent nodes.
fn other_replicas(core: &Core, at: LinkRef, pending: &Pending) -> Vec<NodeId> {
    let first = core.links.find(at).map(|link| link.node);
    let (Some(cluster), Some((keyspace, token))) = (&core.router.cluster, pending.plan.placement)
    else {
        return Vec::new();
    };
    if pending.plan.generation != core.router.generation {
        return Vec::new();
    }
    let replicas = cluster.routing.replicas(keyspace, token);
    let local = &replicas.nodes[..replicas.local.min(replicas.nodes.len())];
    let takes = |node: &NodeId| {
        let state = core.links.node(*node);
        Some(*node) != first && state.is_some_and(|it| it.share > 0 && !it.silent && !it.drained)
    };
    local.iter().copied().filter(takes).collect()
}

/// Handles the answer to one of the two requests of a hedged read. Returns true if it is for the
/// client; an error is not, because the other may still succeed.
pub(crate) fn answered(
    core: &mut Core,
    io: &mut Io,
    at: LinkRef,
    pending: &Pending,
    answer: &Answer<'_>,
) -> bool {
    let own = Leg { link: at.key, stream: answer.stream as u16 };
    let Core { links, retained, context, .. } = &mut *core;
    if answer.opcode == opcode::RESULT {
        legs::overtake(links, retained, io, &context.metrics, (own, pending.purpose));
        return true;
    }
    legs::end(links, &context.metrics, own, pending.purpose);
    let (mut plain, after) = (Vec::new(), pending.plan.after);
    let max = answer.plain_bytes_max(after, context.config.frame_bytes_max);
    if let Some(body) = core.links.plain_body(at.key, answer.flags, answer.body, max, &mut plain) {
        refusals::penalise(core, at.key, answer.flags, body);
    }
    false
}
