//! Level-triggered epoll: the driver that is always available. One `recv` per readable connection
//! and turn, one `send` per connection with output. Interest in reading is withdrawn lazily, only
//! when an event arrives for a connection that must not be read, so that a short pause costs no
//! system call.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::{Driver, SocketDriver, clock, socket};
use crate::connection::State;
use crate::datagrams::{self, BYTES_MAX, RECEIVED_PER_TURN};
use crate::engine::close_reason;
use crate::io::Io;
use crate::moving::{self, Frozen, FrozenLimits, NotFrozen};
use crate::service::{CloseReason, Service};

/// Events taken by one wait; the kernel rotates its list, so the others come first next time.
const EVENTS_MAX: usize = 1024;
/// Stands for the mailbox in an event's data; no connection has this value.
const WAKE: u64 = u64::MAX;
/// Stands for the socket of datagrams.
const DATAGRAMS: u64 = u64::MAX - 1;

/// The driver's part of a connection, at the same index as in the connection table.
#[derive(Default)]
struct Socket {
    fd: Option<OwnedFd>,
    interest: Interest,
}

/// The events requested from epoll. It reports errors and hang-ups as long as the socket is
/// registered.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
struct Interest {
    registered: bool,
    read: bool,
    write: bool,
}

const READ: Interest = Interest { registered: true, read: true, write: false };
const CONNECT: Interest = Interest { registered: true, read: false, write: true };

/// An epoll instance and the sockets of one loop.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    sockets: Vec<Socket>,
    events: Vec<Event>,
    /// True if the kernel is older than `epoll_pwait2`: waits are rounded up to milliseconds.
    coarse: bool,
    datagrams: Option<Arc<UdpSocket>>,
    /// Buffer for one message of datagrams.
    datagram: Vec<u8>,
}

