//! Requests onto links: all requests that one turn of the loop produces for a node go out in one
//! write.
//!
//! The proxy copies a request's body once, from the client's receive buffer to the end of that
//! turn's output for the node. The body stays there (in the link's sent log) until the answer
//! arrives, in case the proxy must send it again. Nodes that offer aggregated frames (opcode 0x64)
//! get them, others get ordinary envelopes or v5 segments; the link chooses. [`crate::flush`]
//! completes the frames and segments begun here.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header};

use crate::ids::{LinkKey, LinkRef};
use crate::link::links::{LinkAndNode, Links};
use crate::link::{Kept, Link, LinkWriter, Pending, Purpose};
use crate::retained::Retained;

/// Puts a request on a link; `false` when all streams of the link are in flight.
#[inline(always)]
pub(crate) fn send(
    links: &mut Links,
    retained: &mut Retained,
    io: &mut Io,
    key: LinkKey,
    pending: Pending,
    body: &[u8],
) -> bool {
    send_under(links, retained, io, key, pending, body).is_some()
}

/// Sends a request as [`send`] does, and returns its stream id on the link.
#[inline(always)]
pub(crate) fn send_under(
    links: &mut Links,
    retained: &mut Retained,
    io: &mut Io,
    key: LinkKey,
    pending: Pending,
    body: &[u8],
) -> Option<u16> {
    let LinkAndNode { link, node, dirty } = links.get_with_node(key)?;
    let stream = link.streams.take_id(pending.purpose)?;
    if let Some(node) = node {
        node.in_flight += 1;
        node.metrics.bytes_out.add((HEADER_BYTES + body.len()) as u64);
    }
    let Pending { flags, opcode, client, .. } = pending;
    let header = Header {
        version: link.version,
        response: false,
        flags,
        stream: stream as i16,
        opcode,
        length: body.len() as u32,
    };
    let offset = write(link, io, &header, client.id, pending.plan.alone, body);
    let is_query = matches!(pending.purpose, Purpose::Client | Purpose::Hedged { .. });
    let is_probe = pending.purpose == Purpose::Heartbeat;
    let record = link.streams.put(stream, Pending { sent_ns: io.now_ns(), ..pending });
    // Write the record in place: building it elsewhere and copying it would stall the processor on
    // each query.
    if offset != usize::MAX
        && !is_probe
        && let Some(record) = record
    {
        record.kept = Kept::Sent {
            sequence: io.retain(link.conn),
            offset: offset as u32,
            length: body.len() as u32,
        };
    } else if !is_probe {
        let copy = retained.keep_copy(link, body.to_vec());
        link.streams.set_kept(stream, copy);
    }
    if link.becomes_dirty(io.now_ns()) {
        dirty.push(key);
    }
    if is_query {
        link.queries_unflushed += 1;
    } else {
        link.urgent = true;
    }
    if let Some(shares) = &mut link.shares {
        shares.take(client, body.len());
    }
    if link.is_crowded(io) {
        link.crowd(io, |kept| retained.length(kept));
    }
    let at = LinkRef { key, conn: link.conn };
    if links.lateness.is_on() {
        links.lateness.watch(io, at, stream, &pending, body.len());
    }
    Some(stream)
}

/// Writes a request in the link's layout. Returns the offset of its body in the output buffer,
/// `usize::MAX` if the body is not in one piece. `alone`: in a frame or segment without other
/// requests.
#[inline(always)]
fn write(
    link: &mut Link,
    io: &mut Io,
    header: &Header,
    client_id: u32,
    alone: bool,
    body: &[u8],
) -> usize {
    let out = io.output(link.conn);
    match &mut link.writer {
        LinkWriter::Envelopes => {
            out.extend_from_slice(&header.to_bytes());
            let offset = out.len();
            out.extend_from_slice(body);
            offset
        }
        LinkWriter::Segments(writer) => {
            if alone {
                writer.finish(out);
            }
            let offset = writer.push(out, &header.to_bytes(), body);
            if alone {
                writer.finish(out);
            }
            offset
        }
        LinkWriter::Aggregate(writer) => {
            if alone {
                writer.finish(out);
            }
            let version = link.body_version;
            let offset = writer.push(
                out,
                header.stream,
                client_id,
                version,
                header.flags,
                header.opcode,
                body,
            );
            if alone {
                writer.finish(out);
            }
            offset
        }
    }
}
