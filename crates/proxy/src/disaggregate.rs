//! Node bytes to answers: the mirror image of [`crate::aggregate`].
//!
//! Cuts the bytes of a node into envelopes, segments or aggregated frames, looks each answer's
//! stream id up in the link's table and hands the answer to the client who asked, under that
//! client's own stream id. A node that sends garbage or answers a request that nobody sent loses
//! that link and nothing else.

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::aggregate::AggregateReader;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{
    ErrorMessage, encode, error_code, result_kind, split_response_prefix,
};
use shunt_wire::cql::reader::Envelopes;

use crate::answers::{learn, local_pages, system_tables};
use crate::client::clients::Clients;
use crate::context::Context;
use crate::core::{Core, Reports};
use crate::digests::{Digest, attribution};
use crate::handover::{links as agent_links, offers};
use crate::ids::{LinkKey, LinkRef};
use crate::link::links::LinkAndNode;
use crate::link::{
    Link, LinkWriter, NodeState, Pending, Purpose, Step, closing, handshake, lifecycle, upgrade,
    waiting,
};
use crate::log_limits::Logged;
use crate::metrics::Outcome;
use crate::plan::{After, Plan};
use crate::query_end::End;
use crate::reply::{self, Answer};
use crate::retained::Retained;
use crate::retry::{agreement, failure, hedge, refusals, unprepared};
use crate::router::Router;
use crate::slow_queries::capture;
use crate::traces::{key::TraceKey, spans};

/// Bytes at the head of a frame that identify its only answer: the count and the stream id.
const ONLY_STREAM_BYTES: usize = 6;

/// Handles bytes from a node; returns how many of them it consumed.
#[inline]
pub(crate) fn received(core: &mut Core, io: &mut Io, key: LinkKey, data: &[u8]) -> usize {
    let Some(link) = core.links.get_mut(key) else { return data.len() };
    link.last_received_ns = io.now_ns();
    if link.step == Step::Agent {
        return agent_links::shake(core, io, key, data);
    }
    let (at, node) = (LinkRef { key, conn: link.conn }, link.node);
    let mut reader = std::mem::take(&mut link.reader);
    // Links open without compression, so that payloads are the bytes themselves.
    let mut scratch = Vec::new();
    let mut envelopes = reader.read(data, &mut scratch);
    read_envelopes(core, io, at, &mut envelopes);
    let used = envelopes.finish();
    if let Some(node) = core.links.node_mut(node) {
        node.metrics.bytes_in.add(used as u64);
        node.silent = false;
    }
    let Some(link) = core.links.find_mut(at) else { return data.len() };
    link.reader = reader;
    let (crowded, done) = (link.crowded, link.retiring && link.is_unused());
    if crowded {
        waiting::reconsider(core, io, key);
    }
    if done {
        closing::close(core, io, key);
    }
    used
}

/// The owners that an answer passes on its way to the client.
struct Path<'a> {
    clients: &'a mut Clients,
    retained: &'a mut Retained,
    router: &'a mut Router,
    reports: &'a mut Reports,
    context: &'a Context,
}

/// The message after the answers that were passed on.
enum Next {
    /// No complete message.
    Nothing,
    /// The node breaks the protocol.
    Fault(String),
    /// A message beyond the bound.
    Oversized(Header),
    /// A message that the proxy must inspect.
    Other(Header),
}

/// Reads whole envelopes.
#[inline]
fn read_envelopes(core: &mut Core, io: &mut Io, at: LinkRef, envelopes: &mut Envelopes<'_>) {
    loop {
        let Core { clients, links, retained, router, reports, context, .. } = &mut *core;
        let Some(LinkAndNode { link, node, .. }) = links.find_with_node(at) else { return };
        let segmented = link.segmented;
        let path = Path { clients, retained, router, reports, context };
        match pass_on_all(link, node, path, io, envelopes) {
            Next::Nothing => return,
            Next::Fault(why) => {
                lifecycle::fault(core, io, at.key, &why);
                return;
            }
            Next::Oversized(header) => {
                if !skip(core, io, at, &header, envelopes) {
                    return;
                }
            }
            Next::Other(header) => {
                let Ok(Some(body)) = envelopes.body() else { return };
                let answer = Answer {
                    stream: header.stream,
                    flags: header.flags,
                    opcode: header.opcode,
                    body,
                };
                read_other(core, io, at, &header, &answer);
                // The answer to STARTUP switches a v5 connection to segments.
                if core.links.find(at).is_some_and(|link| link.segmented != segmented) {
                    envelopes.start_segments(false);
                }
            }
        }
    }
}

