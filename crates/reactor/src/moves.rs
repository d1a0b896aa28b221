//! Connections that leave the loop and come into it: the engine's part of
//! [`moving`](crate::moving), the same for every driver. The driver moves the socket at the end of
//! the turn; the service hears the outcome early in the next one.

use std::io;
use std::sync::atomic::Ordering;

use crate::connection::{Connection, State};
use crate::engine::{Command, Outcome};
use crate::io::Io;
use crate::moving::{Frozen, FrozenLimits, NotFrozen};
use crate::service::{CloseReason, ConnId, Service};

impl Io {
    /// Takes the connection out of the loop at the end of this turn, after its flush.
    /// [`frozen`](Service::frozen) follows, unless the connection is closed first. Until `frozen`
    /// the connection takes output, which becomes the end of [`Frozen::unsent`]; a close in between
    /// does nothing (a caller that wants it closed restores it first).
    pub fn freeze(&mut self, conn: ConnId) {
        if self.is_open(conn) {
            self.commands.push(Command::Freeze { conn });
        }
    }

    /// Requests [`unacknowledged`](Service::unacknowledged) early in the next turn, unless the
    /// connection has ended by then. A connection with bytes in flight should not be frozen: their
    /// acknowledgement reaches no socket, and the peer hears nothing until a timer sends the bytes
    /// again.
    pub fn ask_unacknowledged(&mut self, conn: ConnId) {
        if self.is_open(conn) {
            self.commands.push(Command::Look { conn });
        }
    }

    /// Puts a connection in at the end of this turn. [`restored`](Service::restored) follows, or
    /// [`closed`](Service::closed) with [`CloseReason::ConnectFailed`]: `PermissionDenied` without
    /// CAP_NET_ADMIN, `AddrInUse` if the connection lives here already, `AddrNotAvailable` if the
    /// host does not have the local address, `NotFound` if a twin's depot does not have it,
    /// `Unsupported` without a mover. `received` then presents the unread bytes, and output written
    /// meanwhile is sent after the unsent bytes. A connection that is closed before it was restored
    /// is restored all the same and then closed, so that its peer hears of it.
    ///
    /// The connection counts as accepted but is never refused for the bound on connections.
    pub fn restore(&mut self, frozen: Frozen) -> ConnId {
        let index = self.allocate(State::Restoring);
        self.connections[index as usize].accepted = true;
        self.accepted += 1;
        if let Some(load) = &self.load {
            load.fetch_add(1, Ordering::Relaxed);
        }
        self.moves.waiting.push((index, frozen));
        self.commands.push(Command::Restore { index });
        self.id(index)
    }

    /// Parks a connection, inside [`frozen`](Service::frozen): its id stays valid, and its output
    /// gathers, until [`restore_parked`](Io::restore_parked). Code that writes to it need not know
    /// that it is elsewhere. A close meanwhile forgets it here, and no peer hears of it.
    pub fn park(&mut self, conn: ConnId) {
        if let Some(connection) =
            self.get_mut(conn).filter(|connection| connection.state == State::Frozen)
        {
            connection.state = State::Parked;
        }
    }

    /// Same as [`restore`](Io::restore), under the id that the connection had; false if the id is
    /// not of a parked connection. Output written meanwhile is sent after the unsent bytes.
    pub fn restore_parked(&mut self, conn: ConnId, frozen: Frozen) -> bool {
        let Some(connection) =
            self.get_mut(conn).filter(|connection| connection.state == State::Parked)
        else {
            return false;
        };
        connection.state = State::Restoring;
        self.moves.waiting.push((conn.index, frozen));
        self.commands.push(Command::Restore { index: conn.index });
        true
    }

    /// Returns whether a connection may be frozen as far as the loop knows, and how much the kernel
    /// may still hold of it.
    pub(crate) fn may_freeze(&self, conn: ConnId) -> Result<FrozenLimits, NotFrozen> {
        let connection = self.get(conn).ok_or(NotFrozen::NotEstablished)?;
        if connection.state != State::Open {
            return Err(NotFrozen::NotEstablished);
        }
        if connection.log.is_some() || connection.kernel_reads || connection.tunnel.is_some() {
            return Err(NotFrozen::Unsupported);
        }
        let FrozenLimits { output_bytes_max, unread_bytes_max } = self.moves.limits;
        Ok(FrozenLimits {
            output_bytes_max: less(output_bytes_max, connection.backlog())?,
            unread_bytes_max: less(unread_bytes_max, connection.unread())?,
        })
    }

