//! Client bytes to requests.
//!
//! Cuts the bytes of a client into envelopes (v3/v4: section 2 of the specification; v5: out of
//! segments, section 2.2), refuses malformed or oversized ones by their header alone, and hands
//! each complete request on. Bodies are borrowed from the receive buffer; only a v5 envelope that
//! spans segments is copied. Each request costs one look-up of its client.

mod hold;
mod verdicts;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::frame_v5::FrameError;
use shunt_wire::cql::reader::Envelopes;
use shunt_wire::error::DecodeError;

use crate::accept;
use crate::aggregate;
use crate::answers::{learn, local_pages};
use crate::client::clients::Clients;
use crate::client::{Client, Phase, Stall, closing, heavy, login, version};
use crate::context::Context;
use crate::core::Core;
use crate::fault::Fault;
use crate::ids::{ClientRef, PoolId};
use crate::limits;
use crate::link::links::Links;
use crate::link::{Kept, Pending, Purpose};
use crate::locks::intake;
use crate::metrics::{Closing, Outcome, Routing};
use crate::multiget::send as multiget;
use crate::plan::{After, Plan};
use crate::reply;
use crate::retained::Retained;
use crate::route::{self, Choice, WhenFull};
use crate::router::Router;
use crate::rules::refusal as rules;
use crate::tenants::{self, Admission, Tenants};
use crate::traces::table::Traces;
use crate::transactions::{intake as transactions, pause};
use hold::hold;

/// One complete request.
#[derive(Clone, Copy)]
struct Request<'a> {
    slot: u32,
    header: &'a Header,
    body: &'a [u8],
}

/// The owners that a query passes on its way to a node.
struct Path<'a> {
    router: &'a mut Router,
    links: &'a mut Links,
    retained: &'a mut Retained,
    tenants: &'a mut Tenants,
    traces: &'a mut Traces,
    context: &'a Context,
}

/// The outcome of forwarding a query.
enum Forwarded {
    /// The query is on a link.
    Sent,
    /// The body is malformed.
    Malformed(DecodeError),
    /// The query needs more than forwarding; [`After`] says what.
    Special(Plan),
    /// No link can take the query now.
    Unsent(Choice, Plan),
    /// The rule in this place refuses the query.
    Refused(u16, Plan),
    /// The query exceeds the limit of the rule in this place.
    Limited(u16, Plan),
    /// The client belongs to no pool.
    Closed,
}

/// The outcome for the bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// The bytes are consumed.
    Done,
    /// The bytes are consumed, and the request is on a link.
    Sent,
    /// The request must wait where it is; the client is stalled.
    Held,
}

/// The end of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After the last complete request.
    Done,
    /// Before a request that must wait.
    Held,
    /// The connection is closed; the rest is ignored.
    Closed,
}

/// Reads all complete requests from the carried-over bytes and `data`; returns how many bytes of
/// `data` it consumed.
#[inline]
pub(crate) fn read(core: &mut Core, io: &mut Io, slot: u32, data: &[u8]) -> usize {
    let Some(client) = core.clients.get_mut(slot) else { return data.len() };
    let named = ClientRef { slot, id: client.id };
    let mut reader = std::mem::take(&mut client.reader);
    let mut scratch = std::mem::take(&mut core.scratch.segment);
    let mut envelopes = reader.read(data, &mut scratch);
    let mut requests = 0;
    let end = take_envelopes(core, io, slot, &mut envelopes, &mut requests);
    let used = match end {
        End::Done => envelopes.finish(),
        End::Held => envelopes.hold(),
        End::Closed => data.len(),
    };
    core.scratch.segment = scratch;
    if end == End::Closed {
        return used;
    }
    if let Some(client) = core.clients.find_mut(named) {
        client.reader = reader;
        if used == data.len() && client.reader.carried_bytes() == 0 {
            client.partial_since_ns = 0;
        } else if client.partial_since_ns == 0 || requests > 0 {
            // Segments that only continue one request do not restart its time: they may be tiny.
            client.partial_since_ns = io.now_ns();
        }
    }
    used
}

