//! Connections with a [tunnel](crate::tunnel), as the loop handles them: their handshakes, and both
//! directions of their bytes.

use crate::connection::State;
use crate::io::Io;
use crate::output::MOVED_AFTER_BYTES;
use crate::service::{Accepted, CloseReason, ConnId, Service};
use crate::session::{Session, SessionInfo};
use crate::timer::Due;
use crate::tunnel::{Arrival, Tunnel};

/// Most plaintext that one write seals: more would only wait in the kernel, or in memory.
const SEALED_BYTES_MAX: usize = 256 << 10;
/// Room for the records' headers and tags, by which ciphertext is longer than plaintext.
const RECORDS_ROOM: usize = 1 << 10;
/// Time for a handshake that the loop itself does with an accepted connection.
const HANDSHAKE_NS: u64 = 10_000_000_000;

impl Io {
    /// Same as [`connect`](Io::connect), through an encrypted session:
    /// [`connected`](Service::connected) follows the session's handshake, which is part of the
    /// time limit. A failed handshake is a [`CloseReason::Session`].
    pub fn connect_with(
        &mut self,
        to: std::net::SocketAddr,
        timeout_ns: u64,
        session: Box<dyn Session>,
    ) -> ConnId {
        let conn = self.connect(to, timeout_ns);
        self.secure(conn.index, session, None);
        conn
    }

    /// Facts about a connection's session; `None` for a connection without encryption.
    pub fn session_info(&self, conn: ConnId) -> Option<&SessionInfo> {
        Some(self.get(conn)?.tunnel.as_ref()?.session.info())
    }

    /// Memory of a connection's encryption, in bytes: its keys, and the start of a record whose
    /// rest has not arrived. 0 without encryption.
    pub fn session_bytes(&self, conn: ConnId) -> usize {
        self.get(conn)
            .and_then(|connection| connection.tunnel.as_ref())
            .map_or(0, |tunnel| tunnel.session.bytes() + tunnel.partial.capacity())
    }

    /// Encrypts a new connection, which does its handshake within the loop. An accepted one (with
    /// its origin) is reported to the service after that.
    pub(crate) fn secure(
        &mut self,
        index: u32,
        session: Box<dyn Session>,
        origin: Option<Accepted>,
    ) {
        let conn = self.id(index);
        let connection = &mut self.connections[index as usize];
        connection.tunnel = Some(Box::new(Tunnel::new(session, Vec::new())));
        if let Some(origin) = origin {
            self.securing.push((conn, origin));
            connection.state = State::Securing;
            self.timers.set(self.now_ns.saturating_add(HANDSHAKE_NS), Due::Connection(conn));
            self.mark_dirty(index);
        }
    }

    /// Reports an accepted connection whose handshake is done, and then presents what came behind
    /// it.
    pub(crate) fn arrived<S: Service>(
        &mut self,
        index: u32,
        arrival: Arrival,
        origin: &Accepted,
        service: &mut S,
    ) {
        let Arrival { session, partial, plain, ended } = arrival;
        let conn = self.id(index);
        let connection = &mut self.connections[index as usize];
        connection.tunnel = Some(Box::new(Tunnel::new(session, partial)));
        connection.input = plain;
        connection.end_pending = ended;
        if ended || !connection.input.is_empty() {
            connection.resumed = true;
            self.resumed.push(index);
        }
        self.mark_dirty(index);
        service.accepted(self, conn, origin);
    }

    /// Opens received bytes and hands their content over.
    pub(crate) fn open<S: Service>(&mut self, index: u32, received: &mut [u8], service: &mut S) {
        let connection = &mut self.connections[index as usize];
        if !matches!(connection.state, State::Open | State::Securing) {
            return;
        }
        let Some(tunnel) = &mut connection.tunnel else { return };
        let mut plain = std::mem::take(&mut self.plain_buffer);
        plain.clear();
        let outcome = tunnel.session.open(received, &mut plain);
        let handshake_ended = outcome.is_ok()
            && connection.state == State::Securing
            && !tunnel.session.is_handshaking();
        if let Ok(opened) = &outcome {
            self.put_partial(index, &received[opened.consumed..]);
        }
        self.mark_dirty(index);
        if handshake_ended {
            self.secured(index, service);
        }
        if !plain.is_empty() {
            self.present_opened(index, &plain, service);
        }
        self.plain_buffer = plain;
        match outcome {
            Ok(opened) if opened.ended => self.end_of_stream(index, service),
            Ok(_) => {}
            Err(fault) => self.ended(index, CloseReason::Session(fault), service),
        }
    }

    /// Takes the start of a record that arrived before, to be presented with the rest.
    pub(crate) fn take_partial(&mut self, index: u32, buffer: &mut Vec<u8>) {
        let Some(tunnel) = &mut self.connections[index as usize].tunnel else { return };
        if !tunnel.partial.is_empty() {
            buffer.extend_from_slice(&tunnel.partial);
            self.pool.put(std::mem::take(&mut tunnel.partial));
        }
    }

