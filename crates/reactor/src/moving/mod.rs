//! Connections that leave one loop and go on in another, on the same host or on a different one,
//! without their peer noticing.
//!
//! [`Io::freeze`](crate::Io::freeze) takes a connection out of its loop: what is left of it is a
//! [`Frozen`], plain data that can be sent anywhere. [`Io::restore`](crate::Io::restore) makes a
//! connection of it again. Which means are used is the loop's [`Mover`]:
//!
//! ```text
//!  Mover::Kernel   TCP_REPAIR: the socket is read out, closed without a packet, and made anew. Needs CAP_NET_ADMIN.
//!  Mover::Twin     the descriptor itself goes through a Unix socket, between processes of one host. Needs nothing.
//!  (simulation)    the simulated network moves the end of its wire; always available there.
//! ```
//!
//! Sequence numbers count as TCP does, modulo 2^32. At any time `receive_sequence + unread.len()`
//! is the next byte that is expected from the peer, and `send_sequence + unacknowledged.len()` the
//! next byte to be sent: whoever takes bytes from the front of a queue must advance its sequence
//! number, as [`Frozen::take_unread`] does.

pub(crate) mod kernel;
mod limits;
mod repair;
mod twin;

pub use twin::Twin;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::options::LoopOptions;

/// What the kernel knows of the windows of both directions (`struct tcp_repair_window`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// Sequence number of the segment that the send window was last told by.
    pub send_update: u32,
    /// The peer's window, bytes.
    pub send: u32,
    /// The largest window that the peer has offered, bytes.
    pub largest: u32,
    /// Our window, bytes.
    pub receive: u32,
    /// What was next to be received when our window was last told.
    pub receive_update: u32,
}

/// The state of an established connection, independent of the host. The side that moves is `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpState {
    /// The address that moves, of the same family as the peer's.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
    /// Sequence number of the first byte that is not acknowledged, which is the first of
    /// [`Frozen::unacknowledged`].
    pub send_sequence: u32,
    /// Sequence number of the first byte that is not read, which is the first of
    /// [`Frozen::unread`].
    pub receive_sequence: u32,
    /// Largest segment that the peer takes, bytes.
    pub mss: u16,
    /// Our timestamp clock; absent if timestamps were not agreed on.
    pub timestamp: Option<u32>,
    /// Selective acknowledgement was agreed on.
    pub sack: bool,
    /// Shifts of the send and the receive window; absent if scaling was not agreed on.
    pub window_scales: Option<(u8, u8)>,
    /// The windows.
    pub window: Window,
}

/// A connection that has been taken out of a loop, with its queues. While it is like this nobody
/// answers the peer: if it is dropped, the peer finds out by its own time limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    /// The state of TCP.
    pub state: TcpState,
    /// Sent and not acknowledged.
    pub unacknowledged: Vec<u8>,
    /// To be sent after these: what the kernel had not sent, then what it had not taken from the
    /// loop.
    pub unsent: Vec<u8>,
    /// Received and not consumed by the service.
    pub unread: Vec<u8>,
}

impl Frozen {
    /// A connection of which nothing is queued.
    #[must_use]
    pub fn without_queues(state: TcpState) -> Frozen {
        Frozen { state, unacknowledged: Vec::new(), unsent: Vec::new(), unread: Vec::new() }
    }

    /// Takes out what is unread, for who will consume it without the connection. The connection
    /// goes on behind it.
    pub fn take_unread(&mut self) -> Vec<u8> {
        let unread = std::mem::take(&mut self.unread);
        self.state.receive_sequence = self.state.receive_sequence.wrapping_add(unread.len() as u32);
        unread
    }
}

/// Why a connection was not frozen. It is as it was before, and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFrozen {
    /// It is still connecting, or one of the two sides has ended its stream or reset the
    /// connection.
    NotEstablished,
    /// A queue is longer than the loop's [`FrozenLimits`] allow, with so many bytes. They get fewer
    /// as the peer takes them.
    TooLong(usize),
    /// The loop has no mover, its driver cannot let a socket go, the connection has a sent log, or
    /// it uses something of TCP that cannot be moved.
    Unsupported,
    /// Bytes or acknowledgements went on arriving while the state was read.
    Moved,
    /// The operating system refused something; `PermissionDenied` where CAP_NET_ADMIN is missing.
    Io(io::ErrorKind),
}