    /// Completes a freeze with the driver's outcome: the kernel's state of the connection, or the
    /// failure. Adds the loop's part.
    pub(crate) fn froze(&mut self, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        let outcome = outcome.map(|mut frozen| {
            let connection = &mut self.connections[conn.index as usize];
            connection.state = State::Frozen;
            frozen.unsent.extend_from_slice(&connection.sending[connection.sent..]);
            let kept = &connection.input[connection.input_start..];
            frozen.state.receive_sequence =
                frozen.state.receive_sequence.wrapping_sub(kept.len() as u32);
            frozen.unread.splice(0..0, kept.iter().copied());
            connection.input_start = 0;
            connection.sent = 0;
            let (input, sending) =
                (std::mem::take(&mut connection.input), std::mem::take(&mut connection.sending));
            self.pool.put(input);
            self.pool.put(sending);
            frozen
        });
        self.outcomes.push((conn, Outcome::Froze(Box::new(outcome))));
    }

    /// The connection to restore into this slot, unless it was given up.
    pub(crate) fn take_waiting(&mut self, index: u32) -> Option<Frozen> {
        let position = self.moves.waiting.iter().position(|waiting| waiting.0 == index)?;
        Some(self.moves.waiting.swap_remove(position).1)
    }

    /// Completes a restore: the driver has a socket for the slot, or failed to make one. `frozen`
    /// is the rest that is not in the socket.
    pub(crate) fn restore_ended(&mut self, index: u32, outcome: Result<Frozen, io::ErrorKind>) {
        let connection = &mut self.connections[index as usize];
        let closed = connection.generation.is_multiple_of(2);
        match outcome {
            // It was aborted meanwhile: the command that closes it follows.
            _ if connection.state != State::Restoring => {}
            Err(_) if closed => self.finish(index, false),
            Err(kind) => self.fail(index, CloseReason::ConnectFailed(kind)),
            Ok(frozen) => {
                put_in(connection, frozen);
                if closed {
                    self.start_flushing(index);
                    self.commands.push(Command::Resume { index });
                } else {
                    self.outcomes.push((self.id(index), Outcome::Restored));
                }
            }
        }
    }

    /// Tells the service that the connection is frozen, or why not.
    pub(crate) fn tell_frozen<S: Service>(
        &mut self,
        conn: ConnId,
        mut outcome: Result<Frozen, NotFrozen>,
        service: &mut S,
    ) {
        let Ok(frozen) = &mut outcome else {
            return service.frozen(self, conn, outcome);
        };
        let connection = &mut self.connections[conn.index as usize];
        frozen.unsent.append(&mut connection.output);
        service.frozen(self, conn, outcome);
        if self.connections[conn.index as usize].state == State::Frozen {
            self.retire(conn.index);
            self.finish(conn.index, false);
        }
    }

    /// Tells the service that the connection is restored, and lets its bytes flow.
    pub(crate) fn tell_restored<S: Service>(&mut self, conn: ConnId, service: &mut S) {
        let connection = &mut self.connections[conn.index as usize];
        if connection.state != State::Restoring {
            return;
        }
        connection.state = State::Open;
        if !connection.resumed {
            connection.resumed = true;
            self.resumed.push(conn.index);
        }
        self.mark_dirty(conn.index);
        service.restored(self, conn);
    }
}

/// The rest of a bound.
fn less(bytes_max: usize, bytes: usize) -> Result<usize, NotFrozen> {
    bytes_max.checked_sub(bytes).ok_or(NotFrozen::TooLong(bytes))
}

/// Moves the queues into the loop: unsent bytes precede those that the service has written since.
fn put_in(connection: &mut Connection, frozen: Frozen) {
    let written = std::mem::replace(&mut connection.output, frozen.unsent);
    connection.output.extend_from_slice(&written);
    connection.input = frozen.unread;
    connection.input_start = 0;
}
