//! Node bytes to answers: the mirror image of [`crate::aggregate`].
//!
//! Cuts what a node sent into envelopes, segments or aggregated frames, looks each answer's stream id up in the
//! link's table and hands it to the client who asked, under that client's own stream id. A node that sends garbage or
//! answers what nobody asked loses that link and nothing else.

use shunt_reactor::{ConnId, Io};
use shunt_wire::aggregate::AggregateReader;
use shunt_wire::cql::compression;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag, opcode};
use shunt_wire::cql::frame_v5;
use shunt_wire::cql::message::{ErrorMessage, encode, error_code, result_kind};

use crate::core::Core;
use crate::limits;
use crate::log_limits::Logged;
use crate::metrics::{GivenUp, Outcome};
use crate::node::{Link, LinkWriter, Pending, Purpose, Recipient, Retained, Step};
use crate::route::After;

/// One answer, wherever it came from.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) stream: i16,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) body: &'a [u8],
}

impl Core {
    /// Handles what a node sent; returns how much of it is done with.
    #[inline]
    pub(crate) fn link_received(&mut self, io: &mut Io, key: u32, data: &[u8]) -> usize {
        let now = io.now_ns();
        let Some(link) = self.links.get_mut(key as usize) else { return data.len() };
        link.last_received_ns = now;
        let (conn, node, segmented) = (link.conn, usize::from(link.node.0), link.segmented);
        let used = if segmented {
            self.read_segments(io, key, conn, data)
        } else {
            let mut used = self.read_envelopes(io, key, conn, data);
            if used < data.len() && self.link_is(key, conn).is_some_and(|link| link.segmented) {
                used += self.read_segments(io, key, conn, &data[used..]);
            }
            used
        };
        if let Some(node) = self.nodes.get_mut(node) {
            node.metrics.bytes_in.add(used as u64);
            node.silent = false;
        }
        if let Some(link) = self.link_is(key, conn) {
            let (full, done) = (link.full, link.retiring && link.is_unused());
            if full {
                self.reconsider_full(io, key);
            }
            if done {
                self.drop_link(io, key);
            }
        }
        used
    }

    /// Whole envelopes at the head of `data`; returns the bytes done with.
    #[inline]
    fn read_envelopes(&mut self, io: &mut Io, key: u32, conn: ConnId, data: &[u8]) -> usize {
        let mut at = self.skip(key, conn, data.len());
        loop {
            let Some(link) = self.link_is(key, conn) else { return data.len() };
            let (step, segmented, version) = (link.step, link.segmented, link.version);
            let aggregates = link.aggregate.is_some();
            let Some(header) = Header::decode(&data[at..]) else { return at };
            if !header.response || header.version != version && step == Step::Ready {
                self.node_fault(io, key, &format!("its header {header:?} is no answer of version {version}"));
                return data.len();
            }
            if header.length > self.config.frame_bytes_max {
                match self.oversized(io, key, &header, &data[at..]) {
                    0 => return at,
                    used => at += used,
                }
                continue;
            }
            let start = at + HEADER_BYTES;
            let end = start + header.length as usize;
            let Some(body) = data.get(start..end) else { return at };
            at = end;
            if step != Step::Ready {
                self.handshake_answer(io, key, &header, body);
            } else if header.opcode == opcode::AGGREGATE {
                self.read_aggregate(io, key, conn, &header, body);
            } else if aggregates {
                self.stray_envelope(io, key, &header, body);
            } else if header.opcode != opcode::EVENT {
                let answer = Answer { stream: header.stream, flags: header.flags, opcode: header.opcode, body };
                self.answer(io, key, &answer);
            }
            // The answer to STARTUP switches a v5 connection to segments.
            let switched = self.link_is(key, conn).is_some_and(|link| link.segmented != segmented);
            if switched {
                return at;
            }
        }
    }

