//! Refusals of queries for which nobody has room: the client gets OVERLOADED, and the query counts
//! as one that a node has refused.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::Header;

use crate::core::Core;
use crate::digests::attribution;
use crate::fault::Fault;
use crate::metrics::Outcome;
use crate::plan::Plan;
use crate::query_end::ErrorKind;
use crate::reply;
use crate::slow_queries::capture;
use crate::traces::spans;

/// Refuses a query.
#[cold]
pub(crate) fn refuse(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    (header, body): (&Header, &[u8]),
    plan: &Plan,
    fault: &Fault,
) {
    attribution::count_refusal(core, io, header, plan);
    if let Some(client) = core.clients.get_mut(slot) {
        client.traffic.refuse(header.length as usize, ErrorKind::Overloaded);
    }
    capture::refused(core, io, slot, header, plan, body);
    spans::record_refusal(core, io, slot, header, plan, body);
    core.context.metrics.queries.of(plan.kind).add(1);
    core.context.metrics.outcomes.of(Outcome::Overloaded).add(1);
    reply::error(core, io, slot, header.stream, fault);
}
