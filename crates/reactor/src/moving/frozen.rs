//! A connection outside of any loop, how large it may be, and why it may not be taken out.

use std::fmt;
use std::io;
use std::net::SocketAddr;

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
