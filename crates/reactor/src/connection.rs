//! One slot of the connection table: the part of a connection's state that is the same whatever
//! driver moves the bytes.

use crate::sent_log::LogTable;

/// Life of a slot. The service's id is valid in `Connecting`, `Restoring`, `Open`, `Frozen`,
/// `Parked` and `Ending`.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) enum State {
    /// Nobody uses the slot.
    #[default]
    Free,
    /// An outgoing connect is on its way; output is gathered.
    Connecting,
    /// It comes from elsewhere and has no socket yet, or the service has not heard of it; output is
    /// gathered. Closed by the service meanwhile if the id is no longer valid.
    Restoring,
    /// Bytes flow.
    Open,
    /// The service is being told that the connection ended.
    Ending,
    /// It has left the loop and the service is about to be told; output is gathered.
    Frozen,
    /// It has left the loop, and the service keeps its id until it comes back; output is gathered.
    Parked,
    /// Closed by the service; what was written is still being sent, what arrives is discarded.
    Flushing,
    /// All was sent and the end of the stream announced; what arrives is discarded until the peer
    /// closes too.
    Lingering,
    /// Nothing more may happen on it; waits for the driver to let go of the slot.
    Closed,
}

/// A slot. Buffers have capacity only while there are bytes in them (or, for `output`, while it is
/// marked dirty).
#[derive(Default)]
pub(crate) struct Connection {
    /// Odd while the service's id is valid.
    pub(crate) generation: u32,
    pub(crate) state: State,
    /// In the list of connections to flush at the end of the turn.
    pub(crate) dirty: bool,
    pub(crate) paused: bool,
    /// The end of the peer's stream is not reported.
    pub(crate) keeps_end: bool,
    /// It has been seen, and reading is paused.
    pub(crate) end_kept: bool,
    /// In the list of connections whose kept bytes are to be presented.
    pub(crate) resumed: bool,
    /// The service waits for the backlog to fall to `notify_below`.
    pub(crate) notify: bool,
    /// Came from the acceptor (counts as load).
    pub(crate) accepted: bool,
    /// The peer has announced the end of its stream.
    pub(crate) peer_ended: bool,
    /// `output` is not sent for now: something in it is not complete.
    pub(crate) held: bool,
    /// The service has taken what is unsent with the sent log: nothing of it may follow any more.
    pub(crate) log_taken: bool,
    /// The kernel may read `sending` at any time: the buffer must stay where it is.
    pub(crate) kernel_reads: bool,
    /// Being filled by the service.
    pub(crate) output: Vec<u8>,
    /// Being taken by the kernel; while it is not empty nothing else is sent.
    pub(crate) sending: Vec<u8>,
    /// How much of `sending` the kernel has taken.
    pub(crate) sent: usize,
    /// Bytes kept for the service, from `input_start`.
    pub(crate) input: Vec<u8>,
    pub(crate) input_start: usize,
    /// Recent size of an output buffer, so that the next one comes from the right class.
    pub(crate) output_expected: usize,
    pub(crate) notify_below: usize,
    pub(crate) writes: u64,
    pub(crate) log: Option<Box<LogTable>>,
}

impl Connection {
    /// Bytes written by the service and not yet taken by the kernel.
    #[inline]
    pub(crate) fn backlog(&self) -> usize {
        self.output.len() + self.sending.len() - self.sent
    }

    /// Bytes received and not consumed.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        self.input.len() - self.input_start
    }

    /// True if the driver should read from the socket at all.
    #[inline]
    pub(crate) fn wants_read(&self) -> bool {
        match self.state {
            State::Open => !self.paused,
            State::Flushing | State::Lingering => !self.peer_ended,
            _ => false,
        }
    }
}
