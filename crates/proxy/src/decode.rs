//! Client bytes to requests.
//!
//! Cuts what a client sent into envelopes (v3/v4: section 2 of the specification; v5: out of segments, section 2.2),
//! refuses what is malformed or too large by its header alone, and hands each complete request on. Bodies are borrowed
//! from the receive buffer; nothing is copied unless a v5 envelope spans segments.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::frame_v5;
use shunt_wire::cql::message::error_code;

use crate::client::{Phase, Stall};
use crate::core::Core;
use crate::limits;
use crate::metrics::Closing;

/// The newest version of the protocol that a driver may begin with; a byte above it comes from something else.
const CQL_VERSION_MAX: u8 = 6;

/// What became of the bytes at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes were a request and are done with.
    Bytes(usize),
    /// The request is not complete.
    Incomplete,
    /// The request must wait; the client is stalled.
    Held,
    /// The connection is closing; ignore the rest.
    Closed,
}

impl Core {
    /// Handles what a client sent; returns how much of it is done with.
    #[inline]
    pub(crate) fn client_received(&mut self, io: &mut Io, slot: u32, data: &[u8]) -> usize {
        let Some(client) = self.clients.get(slot as usize) else { return data.len() };
        let used = if client.segmented {
            self.take_segments(io, slot, data)
        } else {
            let mut used = self.take_envelopes(io, slot, data);
            // The answer to STARTUP switches v5 to segments; what follows in the same read is one already.
            if used < data.len() && self.clients.get(slot as usize).is_some_and(|client| client.segmented) {
                used += self.take_segments(io, slot, &data[used..]);
            }
            used
        };
        self.metrics.client_bytes_in.add(used as u64);
        let now = io.now_ns();
        if let Some(client) = self.clients.get_mut(slot as usize) {
            if used == data.len() && client.carry.is_empty() {
                client.partial_since_ns = 0;
            } else if client.partial_since_ns == 0 || (used > 0 && !client.segmented) {
                client.partial_since_ns = now;
            }
        }
        used
    }

    /// Whole envelopes at the head of `data`; returns the bytes done with.
    #[inline]
    fn take_envelopes(&mut self, io: &mut Io, slot: u32, data: &[u8]) -> usize {
        let mut at = 0;
        let segmented = self.clients.get(slot as usize).is_some_and(|client| client.segmented);
        loop {
            match self.take_envelope(io, slot, &data[at..]) {
                Taken::Bytes(used) => at += used,
                Taken::Incomplete | Taken::Held => return at,
                Taken::Closed => return data.len(),
            }
            let switched = self.clients.get(slot as usize).is_none_or(|client| client.segmented != segmented);
            if switched {
                return at;
            }
        }
    }

    /// Whole v5 segments at the head of `data`; returns the bytes done with.
    fn take_segments(&mut self, io: &mut Io, slot: u32, data: &[u8]) -> usize {
        let mut scratch = std::mem::take(&mut self.segment_scratch);
        let mut at = 0;
        let used = loop {
            let Some(client) = self.clients.get(slot as usize) else { break data.len() };
            if client.phase == Phase::Closing {
                break data.len();
            }
            if client.stalls.any() {
                break at;
            }
            let segment = match frame_v5::decode(&data[at..], client.lz4) {
                Ok(None) => break at,
                Ok(Some(segment)) => segment,
                Err(error) => {
                    self.refuse_client(io, slot, 0, error_code::PROTOCOL_ERROR, &error.to_string());
                    break data.len();
                }
            };
            at += segment.consumed;
            match segment.payload(&mut scratch) {
                Ok(payload) => self.take_payload(io, slot, payload, segment.self_contained),
                Err(error) => self.refuse_client(io, slot, 0, error_code::PROTOCOL_ERROR, &error.to_string()),
            }
        };
        scratch.clear();
        self.segment_scratch = scratch;
        used
    }

