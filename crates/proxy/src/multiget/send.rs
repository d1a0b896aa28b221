//! Splits a request and sends its parts.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};

use crate::aggregate;
use crate::core::Core;
use crate::ids::{ClientRef, PoolId};
use crate::limits;
use crate::link::{Pending, Purpose};
use crate::metrics::{QueryKind, Routing};
use crate::multiget::form::Split;
use crate::multiget::reasons::{Lost, Whole};
use crate::multiget::split::{self, Refused, Request, Run};
use crate::multiget::{Gather, Part, gather};
use crate::plan::{After, Plan, Work};
use crate::prepared::ID_BYTES;
use crate::route::{self, Choice, WhenFull};

/// Splits a request, if that is provably equal. `false`: it goes whole, and its plan has the route.
#[cold]
pub(crate) fn take(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &mut Plan,
    body: &[u8],
) -> bool {
    match try_to(core, io, slot, header, plan, body) {
        Ok(()) => true,
        Err(refused) => {
            core.context.metrics.multigets.whole.of(refused.whole).add(1);
            if let Some(placement) = refused.placement {
                plan.placement = Some(placement);
                plan.generation = core.router.generation;
                plan.alone = false;
            }
            false
        }
    }
}

fn try_to(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) -> Result<(), Refused> {
    let statement = core.router.prepared.shared(plan.statement).ok_or(Whole::Schema)?;
    let form = match statement.multiget.as_deref() {
        Some(Ok(form)) => form,
        Some(Err(whole)) => return Err((*whole).into()),
        None => return Err(Whole::Where.into()),
    };
    let id: [u8; ID_BYTES] = (*statement.id).try_into().map_err(|_| Whole::Schema)?;
    let cluster = core.router.cluster.as_ref().ok_or(Whole::Schema)?;
    if !answers_in_order(&cluster.release_version) {
        return Err(Whole::Version.into());
    }
    let routing = Arc::clone(&cluster.routing);
    let request = split::read(form, &routing, header, body, core.context.config.multiget_keys_max)?;
    let multigets = &core.retries.multigets;
    if multigets.is_paused(&id, io.now_ns()) {
        return Err(Whole::Paused.into());
    }
    if !multigets.has_room(request.runs.len(), body.len()) {
        return Err(Whole::Busy.into());
    }
    let Some(client) = core.clients.get_mut(slot) else { return Err(Whole::NoLink.into()) };
    let Some(pool) = client.pool else { return Err(Whole::NoLink.into()) };
    let named = ClientRef { slot, id: client.id };
    // Check before sending: where a part would have to wait, the whole does.
    for run in &request.runs {
        if !matches!(
            choose(core, pool, &plan_of(plan, &request, run, core.router.generation), run),
            Choice::Link(_)
        ) {
            return Err(Whole::NoLink.into());
        }
    }
    if !core.retries.multigets.turn.admits(io.now_ns(), request.runs.len(), body.len()) {
        return Err(Whole::Busy.into());
    }
    let Some((client, tenants)) = core.clients.with_tenants(slot) else {
        return Err(Whole::NoLink.into());
    };
    let tenant = client.tenant;
    tenants.begin(tenant);
    client.in_flight += 1;
    client.traffic.count(body.len());
    client.refuse_next = false;
    let metrics = &core.context.metrics;
    metrics.queries.of(plan.kind).add(1);
    metrics.in_flight.add(1);
    metrics.multigets.split.add(1);
    let multigets = &mut core.retries.multigets;
    multigets.numbers += 1;
    let gather = Gather {
        number: multigets.numbers,
        client: named,
        stream: header.stream,
        pool,
        plan: Plan { tenant, after: After::Deliver, ..*plan },
        received_ns: io.now_ns(),
        id,
        request: body.to_vec(),
        wanted: request.wanted,
        answers: request.runs.iter().map(|_| None).collect(),
        missing: request.runs.len(),
        bytes: body.len(),
    };
    multigets.bytes += body.len();
    let key = multigets.gathers.insert(gather);
    send_parts(core, io, key, form, plan, header.version, &request);
    Ok(())
}

/// True for releases known to answer keys in the order of their type. ScyllaDB, which does not,
/// reports release 3.0.
fn answers_in_order(release_version: &str) -> bool {
    let major = release_version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= 4)
}

fn send_parts(
    core: &mut Core,
    io: &mut Io,
    key: usize,
    form: &Split,
    plan: &Plan,
    version: u8,
    request: &Request<'_>,
) {
    let Some((number, pool)) =
        core.retries.multigets.gathers.get(key).map(|gather| (gather.number, gather.pool))
    else {
        return;
    };
    let mut body = std::mem::take(&mut core.scratch.message);
    for (place, run) in request.runs.iter().enumerate() {
        split::write_part(&mut body, form, version, &request.execute, &run.keys);
        let planned = plan_of(plan, request, run, core.router.generation);
        let part = core.retries.multigets.parts.insert(Part { gather: key, number, place });
        let pending = Pending {
            client: ClientRef::PART,
            pool,
            stream: part as i16,
            plan: planned,
            ..Pending::own(io.now_ns(), Purpose::Client, opcode::EXECUTE)
        };
        let is_sent = match choose(core, pool, &planned, run) {
            Choice::Link(link) => {
                aggregate::send(&mut core.links, &mut core.retained, io, link, pending, &body)
            }
            Choice::Full(_) | Choice::Nothing => false,
        };
        if !is_sent {
            // The answers to the parts already sent are ignored.
            core.retries.multigets.parts.try_remove(part);
            gather::lose(core, io, key, Lost::Unsent);
            break;
        }
        let metrics = &core.context.metrics;
        metrics.queries.of(QueryKind::Execute).add(1);
        metrics.routed.of(Routing::Token).add(1);
        metrics.in_flight.add(1);
        metrics.multigets.parts.add(1);
    }
    core.scratch.message = body;
    core.retries.multigets.show(&core.context.metrics.multigets);
}

/// The plan of a part.
fn plan_of(plan: &Plan, request: &Request<'_>, run: &Run<'_>, generation: u32) -> Plan {
    Plan {
        placement: Some((request.keyspace, run.token)),
        generation,
        work: Work::Read,
        alone: false,
        after: After::Deliver,
        ..*plan
    }
}

/// The link of a part: to a replica of all its keys, or else as for any query.
fn choose(core: &mut Core, pool: PoolId, plan: &Plan, run: &Run<'_>) -> Choice {
    let (router, links, parts) = (&mut core.router, &core.links, ClientRef::PART);
    match route::choose_among(router, links, pool, parts, &run.replicas) {
        Choice::Nothing => route::choose(router, links, pool, parts, plan, None, WhenFull::Waits),
        found => found,
    }
}

const _: () = assert!(limits::MULTIGET_PARTS_MAX <= i16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_of_cassandra_get_whole_requests() {
        assert!(
            ["4.0.0", "4.1.3", "5.0.9", "6.0-alpha2", "10.1"].into_iter().all(answers_in_order)
        );
        assert!(!["3.0.8", "3.11.19", "2.1.0", "", "unknown"].into_iter().any(answers_in_order));
    }
}
