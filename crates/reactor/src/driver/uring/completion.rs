//! Takes the kernel's completions and acts on them.

use std::io;

use io_uring::cqueue;

use super::ring::{Completion, Kind};
use super::{Sending, Socket, Uring};
use crate::connection::State;
use crate::driver::socket;
use crate::engine::close_reason;
use crate::io::Io;
use crate::service::{CloseReason, Service};

/// Attempts to cancel the requests of a connection, before its stream is ended instead.
const CANCELS_MAX: u8 = 3;

impl Uring {
    /// Releases the slot once the kernel holds nothing of it.
    pub(super) fn release_if_idle(&mut self, io: &mut Io, index: u32) {
        let socket = &mut self.sockets[index as usize];
        if socket.closing && !socket.is_busy() {
            *socket = Socket::default();
            io.release_slot(index);
        }
    }

    /// Handles the outcome of the last flush's sends: first those with a completion, then all
    /// others, which completed silently.
    #[inline]
    pub(super) fn settle(&mut self, io: &mut Io) {
        // Check this first: the rest of a partial send is queued again below, and is none of those
        // to settle.
        let submitted = !self.queued.is_empty() && self.ring.all_submitted();
        if !self.sends.is_empty() {
            self.settle_left_over(io);
        }
        if !submitted {
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
    pub(super) fn received<S: Service>(
        &mut self,
        io: &mut Io,
        completion: Completion,
        service: &mut S,
    ) {
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
        if !wants_read && (!wanted || io.connections[index as usize].end_kept) {
            self.unwanted(io, index);
        } else if wants_read && !self.sockets[index as usize].receiving {
            self.receive(index);
        }
    }

    /// Handles a receive that ended without bytes.
    #[cold]
    fn receive_ended<S: Service>(&mut self, io: &mut Io, index: u32, error: i32, service: &mut S) {
        match error {
            // A resumed receive finds and reports an end of the stream that was seen while paused.
            0 if io.connections[index as usize].wants_read() => io.end_of_stream(index, service),
            0 | libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            _ => io.ended(index, close_reason(io::Error::from_raw_os_error(error).kind()), service),
        }
    }

    /// Handles bytes for a connection that is paused or closed already (a short pause costs
    /// nothing).
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
            // The kernel reports errors and hang-ups without being asked.
            self.poll(index, 0, Kind::Watch);
        }
    }

    /// Handles the end of a watch. A connection whose receive was cancelled was reset, or the peer
    /// has ended its stream, which the service need not know before the resume. If the connection
    /// is being read again, the receive reports either.
    #[cold]
    pub(super) fn watch_ended<S: Service>(
        &mut self,
        io: &mut Io,
        index: u32,
        events: i32,
        service: &mut S,
    ) {
        let socket = &mut self.sockets[index as usize];
        socket.watching = false;
        if socket.closing {
            self.release_if_idle(io, index);
        } else if events & i32::from(libc::POLLERR | libc::POLLHUP) != 0
            && !io.connections[index as usize].wants_read()
        {
            io.ended(index, CloseReason::Reset, service);
        }
    }

    #[cold]
    pub(super) fn connect_ended<S: Service>(&mut self, io: &mut Io, index: u32, service: &mut S) {
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
    pub(super) fn cancel_ended(&mut self, io: &mut Io, index: u32) {
        let socket = &mut self.sockets[index as usize];
        socket.cancelling = false;
        if socket.closing && socket.is_busy() {
            // Its completion is still to come, or it was just being executed. Ending the stream
            // stops it for certain, but the peer would see that instead of the reset.
            socket.cancels += 1;
            match &socket.fd {
                Some(fd) if socket.cancels >= CANCELS_MAX => socket::shutdown_both(fd),
                _ => self.cancel(index),
            }
        }
        self.release_if_idle(io, index);
    }
}
