//! io_uring: one system call per turn. It submits the turn's sends, which are executed at once and complete silently
//! unless something is left over, and waits for what multishot receives bring. Needs Linux 6.1; [`probe`] tells.
//!
//! `DEFER_TASKRUN` hands over about twenty completions per call, so a turn goes on asking until fewer come, and only
//! then is flushed; otherwise aggregation would be lost.

mod buffers;
mod ring;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use io_uring::{cqueue, opcode, squeue, types};

use self::buffers::{Buffers, GROUP};
use self::ring::{Completion, Kind, Ring};
use super::{Driver, SocketDriver, clock, socket};
use crate::connection::State;
use crate::engine::close_reason;
use crate::io::Io;
use crate::service::{CloseReason, Service};

/// So many completions from one call mean that there are probably more.
const BATCH: usize = 20;
/// Most calls for completions in one turn.
const ROUNDS_MAX: usize = 64;
/// After so many attempts to cancel the requests of a connection its stream is ended instead.
const CANCELS_MAX: u8 = 3;
/// At the end of the loop: how often, and how long each time, to wait for requests to be cancelled.
const FINISH_ROUNDS: usize = 100;
const FINISH_WAIT_NS: u64 = 10_000_000;

/// Whether io_uring can be used here; the error says why not.
pub fn probe_uring() -> Result<(), String> {
    // On a thread of its own: the kernel interrupts system calls of a thread that has given up a ring.
    let probe = std::thread::Builder::new().name("probe".into()).spawn(|| set_up().map(drop));
    match probe.map(std::thread::JoinHandle::join) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("probing io_uring failed".to_owned()),
        Err(error) => Err(format!("no thread to probe io_uring with: {error}")),
    }
}

fn set_up() -> Result<(Ring, Buffers), String> {
    let ring = Ring::new().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (kernel.io_uring_disabled or the container's seccomp profile)".to_owned()
        }
        Some(libc::EINVAL) => "the kernel's io_uring is too old (Linux 6.1 is needed)".to_owned(),
        _ => format!("setting up io_uring failed: {error}"),
    })?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| format!("probing io_uring failed: {error}"))?;
    let needed = [
        (opcode::RecvMulti::CODE, "recv"),
        (opcode::Send::CODE, "send"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel2::CODE, "cancel"),
    ];
    if let Some((_, name)) = needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
        return Err(format!("the kernel's io_uring has no '{name}' operation"));
    }
    match Buffers::new(&ring) {
        Ok(buffers) => Ok((ring, buffers)),
        Err(error) => Err(format!("io_uring takes no receive buffers: {error}")),
    }
}

/// What the kernel is doing with a connection's sending buffer.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
enum Sending {
    #[default]
    No,
    /// Queued; done once submitted unless a completion says otherwise.
    Queued,
    /// The socket is full; a completion will come.
    Waiting,
}

/// The driver's part of a connection, at the same index as in the connection table. The slot is given back only when
/// the kernel has nothing of it any more, so completions need no generation.
#[derive(Default)]
struct Socket {
    fd: Option<OwnedFd>,
    sending: Sending,
    connecting: bool,
    receiving: bool,
    /// While the receive is cancelled: waiting to hear of a reset.
    watching: bool,
    cancelling: bool,
    closing: bool,
    /// How often the requests of a closing connection were cancelled.
    cancels: u8,
}

impl Socket {
    fn raw(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn is_busy(&self) -> bool {
        self.sending != Sending::No || self.connecting || self.receiving || self.watching || self.cancelling
    }
}

/// The ring and the sockets of one loop. Fields are dropped in this order: the ring before the memory it refers to.
pub(crate) struct Uring {
    ring: Ring,
    buffers: Buffers,
    sockets: Vec<Socket>,
    wake: RawFd,
    /// Connections with a send queued since the last settlement.
    queued: Vec<u32>,
    /// Somebody waits for one of them to be settled, which no completion will announce.
    urgent: bool,
    /// Completions of sends, not yet handled.
    sends: Vec<Completion>,
    /// Other completions, not yet handed over.
    events: Vec<Completion>,
}

impl Uring {
    /// `wake` becomes readable when there is mail; it must stay open as long as this lives.
    pub(crate) fn new(wake: BorrowedFd<'_>) -> io::Result<Uring> {
        let (ring, buffers) = set_up().map_err(|reason| io::Error::new(io::ErrorKind::Unsupported, reason))?;
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
            opcode::PollAdd::new(types::Fd(self.wake), libc::POLLIN as u32).build().user_data(Kind::Wake.user_data(0)),
        );
    }