/// Passes answers on, up to the first that needs inspection: one look-up of the link serves them
/// all.
#[inline]
fn pass_on_all(
    link: &mut Link,
    mut node: Option<&mut NodeState>,
    mut path: Path<'_>,
    io: &mut Io,
    envelopes: &mut Envelopes<'_>,
) -> Next {
    let (is_ready, is_ordinary) = (link.step == Step::Ready, link.aggregate.is_none());
    let bytes_max = path.context.config.frame_bytes_max;
    loop {
        let header = match envelopes.header() {
            Ok(Some(header)) => header,
            Ok(None) => return Next::Nothing,
            Err(error) => return Next::Fault(error.to_string()),
        };
        if !header.response || header.version != link.version && is_ready {
            return Next::Fault(format!(
                "its header {header:?} is no answer of version {}",
                link.version
            ));
        }
        if header.length > bytes_max {
            return Next::Oversized(header);
        }
        let body = match envelopes.body() {
            Ok(Some(body)) => body,
            Ok(None) => return Next::Nothing,
            Err(error) => return Next::Fault(error.to_string()),
        };
        let answer =
            Answer { stream: header.stream, flags: header.flags, opcode: header.opcode, body };
        if !is_ready || !is_ordinary || !pass_on(link, node.as_deref_mut(), &mut path, io, &answer)
        {
            return Next::Other(header);
        }
    }
}

/// Passes an answer on, if it needs nothing more.
#[inline]
fn pass_on(
    link: &mut Link,
    node: Option<&mut NodeState>,
    path: &mut Path<'_>,
    io: &mut Io,
    answer: &Answer<'_>,
) -> bool {
    let Some(pending) = link.streams.get(answer.stream) else { return false };
    if pending.purpose != Purpose::Client
        || pending.plan.after != After::Deliver
        || answer.opcode != opcode::RESULT
    {
        return false;
    }
    let (to, kept) = (pending.recipient(), pending.kept);
    let times = (to.received_ns, to.sent_ns);
    let mut end = End::new(times, io.now_ns(), 0, answer.body.len());
    if end.time_ns() >= path.context.slow_query_ns {
        record_slow(link, path, io, pending);
    }
    let mut digest = pending.plan.digest;
    if to.client.is_client() && path.reports.digests.is_on() {
        end.bytes_in = path.retained.length(kept) as u64;
        end.rows = answer.row_count();
        if !path.reports.digests.count(pending.plan.digest, &end) {
            digest = count_unknown(link, path, io, pending, &end);
        }
    }
    if pending.trace != TraceKey::NONE {
        record_trace(link.node, path, io, (pending, digest));
    }
    link.end_request(answer.stream, |kept| path.retained.length(kept));
    if let Some(node) = node {
        node.in_flight = node.in_flight.saturating_sub(1);
        node.metrics.latency_ns.record(end.node_ns);
    }
    path.retained.release_on(link, io, kept);
    reply::deliver_end(path.clients, path.context, io, to, answer, Outcome::Ok, &end);
    true
}

/// Records a query whose answer came late.
#[cold]
fn record_slow(link: &Link, path: &mut Path<'_>, io: &Io, pending: &Pending) {
    let Path { clients, retained, router, reports, context } = path;
    let body = retained.view(io, link.conn, pending.kept);
    let sources = capture::Sources { clients, router, context, node: Some(link.node), body };
    capture::record(&mut reports.slow_queries, &sources, pending, io.now_ns(), Outcome::Ok, None);
}

