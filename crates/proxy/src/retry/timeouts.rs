//! Requests past their deadline, and old ones whose bytes move out of the shared buffers.

use shunt_reactor::Io;

use crate::core::Core;
use crate::digests::attribution;
use crate::ids::{LinkKey, LinkRef, Ticket};
use crate::limits;
use crate::link::streams::Leg;
use crate::link::{Kept, Pending, Purpose, legs, lifecycle};
use crate::metrics::{GivenUp, Outcome};
use crate::retry::{agreement, failure, unprepared};
use crate::slow_queries::capture;
use crate::traces::spans;

/// Checks all waiting requests; once a tick.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    for key in core.links.keys() {
        expire_requests(core, io, key);
    }
    let now = io.now_ns();
    let repairs = core.retries.repairs.iter();
    let late: Vec<Ticket> =
        repairs.filter(|(_, repair)| now > repair.deadline_ns).map(|(ticket, _)| ticket).collect();
    for ticket in late {
        unprepared::is_late(core, io, ticket);
    }
    agreement::expire(core, io);
}

/// Answers the expired queries of a link. Their stream ids stay taken until the node answers; a
/// link with some that it never answers is replaced, because they count in the choice of nodes.
fn expire_requests(core: &mut Core, io: &mut Io, key: LinkKey) {
    let now = io.now_ns();
    let Some(link) = core.links.get(key) else { return };
    let at = LinkRef { key, conn: link.conn };
    let sweep = io.retained_bytes(at.conn) > limits::LINK_RETAINED_BYTES_SWEEP;
    let late: Vec<(u16, Pending)> = link
        .streams
        .iter()
        .filter(|(_, pending)| {
            let age_ns = now.saturating_sub(pending.received_ns);
            age_ns > core.context.timeout_ns(&pending.plan) || (sweep && age_ns > limits::SECOND_NS)
        })
        .map(|(stream, pending)| (stream, *pending))
        .collect();
    let mut never_answered = false;
    for (stream, mut pending) in late {
        let age_ns = now.saturating_sub(pending.received_ns);
        if age_ns <= core.context.timeout_ns(&pending.plan) {
            copy_out(core, io, at, stream, pending.kept);
            continue;
        }
        never_answered |= pending.purpose == Purpose::Orphan
            && age_ns > core.context.timeout_ns(&pending.plan) + limits::ORPHAN_AGE_MAX_NS;
        if matches!(pending.purpose, Purpose::Heartbeat | Purpose::Orphan | Purpose::Offered) {
            continue;
        }
        if pending.purpose == Purpose::Overtaken {
            legs::expire(&mut core.links, Leg { link: key, stream });
            note_late(core, at);
            continue;
        }
        if let Some(link) = core.links.get_mut(key)
            && let Some(slot) = link.streams.get_mut(stream)
        {
            slot.purpose = Purpose::Orphan;
            slot.kept = Kept::Nothing;
            link.orphans += 1;
            link.free_bytes(pending.client, core.retained.length(pending.kept));
        }
        if pending.purpose == Purpose::Client {
            attribution::identify(core, io, at, &mut pending);
            note_late(core, at);
            spans::note_link(core, at, &pending);
            capture::timed_out(core, io, at, &pending);
        }
        if let Purpose::Hedged { .. } = pending.purpose {
            let own = Leg { link: key, stream };
            legs::end(&mut core.links, &core.context.metrics, own, pending.purpose);
            note_late(core, at);
        }
        core.retained.release(&mut core.links, io, at, pending.kept);
        match pending.purpose {
            Purpose::Client => {
                let pending = Pending { fate_unknown: true, ..pending };
                failure::fail(
                    core,
                    io,
                    &pending,
                    Outcome::TimedOut,
                    "the node did not answer in time",
                );
            }
            Purpose::Reprepare { repair } => unprepared::is_late(core, io, repair),
            // The other request of a hedged read goes on.
            Purpose::Hedged { .. } | Purpose::Overtaken => {}
            Purpose::Spread | Purpose::Heartbeat | Purpose::Orphan | Purpose::Offered => {}
        }
    }
    if never_answered {
        lifecycle::replace(core, io, key, GivenUp::UnansweredQuery);
    }
}

/// Counts a query at the node that did not answer it.
fn note_late(core: &Core, at: LinkRef) {
    let node = core.links.find(at).and_then(|link| core.links.node(link.node));
    if let Some(node) = node {
        node.metrics.timed_out.add(1);
    }
}

/// Moves a slow request's bytes out of the sent log, so that the buffers that it shares with others
/// can be freed.
fn copy_out(core: &mut Core, io: &mut Io, at: LinkRef, stream: u16, kept: Kept) {
    if !matches!(kept, Kept::Sent { .. }) {
        return;
    }
    let Some(bytes) = core.retained.bytes(io, at.conn, kept) else { return };
    let Some(link) = core.links.find_mut(at) else { return };
    let copy = core.retained.keep_copy(link, bytes);
    match link.streams.get_mut(stream) {
        Some(pending) => pending.kept = copy,
        None => core.retained.release_on(link, io, copy),
    }
    core.retained.release_on(link, io, kept);
}
