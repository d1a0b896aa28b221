//! One accepted connection on its way to a loop: the decision about it, its handshake, or its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::driver::socket;
use crate::handshakes::{Admission, Security};
use crate::service::Accepted;
use crate::session::{Session, SessionFault};

/// Leading bytes by which [`Security::admit`] decides.
const HEAD_BYTES: usize = 16;
/// Most bytes of one read.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// A connection without a session that is ready.
pub(crate) struct Pending {
    pub(crate) socket: OwnedFd,
    pub(crate) origin: Accepted,
    pub(crate) stage: Stage,
    /// Events that epoll reports.
    pub(crate) interest: EventFlags,
}

/// The progress of a connection.
pub(crate) enum Stage {
    /// No byte has arrived.
    Silent,
    /// The handshake goes on.
    Handshake(Box<Handshake>),
    /// The connection is refused: the rest of what it is told, and whether the end is told too.
    Refused { unsent: Vec<u8>, ended: bool },
}

/// A handshake that goes on.
pub(crate) struct Handshake {
    pub(crate) session: Box<dyn Session>,
    /// Start of an incomplete record.
    pub(crate) partial: Vec<u8>,
    /// Opened bytes that came behind the handshake.
    pub(crate) plain: Vec<u8>,
    /// The client has announced, behind them, that it sends no more.
    pub(crate) ended: bool,
    unsent: Vec<u8>,
}

/// Result of a step of a connection.
pub(crate) enum Step {
    /// More has to arrive, or to be taken.
    Waits,
    /// The connection goes to a loop.
    Ready,
    /// The connection is over.
    Gone,
}

impl Pending {
    /// Events that the connection waits for. One whose handshake is done but not sent reads no
    /// more: that is up to its loop.
    pub(crate) fn interest(&self) -> EventFlags {
        let (reads, writes) = match &self.stage {
            Stage::Silent => (true, false),
            Stage::Handshake(handshake) => {
                (handshake.session.is_handshaking(), !handshake.unsent.is_empty())
            }
            Stage::Refused { unsent, .. } => (unsent.is_empty(), !unsent.is_empty()),
        };
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, reads);
        interest.set(EventFlags::OUT, writes);
        interest
    }

    /// Does what can be done now. Reads at most once, so that all connections have their turn.
    pub(crate) fn step(
        &mut self,
        is_readable: bool,
        security: &dyn Security,
        buffer: &mut Vec<u8>,
    ) -> Step {
        if let Stage::Silent = self.stage {
            let mut head = [0; HEAD_BYTES];
            let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
            let count = match recv(&self.socket, &mut head, flags) {
                Ok((_, count @ 1..)) => count.min(HEAD_BYTES),
                Err(Errno::AGAIN | Errno::INTR) => return Step::Waits,
                // The peer closed without a byte, as a balancer's probe does.
                Ok(_) | Err(_) => return Step::Gone,
            };
            match security.admit(&self.origin, &head[..count]) {
                Admission::Plain => return Step::Ready,
                Admission::Refused(unsent) => {
                    self.stage = Stage::Refused { unsent, ended: false };
                }
                Admission::Session(session) => {
                    self.stage = Stage::Handshake(Box::new(Handshake {
                        session,
                        partial: Vec::new(),
                        plain: Vec::new(),
                        ended: false,
                        unsent: Vec::new(),
                    }));
                }
            }
        }
        match &mut self.stage {
            Stage::Silent => Step::Waits,
            Stage::Refused { unsent, ended } => end(&self.socket, unsent, ended, buffer),
            Stage::Handshake(handshake) => {
                match handshake.step(&self.socket, is_readable, buffer) {
                    Ok(step) => step,
                    Err(fault) => {
                        security.handshake_ended(&self.origin, Err(fault));
                        let mut unsent = std::mem::take(&mut handshake.unsent);
                        handshake.session.take_pending(&mut unsent);
                        let mut ended = false;
                        let step = end(&self.socket, &mut unsent, &mut ended, buffer);
                        self.stage = Stage::Refused { unsent, ended };
                        step
                    }
                }
            }
        }
    }
}

impl Handshake {
    fn step(
        &mut self,
        socket: &OwnedFd,
        is_readable: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<Step, SessionFault> {
        if is_readable && self.session.is_handshaking() {
            buffer.clear();
            buffer.append(&mut self.partial);
            buffer.reserve(READ_BYTES);
            match socket::receive_behind(socket, buffer, READ_BYTES) {
                Ok(0) => return Err(SessionFault("the client closed during the handshake")),
                Ok(_) => {
                    let opened = self.session.open(buffer, &mut self.plain)?;
                    self.partial.extend_from_slice(&buffer[opened.consumed..]);
                    self.ended = opened.ended;
                    if opened.ended && self.session.is_handshaking() {
                        return Err(SessionFault("the client closed during the handshake"));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.partial.extend_from_slice(buffer);
                }
                Err(_) => return Err(SessionFault("the client reset the connection")),
            }
        }
        self.session.take_pending(&mut self.unsent);
        if send(socket, &mut self.unsent).is_err() {
            return Err(SessionFault("the client reset the connection"));
        }
        let is_ready = !self.session.is_handshaking() && self.unsent.is_empty();
        Ok(if is_ready { Step::Ready } else { Step::Waits })
    }
}

/// Sends as much as the socket takes.
fn send(socket: &OwnedFd, unsent: &mut Vec<u8>) -> rustix::io::Result<()> {
    while !unsent.is_empty() {
        match socket::send(socket, unsent) {
            Ok(count) => drop(unsent.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends a connection so that its peer reads the last bytes: sends them, ends the stream, and waits
/// for the peer to close. A socket that is closed with unread bytes would send a reset, which
/// overtakes them.
fn end(socket: &OwnedFd, unsent: &mut Vec<u8>, ended: &mut bool, buffer: &mut Vec<u8>) -> Step {
    if send(socket, unsent).is_err() {
        return Step::Gone;
    }
    if !unsent.is_empty() {
        return Step::Waits;
    }
    if !std::mem::replace(ended, true) {
        let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Write);
    }
    buffer.clear();
    match socket::receive_behind(socket, buffer, READ_BYTES) {
        Ok(1..) => Step::Waits,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Waits,
        Ok(0) | Err(_) => Step::Gone,
    }
}