/// Records the span of a query whose client records its trace.
#[cold]
fn record_trace(node: NodeId, path: &mut Path<'_>, io: &Io, (pending, digest): (&Pending, Digest)) {
    let pending = Pending { plan: Plan { digest, ..pending.plan }, ..*pending };
    let Path { clients, router, reports, context, .. } = path;
    let sources = spans::Sources { clients, router, context };
    spans::record_answer(reports, &sources, &pending, node, io.now_ns());
}

/// Counts a query whose digest has no row yet; returns the digest, which may have one now.
#[cold]
fn count_unknown(
    link: &Link,
    path: &mut Path<'_>,
    io: &Io,
    pending: &Pending,
    end: &End,
) -> Digest {
    let Path { clients, retained, router, reports, .. } = path;
    let body = retained.view(io, link.conn, pending.kept);
    attribution::count_unknown(&mut reports.digests, router, clients, pending, body, end)
}

/// Handles a message that the proxy must inspect.
#[cold]
fn read_other(core: &mut Core, io: &mut Io, at: LinkRef, header: &Header, answer: &Answer<'_>) {
    let Some(link) = core.links.find(at) else { return };
    if link.step != Step::Ready {
        handshake::answered(core, io, at.key, header, answer.body);
    } else if header.opcode == opcode::AGGREGATE {
        read_aggregate(core, io, at, header, answer.body);
    } else if link.aggregate.is_some() {
        stray_envelope(core, io, at.key, header, answer.body);
    } else if header.opcode == opcode::OFFERED {
        offers::offered(core, io, at, answer);
    } else if header.opcode != opcode::EVENT {
        take(core, io, at, answer);
    }
}

/// Discards an answer longer than `frame_bytes_max` as its bytes arrive: the client who asked gets
/// an error, and the link goes on serving the others. `false`: the owner is not known before more
/// bytes arrive, or the link is given up.
#[cold]
fn skip(
    core: &mut Core,
    io: &mut Io,
    at: LinkRef,
    header: &Header,
    envelopes: &mut Envelopes<'_>,
) -> bool {
    let (length, max) = (header.length, core.context.config.frame_bytes_max);
    let Some(link) = core.links.find_mut(at) else { return false };
    let stream = match (header.opcode, link.aggregate.is_some()) {
        // Lengths in the protocol are signed.
        _ if link.step != Step::Ready || i32::try_from(length).is_err() => None,
        (opcode::AGGREGATE, true) => match envelopes.start_of_body(ONLY_STREAM_BYTES) {
            Ok(start) => match AggregateReader::only_stream(start) {
                Err(_) => return false,
                Ok(stream) => stream,
            },
            Err(_) => None,
        },
        (opcode::RESULT | opcode::ERROR, false) => Some(header.stream),
        _ => None,
    };
    let Some(stream) = stream.filter(|stream| link.streams.get(*stream).is_some()) else {
        lifecycle::fault(core, io, at.key, &format!("a message of {length} bytes exceeds {max}"));
        return false;
    };
    envelopes.skip();
    tell_long_answer(core, io, at, stream, length);
    let why = format!(
        "an answer of {length} bytes exceeds the proxy's frame_bytes_max of {max}: ask for smaller pages"
    );
    let mut body = Vec::new();
    encode::error(&mut body, error_code::INVALID, &why);
    take(core, io, at, &Answer::plain(opcode::ERROR, stream, &body));
    true
}

fn tell_long_answer(core: &Core, io: &Io, at: LinkRef, stream: i16, length: u32) {
    let Some(link) = core.links.find(at) else { return };
    let Some(suppressed) = core.context.log_limits.admit(Logged::LongAnswer, io.now_ns()) else {
        return;
    };
    let client = link.streams.get(stream).and_then(|pending| core.clients.find(pending.client));
    let who = client.map(|client| core.router.who(client));
    tracing::warn!(
        core = core.context.index,
        node = %core.router.node_named(link.node),
        length,
        max = core.context.config.frame_bytes_max,
        address = who.as_ref().map(|who| tracing::field::display(who.address)),
        role = who.as_ref().map(|who| who.role()),
        suppressed,
        "an answer exceeds frame_bytes_max; its client gets an error"
    );
}

