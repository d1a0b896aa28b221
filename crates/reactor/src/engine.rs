//! The driver's side of [`Io`]: slots, the life of a connection, and the work that falls due
//! without a socket event. `input.rs` and `output.rs` have the two directions of bytes. This code
//! makes no system calls, so that the simulation runs the same code as the real drivers.
//!
//! A turn: the driver reports its events (`admit`, `established`, `deliver` or `receive`, `ended`,
//! `wrote`), then [`finish_turn`](crate::driver::finish_turn) runs the due work, flushes, and hands
//! the driver its commands.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use crate::connection::{Connection, State};
use crate::io::Io;
use crate::moving::{Frozen, NotFrozen};
use crate::service::{CloseReason, ConnId, Service};
use crate::timer::Due;

/// Largest kept part that is copied in front of the next read, which then can be large; a longer
/// one means that a large message is arriving, and the next read appends to it.
pub(crate) const KEPT_COPY_MAX: usize = 16 << 10;

/// A request of the service that only a driver can carry out. Executed in order, after the turn's
/// flush.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Command {
    /// Start an outgoing connection.
    Connect { index: u32, to: SocketAddr },
    /// Read again (reading may never have stopped).
    Resume { index: u32 },
    /// Announce the end of the stream after the last output, go on reading.
    Shutdown { index: u32 },
    /// Close the socket (with a reset if `reset`), then release the slot with [`Io::release_slot`].
    Close { index: u32, reset: bool },
    /// Take the connection out, if it is still there: see `moves.rs`.
    Freeze { conn: ConnId },
    /// Make a socket of a frozen connection.
    Restore { index: u32 },
    /// Count the bytes that its peer has not acknowledged.
    Look { conn: ConnId },
}

/// An event outside a callback, to report later.
pub(crate) enum Outcome {
    /// The connection is broken; `closed` is due.
    Failed(CloseReason),
    /// The connection was frozen, or not; `frozen` is due.
    Froze(Box<Result<Frozen, NotFrozen>>),
    /// `restored` is due.
    Restored,
    /// The kernel has this many bytes that the peer has not acknowledged; `unacknowledged` is due.
    Looked(usize),
}

