//! io_uring: one system call per turn. It submits the turn's sends, which run at once and complete
//! silently unless bytes are left over, and waits for the results of multishot receives. Needs
//! Linux 6.1; [`probe_uring`] checks.
//!
//! `DEFER_TASKRUN` hands over about twenty completions per call, so a turn goes on asking until
//! fewer come, and only then flushes; otherwise aggregation would be lost.

mod buffers;
mod completion;
mod finish;
mod probe;
mod ring;

pub use self::probe::probe_uring;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use io_uring::{opcode, squeue, types};

use self::buffers::{Buffers, GROUP};
use self::probe::set_up;
use self::ring::{Completion, Kind, Ring};
use super::{Driver, SocketDriver, clock, socket};
use crate::connection::State;
use crate::io::Io;
use crate::moving::{self, Frozen, FrozenLimits, NotFrozen};
use crate::service::{CloseReason, Service};

/// Completions of one call from which more are likely.
const BATCH: usize = 20;
/// Most calls for completions in one turn.
const ROUNDS_MAX: usize = 64;
/// The state of a connection's sending buffer in the kernel.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
enum Sending {
    #[default]
    No,
    /// Queued; done once submitted unless a completion says otherwise.
    Queued,
    /// The socket is full; a completion will come.
    Waiting,
}

/// The driver's part of a connection, at the same index as in the connection table. The slot is
/// released only when the kernel holds nothing of it, so completions need no generation.
#[derive(Default)]
struct Socket {
    fd: Option<OwnedFd>,
    sending: Sending,
    connecting: bool,
    receiving: bool,
    /// True while the receive is cancelled and a poll waits for a reset.
    watching: bool,
    cancelling: bool,
    closing: bool,
    /// Times that the requests of a closing connection were cancelled.
    cancels: u8,
}

impl Socket {
    fn raw(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn is_busy(&self) -> bool {
        self.sending != Sending::No
            || self.connecting
            || self.receiving
            || self.watching
            || self.cancelling
    }
}

/// The ring and the sockets of one loop. Fields are dropped in this order: the ring before the
/// memory it refers to.
pub(crate) struct Uring {
    ring: Ring,
    buffers: Buffers,
    sockets: Vec<Socket>,
    wake: RawFd,
    /// Connections with a send queued since the last settlement.
    queued: Vec<u32>,
    /// True if the settlement of one of them is awaited, which no completion will announce.
    urgent: bool,
    /// Completions of sends, not yet handled.
    sends: Vec<Completion>,
    /// Other completions, not yet handed over.
    events: Vec<Completion>,
}

impl Uring {
    /// Creates the driver. `wake` becomes readable when mail arrives; it must stay open as long as
    /// this lives.
    pub(crate) fn new(wake: BorrowedFd<'_>) -> io::Result<Uring> {
        let (ring, buffers) =
            set_up().map_err(|reason| io::Error::new(io::ErrorKind::Unsupported, reason))?;
        let mut uring = Uring {
            ring,
            buffers,
            sockets: Vec::new(),
            wake: wake.as_raw_fd(),
            queued: Vec::with_capacity(1024),
            urgent: false,
            sends: Vec::with_capacity(1024),
            events: Vec::with_capacity(4096),
        };
        uring.watch_wake();
        Ok(uring)
    }

    fn watch_wake(&mut self) {
        self.push(
            opcode::PollAdd::new(types::Fd(self.wake), libc::POLLIN as u32)
                .build()
                .user_data(Kind::Wake.user_data(0)),
        );
    }

    /// Queues a request that refers to no memory of ours.
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: polls and cancellations carry no address; receives use the registered buffers,
        // which outlive the ring. Sends go through `push_send`.
        unsafe { self.ring.push(&entry) }
    }

    /// Queues a send of the rest. Unless `wait`, it sends what the socket takes at once, and
    /// completes visibly only if bytes are left.
    #[inline]
    fn push_send(&mut self, io: &mut Io, index: u32, wait: bool) {
        let bytes = io.unsent(index);
        let socket = &mut self.sockets[index as usize];
        let at_once = if wait { 0 } else { libc::MSG_DONTWAIT | libc::MSG_WAITALL };
        let entry = opcode::Send::new(types::Fd(socket.raw()), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | at_once)
            .build()
            .user_data(Kind::Send.user_data(index));
        let entry = if wait { entry } else { entry.flags(squeue::Flags::SKIP_SUCCESS) };
        socket.sending = if wait { Sending::Waiting } else { Sending::Queued };
        io.connections[index as usize].kernel_reads = true;
        // SAFETY: the buffer stays in the connection's `sending`, unchanged, while `kernel_reads`
        // is set; only the completion, or the settlement of a completely submitted queue, resets
        // that.
        unsafe { self.ring.push(&entry) }
    }

    fn receive(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        socket.receiving = true;
        let entry = opcode::RecvMulti::new(types::Fd(socket.raw()), GROUP)
            .build()
            .user_data(Kind::Receive.user_data(index));
        self.push(entry);
    }

    /// Cancels the requests of the connection.
    fn cancel(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if std::mem::replace(&mut socket.cancelling, true) {
            return;
        }
        let all = types::CancelBuilder::fd(types::Fd(socket.raw())).all();
        let entry = opcode::AsyncCancel2::new(all).build().user_data(Kind::Cancel.user_data(index));
        self.push(entry);
    }

