//! Answers to clients: the mirror image of [`crate::decode`].
//!
//! A body is copied once, from the link's receive buffer (or from where the proxy made it) behind what else goes to
//! that client this turn. A client that does not take its replies is not read from until it does.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::{encode, error_code};

use crate::client::{Phase, Stall};
use crate::core::Core;
use crate::metrics::Closing;

/// Why a client could not be given links.
const TOO_MANY_POOLS: &str =
    "too many different combinations of role, keyspace and protocol version are in use on this proxy";

impl Core {
    /// Writes an answer in the client's own version and layout.
    #[inline]
    pub(crate) fn reply(&mut self, io: &mut Io, slot: u32, flags: u8, op: u8, stream: i16, body: &[u8]) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let header =
            Header { version: client.version, response: true, flags, stream, opcode: op, length: body.len() as u32 };
        self.metrics.client_bytes_out.add((HEADER_BYTES + body.len()) as u64);
        let out = io.output(client.conn);
        if client.segmented {
            client.writer.push(out, &header.to_bytes(), body);
            if !client.dirty {
                client.dirty = true;
                self.dirty_clients.push(slot);
            }
        } else {
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(body);
        }
        if io.backlog(client.conn) > self.config.client_backlog_bytes && !client.stalls.has(Stall::REPLIES) {
            io.notify_drained(client.conn, self.config.client_backlog_bytes / 2);
            client.untaken_since_ns = io.now_ns();
            client.writes_taken = io.writes_of(client.conn);
            self.stall(io, slot, Stall::REPLIES);
        }
    }

    /// Before STARTUP there is no version yet: answers in that of the request.
    pub(crate) fn reply_as(&mut self, io: &mut Io, slot: u32, version: u8, op: u8, stream: i16, body: &[u8]) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let fixed = client.version;
        if fixed == 0 {
            client.version = version;
        }
        self.reply(io, slot, 0, op, stream, body);
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.version = fixed;
        }
    }

    /// Answers with ERROR; the connection lives on.
    pub(crate) fn reply_error(&mut self, io: &mut Io, slot: u32, stream: i16, code: i32, why: &str) {
        let mut body = std::mem::take(&mut self.message_scratch);
        body.clear();
        encode::error(&mut body, code, why);
        self.reply(io, slot, 0, opcode::ERROR, stream, &body);
        self.message_scratch = body;
    }

    /// A client broke the protocol: answers with ERROR and closes this connection, and no other, when that is sent.
    #[cold]
    pub(crate) fn refuse_client(&mut self, io: &mut Io, slot: u32, stream: i16, code: i32, why: &str) {
        self.refuse_client_for(io, slot, Closing::ProtocolError, (stream, code, why));
    }

    /// The same where there is no pool to be had for a client.
    pub(crate) fn refuse_pool(&mut self, io: &mut Io, slot: u32, stream: i16) {
        let error = (stream, error_code::OVERLOADED, TOO_MANY_POOLS);
        self.refuse_client_for(io, slot, Closing::TooManyPools, error);
    }

    /// The same for any reason; of the ERROR: its stream, code and text.
    pub(crate) fn refuse_client_for(&mut self, io: &mut Io, slot: u32, closing: Closing, error: (i16, i32, &str)) {
        let (stream, code, why) = error;
        self.metrics.client_protocol_errors.add(1);
        let max = self.cluster.as_ref().map_or(4, |cluster| cluster.protocol_version_max);
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if client.version == 0 {
            client.version = max;
        }
        self.reply_error(io, slot, stream.max(0), code, why);
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        client.phase = Phase::Closing;
        self.close_client(io, slot, closing, why);
    }

    /// Completes v5 segments begun this turn.
    #[inline]
    pub(crate) fn finish_clients(&mut self, io: &mut Io) {
        while let Some(slot) = self.dirty_clients.pop() {
            if let Some(client) = self.clients.get_mut(slot as usize)
                && std::mem::take(&mut client.dirty)
            {
                client.writer.finish(io.output(client.conn));
            }
        }
    }
}
