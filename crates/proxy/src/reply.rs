//! Answers to clients: the mirror image of [`crate::decode`].
//!
//! The proxy copies a body once, from the link's receive buffer (or from the proxy's own buffer) to
//! the end of this turn's output for the client. A client that does not take its replies is not
//! read from until it does.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::{encode, result_kind};

use crate::client::Stall;
use crate::client::clients::Clients;
use crate::client::inbox::Kept;
use crate::context::Context;
use crate::core::Core;
use crate::digests::attribution;
use crate::fault::Fault;
use crate::ids::ClientRef;
use crate::limits;
use crate::link::{Pending, Recipient};
use crate::metrics::Outcome;
use crate::plan::After;
use crate::query_end::End;
use crate::traces::spans;

/// One answer, of whatever source.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    /// The stream id of the link it came on, or of the client it goes to.
    pub(crate) stream: i16,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// An answer without flags.
    pub(crate) fn plain(opcode: u8, stream: i16, body: &'a [u8]) -> Self {
        Self { stream, flags: 0, opcode, body }
    }

    /// Bytes that its body may have once it is decompressed. The proxy reads errors and answers to
    /// PREPARE, which are short, and a node may claim hundreds of times the bytes that it sends.
    pub(crate) fn plain_bytes_max(&self, after: After, frame_bytes_max: u32) -> u32 {
        match (self.opcode, after) {
            (opcode::ERROR, _) => frame_bytes_max.min(limits::ERROR_BYTES_MAX),
            (_, After::Learn) => frame_bytes_max.min(limits::PREPARED_ANSWER_BYTES_MAX),
            _ => frame_bytes_max,
        }
    }

    /// The number of its rows; `None` if it has none, or if the number is behind something of any
    /// length: column specifications, warnings, or a trace. That of a compressed body is unknown.
    #[inline]
    pub(crate) fn row_count(&self) -> Option<u32> {
        let is_plain = self.opcode == opcode::RESULT && self.flags == 0;
        if is_plain { result_kind::row_count(self.body) } else { None }
    }
}

/// Passes an answer on to the client who asked, under the client's own stream id.
#[inline]
pub(crate) fn deliver(
    clients: &mut Clients,
    context: &Context,
    io: &mut Io,
    to: Recipient,
    answer: &Answer<'_>,
    outcome: Outcome,
) {
    let times = (to.received_ns, to.sent_ns);
    let mut end = End::new(times, io.now_ns(), 0, answer.body.len());
    if answer.opcode == opcode::ERROR {
        end.error = attribution::error_of(clients.find(to.client), answer, outcome);
    }
    deliver_end(clients, context, io, to, answer, outcome, &end);
}

/// Passes on an answer that ends a query like this.
#[inline]
pub(crate) fn deliver_end(
    clients: &mut Clients,
    context: &Context,
    io: &mut Io,
    to: Recipient,
    answer: &Answer<'_>,
    outcome: Outcome,
    end: &End,
) {
    context.metrics.count_end(to.client, outcome);
    clients.tenants.end(to.tenant, end.bytes_out);
    let Some(client) = clients.find_mut(to.client) else {
        if to.client == ClientRef::PROXY || to.client == ClientRef::PART {
            let Answer { flags, opcode, body, .. } = *answer;
            let is_part = to.client == ClientRef::PART;
            clients.inbox.put(&Kept { stream: to.stream, is_part, flags, opcode, body });
        } else {
            context.metrics.latency_ns.record(end.time_ns());
        }
        return;
    };
    context.metrics.latency_ns.record(end.time_ns());
    client.in_flight = client.in_flight.saturating_sub(1);
    client.traffic.end(end);
    write(clients, context, io, to.client.slot, &Answer { stream: to.stream, ..*answer });
}

/// Passes an answer on, for cold paths that can borrow the whole core.
pub(crate) fn pass_on(
    core: &mut Core,
    io: &mut Io,
    pending: &Pending,
    answer: &Answer<'_>,
    outcome: Outcome,
) {
    let bytes_in = core.retained.length(pending.kept);
    pass_on_with(core, io, pending, bytes_in, answer, outcome);
}

/// The same with the bytes of a request that the core does not retain.
pub(crate) fn pass_on_with(
    core: &mut Core,
    io: &mut Io,
    pending: &Pending,
    bytes_in: usize,
    answer: &Answer<'_>,
    outcome: Outcome,
) {
    attribution::count_end(core, io, pending, bytes_in, answer, outcome);
    spans::record_end(core, io, pending, answer, outcome);
    deliver(&mut core.clients, &core.context, io, pending.recipient(), answer, outcome);
}

/// Writes an answer in the client's version and layout.
#[inline]
pub(crate) fn write(
    clients: &mut Clients,
    context: &Context,
    io: &mut Io,
    slot: u32,
    answer: &Answer<'_>,
) {
    let Some((client, dirty)) = clients.for_writing(slot) else { return };
    let Answer { stream, flags, opcode, body } = *answer;
    let header = Header {
        version: client.version,
        response: true,
        flags,
        stream,
        opcode,
        length: body.len() as u32,
    };
    context.metrics.client_bytes_out.add((HEADER_BYTES + body.len()) as u64);
    let out = io.output(client.conn);
    if client.segmented {
        client.writer.push(out, &header.to_bytes(), body);
        if !client.dirty && client.is_away {
            // Output written while a connection is being taken out moves with it: no segment may be
            // open.
            client.writer.finish(out);
        } else if !std::mem::replace(&mut client.dirty, true) {
            dirty.push(slot);
        }
    } else {
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(body);
    }
    if io.backlog(client.conn) > context.config.client_backlog_bytes
        && !client.stalls.has(Stall::REPLIES)
    {
        io.notify_drained(client.conn, context.config.client_backlog_bytes / 2);
        client.untaken_since_ns = io.now_ns();
        client.writes_taken = io.writes_of(client.conn);
        clients.stall(&context.metrics, io, slot, Stall::REPLIES);
    }
}

/// Writes a message that the proxy composed.
pub(crate) fn message(core: &mut Core, io: &mut Io, slot: u32, op: u8, stream: i16, body: &[u8]) {
    write(&mut core.clients, &core.context, io, slot, &Answer::plain(op, stream, body));
}

/// Writes a message in this version: before STARTUP a client has none yet.
pub(crate) fn message_in(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    version: u8,
    answer: &Answer<'_>,
) {
    let Some(client) = core.clients.get_mut(slot) else { return };
    let fixed = client.version;
    if fixed == 0 {
        client.version = version;
    }
    write(&mut core.clients, &core.context, io, slot, answer);
    if let Some(client) = core.clients.get_mut(slot) {
        client.version = fixed;
    }
}

/// Answers with ERROR; the connection lives on.
pub(crate) fn error(core: &mut Core, io: &mut Io, slot: u32, stream: i16, fault: &Fault) {
    let mut body = std::mem::take(&mut core.scratch.message);
    body.clear();
    encode::error(&mut body, fault.kind.code(), &fault.why);
    message(core, io, slot, opcode::ERROR, stream, &body);
    core.scratch.message = body;
}

/// Completes v5 segments begun this turn.
#[inline]
pub(crate) fn finish(clients: &mut Clients, io: &mut Io) {
    while let Some(slot) = clients.dirty.pop() {
        if let Some(client) = clients.get_mut(slot)
            && std::mem::take(&mut client.dirty)
        {
            client.writer.finish(io.output(client.conn));
        }
    }
}