impl Epoll {
    /// Creates the driver. `wake` becomes readable when mail arrives.
    pub(crate) fn new(
        wake: BorrowedFd<'_>,
        datagrams: Option<Arc<UdpSocket>>,
    ) -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let mut datagram = Vec::new();
        if let Some(socket) = &datagrams {
            epoll::add(&epoll, socket, EventData::new_u64(DATAGRAMS), EventFlags::IN)?;
            datagram = vec![0; BYTES_MAX];
        }
        let events = Vec::with_capacity(EVENTS_MAX);
        Ok(Epoll { epoll, sockets: Vec::new(), events, coarse: false, datagrams, datagram })
    }

    fn poll(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.events.clear();
        let outcome = match timeout_ns {
            Some(ns @ 1..) if !self.coarse => self.poll_precisely(ns),
            _ => {
                let timeout = timeout_ns.map(clock::timespec);
                epoll::wait(
                    &self.epoll,
                    rustix::buffer::spare_capacity(&mut self.events),
                    timeout.as_ref(),
                )
                .map(|_| ())
                .map_err(io::Error::from)
            }
        };
        outcome.or_else(|error| {
            if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
        })
    }

    /// Calls `epoll_pwait2`, which rustix offers only to programs that need no older kernel.
    fn poll_precisely(&mut self, timeout_ns: u64) -> io::Result<()> {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (timeout_ns % 1_000_000_000) as _,
        };
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: the events buffer has room for EVENTS_MAX entries of the kernel's layout, which
        // is rustix's `Event`; the timeout outlives the call; without a signal mask the kernel
        // ignores its size.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                &raw const timeout,
                no_mask,
                0usize,
            )
        };
        if count >= 0 {
            // SAFETY: the kernel has filled in the first `count` entries, at most EVENTS_MAX.
            unsafe { self.events.set_len(count as usize) };
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
            self.coarse = true;
            return self.poll(Some(timeout_ns));
        }
        Err(error)
    }

    /// Tells epoll which events to report from now on, if they changed.
    fn set_interest(&mut self, io: &mut Io, index: u32, wanted: Interest) {
        let socket = &mut self.sockets[index as usize];
        let Some(fd) = &socket.fd else { return };
        if socket.interest == wanted {
            return;
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wanted.read);
        flags.set(EventFlags::OUT, wanted.write);
        let data = event_data(io, index);
        let outcome = match (socket.interest.registered, wanted.registered) {
            (false, true) => epoll::add(&self.epoll, fd, data, flags),
            (true, true) => epoll::modify(&self.epoll, fd, data, flags),
            (true, false) => epoll::delete(&self.epoll, fd),
            (false, false) => Ok(()),
        };
        socket.interest = wanted;
        if let Err(error) = outcome {
            // Out of kernel memory or of watches: the connection cannot be served.
            io.fail(index, CloseReason::Error(io::Error::from(error).kind()));
        }
    }

    fn insert(&mut self, index: u32, fd: OwnedFd) {
        let index = index as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, Socket::default);
        }
        self.sockets[index] = Socket { fd: Some(fd), interest: Interest::default() };
    }

    /// Hands over the datagrams that arrived. Errors of sent ones appear here too, and are ignored.
    fn receive_datagrams<S: Service>(&mut self, io: &mut Io, service: &mut S) {
        let Some(socket) = &self.datagrams else { return };
        let mut received = 0;
        while received < RECEIVED_PER_TURN {
            match datagrams::receive(socket, &mut self.datagram) {
                Ok(message) if message.bytes == 0 => {
                    service.datagram(io, message.from, &[]);
                    received += 1;
                }
                Ok(message) => {
                    for datagram in self.datagram[..message.bytes].chunks(message.segment) {
                        service.datagram(io, message.from, datagram);
                        received += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => received += 1,
            }
        }
    }

    /// Handles one event of a connection.
    #[inline]
    fn handle<S: Service>(&mut self, io: &mut Io, index: u32, flags: EventFlags, service: &mut S) {
        if flags.intersects(EventFlags::OUT) && !self.writable(io, index, service) {
            return;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        let socket = &self.sockets[index as usize];
        let Some(fd) = &socket.fd else { return };
        if io.connections[index as usize].wants_read() {
            io.receive(index, service, |buffer, bytes_max| {
                socket::receive_behind(fd, buffer, bytes_max)
            });
        } else {
            self.unwanted(io, index, flags, service);
        }
    }

    /// Handles a socket that is writable, or whose connect is over. False if reading now makes no
    /// sense.
    #[cold]
    fn writable<S: Service>(&mut self, io: &mut Io, index: u32, service: &mut S) -> bool {
        let Some(socket) = self.sockets.get(index as usize) else {
            return false;
        };
        let Some(fd) = &socket.fd else { return false };
        if io.connections[index as usize].state == State::Connecting {
            match socket::connect_outcome(fd) {
                Ok(()) => {
                    self.set_interest(io, index, READ);
                    io.established(index, service);
                }
                Err(error) => io.ended(index, CloseReason::ConnectFailed(error.kind()), service),
            }
            return false;
        }
        if !io.unsent(index).is_empty() {
            self.send(io, index);
        }
        if io.unsent(index).is_empty() {
            let interest = self.sockets[index as usize].interest;
            self.set_interest(io, index, Interest { write: false, ..interest });
        }
        true
    }

    /// Handles an event for a connection that is paused, or will not be read again: withdraws the
    /// interest. An event that was not requested means that the connection is dead.
    #[cold]
    fn unwanted<S: Service>(
        &mut self,
        io: &mut Io,
        index: u32,
        flags: EventFlags,
        service: &mut S,
    ) {
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            // Both directions of a connection that the service has ended are over, which is no
            // failure.
            if !io.connections[index as usize].output_ended {
                io.ended(index, CloseReason::Reset, service);
            }
            // Get no more events until the socket is closed.
            self.set_interest(io, index, Interest::default());
        } else {
            let interest = self.sockets[index as usize].interest;
            self.set_interest(io, index, Interest { read: false, ..interest });
        }
    }
}

/// The slot and its generation, so that an event meant for an earlier user of the slot is noticed.
fn event_data(io: &Io, index: u32) -> EventData {
    // The lowest bit tells only whether the service's id is still valid.
    let generation = io.connections[index as usize].generation.wrapping_sub(1) >> 1;
    EventData::new_u64(u64::from(generation) << 32 | u64::from(index))
}

impl Driver for Epoll {
    fn connect(&mut self, io: &mut Io, index: u32, to: SocketAddr) {
        if io.connections[index as usize].state != State::Connecting {
            return;
        }
        match socket::start_connect(to) {
            Ok(fd) => {
                self.insert(index, fd);
                self.set_interest(io, index, CONNECT);
            }
            Err(error) => io.fail(index, CloseReason::ConnectFailed(error.kind())),
        }
    }

    #[inline]
    fn send(&mut self, io: &mut Io, index: u32) {
        let Some(fd) = &self.sockets[index as usize].fd else {
            return;
        };
        match socket::send(fd, io.unsent(index)) {
            Ok(count) => {
                if io.wrote(index, count) {
                    return;
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return io.fail(index, close_reason(io::Error::from(error).kind())),
        }
        let interest = self.sockets[index as usize].interest;
        self.set_interest(io, index, Interest { registered: true, write: true, ..interest });
    }

    fn resume(&mut self, io: &mut Io, index: u32) {
        if io.connections[index as usize].wants_read() {
            let interest = self.sockets[index as usize].interest;
            self.set_interest(io, index, Interest { registered: true, read: true, ..interest });
        }
    }

    fn shutdown(&mut self, _io: &mut Io, index: u32) {
        if let Some(fd) = &self.sockets[index as usize].fd {
            socket::shutdown_write(fd);
        }
    }

    fn close(&mut self, io: &mut Io, index: u32, reset: bool) {
        if let Some(socket) = self.sockets.get_mut(index as usize) {
            if let Some(fd) = socket.fd.take()
                && reset
            {
                socket::reset_on_close(&fd);
            }
            socket.interest = Interest::default();
        }
        io.release_slot(index);
    }

    fn freeze(&mut self, io: &mut Io, index: u32, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
        let socket = &mut self.sockets[index as usize];
        let fd = socket.fd.as_ref().ok_or(NotFrozen::NotEstablished)?;
        let frozen = io.moves.mover.freeze(fd, room)?;
        if socket.interest.registered {
            // The descriptor may live on elsewhere, and its events must not come here.
            let _ = epoll::delete(&self.epoll, fd);
        }
        *socket = Socket::default();
        Ok(frozen)
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
        // Even without requested events a reset is reported.
        epoll::add(&self.epoll, &fd, event_data(io, index), EventFlags::empty())
            .map_err(|error| io::Error::from(error).kind())?;
        self.insert(index, fd);
        self.sockets[index as usize].interest.registered = true;
        Ok(frozen)
    }
}

impl SocketDriver for Epoll {
    fn wait(&mut self, io: &mut Io, timeout_ns: Option<u64>) -> io::Result<()> {
        io.counters.waits += 1;
        self.poll(timeout_ns)?;
        if io.window_ns > 0 && !self.events.is_empty() {
            // Level-triggered: the second wait reports again what the first one did.
            clock::sleep_ns(io.window_ns);
            io.counters.waits += 1;
            self.poll(Some(0))?;
        }
        Ok(())
    }

    #[inline]
    fn dispatch<S: Service>(&mut self, io: &mut Io, service: &mut S) -> bool {
        let mut mail = false;
        for position in 0..self.events.len() {
            let Event { flags, data } = self.events[position];
            if data.u64() == WAKE {
                mail = true;
                continue;
            }
            if data.u64() == DATAGRAMS {
                self.receive_datagrams(io, service);
                continue;
            }
            let index = data.u64() as u32;
            // The slot may have passed to another connection since the event was queued.
            if event_data(io, index).u64() == data.u64() {
                self.handle(io, index, flags, service);
            }
        }
        mail
    }

    fn adopt(&mut self, io: &mut Io, index: u32, socket: OwnedFd) -> io::Result<()> {
        self.insert(index, socket);
        self.set_interest(io, index, READ);
        Ok(())
    }

    fn finish(&mut self, _io: &mut Io) {}
}