    /// An answer longer than `frame_bytes_max`: whoever asked gets an error, its bytes are thrown away as they come, and
    /// the link goes on serving the others. Returns how many bytes of `data`, at whose head it is, are done with; 0:
    /// more must come before it is known whose it is.
    #[cold]
    fn oversized(&mut self, io: &mut Io, key: u32, header: &Header, data: &[u8]) -> usize {
        let (length, max) = (header.length, self.config.frame_bytes_max);
        let Some(link) = self.links.get_mut(key as usize) else { return data.len() };
        let stream = match (header.opcode, link.aggregate.is_some()) {
            // The protocol's lengths are signed.
            _ if link.step != Step::Ready || i32::try_from(length).is_err() => None,
            (opcode::AGGREGATE, true) => match AggregateReader::only_stream(&data[HEADER_BYTES..]) {
                Err(_) => return 0,
                Ok(stream) => stream,
            },
            (opcode::RESULT | opcode::ERROR, false) => Some(header.stream),
            _ => None,
        };
        let Some(stream) = stream.filter(|stream| link.streams.get(*stream).is_some()) else {
            self.node_fault(io, key, &format!("a message of {length} bytes exceeds {max}"));
            return data.len();
        };
        let whole = HEADER_BYTES + length as usize;
        let used = whole.min(data.len());
        link.skip = (whole - used) as u32;
        self.tell_long_answer(io, key, stream, length);
        let why =
            format!("an answer of {length} bytes exceeds the proxy's frame_bytes_max of {max}: ask for smaller pages");
        let mut body = Vec::new();
        encode::error(&mut body, error_code::INVALID, &why);
        self.answer(io, key, &Answer { stream, flags: 0, opcode: opcode::ERROR, body: &body });
        used
    }

    fn tell_long_answer(&self, io: &Io, key: u32, stream: i16, length: u32) {
        let Some(link) = self.links.get(key as usize) else { return };
        let Some(suppressed) = self.log_limits.admit(Logged::LongAnswer, io.now_ns()) else { return };
        let client = link.streams.get(stream).and_then(|pending| pending.client.of(&self.clients));
        let who = client.map(|client| self.who(client));
        tracing::warn!(
            core = self.index,
            node = %self.node_named(link.node),
            length,
            max = self.config.frame_bytes_max,
            address = who.as_ref().map(|who| tracing::field::display(who.address)),
            role = who.as_ref().map(|who| who.role()),
            suppressed,
            "an answer exceeds frame_bytes_max; its client gets an error"
        );
    }

    /// How many of the next `length` bytes belong to an answer that is thrown away.
    #[inline]
    fn skip(&mut self, key: u32, conn: ConnId, length: usize) -> usize {
        let Some(link) = self.link_is(key, conn) else { return 0 };
        let skipped = (link.skip as usize).min(length);
        link.skip -= skipped as u32;
        skipped
    }

