//! One slot of the connection table: the part of a connection's state that does not depend on the
//! driver.

use crate::sent_log::LogTable;
use crate::tunnel::Tunnel;

/// Bound on the expected size of a retained buffer: it counts with its capacity, so a small one
/// must not be as large as the last large one was.
const EXPECTED_WITH_LOG_MAX: usize = 64 << 10;

/// Life of a slot. The service's id is valid in `Connecting`, `Securing`, `Restoring`, `Open`,
/// `Frozen`, `Parked` and `Ending`.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) enum State {
    /// The slot is unused.
    #[default]
    Free,
    /// An outgoing connect is in progress; output gathers.
    Connecting,
    /// The socket is connected and its session does its handshake; output gathers. The service has
    /// not heard of an accepted connection yet.
    Securing,
    /// The connection comes from elsewhere and has no socket yet, or the service has not heard of
    /// it; output gathers. If the id is no longer valid, the service closed it meanwhile.
    Restoring,
    /// Bytes flow.
    Open,
    /// The service is hearing that the connection ended.
    Ending,
    /// The connection has left the loop and the service is about to hear it; output gathers.
    Frozen,
    /// The connection has left the loop, and the service keeps its id until it comes back; output
    /// gathers.
    Parked,
    /// The service closed it; its output is still being sent, its input is discarded.
    Flushing,
    /// The output and the end of the stream were sent; input is discarded until the peer closes
    /// too.
    Lingering,
    /// The connection is dead; the slot waits for the driver to release it.
    Closed,
}

/// A slot. Buffers have capacity only while they have bytes (or, for `output`, while the slot is
/// marked dirty).
#[derive(Default)]
pub(crate) struct Connection {
    /// Odd while the service's id is valid.
    pub(crate) generation: u32,
    pub(crate) state: State,
    /// True if it is in the list of connections to flush at the end of the turn.
    pub(crate) dirty: bool,
    pub(crate) paused: bool,
    /// True if the end of the peer's stream is not reported.
    pub(crate) keeps_end: bool,
    /// True once that end was seen, and reading is paused.
    pub(crate) end_kept: bool,
    /// True if the end of the peer's stream was seen while bytes before it were still to be
    /// presented.
    pub(crate) end_pending: bool,
    /// True if it is in the list of connections with kept bytes to present.
    pub(crate) resumed: bool,
    /// True if the service waits for the backlog to fall to `notify_below`.
    pub(crate) notify: bool,
    /// True if it came from the acceptor (counts as load).
    pub(crate) accepted: bool,
    /// True if the peer has announced the end of its stream.
    pub(crate) peer_ended: bool,
    /// True if the service has ended its own direction, and keeps the connection.
    pub(crate) output_ended: bool,
    /// True while `output` waits, because part of it is incomplete.
    pub(crate) held: bool,
    /// True if the service has taken the unsent bytes with the sent log: none of them may be sent
    /// any more.
    pub(crate) log_taken: bool,
    /// True if the kernel may read `sending` at any time: the buffer must stay in place.
    pub(crate) kernel_reads: bool,
    /// Output buffer that the service fills.
    pub(crate) output: Vec<u8>,
    /// Buffer that the kernel takes; while it is not empty nothing else is sent.
    pub(crate) sending: Vec<u8>,
    /// Bytes of `sending` that the kernel has taken.
    pub(crate) sent: usize,
    /// Bytes kept for the service, from `input_start`.
    pub(crate) input: Vec<u8>,
    pub(crate) input_start: usize,
    /// Recent size of an output buffer, to choose the class of the next one.
    pub(crate) output_expected: usize,
    pub(crate) notify_below: usize,
    pub(crate) writes: u64,
    /// Memory that it counts for among the connections that are closing; see [`crate::closing`].
    pub(crate) closing_bytes: usize,
    pub(crate) log: Option<Box<LogTable>>,
    /// The encryption, if any: `sending` has its records then, and all other buffers plaintext.
    pub(crate) tunnel: Option<Box<Tunnel>>,
}

impl Connection {
    /// Bytes written by the service and not yet taken by the kernel.
    #[inline]
    pub(crate) fn backlog(&self) -> usize {
        let unsealed = self.tunnel.as_ref().map_or(0, |tunnel| tunnel.unsealed().len());
        self.output.len() + unsealed + self.sending.len() - self.sent
    }

    /// Memory of the output, in bytes: at least the backlog. A buffer of which the kernel has taken
    /// a part counts as a whole.
    pub(crate) fn output_memory(&self) -> usize {
        let plain = self.tunnel.as_ref().map_or(0, |tunnel| tunnel.plain().capacity());
        self.output.capacity() + plain + self.sending.capacity()
    }

    /// Notes the size of an output buffer, by which the class of the next one is chosen.
    #[inline]
    pub(crate) fn expect_output(&mut self, length: usize) {
        let expected = self.output_expected;
        self.output_expected = length.max(expected - expected / 8);
        if self.log.is_some() {
            self.output_expected = self.output_expected.min(EXPECTED_WITH_LOG_MAX);
        }
    }

    /// Bytes received and not consumed.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        self.input.len() - self.input_start
    }

    /// True if the driver should read from the socket.
    #[inline]
    pub(crate) fn wants_read(&self) -> bool {
        match self.state {
            State::Open => !self.paused && !self.end_pending,
            State::Securing => true,
            State::Flushing | State::Lingering => !self.peer_ended,
            _ => false,
        }
    }
}
