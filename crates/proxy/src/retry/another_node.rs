//! Sends a request that one node did not answer, or did not take, to another.

use shunt_reactor::Io;
use shunt_topology::NodeId;

use crate::aggregate;
use crate::core::Core;
use crate::ids::ClientRef;
use crate::link::Pending;
use crate::metrics::Outcome;
use crate::plan::Plan;
use crate::retry::{failure, mode_change};
use crate::route::{self, Choice, WhenFull};
use crate::slow_queries::capture;
use crate::traces::spans;

/// Sends a request once more, to the best node now. `avoid`: the node that did not execute it, to
/// use only as the last resort.
pub(crate) fn send(
    core: &mut Core,
    io: &mut Io,
    mut pending: Pending,
    body: &[u8],
    avoid: Option<NodeId>,
) {
    pending.retries += 1;
    if core.clients.version_of(pending.client).is_none() {
        core.context.metrics.in_flight.sub(1);
        core.clients.tenants.end(pending.plan.tenant, 0);
        spans::abandon(core, pending.trace);
        return;
    }
    if core.context.is_too_late(io, &pending.plan, pending.received_ns) {
        let why = "the node did not answer in time";
        return end(core, io, &pending, body, Outcome::TimedOut, why);
    }
    if mode_change::is_taken(core, io, &pending, body) {
        return failure::fail(core, io, &pending, Outcome::Intercepted, mode_change::WHY);
    }
    let mut choose = |plan: &Plan| {
        let (router, links) = (&mut core.router, &core.links);
        route::choose(router, links, pending.pool, ClientRef::PROXY, plan, avoid, WhenFull::Fails)
    };
    let choice = match choose(&pending.plan) {
        // The request cannot wait as a client's next query can; any node with room will do.
        Choice::Full(_) => choose(&Plan { placement: None, ..pending.plan }),
        choice => choice,
    };
    match choice {
        Choice::Link(link)
            if aggregate::send(&mut core.links, &mut core.retained, io, link, pending, body) =>
        {
            core.context.metrics.count_outcome(pending.client, Outcome::Retried);
        }
        Choice::Link(_) | Choice::Full(_) => {
            end(core, io, &pending, body, Outcome::Overloaded, "the other nodes are overloaded")
        }
        Choice::Nothing if pending.plan.node.is_some() => {
            let why = "the node that began this read cannot be reached; begin it again";
            end(core, io, &pending, body, Outcome::LinkLost, why);
        }
        Choice::Nothing => {
            end(core, io, &pending, body, Outcome::LinkLost, "no other node can be reached")
        }
    }
}

/// Ends a request that goes to no node again.
fn end(core: &mut Core, io: &mut Io, pending: &Pending, body: &[u8], outcome: Outcome, why: &str) {
    capture::ended(core, io, pending, Some(body), outcome);
    failure::fail(core, io, pending, outcome, why);
}
