//! The drivers move bytes between [`Io`] and the world: `epoll` and `uring` for sockets, `sim` for
//! a simulated network. Each reports its events through the functions of `engine.rs`, `input.rs`
//! and `output.rs`, then calls [`finish_turn`].

pub(crate) mod clock;
pub(crate) mod epoll;
pub mod sim;
pub(crate) mod socket;
pub(crate) mod uring;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::connection::State;
use crate::engine::{Command, Outcome};
use crate::io::Io;
use crate::moving::{Frozen, FrozenLimits, NotFrozen};
use crate::service::{ConnId, Service};

/// The functions of a driver that the end of a turn needs. `index` is the slot in the connection
/// table.
pub(crate) trait Driver {
    /// Starts connecting; reports with [`Io::established`], [`Io::ended`] or [`Io::fail`]. The time
    /// limit is not the driver's concern.
    fn connect(&mut self, io: &mut Io, index: u32, to: SocketAddr);
    /// Writes [`Io::unsent`], which is new, once; reports with [`Io::wrote`] or [`Io::fail`], now
    /// or in a later turn.
    fn send(&mut self, io: &mut Io, index: u32);
    /// Reads again, if reading had stopped.
    fn resume(&mut self, io: &mut Io, index: u32);
    /// Announces the end of the stream to the peer.
    fn shutdown(&mut self, io: &mut Io, index: u32);
    /// Closes, with a reset if `reset`; then calls [`Io::release_slot`], now or once nothing refers
    /// to the slot.
    fn close(&mut self, io: &mut Io, index: u32, reset: bool);
    /// Releases the socket of an open connection, unless the kernel holds more than `room` of it.
    /// Returns the kernel's state. After an error the socket is as before.
    fn freeze(&mut self, io: &mut Io, index: u32, room: FrozenLimits) -> Result<Frozen, NotFrozen>;
    /// Bytes of an open connection in the kernel that its peer has not acknowledged.
    fn unacknowledged(&mut self, index: u32) -> usize;
    /// Makes a socket of a frozen connection for the slot and does not read from it yet. Returns
    /// the rest that is not in the socket: all unread bytes, and the unsent part of the output.
    fn restore(&mut self, io: &mut Io, index: u32, frozen: Frozen)
    -> Result<Frozen, io::ErrorKind>;
}

/// The further functions that [`run`](crate::run) needs from a driver of real sockets.
pub(crate) trait SocketDriver: Driver {
    /// Waits for events, at most this long (`None`: until there is one).
    fn wait(&mut self, io: &mut Io, timeout_ns: Option<u64>) -> io::Result<()>;
    /// Hands over the events of the wait. True if the mailbox has an item.
    fn dispatch<S: Service>(&mut self, io: &mut Io, service: &mut S) -> bool;
    /// Takes an accepted socket under this slot.
    fn adopt(&mut self, io: &mut Io, index: u32, socket: OwnedFd) -> io::Result<()>;
    /// Ends after the last turn: all output handed to the kernel must get there.
    fn finish(&mut self, io: &mut Io);
}

/// The second half of every turn, after the driver has reported the turn's events.
pub(crate) fn finish_turn<D: Driver, S: Service>(io: &mut Io, driver: &mut D, service: &mut S) {
    io.run_due(service);
    service.turn_ended(io);
    io.counters.turns += 1;
    flush(io, driver);
}

/// One write for each connection with output, then the commands of the turn.
pub(crate) fn flush<D: Driver>(io: &mut Io, driver: &mut D) {
    let mut position = 0;
    while let Some(&index) = io.dirty.get(position) {
        position += 1;
        if io.begin_send(index) {
            driver.send(io, index);
        }
    }
    io.dirty.clear();
    let mut position = 0;
    while let Some(&command) = io.commands.get(position) {
        position += 1;
        match command {
            Command::Connect { index, to } => driver.connect(io, index, to),
            Command::Resume { index } => driver.resume(io, index),
            Command::Shutdown { index } => driver.shutdown(io, index),
            Command::Close { index, reset } => driver.close(io, index, reset),
            Command::Freeze { conn } => freeze(io, driver, conn),
            Command::Restore { index } => restore(io, driver, index),
            Command::Look { conn } => look(io, driver, conn),
        }
    }
    io.commands.clear();
    io.datagrams.flush();
    if !io.notify_check.is_empty() {
        io.check_new_notifies();
    }
}

#[cold]
fn freeze<D: Driver>(io: &mut Io, driver: &mut D, conn: ConnId) {
    // It was closed since, or is frozen already: nothing follows.
    if !io.is_open(conn)
        || matches!(io.connections[conn.index as usize].state, State::Frozen | State::Parked)
    {
        return;
    }
    let outcome = io.may_freeze(conn).and_then(|room| driver.freeze(io, conn.index, room));
    io.froze(conn, outcome);
}

#[cold]
fn look<D: Driver>(io: &mut Io, driver: &mut D, conn: ConnId) {
    if io.is_open(conn) && io.connections[conn.index as usize].state == State::Open {
        let bytes = driver.unacknowledged(conn.index);
        io.outcomes.push((conn, Outcome::Looked(bytes)));
    }
}

#[cold]
fn restore<D: Driver>(io: &mut Io, driver: &mut D, index: u32) {
    if let Some(frozen) = io.take_waiting(index) {
        let outcome = driver.restore(io, index, frozen);
        io.restore_ended(index, outcome);
    }
}