    /// Cancels only the receive, because the connection is paused.
    fn cancel_receive(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if std::mem::replace(&mut socket.cancelling, true) {
            return;
        }
        let entry = opcode::AsyncCancel::new(Kind::Receive.user_data(index))
            .build()
            .user_data(Kind::Cancel.user_data(index));
        self.push(entry);
    }

    fn poll(&mut self, index: u32, events: libc::c_short, kind: Kind) {
        let fd = types::Fd(self.sockets[index as usize].raw());
        let entry = opcode::PollAdd::new(fd, events as u32).build();
        self.push(entry.user_data(kind.user_data(index)));
    }

    fn insert(&mut self, index: u32, fd: OwnedFd) {
        let index = index as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, Socket::default);
        }
        self.sockets[index] = Socket { fd: Some(fd), ..Socket::default() };
    }
}

impl Driver for Uring {
    fn connect(&mut self, io: &mut Io, index: u32, to: SocketAddr) {
        if io.connections[index as usize].state != State::Connecting {
            return;
        }
        match socket::start_connect(to) {
            Ok(fd) => {
                self.insert(index, fd);
                self.sockets[index as usize].connecting = true;
                self.poll(index, libc::POLLOUT, Kind::Connect);
            }
            Err(error) => io.fail(index, CloseReason::ConnectFailed(error.kind())),
        }
    }

    #[inline]
    fn send(&mut self, io: &mut Io, index: u32) {
        self.push_send(io, index, false);
        self.queued.push(index);
        let connection = &io.connections[index as usize];
        // More of the output may have to be sealed.
        let has_more =
            connection.tunnel.is_some() && connection.backlog() > connection.sending.len();
        self.urgent |= connection.notify || connection.state == State::Flushing || has_more;
    }

    fn resume(&mut self, io: &mut Io, index: u32) {
        // The end of a cancelled receive starts it again.
        if io.connections[index as usize].wants_read() && !self.sockets[index as usize].receiving {
            self.receive(index);
        }
    }

    fn shutdown(&mut self, _io: &mut Io, index: u32) {
        if let Some(fd) = &self.sockets[index as usize].fd {
            socket::shutdown_write(fd);
        }
    }

    fn close(&mut self, io: &mut Io, index: u32, reset: bool) {
        let socket = match self.sockets.get_mut(index as usize) {
            Some(socket) if socket.fd.is_some() => socket,
            _ => return io.release_slot(index),
        };
        socket.closing = true;
        if reset && let Some(fd) = &socket.fd {
            socket::reset_on_close(fd);
        }
        if socket.is_busy() {
            self.cancel(index);
        } else {
            self.release_if_idle(io, index);
        }
    }

    /// Unsupported: the kernel's receive and sends would have to be cancelled first.
    fn freeze(
        &mut self,
        _io: &mut Io,
        _index: u32,
        _room: FrozenLimits,
    ) -> Result<Frozen, NotFrozen> {
        Err(NotFrozen::Unsupported)
    }

    fn unacknowledged(&mut self, index: u32) -> usize {
        self.sockets[index as usize].fd.as_ref().map_or(0, moving::unacknowledged)
    }

    fn restore(
        &mut self,
        io: &mut Io,
        index: u32,
        mut frozen: Frozen,
    ) -> Result<Frozen, io::ErrorKind> {
        let fd = io.moves.restore(&mut frozen)?;
        self.insert(index, fd);
        Ok(frozen)
    }
}

impl SocketDriver for Uring {
    fn wait(&mut self, io: &mut Io, timeout_ns: Option<u64>) -> io::Result<()> {
        io.counters.waits += 1;
        let urgent = std::mem::take(&mut self.urgent);
        let wanted = u32::from(timeout_ns != Some(0) && !urgent);
        self.ring.enter(wanted, timeout_ns)?;
        self.ring.collect(&mut self.sends, &mut self.events);
        if io.window_ns > 0 && !self.events.is_empty() {
            clock::sleep_ns(io.window_ns);
            io.counters.waits += 1;
            self.ring.enter(0, None)?;
            self.ring.collect(&mut self.sends, &mut self.events);
        }
        Ok(())
    }

    #[inline]
    fn dispatch<S: Service>(&mut self, io: &mut Io, service: &mut S) -> bool {
        let mut mail = false;
        for round in 1..=ROUNDS_MAX {
            self.settle(io);
            let count = self.events.len();
            for position in 0..count {
                let completion = self.events[position];
                match completion.kind {
                    Kind::Receive => self.received(io, completion, service),
                    Kind::Connect => self.connect_ended(io, completion.index, service),
                    Kind::Cancel => self.cancel_ended(io, completion.index),
                    Kind::Watch => {
                        self.watch_ended(io, completion.index, completion.result, service)
                    }
                    Kind::Wake => {
                        mail = true;
                        self.watch_wake();
                    }
                    Kind::Send => {}
                }
            }
            self.events.clear();
            // The next wait finds an error again and reports it.
            if count < BATCH || round == ROUNDS_MAX || self.ring.enter(0, None).is_err() {
                break;
            }
            io.counters.waits += 1;
            self.ring.collect(&mut self.sends, &mut self.events);
        }
        mail
    }

    fn adopt(&mut self, _io: &mut Io, index: u32, socket: OwnedFd) -> io::Result<()> {
        self.insert(index, socket);
        self.receive(index);
        Ok(())
    }

    fn finish(&mut self, io: &mut Io) {
        self.take_back(io);
    }
}