/// Gives up a link of aggregated frames on which another message came. That message answers no
/// query, whatever its stream id: the node refuses the connection.
fn stray_envelope(core: &mut Core, io: &mut Io, key: LinkKey, header: &Header, body: &[u8]) {
    let refusal = (header.opcode == opcode::ERROR)
        .then(|| ErrorMessage::decode(header.version, body).ok())
        .flatten();
    let why = match refusal {
        Some(error) => format!("it refused an aggregated frame: {}", error.message),
        None => format!("it sent opcode {:#x} on a link of aggregated frames", header.opcode),
    };
    lifecycle::fault(core, io, key, &why);
}

fn read_aggregate(core: &mut Core, io: &mut Io, at: LinkRef, header: &Header, body: &[u8]) {
    let link = core.links.find_mut(at);
    match link.filter(|link| matches!(link.writer, LinkWriter::Aggregate(_)) && header.flags == 0) {
        Some(link) => link.heard_frames = true,
        None => {
            lifecycle::fault(
                core,
                io,
                at.key,
                "it sent an aggregated frame on a link where none was asked for",
            );
            return;
        }
    }
    let mut entries = match AggregateReader::new(body) {
        Ok(entries) => entries,
        Err(error) => {
            lifecycle::fault(core, io, at.key, &error.to_string());
            return;
        }
    };
    loop {
        let Core { clients, links, retained, router, reports, context, .. } = &mut *core;
        let Some(LinkAndNode { link, mut node, .. }) = links.find_with_node(at) else { return };
        let mut path = Path { clients, retained, router, reports, context };
        let other = loop {
            match entries.next() {
                None => return,
                Some(Err(error)) => break Err(error),
                Some(Ok(entry)) => {
                    let (stream, flags, opcode, body) =
                        (entry.stream, entry.flags, entry.opcode, entry.body);
                    let answer = Answer { stream, flags, opcode, body };
                    if !pass_on(link, node.as_deref_mut(), &mut path, io, &answer) {
                        break Ok(answer);
                    }
                }
            }
        };
        match other {
            Ok(answer) => take(core, io, at, &answer),
            Err(error) => {
                lifecycle::fault(core, io, at.key, &error.to_string());
                return;
            }
        }
    }
}

/// True if the time of an answer counts for its node.
fn is_timed(purpose: Purpose) -> bool {
    let is_read = matches!(purpose, Purpose::Hedged { .. } | Purpose::Overtaken);
    is_read || matches!(purpose, Purpose::Client | Purpose::Offered)
}

/// Handles one answer that the proxy must inspect.
#[cold]
fn take(core: &mut Core, io: &mut Io, at: LinkRef, answer: &Answer<'_>) {
    let Some(LinkAndNode { link, node, .. }) = core.links.find_with_node(at) else { return };
    let Some(mut pending) = link.streams.get(answer.stream).copied() else {
        lifecycle::fault(
            core,
            io,
            at.key,
            &format!("it answered stream {}, which has no request", answer.stream),
        );
        return;
    };
    link.end_request(answer.stream, |kept| core.retained.length(kept));
    if let Some(node) = node {
        node.in_flight = node.in_flight.saturating_sub(1);
        if is_timed(pending.purpose) {
            node.metrics.latency_ns.record(io.now_ns().saturating_sub(pending.sent_ns));
        }
    }
    match pending.purpose {
        Purpose::Orphan => link.orphans = link.orphans.saturating_sub(1),
        Purpose::Overtaken => link.overtaken = link.overtaken.saturating_sub(1),
        _ => {}
    }
    match pending.purpose {
        Purpose::Hedged { .. } => {
            if hedge::answered(core, io, at, &pending, answer) {
                attribution::identify(core, io, at, &mut pending);
                spans::note_link(core, at, &pending);
                capture::answered(core, io, at, &pending, answer);
                reply::pass_on(core, io, &pending, answer, Outcome::Ok);
            }
        }
        Purpose::Client => {
            attribution::identify(core, io, at, &mut pending);
            spans::note_link(core, at, &pending);
            capture::answered(core, io, at, &pending, answer);
            take_for_client(core, io, at, &pending, answer);
        }
        Purpose::Offered => {
            offers::came_on_link(core, at, answer.stream);
            attribution::identify(core, io, at, &mut pending);
            spans::note_link(core, at, &pending);
            capture::answered(core, io, at, &pending, answer);
            take_for_client(core, io, at, &pending, answer);
        }
        Purpose::Heartbeat => {
            link.probe_sent_ns = 0;
            upgrade::heard_offer(core, io, at.key, answer);
        }
        Purpose::Spread | Purpose::Orphan | Purpose::Overtaken => {}
        Purpose::Reprepare { repair } => unprepared::answered(core, io, at.key, repair, answer),
    }
    core.retained.release(&mut core.links, io, at, pending.kept);
}

