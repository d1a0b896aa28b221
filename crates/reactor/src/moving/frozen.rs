//! A connection outside of any loop, the bounds on its size, and the reasons against a freeze.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// The kernel's state of the windows of both directions (`struct tcp_repair_window`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// Sequence number of the segment that last updated the send window.
    pub send_update: u32,
    /// The peer's window, bytes.
    pub send: u32,
    /// The largest window that the peer has offered, bytes.
    pub largest: u32,
    /// Our window, bytes.
    pub receive: u32,
    /// Next sequence number to receive when our window was last announced.
    pub receive_update: u32,
}

/// The state of an established connection, independent of the host. The side that moves is `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpState {
    /// The address that moves, of the same family as the peer's.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
    /// Sequence number of the first unacknowledged byte, which is the first of
    /// [`Frozen::unacknowledged`].
    pub send_sequence: u32,
    /// Sequence number of the first unread byte, which is the first of [`Frozen::unread`].
    pub receive_sequence: u32,
    /// Largest segment that the peer takes, bytes.
    pub mss: u16,
    /// Our timestamp clock; `None` if timestamps were not agreed on.
    pub timestamp: Option<u32>,
    /// True if selective acknowledgement was agreed on.
    pub sack: bool,
    /// Shifts of the send and the receive window; `None` if scaling was not agreed on.
    pub window_scales: Option<(u8, u8)>,
    /// The windows.
    pub window: Window,
}

/// A connection that was taken out of a loop, with its queues. Meanwhile nobody answers the peer:
/// if this is dropped, the peer finds out by its own time limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    /// The state of TCP.
    pub state: TcpState,
    /// Bytes sent and not acknowledged.
    pub unacknowledged: Vec<u8>,
    /// Bytes to send after these: those that the kernel had not sent, then those that it had not
    /// taken from the loop.
    pub unsent: Vec<u8>,
    /// Bytes received and not consumed by the service.
    pub unread: Vec<u8>,
}

impl Frozen {
    /// A connection without queued bytes.
    #[must_use]
    pub fn without_queues(state: TcpState) -> Frozen {
        Frozen { state, unacknowledged: Vec::new(), unsent: Vec::new(), unread: Vec::new() }
    }

    /// Takes out the unread bytes, for a caller that consumes them without the connection. The
    /// connection goes on after them.
    pub fn take_unread(&mut self) -> Vec<u8> {
        let unread = std::mem::take(&mut self.unread);
        self.state.receive_sequence = self.state.receive_sequence.wrapping_add(unread.len() as u32);
        unread
    }
}

/// The reason why a connection was not frozen. The connection is unchanged and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFrozen {
    /// The connection is still connecting, or one of the two sides has ended its stream or reset
    /// the connection.
    NotEstablished,
    /// A queue of this many bytes exceeds the loop's [`FrozenLimits`]. It shrinks as the peer takes
    /// its bytes.
    TooLong(usize),
    /// The loop has no mover, its driver cannot release a socket, the connection has a sent log, or
    /// it uses a feature of TCP that cannot be moved.
    Unsupported,
    /// Bytes or acknowledgements went on arriving while the state was read.
    Moved,
    /// The operating system refused a call; `PermissionDenied` if CAP_NET_ADMIN is missing.
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

/// Bytes that the kernel buffers of a restored connection while nobody reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Bytes, with their share of the kernel's memory; `None`: the same as for any other
    /// connection.
    pub bytes: Option<usize>,
    /// True if the peer is promised no more room than when the connection was frozen: the next host
    /// may have less. Linux takes back a promise that it has no memory for, and drops the bytes
    /// beyond it with all that they acknowledge.
    pub promises_no_more: bool,
}

/// Bounds on the queues of a connection to freeze.
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