/// Reads whole envelopes and counts them.
#[inline]
fn take_envelopes(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    envelopes: &mut Envelopes<'_>,
    requests: &mut u32,
) -> End {
    let mut answered_here = 0;
    loop {
        let Core { clients, router, links, retained, reports, context, .. } = &mut *core;
        let Some(found) = clients.with_tenants(slot) else { return End::Closed };
        let (mut client, mut tenants) = found;
        if client.stalls.any() {
            return End::Done;
        }
        let header = match envelopes.header() {
            Ok(Some(header)) => header,
            Ok(None) => return End::Done,
            Err(error) => return refuse_frame(core, io, slot, &error),
        };
        if client.version != header.version || header.version == 0 || header.response {
            let judged = version::judge(client, router, &header);
            if !matches!(judged, Ok(true)) {
                return end_at_version(core, io, slot, header.stream, judged);
            }
        }
        if let Some((stream, fault)) = judge_header(client.phase, context, &header) {
            return refuse_request(core, io, slot, stream, &fault);
        }
        let body = match envelopes.body() {
            Ok(Some(body)) => body,
            Ok(None) => return End::Done,
            Err(error) => return refuse_frame(core, io, slot, &error),
        };
        let is_query = is_query(client.phase, header.opcode);
        if is_query && client.tenant.is_some() {
            let asker = ClientRef { slot, id: client.id };
            let admission = tenants.admit(client, asker, body.len(), io.now_ns());
            if admission != Admission::Passes {
                if tenants::refusal::holds(core, io, slot, (&header, body), admission) {
                    return End::Held;
                }
                *requests += 1;
                count_taken(core, io, slot, true, &mut answered_here);
                continue;
            }
        }
        // In v5 the segments are compressed, not the envelopes.
        let is_compressed = header.flags & flag::COMPRESSION != 0 && header.version < 5;
        if is_compressed || body.len() >= limits::HEAVY_BYTES_MIN {
            let admitted = admit_heavy(clients, router, slot, &header, body);
            if !matches!(admitted, Ok(true)) {
                return end_as_heavy(core, io, slot, header.stream, admitted);
            }
            let Some(found) = clients.with_tenants(slot) else { return End::Closed };
            (client, tenants) = found;
        }
        let request = Request { slot, header: &header, body };
        let taken = if is_query && !is_compressed {
            let traces = &mut reports.traces;
            let path = Path { router, links, retained, tenants, traces, context };
            match forward(client, path, io, &request) {
                Forwarded::Sent => {
                    *requests += 1;
                    continue;
                }
                other => finish(core, io, &request, other),
            }
        } else {
            let (taken, segments) = take_here(core, io, &request, is_compressed);
            segments.into_iter().for_each(|lz4| envelopes.start_segments(lz4));
            taken
        };
        if taken == Taken::Held {
            return End::Held;
        }
        *requests += 1;
        count_taken(core, io, slot, taken != Taken::Sent, &mut answered_here);
    }
}

/// Ends a read at a request whose version the client may not use, or not yet.
#[cold]
fn end_at_version(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    judged: Result<bool, (Closing, Fault)>,
) -> End {
    match judged {
        Ok(_) => {
            core.clients.stall(&core.context.metrics, io, slot, Stall::CLUSTER);
            End::Done
        }
        Err((closing, fault)) => {
            closing::refuse_for(core, io, slot, stream, closing, &fault);
            End::Closed
        }
    }
}

/// Ends a read at a request that is too heavy, or too heavy for this turn.
#[cold]
fn end_as_heavy(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    admitted: Result<bool, Fault>,
) -> End {
    match admitted {
        Ok(_) => {
            core.clients.stall(&core.context.metrics, io, slot, Stall::HEAVY);
            End::Held
        }
        Err(fault) => refuse_request(core, io, slot, stream, &fault),
    }
}

/// Judges the stream id and the length of a request by its header alone. Returns the fault, and the
/// stream id of its answer.
#[inline]
fn judge_header(phase: Phase, context: &Context, header: &Header) -> Option<(i16, Fault)> {
    if header.stream < 0 {
        let why = format!("stream id {} of a request is negative", header.stream);
        return Some((0, Fault::protocol(why)));
    }
    let bytes_max = match phase {
        Phase::Ready => limits::REQUEST_BYTES_MAX.min(context.config.frame_bytes_max),
        _ => limits::HANDSHAKE_BYTES_MAX,
    };
    let bytes = header.length;
    (bytes > bytes_max).then(|| {
        let why = format!("a request of {bytes} bytes exceeds the limit of {bytes_max} bytes");
        (header.stream, Fault::invalid(why))
    })
}