    /// Keeps the start of a record until the rest arrives, which a peer may never send.
    pub(crate) fn put_partial(&mut self, index: u32, rest: &[u8]) {
        if let Some(tunnel) = &mut self.connections[index as usize].tunnel
            && !rest.is_empty()
        {
            tunnel.partial = self.pool.take_close(rest.len());
            tunnel.partial.extend_from_slice(rest);
        }
    }

    /// Reports a connection whose handshake within the loop is done.
    fn secured<S: Service>(&mut self, index: u32, service: &mut S) {
        let conn = self.id(index);
        let connection = &mut self.connections[index as usize];
        connection.state = State::Open;
        self.mark_dirty(index);
        match self.take_origin(conn) {
            Some(origin) => service.accepted(self, conn, &origin),
            None => {
                self.counters.connects += 1;
                service.connected(self, conn);
            }
        }
    }

    /// Takes the origin of an accepted connection of which the service has not heard.
    pub(crate) fn take_origin(&mut self, conn: ConnId) -> Option<Accepted> {
        let position = self.securing.iter().position(|(securing, _)| *securing == conn)?;
        Some(self.securing.swap_remove(position).1)
    }

    /// Same as [`begin_send`](Io::begin_send), for a connection with a tunnel.
    pub(crate) fn begin_send_sealed(&mut self, index: u32) -> bool {
        let connection = &self.connections[index as usize];
        let is_connected =
            matches!(connection.state, State::Securing | State::Open | State::Flushing);
        if !is_connected || !connection.sending.is_empty() {
            return false;
        }
        let may_be_sent = self.take_output(index);
        let connection = &mut self.connections[index as usize];
        let Some(tunnel) = &mut connection.tunnel else { return false };
        let part = tunnel.unsealed().len().min(SEALED_BYTES_MAX);
        let ends = connection.state == State::Flushing
            && !tunnel.ended
            && part == tunnel.unsealed().len()
            && connection.output.is_empty();
        if part == 0 && !ends && !tunnel.session.has_pending() {
            return false;
        }
        let mut records = self.pool.take(part + RECORDS_ROOM);
        let outcome = tunnel.make_records(part, ends && may_be_sent, &mut records);
        if tunnel.is_sealed() {
            let plain = tunnel.take_plain();
            let unused = match &mut connection.log {
                Some(log) => log.finished_sending(plain),
                None => Some(plain),
            };
            unused.into_iter().for_each(|buffer| self.pool.put(buffer));
        } else if connection.log.is_none() {
            let rest = tunnel.unsealed().len();
            let sealed = tunnel.plain().len() - rest;
            if sealed >= MOVED_AFTER_BYTES && rest <= sealed {
                let old = tunnel.move_rest(self.pool.take_close(rest));
                self.pool.put(old);
            }
        }
        let is_sent = outcome.is_ok() && !records.is_empty();
        if is_sent {
            (connection.sending, connection.sent) = (records, 0);
        } else {
            self.pool.put(records);
        }
        if let Err(fault) = outcome {
            self.fail(index, CloseReason::Session(fault));
        }
        is_sent
    }

    /// Makes the output the buffer to seal, if it may be sent and none is being sealed. False if it
    /// may not be sent now.
    fn take_output(&mut self, index: u32) -> bool {
        let connection = &mut self.connections[index as usize];
        let Some(tunnel) = &mut connection.tunnel else { return false };
        let may_be_sent = match connection.state {
            State::Open => !connection.held,
            State::Flushing => !tunnel.session.is_handshaking(),
            _ => false,
        };
        if connection.output.is_empty() {
            if connection.log.as_ref().is_none_or(|log| !log.is_filling()) {
                self.pool.put(std::mem::take(&mut connection.output));
            }
        } else if may_be_sent && tunnel.plain().is_empty() {
            tunnel.begin(&mut connection.output);
            let length = tunnel.plain().len();
            connection.expect_output(length);
            if let Some(log) = &mut connection.log {
                log.started_sending();
            }
        }
        may_be_sent
    }

    /// Gives up the output of a connection whose session has failed, so that only an alert for the
    /// peer is left. False if there is none.
    pub(crate) fn keep_alert(&mut self, index: u32) -> bool {
        let connection = &mut self.connections[index as usize];
        let output = std::mem::take(&mut connection.output);
        let Some(tunnel) = &mut connection.tunnel else { return false };
        let plain = tunnel.take_plain();
        tunnel.ended = true;
        let has_alert = tunnel.session.has_pending();
        self.pool.put(output);
        self.pool.put(plain);
        has_alert
    }
}