    /// The envelopes in one segment's payload. What cannot be handled now goes to the client's carry.
    fn take_payload(&mut self, io: &mut Io, slot: u32, payload: &[u8], self_contained: bool) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if !client.carry.is_empty() {
            client.carry.extend_from_slice(payload);
            self.pump_carry(io, slot);
            return;
        }
        let used = self.take_envelopes(io, slot, payload);
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if used > 0 {
            client.partial_since_ns = 0;
        }
        if used == payload.len() || client.phase == Phase::Closing {
            return;
        }
        if self_contained && !client.stalls.any() {
            let why = "a self-contained segment ends in the middle of an envelope";
            self.refuse_client(io, slot, 0, error_code::PROTOCOL_ERROR, why);
            return;
        }
        client.carry.extend_from_slice(&payload[used..]);
    }

    /// Handles carried bytes as far as they are complete and the client is not held.
    pub(crate) fn pump_carry(&mut self, io: &mut Io, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if client.carry.is_empty() {
            return;
        }
        let mut carry = std::mem::take(&mut client.carry);
        let used = self.take_envelopes(io, slot, &carry);
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if used > 0 {
            // A request is complete. Segments that bring only more of the same one do not count: they may be tiny.
            client.partial_since_ns = 0;
        }
        if used < carry.len() {
            carry.drain(..used);
            client.carry = carry;
        }
    }

    /// One envelope at the head of `data`.
    #[inline]
    fn take_envelope(&mut self, io: &mut Io, slot: u32, data: &[u8]) -> Taken {
        let Some(client) = self.clients.get_mut(slot as usize) else { return Taken::Closed };
        if client.phase == Phase::Closing {
            return Taken::Closed;
        }
        if client.stalls.any() {
            return Taken::Held;
        }
        let Some(header) = Header::decode(data) else {
            return Taken::Incomplete;
        };
        // A client that has not sent STARTUP has version 0, which nobody may claim.
        if (client.version != header.version || header.version == 0 || header.response)
            && let Some(taken) = self.check_version(io, slot, &header)
        {
            return taken;
        }
        let Some(client) = self.clients.get(slot as usize) else { return Taken::Closed };
        let bytes_max = match client.phase {
            Phase::Ready => limits::REQUEST_BYTES_MAX.min(self.config.frame_bytes_max),
            _ => limits::HANDSHAKE_BYTES_MAX,
        };
        if header.length > bytes_max {
            let why = format!("a request of {} bytes exceeds the limit of {bytes_max} bytes", header.length);
            self.refuse_client(io, slot, header.stream, error_code::INVALID, &why);
            return Taken::Closed;
        }
        let end = HEADER_BYTES + header.length as usize;
        let Some(body) = data.get(HEADER_BYTES..end) else {
            return Taken::Incomplete;
        };
        if header.stream < 0 {
            let why = format!("stream id {} of a request is negative", header.stream);
            self.refuse_client(io, slot, 0, error_code::PROTOCOL_ERROR, &why);
            return Taken::Closed;
        }
        match self.take_request(io, slot, &header, body) {
            Taken::Bytes(_) => Taken::Bytes(end),
            other => other,
        }
    }

    /// The version is what STARTUP fixed; before that, any that both the proxy and the ring speak. Anything else gets
    /// the error that makes drivers step down (section 1: "unsupported version").
    #[cold]
    fn check_version(&mut self, io: &mut Io, slot: u32, header: &Header) -> Option<Taken> {
        let Some(cluster) = self.cluster.as_ref() else {
            self.stall(io, slot, Stall::CLUSTER);
            return Some(Taken::Held);
        };
        let max = cluster.protocol_version_max;
        let client = self.clients.get_mut(slot as usize)?;
        let mut closing = Closing::ProtocolError;
        let why = if header.response {
            "a request has the direction bit of a response".to_owned()
        } else if client.version != 0 {
            format!("version {} in a request of a connection that started with {}", header.version, client.version)
        } else if (3..=max).contains(&header.version) {
            return None;
        } else {
            // Drivers look for this wording, which is Cassandra's.
            let known = ["3/v3", "4/v4", "5/v5"];
            let known = &known[..usize::from(max.clamp(3, 5)) - 2];
            client.version = max;
            if (1..=CQL_VERSION_MAX).contains(&header.version) {
                closing = Closing::Version;
            }
            format!(
                "Invalid or unsupported protocol version ({}); supported versions are ({})",
                header.version,
                known.join(", ")
            )
        };
        self.refuse_client_for(io, slot, closing, (header.stream, error_code::PROTOCOL_ERROR, &why));
        Some(Taken::Closed)
    }

    /// Requests by opcode (section 2.4 of the specifications).
    #[inline]
    fn take_request(&mut self, io: &mut Io, slot: u32, header: &Header, body: &[u8]) -> Taken {
        let phase = match self.clients.get(slot as usize) {
            Some(client) => client.phase,
            None => return Taken::Closed,
        };
        match (phase, header.opcode) {
            (Phase::Ready, opcode::EXECUTE | opcode::QUERY | opcode::BATCH | opcode::PREPARE) => {
                self.forward(io, slot, header, body)
            }
            _ => self.take_session_request(io, slot, phase, header, body),
        }
    }
}
