//! Spans of traced requests. When a request ends, its span is made from what the core still knows
//! about the request.

use std::net::SocketAddr;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, opcode};

use super::key::TraceKey;
use super::table::{QuerySpan, Trace};
use crate::client::clients::Clients;
use crate::context::Context;
use crate::core::{Core, Reports};
use crate::digests::attribution::code_of;
use crate::ids::{ClientRef, LinkRef, PoolId};
use crate::link::{Pending, Purpose};
use crate::metrics::Outcome;
use crate::plan::Plan;
use crate::query_end::End;
use crate::reply::Answer;
use crate::router::Router;

/// The owners that a span is read from.
pub(crate) struct Sources<'a> {
    pub(crate) clients: &'a Clients,
    pub(crate) router: &'a Router,
    pub(crate) context: &'a Context,
}

/// Records a request that a node answered on the fast path.
#[cold]
pub(crate) fn record_answer(
    reports: &mut Reports,
    sources: &Sources<'_>,
    pending: &Pending,
    node: NodeId,
    now_ns: u64,
) {
    let Some(trace) = reports.traces.take(pending.trace) else { return };
    let trace = Trace { node: address_of(sources.router, node), ..trace };
    record(reports, sources, &trace, pending, now_ns, (Outcome::Ok, None));
}

/// Records a request that ends off the fast path.
#[inline]
pub(crate) fn record_end(
    core: &mut Core,
    io: &Io,
    pending: &Pending,
    answer: &Answer<'_>,
    outcome: Outcome,
) {
    if pending.trace != TraceKey::NONE {
        record_traced_end(core, io, pending, answer, outcome);
    }
}

#[cold]
fn record_traced_end(
    core: &mut Core,
    io: &Io,
    pending: &Pending,
    answer: &Answer<'_>,
    outcome: Outcome,
) {
    let read = || code_of(core.clients.find(pending.client)?, answer);
    let code = (answer.opcode == opcode::ERROR).then(read).flatten();
    let Core { reports, clients, router, context, .. } = core;
    let Some(trace) = reports.traces.take(pending.trace) else { return };
    let sources = Sources { clients, router, context };
    record(reports, &sources, &trace, pending, io.now_ns(), (outcome, code));
}

/// Records a request whose answer came to the client from an agent.
pub(crate) fn record_hand_over(core: &mut Core, io: &Io, pending: &Pending) {
    let Core { reports, clients, router, context, .. } = core;
    let Some(trace) = reports.traces.take(pending.trace) else { return };
    let sources = Sources { clients, router, context };
    record(reports, &sources, &trace, pending, io.now_ns(), (Outcome::Ok, None));
}

/// Records a request that the proxy refuses because no link took it in time.
#[cold]
pub(crate) fn record_refusal(
    core: &mut Core,
    io: &Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) {
    let Core { reports, clients, router, context, .. } = core;
    let Some(client) = clients.get(slot) else { return };
    let (metrics, now_ns) = (&context.metrics.traces, io.now_ns());
    let key = reports.traces.begin((header.flags, body), (now_ns, client.peer), metrics);
    let Some(trace) = reports.traces.take(key) else { return };
    let pending = Pending {
        client: ClientRef { slot, id: client.id },
        pool: client.pool.unwrap_or(PoolId::NONE),
        plan: *plan,
        ..Pending::own(now_ns, Purpose::Client, header.opcode)
    };
    let sources = Sources { clients, router, context };
    record(reports, &sources, &trace, &pending, now_ns, (Outcome::Overloaded, None));
}

/// Notes the node that has a request, for an end off the fast path.
pub(crate) fn note_link(core: &mut Core, at: LinkRef, pending: &Pending) {
    let Core { reports, router, links, .. } = core;
    reports.traces.note_node(pending.trace, || address_of(router, links.find(at)?.node));
}

/// Forgets the trace of a request whose client has left.
pub(crate) fn abandon(core: &mut Core, key: TraceKey) {
    core.reports.traces.abandon(key, &core.context.metrics.traces);
}

fn address_of(router: &Router, node: NodeId) -> Option<SocketAddr> {
    Some(router.cluster.as_ref()?.routing.node(node)?.address)
}

fn record(
    reports: &mut Reports,
    sources: &Sources<'_>,
    trace: &Trace,
    pending: &Pending,
    now_ns: u64,
    (outcome, error): (Outcome, Option<i32>),
) {
    let Sources { clients, router, context } = *sources;
    let names = router.pools.get(pending.pool).map(|pool| &pool.names);
    let (digest, table) = reports.digests.names_of(pending.plan.digest).unzip();
    let End { wait_ns, node_ns, .. } =
        End::new((pending.received_ns, pending.sent_ns), now_ns, 0, 0);
    let span = QuerySpan {
        parent: trace.parent,
        ended_ns: now_ns,
        wait_ns,
        node_ns,
        node: trace.node,
        outcome,
        error,
        kind: pending.plan.kind,
        consistency: pending.plan.consistency,
        retries: pending.retries,
        digest,
        table: table.flatten(),
        keyspace: names.and_then(|names| names.keyspace.clone()),
        role: names.and_then(|names| names.role.clone()),
        client: clients.find(pending.client).map(|client| client.peer),
    };
    reports.traces.keep(span, &context.metrics.traces);
}
