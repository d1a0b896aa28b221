//! Queries that no link can take now: they wait where they are, or are refused.

use shunt_reactor::Io;

use super::{Request, Taken};
use crate::client::Stall;
use crate::core::Core;
use crate::fault::Fault;
use crate::ids::ClientRef;
use crate::link::{open, refusal, waiting};
use crate::overload;
use crate::plan::Plan;
use crate::route::Choice;

/// Handles a query that no link can take now: holds its client, unless the client has waited long
/// enough or waiting is useless.
pub(super) fn hold(
    core: &mut Core,
    io: &mut Io,
    request: &Request<'_>,
    choice: Choice,
    plan: &Plan,
) -> Taken {
    let slot = request.slot;
    let Some(client) = core.clients.get(slot) else { return Taken::Done };
    let Some(pool) = client.pool else { return Taken::Done };
    let (client, refused) = (ClientRef { slot, id: client.id }, client.refuse_next);
    match choice {
        Choice::Nothing if refusal::is_dismissed(core, pool) => {
            refusal::refuse_dismissed(core, io, slot, request.header.stream, plan, pool);
            return Taken::Done;
        }
        _ if refused => {
            refuse(core, io, request, plan);
            return Taken::Done;
        }
        Choice::Full(link) | Choice::Link(link) => {
            waiting::join(core, io, link, client);
        }
        Choice::Nothing => {
            if let Some(pool) = core.router.pools.get_mut(pool) {
                pool.waiting.push(client);
            }
            core.clients.stall(&core.context.metrics, io, slot, Stall::POOL);
            open::ensure_links(core, io, pool);
        }
    }
    Taken::Held
}

/// Refuses a query after its client has waited long enough for room.
fn refuse(core: &mut Core, io: &mut Io, request: &Request<'_>, plan: &Plan) {
    let nowhere =
        core.router.cluster.as_ref().filter(|cluster| cluster.routing.local_nodes().is_empty());
    let fault = match nowhere {
        Some(cluster) => Fault::overloaded(format!(
            "Shunt: the ring has no node in the local datacentre {:?}",
            cluster.datacentre
        )),
        None => Fault::overloaded(
            "Shunt: no link to a node could take this query in time; the nodes are overloaded or unreachable",
        ),
    };
    let Request { slot, header, body } = *request;
    overload::refuse(core, io, slot, (header, body), plan, &fault);
}