#[cold]
fn refuse_request(core: &mut Core, io: &mut Io, slot: u32, stream: i16, fault: &Fault) -> End {
    closing::refuse(core, io, slot, stream, fault);
    End::Closed
}

/// True if a large or compressed request may be read in this turn.
///
/// # Errors
/// The request claims more bytes than a client may send before its login.
#[cold]
fn admit_heavy(
    clients: &mut Clients,
    router: &Router,
    slot: u32,
    header: &Header,
    body: &[u8],
) -> Result<bool, Fault> {
    let Some(client) = clients.get(slot) else { return Ok(true) };
    let claimed = heavy::cost(client.compression, header, body);
    if client.phase != Phase::Ready && claimed > limits::HANDSHAKE_BYTES_MAX as usize {
        let max = limits::HANDSHAKE_BYTES_MAX;
        let why = format!("a request of {claimed} bytes before the login exceeds {max} bytes");
        return Err(Fault::invalid(why));
    }
    Ok(clients.admits(&router.pools, slot, claimed, body))
}

/// Counts a request that was not forwarded as it came. Requests that the proxy answers itself
/// (`is_answered`) are small, and their answers cost more than their bytes: after a number of them
/// the client waits in line, unless this turn has room. Requests that have gone to nodes do not
/// count here.
#[inline(never)]
fn count_taken(core: &mut Core, io: &mut Io, slot: u32, is_answered: bool, count: &mut u32) {
    core.clients.settle_request(slot);
    *count += u32::from(is_answered);
    if is_answered
        && count.is_multiple_of(limits::ANSWERED_AT_ONCE)
        && !core.clients.may_read(slot, limits::HEAVY_BYTES_MIN)
    {
        core.clients.wait_as_heavy(&core.router.pools, slot, limits::HEAVY_BYTES_MIN);
        core.clients.stall(&core.context.metrics, io, slot, Stall::HEAVY);
    }
}

/// Takes a request that is not forwarded as it is. The answer to STARTUP switches v5 to segments;
/// then the rest of this read is in segments already, and the second value says whether with LZ4.
fn take_here(
    core: &mut Core,
    io: &mut Io,
    request: &Request<'_>,
    is_compressed: bool,
) -> (Taken, Option<bool>) {
    let client =
        |core: &Core| core.clients.get(request.slot).map(|client| (client.segmented, client.lz4));
    let was_segmented = client(core).is_some_and(|(segmented, _)| segmented);
    let taken =
        if is_compressed { take_compressed(core, io, request) } else { take(core, io, request) };
    let after = client(core).filter(|(segmented, _)| *segmented != was_segmented);
    (taken, after.map(|(_, lz4)| lz4))
}

#[cold]
fn refuse_frame(core: &mut Core, io: &mut Io, slot: u32, error: &FrameError) -> End {
    closing::refuse(core, io, slot, 0, &Fault::protocol(error.to_string()));
    End::Closed
}

/// True for a request that nodes answer (section 2.4 of the specifications).
#[inline]
fn is_query(phase: Phase, op: u8) -> bool {
    phase == Phase::Ready
        && matches!(op, opcode::EXECUTE | opcode::QUERY | opcode::BATCH | opcode::PREPARE)
}

/// Takes a request whose whole body is compressed, as in v3 and v4.
fn take_compressed(core: &mut Core, io: &mut Io, request: &Request<'_>) -> Taken {
    let Some(client) = core.clients.get(request.slot) else { return Taken::Done };
    let mut plain = std::mem::take(&mut core.scratch.body);
    let taken = match client.decompress(request.body, &mut plain) {
        Ok(()) => {
            // Send the plain body, not the client's bytes: a node's decompressor may refuse what
            // ours accepts, and Cassandra reports that on stream 0, which does not identify the
            // request.
            let header =
                Header { flags: request.header.flags & !flag::COMPRESSION, ..*request.header };
            take(core, io, &Request { header: &header, body: &plain, ..*request })
        }
        Err(fault) => {
            closing::refuse(core, io, request.slot, request.header.stream, &fault);
            Taken::Done
        }
    };
    core.scratch.body = plain;
    taken
}