    /// Queues a request that refers to no memory of ours.
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: polls and cancellations carry no address; receives use the registered buffers, which outlive the
        // ring. Sends go through `push_send`.
        unsafe { self.ring.push(&entry) }
    }

    /// Queues a send of what is left. Unless `wait`, it takes what the socket takes at once, and is heard of only if
    /// that was not everything.
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
        // SAFETY: the buffer stays in the connection's `sending`, unchanged, while `kernel_reads` is set, and that is
        // reset only by the completion or by the settlement of a queue that was submitted completely.
        unsafe { self.ring.push(&entry) }
    }

    fn receive(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        socket.receiving = true;
        let entry =
            opcode::RecvMulti::new(types::Fd(socket.raw()), GROUP).build().user_data(Kind::Receive.user_data(index));
        self.push(entry);
    }

    /// Cancels what is on its way for the connection.
    fn cancel(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if std::mem::replace(&mut socket.cancelling, true) {
            return;
        }
        let all = types::CancelBuilder::fd(types::Fd(socket.raw())).all();
        let entry = opcode::AsyncCancel2::new(all).build().user_data(Kind::Cancel.user_data(index));
        self.push(entry);
    }

    /// Cancels the receive alone: the connection is paused.
    fn cancel_receive(&mut self, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if std::mem::replace(&mut socket.cancelling, true) {
            return;
        }
        let entry =
            opcode::AsyncCancel::new(Kind::Receive.user_data(index)).build().user_data(Kind::Cancel.user_data(index));
        self.push(entry);
    }

    /// Gives the slot back once the kernel has nothing of it.
    fn release_if_idle(&mut self, io: &mut Io, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.closing && !socket.is_busy() {
            *socket = Socket::default();
            io.release_slot(index);
        }
    }

    /// Handles what came of the sends of the last flush: first those with a completion, then, silent, all others.
    #[inline]
    fn settle(&mut self, io: &mut Io) {
        if !self.sends.is_empty() {
            self.settle_left_over(io);
        }
        if self.queued.is_empty() || !self.ring.all_submitted() {
            return;
        }
        for position in 0..self.queued.len() {
            let index = self.queued[position];
            let socket = &mut self.sockets[index as usize];
            if socket.sending == Sending::Queued {
                socket.sending = Sending::No;
                io.connections[index as usize].kernel_reads = false;
                let count = io.unsent(index).len();
                io.wrote(index, count);
                if socket.closing {
                    self.release_if_idle(io, index);
                }
            }
        }
        self.queued.clear();
    }

    #[cold]
    fn settle_left_over(&mut self, io: &mut Io) {
        for position in 0..self.sends.len() {
            let Completion { index, result, .. } = self.sends[position];
            let socket = &mut self.sockets[index as usize];
            socket.sending = Sending::No;
            io.connections[index as usize].kernel_reads = false;
            if socket.closing {
                self.release_if_idle(io, index);
                continue;
            }
            if result > 0 {
                if io.wrote(index, result as usize) {
                    continue;
                }
            } else if !matches!(-result, 0 | libc::EAGAIN | libc::EINTR) {
                io.fail(index, close_reason(io::Error::from_raw_os_error(-result).kind()));
                continue;
            }
            self.push_send(io, index, true);
        }
        self.sends.clear();
    }

    #[inline]
    fn received<S: Service>(&mut self, io: &mut Io, completion: Completion, service: &mut S) {
        let Completion { index, result, flags, .. } = completion;
        let wanted = io.connections[index as usize].wants_read();
        if !cqueue::more(flags) {
            self.sockets[index as usize].receiving = false;
        }
        if let Some(buffer) = cqueue::buffer_select(flags) {
            let length = result.max(0) as usize;
            if length > 0 {
                io.deliver(index, self.buffers.bytes(buffer, length), service);
            }
            self.buffers.used(buffer, length, cqueue::buffer_more(flags));
        }
        if result <= 0 {
            self.receive_ended(io, index, -result, service);
        }
        let wants_read = io.connections[index as usize].wants_read();
        if !wants_read && !wanted {
            self.unwanted(io, index);
        } else if wants_read && !self.sockets[index as usize].receiving {
            self.receive(index);
        }
    }

    /// The receive ended without bytes.
    #[cold]
    fn receive_ended<S: Service>(&mut self, io: &mut Io, index: u32, error: i32, service: &mut S) {
        match error {
            // Seen while paused, the end of the stream is reported when a resumed receive finds it again.
            0 if io.connections[index as usize].wants_read() => io.ended(index, CloseReason::Peer, service),
            0 | libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            _ => io.ended(index, close_reason(io::Error::from_raw_os_error(error).kind()), service),
        }
    }

    /// Something came for a connection that was paused or closed already (a short pause costs nothing).
    #[cold]
    fn unwanted(&mut self, io: &mut Io, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.closing {
            return self.release_if_idle(io, index);
        }
        if socket.receiving {
            self.cancel_receive(index);
        }
        if !std::mem::replace(&mut self.sockets[index as usize].watching, true) {
            // Errors and hang-ups are reported without being asked for.
            self.poll(index, 0, Kind::Watch);
        }
    }

    /// A connection whose receive was cancelled was reset, or the peer has ended its stream, which nobody needs to know
    /// before the resume. If it is being read again, the receive reports either.
    #[cold]
    fn watch_ended<S: Service>(&mut self, io: &mut Io, index: u32, events: i32, service: &mut S) {
        let socket = &mut self.sockets[index as usize];
        socket.watching = false;
        if socket.closing {
            self.release_if_idle(io, index);
        } else if events & i32::from(libc::POLLERR | libc::POLLHUP) != 0 && !io.connections[index as usize].wants_read()
        {
            io.ended(index, CloseReason::Reset, service);
        }
    }

    fn poll(&mut self, index: u32, events: libc::c_short, kind: Kind) {
        let fd = types::Fd(self.sockets[index as usize].raw());
        let entry = opcode::PollAdd::new(fd, events as u32).build();
        self.push(entry.user_data(kind.user_data(index)));
    }

    #[cold]
    fn connect_ended<S: Service>(&mut self, io: &mut Io, index: u32, service: &mut S) {
        let socket = &mut self.sockets[index as usize];
        socket.connecting = false;
        let Some(fd) = &socket.fd else { return };
        if socket.closing {
            return self.release_if_idle(io, index);
        }
        if io.connections[index as usize].state != State::Connecting {
            return;
        }
        match socket::connect_outcome(fd) {
            Ok(()) => {
                self.receive(index);
                io.established(index, service);
            }
            Err(error) => io.ended(index, CloseReason::ConnectFailed(error.kind()), service),
        }
    }

    #[cold]
    fn cancel_ended(&mut self, io: &mut Io, index: u32) {
        let socket = &mut self.sockets[index as usize];
        socket.cancelling = false;
        if socket.closing && socket.is_busy() {
            // Its completion is still to come, or it was just being executed. Ending the stream stops it for certain,
            // but the peer would see that instead of the reset.
            socket.cancels += 1;
            match &socket.fd {
                Some(fd) if socket.cancels >= CANCELS_MAX => socket::shutdown_both(fd),
                _ => self.cancel(index),
            }
        }
        self.release_if_idle(io, index);
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
        self.urgent |= connection.notify || connection.state == State::Flushing;
    }

    fn resume(&mut self, io: &mut Io, index: u32) {
        // A receive being cancelled is started again when its end is seen.
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
                    Kind::Watch => self.watch_ended(io, completion.index, completion.result, service),
                    Kind::Wake => {
                        mail = true;
                        self.watch_wake();
                    }
                    Kind::Send => {}
                }
            }
            self.events.clear();
            // An error here is found again, and reported, by the next wait.
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

    /// Submits the last flush, then takes everything back from the kernel.
    fn finish(&mut self, io: &mut Io) {
        for round in 0..FINISH_ROUNDS {
            let wait = u32::from(round > 0);
            if self.ring.enter(wait, Some(FINISH_WAIT_NS)).is_err() {
                break;
            }
            self.ring.collect(&mut self.sends, &mut self.events);
            let silent = self.ring.all_submitted();
            for completion in self.sends.drain(..).chain(self.events.drain(..)) {
                let Some(socket) = self.sockets.get_mut(completion.index as usize) else {
                    continue;
                };
                match completion.kind {
                    Kind::Send => socket.sending = Sending::No,
                    Kind::Connect => socket.connecting = false,
                    Kind::Receive => socket.receiving &= cqueue::more(completion.flags),
                    Kind::Cancel => socket.cancelling = false,
                    Kind::Watch => socket.watching = false,
                    Kind::Wake => {}
                }
            }
            for socket in &mut self.sockets {
                if silent && socket.sending == Sending::Queued {
                    socket.sending = Sending::No;
                }
            }
            if !self.sockets.iter().any(Socket::is_busy) {
                break;
            }
            if round == 0 {
                let any = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
                self.push(any.user_data(Kind::Cancel.user_data(u32::MAX)));
            }
        }
        for (index, socket) in self.sockets.iter().enumerate() {
            if socket.sending != Sending::No {
                // The kernel would not let go of the buffer: better lost than used twice.
                std::mem::forget(std::mem::take(&mut io.connections[index].sending));
            }
        }
    }
}
