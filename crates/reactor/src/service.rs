//! The parts of the loop that a service sees besides [`Io`]: connection ids, the origin of an
//! accepted connection, the reasons a connection ends, and the callbacks themselves.

use std::io;
use std::net::SocketAddr;

use crate::Io;
use crate::client_address::ClientAddress;
use crate::moving::{Frozen, NotFrozen};
use crate::session::SessionFault;

/// Names one connection of one loop. The generation changes when the slot is reused, so a stale id
/// never reaches another connection: every operation on it does nothing.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct ConnId {
    /// Slot in the loop's connection table; small and dense, fit for indexing a `Vec`.
    pub index: u32,
    /// Number of the slot's user; odd while the connection is alive.
    pub generation: u32,
}

/// Origin of an accepted connection.
#[derive(Copy, Clone, Debug)]
pub struct Accepted {
    /// Position of the listener in the list given to the acceptor.
    pub listener: u16,
    /// The client.
    pub peer: ClientAddress,
    /// The address the client connected to.
    pub local: SocketAddr,
}

/// The reason why a connection ended that the service did not end itself.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum CloseReason {
    /// The peer closed its side in order (end of stream).
    Peer,
    /// The peer reset the connection.
    Reset,
    /// An outgoing connect was refused or could not be started, or a connection could not be
    /// restored.
    ConnectFailed(io::ErrorKind),
    /// An outgoing connect did not complete within its time.
    ConnectTimedOut,
    /// The peer of an outgoing connection was reached, and ended or reset the connection before the
    /// handshake of its session was over.
    HandshakeEnded,
    /// The encrypted session failed: in its handshake, or because the peer broke the protocol.
    Session(SessionFault),
    /// Any other error the operating system reported for the socket.
    Error(io::ErrorKind),
}

/// Sans-IO code driven by the loop. Every callback runs on the loop's own thread and must not
/// block.
pub trait Service {
    /// The mail that other threads may post to this loop.
    type Mail: Send + 'static;

    /// Called once, before the first turn.
    fn started(&mut self, _io: &mut Io) {}

    /// A connection was handed to this loop by the acceptor.
    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted);

    /// An outgoing [`Io::connect`] completed.
    fn connected(&mut self, io: &mut Io, conn: ConnId);

    /// Takes `data`, which is everything received and not yet consumed. Returns how many bytes were
    /// consumed; the rest is kept and presented again in front of later bytes. A connection paused
    /// inside this call is not presented again until it is resumed; on resume the kept bytes are
    /// presented even if nothing new arrived.
    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize;

    /// The peer or the operating system closed the connection, or a connect failed. Called exactly
    /// once, and never after [`Io::close`] or [`Io::abort`]. The id is still valid during this call
    /// (for the sent log), dead afterwards.
    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason);

    /// The backlog fell to the mark of [`Io::notify_drained`].
    fn drained(&mut self, io: &mut Io, conn: ConnId);

    /// Reports the outcome of [`Io::freeze`]. With `Ok` the id is still valid during this call, and
    /// dead afterwards; with `Err` the connection goes on as before.
    fn frozen(&mut self, _io: &mut Io, _conn: ConnId, _outcome: Result<Frozen, NotFrozen>) {}

    /// A connection that was put in with [`Io::restore`] is alive: its unread bytes are presented
    /// next, and its unsent bytes are on their way.
    fn restored(&mut self, _io: &mut Io, _conn: ConnId) {}

    /// Reports the outcome of [`Io::ask_unacknowledged`]: this many bytes were written to the
    /// connection that its peer has not acknowledged.
    fn unacknowledged(&mut self, _io: &mut Io, _conn: ConnId, _bytes: usize) {}

    /// A datagram came for [`LoopOptions::datagrams`](crate::LoopOptions::datagrams). The sender
    /// that it names is not to be trusted.
    fn datagram(&mut self, _io: &mut Io, _from: SocketAddr, _data: &[u8]) {}

    /// A timer set with [`Io::set_timer`] is due.
    fn timer(&mut self, io: &mut Io, key: u64);

    /// Another thread posted mail.
    fn mail(&mut self, io: &mut Io, mail: Self::Mail);

    /// Ends the turn after its events were handed over; output written now still leaves in this
    /// turn's flush.
    fn turn_ended(&mut self, io: &mut Io);
}