impl Io {
    /// The service's id of a slot.
    #[inline]
    pub(crate) fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.connections[index as usize].generation }
    }

    /// Takes a slot and makes its id valid.
    pub(crate) fn allocate(&mut self, state: State) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(Connection::default());
            self.connections.len() as u32 - 1
        });
        let connection = &mut self.connections[index as usize];
        debug_assert_eq!(connection.state, State::Free);
        connection.state = state;
        connection.generation = connection.generation.wrapping_add(1);
        index
    }

    /// Takes a slot for a connection that the acceptor accepted; `None` at the bound. The driver
    /// calls [`Service::accepted`] itself, once the socket is registered.
    pub(crate) fn admit(&mut self) -> Option<u32> {
        // The place of a connection that is reset here is free at the end of the turn.
        if self.accepted >= self.connections_max && !self.reset_oldest(None) {
            self.counters.refused += 1;
            return None;
        }
        let index = self.allocate(State::Open);
        self.connections[index as usize].accepted = true;
        self.accepted += 1;
        self.counters.accepts += 1;
        Some(index)
    }

    /// Reports an established outgoing connection.
    pub(crate) fn established<S: Service>(&mut self, index: u32, service: &mut S) {
        let connection = &mut self.connections[index as usize];
        if connection.state != State::Connecting {
            return;
        }
        if connection.tunnel.is_some() {
            connection.state = State::Securing;
            self.mark_dirty(index);
            // A session that could not begin says so.
            return self.open(index, &mut [], service);
        }
        connection.state = State::Open;
        self.counters.connects += 1;
        self.mark_dirty(index);
        let conn = self.id(index);
        service.connected(self, conn);
    }

    /// Reports the end of the peer's stream.
    pub(crate) fn end_of_stream<S: Service>(&mut self, index: u32, service: &mut S) {
        let connection = &mut self.connections[index as usize];
        if connection.state == State::Open && connection.keeps_end {
            (connection.paused, connection.end_kept) = (true, true);
            return;
        }
        let has_more = connection.paused || connection.resumed && connection.unread() > 0;
        if connection.state == State::Open && has_more {
            connection.end_pending = true;
            return;
        }
        self.ended(index, CloseReason::Peer, service);
    }

    /// Reports a connection that the peer or the operating system ended.
    pub(crate) fn ended<S: Service>(&mut self, index: u32, reason: CloseReason, service: &mut S) {
        let connection = &mut self.connections[index as usize];
        match connection.state {
            State::Connecting | State::Securing | State::Open | State::Restoring => {
                let reason = reason_in(connection.state, reason);
                // Of an accepted connection without a session the service has not heard.
                let is_known = connection.state != State::Securing || !connection.accepted;
                connection.state = State::Ending;
                let conn = self.id(index);
                if is_known {
                    service.closed(self, conn, reason);
                } else {
                    self.take_origin(conn);
                }
                self.retire(index);
                let connection = &mut self.connections[index as usize];
                connection.peer_ended = true;
                let has_more = connection.backlog() > 0 || connection.tunnel.is_some();
                if connection.log_taken {
                    self.finish(index, false);
                } else if reason == CloseReason::Peer && has_more {
                    // The peer may have closed only its own direction: answers to it are still
                    // sent, and the end of a tunnel.
                    self.start_flushing(index);
                } else if matches!(reason, CloseReason::Session(_)) && self.keep_alert(index) {
                    self.connections[index as usize].peer_ended = false;
                    self.start_flushing(index);
                } else {
                    self.finish(index, false);
                }
            }
            State::Flushing if reason == CloseReason::Peer => connection.peer_ended = true,
            State::Flushing | State::Lingering => self.finish(index, false),
            State::Free | State::Ending | State::Closed | State::Frozen | State::Parked => {}
        }
    }

    /// Same as [`ended`](Io::ended), for a driver that notices outside a callback; reported in the
    /// next turn.
    pub(crate) fn fail(&mut self, index: u32, reason: CloseReason) {
        match self.connections[index as usize].state {
            State::Connecting | State::Securing | State::Open | State::Restoring => {
                self.outcomes.push((self.id(index), Outcome::Failed(reason)));
            }
            State::Flushing | State::Lingering => self.finish(index, false),
            State::Free | State::Ending | State::Closed | State::Frozen | State::Parked => {}
        }
    }

    /// Releases a slot whose socket is closed and that nothing refers to any more.
    pub(crate) fn release_slot(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        debug_assert_eq!(connection.state, State::Closed);
        let old = std::mem::replace(
            connection,
            Connection { generation: connection.generation, ..Connection::default() },
        );
        self.pool.put(old.output);
        self.pool.put(old.sending);
        self.pool.put(old.input);
        self.free.push(index);
        if old.accepted {
            self.accepted -= 1;
            self.unload();
        }
    }

    /// Lowers the core's load, because an accepted connection is gone (or was never taken over).
    pub(crate) fn unload(&self) {
        if let Some(load) = &self.load {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes for the service: sends the remaining output, then ends the stream.
    pub(crate) fn start_closing(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        // A pending resume finds the connection closed, and leaves the driver as it is.
        let reading_stopped =
            std::mem::replace(&mut connection.paused, false) || connection.resumed;
        self.retire(index);
        self.start_flushing(index);
        if reading_stopped {
            self.commands.push(Command::Resume { index });
        }
    }

    pub(crate) fn start_flushing(&mut self, index: u32) {
        self.connections[index as usize].state = State::Flushing;
        self.count_closing(index);
        self.timers
            .set(self.now_ns.saturating_add(self.linger_ns), Due::Connection(self.id(index)));
        self.mark_dirty(index);
        self.flushed(index);
    }

    /// Continues a close once nothing is left to send.
    pub(crate) fn flushed(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let has_output = connection.tunnel.as_ref().is_some_and(|tunnel| tunnel.has_output(true));
        if connection.state != State::Flushing || connection.backlog() > 0 || has_output {
            return;
        }
        if connection.peer_ended {
            self.finish(index, false);
        } else {
            connection.state = State::Lingering;
            self.uncount_closing(index);
            self.commands.push(Command::Shutdown { index });
        }
    }

    /// Counts a connection that begins to close, and resets the oldest ones beyond the bound.
    pub(crate) fn count_closing(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.accepted {
            return;
        }
        connection.closing_bytes = connection.output_memory();
        self.closing.bytes += connection.closing_bytes;
        self.closing.order.push_back((index, connection.generation));
        while self.closing.bytes > self.closing.bytes_max && self.reset_oldest(Some(index)) {}
        self.forget_gone();
    }

    /// Takes a connection that is gone out of the count.
    pub(crate) fn uncount_closing(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        self.closing.bytes -= std::mem::take(&mut connection.closing_bytes);
    }

    /// Resets the connection that has been closing for the longest time, but not `except`. `false`:
    /// there is none.
    pub(crate) fn reset_oldest(&mut self, except: Option<u32>) -> bool {
        while let Some((index, generation)) = self.closing.order.front().copied() {
            let is_there = self.is_closing(index, generation);
            if is_there && Some(index) == except {
                return false;
            }
            self.closing.order.pop_front();
            if is_there {
                self.counters.closing_resets += 1;
                self.finish(index, true);
                return true;
            }
        }
        false
    }

    /// Forgets those at the front that are gone.
    fn forget_gone(&mut self) {
        while let Some((index, generation)) = self.closing.order.front().copied()
            && !self.is_closing(index, generation)
        {
            self.closing.order.pop_front();
        }
    }

    fn is_closing(&self, index: u32, generation: u32) -> bool {
        let connection = &self.connections[index as usize];
        connection.generation == generation
            && matches!(connection.state, State::Flushing | State::Lingering)
    }

    /// Makes the service's id invalid and frees all buffers kept for the service.
    pub(crate) fn retire(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.generation = connection.generation.wrapping_add(1);
        connection.notify = false;
        (connection.paused, connection.keeps_end, connection.end_kept) = (false, false, false);
        connection.output_ended = false;
        connection.input_start = 0;
        let input = std::mem::take(&mut connection.input);
        let log = connection.log.take();
        self.pool.put(input);
        if let Some(log) = log {
            log.into_buffers().for_each(|buffer| self.pool.put(buffer));
        }
    }

    /// Ends sending and receiving; the driver closes the socket at the end of the turn.
    pub(crate) fn finish(&mut self, index: u32, reset: bool) {
        self.uncount_closing(index);
        let connection = &mut self.connections[index as usize];
        connection.state = State::Closed;
        let output = std::mem::take(&mut connection.output);
        if let Some(tunnel) = connection.tunnel.take() {
            tunnel.into_buffers().into_iter().for_each(|buffer| self.pool.put(buffer));
        }
        if !connection.kernel_reads {
            connection.sent = 0;
            let sending = std::mem::take(&mut connection.sending);
            self.pool.put(sending);
        }
        self.pool.put(output);
        self.commands.push(Command::Close { index, reset });
    }

    /// Longest wait of the driver for events: `Some(0)` if work is due already, `None` for no
    /// limit.
    #[inline]
    pub(crate) fn wait_ns(&self, now_ns: u64) -> Option<u64> {
        let due = !(self.drained.is_empty()
            && self.resumed.is_empty()
            && self.outcomes.is_empty()
            && self.dirty.is_empty()
            && self.commands.is_empty());
        if due {
            return Some(0);
        }
        self.timers.next_ns().map(|at_ns| at_ns.saturating_sub(now_ns))
    }

    /// Runs timers, reports of the last flush, `drained`, and kept bytes of resumed connections.
    /// Work that falls due meanwhile waits for the next turn, so that a turn always ends.
    pub(crate) fn run_due<S: Service>(&mut self, service: &mut S) {
        self.run_timers(service);
        self.pool.trim(self.now_ns);
        if !self.outcomes.is_empty() {
            self.tell_outcomes(service);
        }
        let due = self.drained.len();
        for position in 0..due {
            let conn = self.drained[position];
            if self.is_open(conn) {
                service.drained(self, conn);
            }
        }
        self.drained.drain(..due);
        let due = self.resumed.len();
        for position in 0..due {
            self.present_resumed(self.resumed[position], service);
        }
        self.resumed.drain(..due);
    }

    #[cold]
    fn tell_outcomes<S: Service>(&mut self, service: &mut S) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for (conn, outcome) in outcomes.drain(..) {
            if !self.is_open(conn) {
                continue;
            }
            match outcome {
                Outcome::Failed(reason) => self.ended(conn.index, reason, service),
                Outcome::Froze(outcome) => self.tell_frozen(conn, *outcome, service),
                Outcome::Restored => self.tell_restored(conn, service),
                Outcome::Looked(bytes) => {
                    let backlog = self.backlog(conn);
                    service.unacknowledged(self, conn, backlog + bytes);
                }
            }
        }
        outcomes.append(&mut self.outcomes);
        self.outcomes = outcomes;
    }

    fn run_timers<S: Service>(&mut self, service: &mut S) {
        for _ in 0..self.timers.len() {
            match self.timers.pop_due(self.now_ns) {
                None => break,
                Some(Due::Service(key)) => service.timer(self, key),
                Some(Due::Connection(conn)) => {
                    match self.get(conn).map(|connection| connection.state) {
                        Some(State::Connecting | State::Securing) => {
                            self.ended(conn.index, CloseReason::ConnectTimedOut, service)
                        }
                        Some(State::Flushing | State::Lingering) => self.finish(conn.index, true),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The reason for a connection that ended in this state. One that was not secured or restored yet
/// never existed for the service.
fn reason_in(state: State, reason: CloseReason) -> CloseReason {
    match (state, reason) {
        (State::Securing, CloseReason::Reset | CloseReason::Peer) => CloseReason::HandshakeEnded,
        (State::Restoring, CloseReason::Reset | CloseReason::Peer) => {
            CloseReason::ConnectFailed(io::ErrorKind::ConnectionReset)
        }
        (State::Securing | State::Restoring, CloseReason::Error(kind)) => {
            CloseReason::ConnectFailed(kind)
        }
        _ => reason,
    }
}

/// Translates an error of the operating system for the service.
pub(crate) fn close_reason(error: io::ErrorKind) -> CloseReason {
    match error {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => CloseReason::Reset,
        other => CloseReason::Error(other),
    }
}