/// Takes a request with its body decompressed.
fn take(core: &mut Core, io: &mut Io, request: &Request<'_>) -> Taken {
    let Core { clients, router, links, retained, reports, context, .. } = &mut *core;
    let Some((client, tenants)) = clients.with_tenants(request.slot) else { return Taken::Done };
    if !is_query(client.phase, request.header.opcode) {
        let phase = client.phase;
        accept::take_request(core, io, request.slot, phase, request.header, request.body);
        return Taken::Done;
    }
    let path = Path { router, links, retained, tenants, traces: &mut reports.traces, context };
    let forwarded = forward(client, path, io, request);
    finish(core, io, request, forwarded)
}

/// Forwards a client's query: plans it, chooses a link and puts it there.
#[inline]
fn forward(client: &mut Client, path: Path<'_>, io: &mut Io, request: &Request<'_>) -> Forwarded {
    if request.header.opcode != opcode::EXECUTE {
        return forward_other(client, path, io, request);
    }
    let Some(pool) = client.pool else { return Forwarded::Closed };
    match route::plan_execute(path.router, pool, request.header, request.body) {
        Ok(plan) if path.router.rules.any() => {
            verdicts::forward(client, path, io, request, (pool, plan))
        }
        Ok(plan) if plan.after.is_for_the_proxy() => Forwarded::Special(plan),
        Ok(plan) => send(client, path, io, request, (pool, plan)),
        Err(error) => Forwarded::Malformed(error),
    }
}

/// Forwards a QUERY, BATCH or PREPARE.
#[inline(never)]
fn forward_other(
    client: &mut Client,
    path: Path<'_>,
    io: &mut Io,
    request: &Request<'_>,
) -> Forwarded {
    let Some(pool) = client.pool else { return Forwarded::Closed };
    match route::plan(path.router, pool, request.header, request.body) {
        Ok(plan) if path.router.rules.any() => {
            verdicts::forward(client, path, io, request, (pool, plan))
        }
        Ok(plan) if plan.after.is_for_the_proxy() => Forwarded::Special(plan),
        Ok(plan) => send(client, path, io, request, (pool, plan)),
        Err(error) => Forwarded::Malformed(error),
    }
}

/// Puts a planned query on its link, if the link has room.
#[inline(always)]
fn send(
    client: &mut Client,
    path: Path<'_>,
    io: &mut Io,
    request: &Request<'_>,
    (pool, plan): (PoolId, Plan),
) -> Forwarded {
    let Path { router, links, retained, tenants, traces, context } = path;
    let asker = ClientRef { slot: request.slot, id: client.id };
    let link = match route::choose(router, links, pool, asker, &plan, None, WhenFull::Waits) {
        Choice::Link(link) => link,
        choice if !client.refuse_next => return Forwarded::Unsent(choice, plan),
        choice => match route::choose_after_wait(router, links, pool, asker, &plan) {
            Choice::Link(link) => link,
            Choice::Full(_) | Choice::Nothing => return Forwarded::Unsent(choice, plan),
        },
    };
    let metrics = &context.metrics;
    metrics.queries.of(plan.kind).add(1);
    let by = if plan.placement.is_some() { Routing::Token } else { Routing::Any };
    metrics.routed.of(by).add(1);
    metrics.in_flight.add(1);
    client.in_flight += 1;
    client.traffic.count(request.body.len());
    client.refuse_next = false;
    tenants.begin(client.tenant);
    client.is_tenant_paid = false;
    let bytes = (request.header.flags, request.body);
    let trace = traces.begin(bytes, (io.now_ns(), client.peer), &metrics.traces);
    let pending = Pending {
        purpose: Purpose::Client,
        client: asker,
        pool,
        stream: request.header.stream,
        opcode: request.header.opcode,
        flags: request.header.flags,
        retries: 0,
        fate_unknown: false,
        reprepares: 0,
        plan: Plan { tenant: client.tenant, ..plan },
        received_ns: io.now_ns(),
        sent_ns: 0,
        kept: Kept::Nothing,
        trace,
    };
    // `choose` gave a link with a free stream, so this cannot fail.
    aggregate::send(links, retained, io, link, pending, request.body);
    Forwarded::Sent
}