impl fmt::Display for NotFrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotFrozen::NotEstablished => {
                f.write_str("the connection is not established in both directions")
            }
            NotFrozen::TooLong(bytes) => {
                write!(f, "more bytes are queued than may move with a connection: {bytes}")
            }
            NotFrozen::Unsupported => f.write_str("this loop or connection cannot be moved"),
            NotFrozen::Moved => {
                f.write_str("packets went on arriving while the connection was read out")
            }
            NotFrozen::Io(kind) => {
                write!(f, "the operating system refused to let the connection go: {kind}")
            }
        }
    }
}

impl std::error::Error for NotFrozen {}

/// How the connections of a loop are frozen and restored. In the simulation all can be, whatever
/// this says.
#[derive(Clone, Debug, Default)]
pub enum Mover {
    /// Not at all: [`NotFrozen::Unsupported`].
    #[default]
    None,
    /// By TCP_REPAIR, to any host. No packet of the connection may reach this host's kernel any
    /// more once [`Io::freeze`](crate::Io::freeze) was called: it would answer with a reset.
    Kernel,
    /// By passing the descriptor on, to any process of this host that uses the same depot. Queues
    /// stay in the kernel.
    Twin(Twin),
}

impl Mover {
    /// Takes a connection out of its socket, which can be closed without a word after that. After
    /// an error it goes on.
    pub(crate) fn freeze(&self, socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
        match self {
            Mover::None => Err(NotFrozen::Unsupported),
            Mover::Kernel => kernel::freeze(socket, room),
            Mover::Twin(twin) => twin.freeze(socket),
        }
    }

    /// Makes a socket of a connection. What is not in the socket stays in `frozen`.
    pub(crate) fn restore(
        &self,
        frozen: &mut Frozen,
        intake: Intake,
    ) -> Result<OwnedFd, io::ErrorKind> {
        match self {
            Mover::None => Err(io::ErrorKind::Unsupported),
            Mover::Kernel => kernel::restore(frozen, intake),
            Mover::Twin(twin) => {
                let socket = twin.restore(frozen)?;
                let limited = intake
                    .bytes
                    .map_or(Ok(()), |bytes| crate::driver::socket::limit_receive(&socket, bytes));
                let held =
                    if intake.promises_no_more { repair::promise_no_more(&socket) } else { Ok(()) };
                limited.and(held).map_err(|error| error.kind())?;
                Ok(socket)
            }
        }
    }
}

/// Bytes that the kernel has of a connection and its peer has not acknowledged; none of one that is
/// broken.
pub(crate) fn unacknowledged(socket: &OwnedFd) -> usize {
    repair::send_queue_bytes(socket).map_or(0, |(all, _)| all)
}

/// What the kernel takes in of a connection that was restored while nobody reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Bytes, with what they take of the kernel's memory; none: as of any other connection.
    pub bytes: Option<usize>,
    /// The peer is promised no more room than it was when the connection was frozen: where it goes
    /// next there may be less. Linux takes back a promise that it has no memory for, and drops what
    /// comes beyond with all that it acknowledges.
    pub promises_no_more: bool,
}

/// How long the queues of a connection may be that is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrozenLimits {
    /// Most bytes not acknowledged and not sent, those of the loop's backlog included.
    pub output_bytes_max: usize,
    /// Most bytes received and not consumed.
    pub unread_bytes_max: usize,
}

impl Default for FrozenLimits {
    fn default() -> Self {
        FrozenLimits { output_bytes_max: 64 << 10, unread_bytes_max: 64 << 10 }
    }
}

/// The part of a loop's state that has to do with moving.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) mover: Mover,
    pub(crate) limits: FrozenLimits,
    pub(crate) intake: Intake,
    /// What is to be restored at the end of the turn, with the slot it belongs to.
    pub(crate) waiting: Vec<(u32, Frozen)>,
}

impl Moves {
    pub(crate) fn new(options: &LoopOptions) -> Moves {
        let (mover, limits) = (options.mover.clone(), options.frozen_limits);
        Moves { mover, limits, intake: options.restored_intake, waiting: Vec::new() }
    }

    /// A socket for a frozen connection.
    pub(crate) fn restore(&self, frozen: &mut Frozen) -> Result<OwnedFd, io::ErrorKind> {
        self.mover.restore(frozen, self.intake)
    }
}
