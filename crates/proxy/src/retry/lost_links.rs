//! Lost links: their requests in flight go to another node, or their clients learn what is known.
//!
//! A link may break in the middle of any step, so its requests are only noted then, and handled
//! here when the event is over ([`settle`]).

use shunt_reactor::{Io, SentLog};

use crate::core::Core;
use crate::link::{Kept, Pending, Purpose};
use crate::metrics::Outcome;
use crate::retry::{another_node, failure, repeat, unprepared};
use crate::slow_queries::capture;

/// Handles the requests noted during an event, and those of links that break as a consequence.
#[inline]
pub(crate) fn settle(core: &mut Core, io: &mut Io) {
    while !core.retries.lost.is_empty() || !core.retries.linked.is_empty() {
        settle_some(core, io);
    }
}

#[cold]
fn settle_some(core: &mut Core, io: &mut Io) {
    for (ticket, opened) in std::mem::take(&mut core.retries.linked) {
        if opened {
            unprepared::go_on(core, io, ticket);
        } else {
            unprepared::give_up(core, io, ticket);
        }
    }
    for lost in std::mem::take(&mut core.retries.lost) {
        for pending in &lost.requests {
            request_lost(core, io, pending, &lost.log);
        }
    }
}

/// Handles a request that was in flight on a lost link.
fn request_lost(core: &mut Core, io: &mut Io, pending: &Pending, log: &SentLog) {
    let buffer = match pending.kept {
        Kept::Sent { sequence, .. } => log.get(sequence).unwrap_or_default(),
        Kept::Nothing | Kept::Copy { .. } => &[],
    };
    let body = core.retained.bytes_in(buffer, pending.kept);
    core.retained.forget(pending.kept);
    match pending.purpose {
        Purpose::Client => {
            let pending = Pending { kept: Kept::Nothing, fate_unknown: true, ..*pending };
            match body {
                Some(body)
                    if pending.retries == 0
                        && repeat::may_repeat(&mut core.router, &pending, &body) =>
                {
                    another_node::send(core, io, pending, &body, None);
                }
                body => {
                    capture::ended(core, io, &pending, body.as_deref(), Outcome::LinkLost);
                    let why = "the connection to the node was lost";
                    failure::fail(core, io, &pending, Outcome::LinkLost, why);
                }
            }
        }
        Purpose::Reprepare { repair } => unprepared::give_up(core, io, repair),
        // The other request of a hedged read went on when the link broke.
        Purpose::Hedged { .. } | Purpose::Overtaken => {}
        Purpose::Spread | Purpose::Heartbeat | Purpose::Orphan | Purpose::Offered => {}
    }
}