/// Completes the handling of a query that may not be on a link.
#[cold]
fn finish(core: &mut Core, io: &mut Io, request: &Request<'_>, forwarded: Forwarded) -> Taken {
    let (slot, header, body) = (request.slot, request.header, request.body);
    match forwarded {
        Forwarded::Sent => Taken::Sent,
        Forwarded::Malformed(error) => {
            closing::refuse(core, io, slot, header.stream, &error.into());
            Taken::Done
        }
        Forwarded::Closed => {
            let why = "a query of a connection that has no session";
            closing::refuse(core, io, slot, header.stream, &Fault::protocol(why));
            Taken::Done
        }
        Forwarded::Unsent(choice, plan) => hold(core, io, request, choice, &plan),
        Forwarded::Refused(place, plan) => {
            rules::refuse(core, io, slot, (header, body), &plan, place);
            Taken::Done
        }
        Forwarded::Limited(place, plan) => {
            rules::refuse_beyond_limit(core, io, slot, (header, body), &plan, place);
            Taken::Done
        }
        Forwarded::Special(plan) => {
            match plan.after {
                After::Use => login::use_keyspace(core, io, slot, header, &plan, body),
                After::Lock => intake::take(core, io, slot, header, &plan, body),
                After::Transaction if pause::stalls_client(core, io, (slot, header, body)) => {
                    return Taken::Held;
                }
                After::Transaction => {
                    if !transactions::take_request(core, io, slot, header, &plan, body) {
                        return take_as_any(core, io, request, plan);
                    }
                }
                After::Multiget => {
                    let mut plan = plan;
                    if !multiget::take(core, io, slot, header, &mut plan, body) {
                        return take_as_any(core, io, request, plan);
                    }
                }
                After::Refuse => refuse_hidden(core, io, request, &plan),
                After::Unprepared => learn::ask_to_prepare(core, io, slot, header, &plan, body),
                _ => return take_page(core, io, request, plan),
            }
            Taken::Done
        }
    }
}

/// Refuses a SELECT whose table the proxy does not read, because a node's answer could show a node,
/// and a statement on an admin table.
fn refuse_hidden(core: &mut Core, io: &mut Io, request: &Request<'_>, plan: &Plan) {
    core.context.metrics.queries.of(plan.kind).add(1);
    core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
    let fault = Fault::invalid(route::refusal(request.header, request.body));
    reply::error(core, io, request.slot, request.header.stream, &fault);
}

/// Forwards to a node a statement that the proxy could have executed itself.
fn take_as_any(core: &mut Core, io: &mut Io, request: &Request<'_>, plan: Plan) -> Taken {
    let plan = Plan { after: After::Deliver, ..plan };
    let Core { clients, router, links, retained, reports, context, .. } = &mut *core;
    let Some((client, tenants)) = clients.with_tenants(request.slot) else { return Taken::Done };
    let Some(pool) = client.pool else { return Taken::Done };
    let path = Path { router, links, retained, tenants, traces: &mut reports.traces, context };
    match send(client, path, io, request, (pool, plan)) {
        Forwarded::Unsent(choice, plan) => hold(core, io, request, choice, &plan),
        _ => Taken::Done,
    }
}

/// Takes a read of node-local rows: a later page must go to the node of the first one.
fn take_page(core: &mut Core, io: &mut Io, request: &Request<'_>, plan: Plan) -> Taken {
    let Core { clients, router, links, retained, reports, context, .. } = &mut *core;
    let Some((client, tenants)) = clients.with_tenants(request.slot) else { return Taken::Done };
    let Some(pool) = client.pool else { return Taken::Done };
    let directed = local_pages::directed(router, pool, request.header, request.body);
    let path = Path { router, links, retained, tenants, traces: &mut reports.traces, context };
    let forwarded = match directed {
        Ok(None) => send(client, path, io, request, (pool, plan)),
        Ok(Some((node, body))) => {
            let plan = Plan { node: Some(node), ..plan };
            let request = Request { body: &body, ..*request };
            send(client, path, io, &request, (pool, plan))
        }
        Err(fault) => {
            context.metrics.queries.of(plan.kind).add(1);
            context.metrics.outcomes.of(Outcome::Intercepted).add(1);
            reply::error(core, io, request.slot, request.header.stream, &fault);
            return Taken::Done;
        }
    };
    match forwarded {
        Forwarded::Unsent(choice, plan) => hold(core, io, request, choice, &plan),
        _ => Taken::Done,
    }
}