/// Handles a client's answer that the proxy must inspect: an error, or the answer to a request with
/// an [`After`].
fn take_for_client(
    core: &mut Core,
    io: &mut Io,
    at: LinkRef,
    pending: &Pending,
    answer: &Answer<'_>,
) {
    let mut plain = Vec::new();
    let frame_bytes_max = core.context.config.frame_bytes_max;
    let max = answer.plain_bytes_max(pending.plan.after, frame_bytes_max);
    let Some(body) = core.links.plain_body(at.key, answer.flags, answer.body, max, &mut plain)
    else {
        // A client can cause an error or an answer to PREPARE of any length, by the types of its
        // columns: other clients must not lose the link for it.
        let claims_more = |bytes| core.links.claims_more(at.key, answer.body, bytes);
        let why = if claims_more(max) && !claims_more(frame_bytes_max) {
            "the node's answer is too long"
        } else {
            lifecycle::fault(core, io, at.key, "an answer's body could not be decompressed");
            "the node's answer was malformed"
        };
        let pending = Pending { fate_unknown: true, ..*pending };
        failure::fail(core, io, &pending, Outcome::LinkLost, why);
        return;
    };
    if answer.opcode == opcode::ERROR {
        take_error(core, io, at, pending, answer, body);
        return;
    }
    match pending.plan.after {
        After::Learn => learn::learn_prepared(core, io, at.key, pending, answer, body),
        After::Rewrite(table) => {
            system_tables::show_proxy(core, io, at.key, pending, answer, body, table)
        }
        After::Local => local_pages::deliver_page(core, io, at.key, pending, answer, body),
        After::Agree => agreement::hold(core, io, at.key, pending, answer, body),
        After::Inspect => {
            reply::pass_on(core, io, pending, answer, Outcome::Ok);
            let prefix = answer.flags & (flag::TRACING | flag::WARNING | flag::CUSTOM_PAYLOAD);
            let rest = split_response_prefix(prefix, body).map_or(&[][..], |(_, rest)| rest);
            if result_kind::peek(rest) == Some(result_kind::SET_KEYSPACE)
                && answer.opcode == opcode::RESULT
            {
                lifecycle::fault(
                    core,
                    io,
                    at.key,
                    "a statement changed the keyspace of a shared link",
                );
            }
        }
        After::Deliver
        | After::Use
        | After::Refuse
        | After::Unprepared
        | After::Lock
        | After::Transaction
        | After::Multiget => reply::pass_on(core, io, pending, answer, Outcome::Ok),
    }
}

/// Handles an ERROR: it goes to the client unless another attempt may succeed or its claim is
/// false.
fn take_error(
    core: &mut Core,
    io: &mut Io,
    at: LinkRef,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
) {
    refusals::penalise(core, at.key, answer.flags, body);
    if !unprepared::repair(core, io, at.key, pending, answer.flags, body)
        && !refusals::send_on(core, io, at.key, pending, answer.flags, body)
        && !failure::refused_after_all(core, io, pending, answer.flags, body)
    {
        reply::pass_on(core, io, pending, answer, Outcome::Error);
    }
}