    /// Whole v5 segments at the head of `data`; returns the bytes done with.
    fn read_segments(&mut self, io: &mut Io, key: u32, conn: ConnId, data: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let Some(link) = self.link_is(key, conn) else { return data.len() };
            let segment = match frame_v5::decode(&data[at..], false) {
                Ok(None) => return at,
                Ok(Some(segment)) => segment,
                Err(error) => {
                    self.node_fault(io, key, &error.to_string());
                    return data.len();
                }
            };
            at += segment.consumed;
            // Links are opened without compression, so the payload is the bytes themselves.
            if link.carry.is_empty() {
                let used = self.read_envelopes(io, key, conn, segment.payload);
                if used < segment.payload.len()
                    && let Some(link) = self.link_is(key, conn)
                {
                    link.carry.extend_from_slice(&segment.payload[used..]);
                }
            } else {
                let mut carry = std::mem::take(&mut link.carry);
                carry.extend_from_slice(segment.payload);
                let used = self.read_envelopes(io, key, conn, &carry);
                carry.drain(..used.min(carry.len()));
                if carry.is_empty() && carry.capacity() > limits::CARRY_KEPT_BYTES {
                    carry = Vec::new();
                }
                if let Some(link) = self.link_is(key, conn) {
                    link.carry = carry;
                }
            }
        }
    }

    /// What is no frame on a link that carries frames answers nobody's query, whatever its stream id: the node refuses
    /// the connection.
    #[cold]
    fn stray_envelope(&mut self, io: &mut Io, key: u32, header: &Header, body: &[u8]) {
        let refusal =
            (header.opcode == opcode::ERROR).then(|| ErrorMessage::decode(header.version, body).ok()).flatten();
        let why = match refusal {
            Some(error) => format!("it refused an aggregated frame: {}", error.message),
            None => format!("it sent opcode {:#x} on a link of aggregated frames", header.opcode),
        };
        self.node_fault(io, key, &why);
    }

    fn read_aggregate(&mut self, io: &mut Io, key: u32, conn: ConnId, header: &Header, body: &[u8]) {
        let link = self.links.get_mut(key as usize);
        match link.filter(|link| matches!(link.writer, LinkWriter::Aggregate(_)) && header.flags == 0) {
            Some(link) => link.heard_frames = true,
            None => {
                self.node_fault(io, key, "it sent an aggregated frame on a link where none was asked for");
                return;
            }
        }
        let entries = match AggregateReader::new(body) {
            Ok(entries) => entries,
            Err(error) => {
                self.node_fault(io, key, &error.to_string());
                return;
            }
        };
        for entry in entries {
            match entry {
                Ok(entry) if self.link_is(key, conn).is_some() => {
                    let answer =
                        Answer { stream: entry.stream, flags: entry.flags, opcode: entry.opcode, body: entry.body };
                    self.answer(io, key, &answer);
                }
                Ok(_) => return,
                Err(error) => {
                    self.node_fault(io, key, &error.to_string());
                    return;
                }
            }
        }
    }

    /// The link under this key if it is still the one on this connection: a link given up in the middle of what it
    /// sent may already have a successor under the same key.
    #[inline]
    fn link_is(&mut self, key: u32, conn: ConnId) -> Option<&mut Link> {
        self.links.get_mut(key as usize).filter(|link| link.conn == conn)
    }

    /// One answer to one request in flight.
    #[inline]
    fn answer(&mut self, io: &mut Io, key: u32, answer: &Answer<'_>) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        let conn = link.conn;
        let Some(pending) = link.streams.get(answer.stream) else {
            self.node_fault(io, key, &format!("it answered stream {}, which nobody asked for", answer.stream));
            return;
        };
        let is_query = pending.purpose == Purpose::Client;
        let passed_on = is_query && pending.plan.after == After::Deliver && answer.opcode != opcode::ERROR;
        let (to, sent_ns, retained) = (pending.recipient(), pending.sent_ns, pending.retained);
        // Most answers are passed on, and of those requests nothing else is read.
        let other = if passed_on { None } else { Some(*pending) };
        link.streams.remove(answer.stream);
        if let Some(node) = self.nodes.get_mut(usize::from(link.node.0)) {
            node.in_flight = node.in_flight.saturating_sub(1);
            if is_query {
                node.metrics.latency_ns.record(io.now_ns().saturating_sub(sent_ns));
            }
        }
        match other {
            None => {
                self.release(io, conn, retained);
                self.deliver(io, to, answer, Outcome::Ok);
            }
            Some(pending) => self.answer_specially(io, key, conn, &pending, answer),
        }
    }

    /// An answer that is not simply passed on.
    fn answer_specially(&mut self, io: &mut Io, key: u32, conn: ConnId, pending: &Pending, answer: &Answer<'_>) {
        match pending.purpose {
            Purpose::Client => {
                self.answer_with_care(io, key, pending, answer);
                self.release(io, conn, pending.retained);
            }
            Purpose::Heartbeat => {
                if let Some(link) = self.links.get_mut(key as usize) {
                    link.probe_sent_ns = 0;
                }
                self.heard_offer(io, key, answer);
            }
            Purpose::Spread => self.release(io, conn, pending.retained),
            Purpose::Reprepare { repair } => {
                self.release(io, conn, pending.retained);
                self.reprepared(io, key, repair, answer);
            }
            Purpose::Orphan => {
                if let Some(link) = self.links.get_mut(key as usize) {
                    link.orphans = link.orphans.saturating_sub(1);
                }
            }
        }
    }

    /// Passes an answer on to the client who asked.
    #[inline]
    pub(crate) fn deliver(&mut self, io: &mut Io, to: Recipient, answer: &Answer<'_>, outcome: Outcome) {
        self.metrics.outcomes.of(outcome).add(1);
        self.metrics.in_flight.sub(1);
        self.metrics.latency_ns.record(io.now_ns().saturating_sub(to.received_ns));
        let Some(client) = self.client(to.client) else { return };
        client.in_flight = client.in_flight.saturating_sub(1);
        self.reply(io, to.client.slot, answer.flags, answer.opcode, to.stream, answer.body);
    }

    /// The bytes of a request are not needed any more.
    #[inline]
    pub(crate) fn release(&mut self, io: &mut Io, conn: ConnId, retained: Retained) {
        match retained {
            Retained::Nothing => {}
            Retained::Sent { sequence, .. } => io.release(conn, sequence),
            Retained::Copy { key } => self.release_copy(conn, key),
        }
    }

    /// A body as it was before the link's compression, if there is one; `None` when it cannot be made out.
    pub(crate) fn plain_body<'a>(
        &self,
        key: u32,
        flags: u8,
        body: &'a [u8],
        bytes_max: u32,
        plain: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if flags & flag::COMPRESSION == 0 {
            return Some(body);
        }
        let pool = self.links.get(key as usize).and_then(|link| self.pools.get(link.pool))?;
        compression::decompress(pool.key.compression?, body, bytes_max, plain).ok()?;
        Some(plain)
    }

    /// Answers the proxy must look into: errors, and those of requests with an `after`.
    #[cold]
    fn answer_with_care(&mut self, io: &mut Io, key: u32, pending: &Pending, answer: &Answer<'_>) {
        let mut plain = Vec::new();
        let max = self.config.frame_bytes_max;
        let Some(body) = self.plain_body(key, answer.flags, answer.body, max, &mut plain) else {
            self.node_fault(io, key, "an answer's body could not be decompressed");
            let pending = Pending { fate_unknown: true, ..*pending };
            self.fail_request(io, &pending, Outcome::LinkLost, "the node's answer was malformed");
            return;
        };
        if answer.opcode == opcode::ERROR {
            self.penalise(key, answer.flags, body);
            if !self.repair_unprepared(io, key, pending, answer.flags, body)
                && !self.repair_turned_away(io, key, pending, answer.flags, body)
                && !self.refused_after_all(io, pending, answer.flags, body)
            {
                self.deliver(io, pending.recipient(), answer, Outcome::Error);
            }
            return;
        }
        match pending.plan.after {
            After::Learn => self.learn_prepared(io, key, pending, answer, body),
            After::Rewrite(table) => self.show_proxy(io, pending, answer, body, table),
            After::Local => self.deliver_page(io, key, pending, answer, body),
            After::Agree => self.hold_for_agreement(io, key, pending, answer, body),
            After::Inspect => {
                let prefix = answer.flags & (flag::TRACING | flag::WARNING | flag::CUSTOM_PAYLOAD);
                let rest =
                    shunt_wire::cql::message::split_response_prefix(prefix, body).map_or(&[][..], |(_, rest)| rest);
                self.deliver(io, pending.recipient(), answer, Outcome::Ok);
                if result_kind::peek(rest) == Some(result_kind::SET_KEYSPACE) && answer.opcode == opcode::RESULT {
                    self.node_fault(io, key, "a statement changed the keyspace of a shared link");
                }
            }
            After::Deliver | After::Use | After::Unprepared => {
                self.deliver(io, pending.recipient(), answer, Outcome::Ok)
            }
        }
    }

    /// A node broke the protocol: this link is given up.
    #[cold]
    pub(crate) fn node_fault(&mut self, io: &mut Io, key: u32, why: &str) {
        self.metrics.node_protocol_errors.add(1);
        self.break_link(io, key, GivenUp::ProtocolError, why);
    }
}
