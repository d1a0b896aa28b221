//! One accepted connection on its way to a loop: the decision about it, its handshake, or its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::client_address::ClientAddress;
use crate::driver::socket;
use crate::handshakes::{Admission, Security};
use crate::service::Accepted;
use crate::session::{Session, SessionFault};

/// Leading bytes by which [`Security::admit`] decides.
const HEAD_BYTES: usize = 16;
/// Longest header of a balancer, with which a connection may begin.
pub(crate) const HEADER_BYTES_MAX: usize = 1 << 10;
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
    /// The balancer's header has not arrived whole; this is its start.
    Header(Vec<u8>),
    /// No byte of the client has arrived.
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

/// Result of reading a part of a balancer's header.
enum Progress {
    /// The header is whole, and names this client.
    Whole(ClientAddress),
    /// More has to arrive.
    Part,
    /// The connection is over.
    Ended,
}

impl Pending {
    /// Events that the connection waits for. One whose handshake is done but not sent reads no
    /// more: that is up to its loop.
    pub(crate) fn interest(&self) -> EventFlags {
        let (reads, writes) = match &self.stage {
            Stage::Header(_) | Stage::Silent => (true, false),
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
        if let Stage::Header(header) = &mut self.stage {
            match read_header(&self.socket, &self.origin, header, security) {
                Ok(Progress::Whole(client)) => {
                    (self.origin.peer, self.stage) = (client, Stage::Silent);
                    return Step::Waits;
                }
                Ok(Progress::Part) => return Step::Waits,
                Ok(Progress::Ended) => return Step::Gone,
                Err(fault) => {
                    let unsent = security.refuse_header(&self.origin, fault, header);
                    self.stage = Stage::Refused { unsent, ended: false };
                }
            }
        }
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
            Stage::Header(_) | Stage::Silent => Step::Waits,
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

/// Reads the next part of a balancer's header, and no byte behind it: those are for whoever serves
/// the client. `header` gets what was read.
fn read_header(
    socket: &OwnedFd,
    origin: &Accepted,
    header: &mut Vec<u8>,
    security: &dyn Security,
) -> Result<Progress, SessionFault> {
    let before = header.len();
    header.resize(HEADER_BYTES_MAX, 0);
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let outcome = recv(socket, &mut header[before..], flags);
    header.truncate(before + outcome.as_ref().map_or(0, |(_, count)| *count));
    match outcome {
        Ok((_, 1..)) => {}
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Progress::Part),
        // A balancer's probe may be a connection without a byte.
        Ok(_) if before > 0 => return Err(SessionFault("ended within its PROXY header")),
        Ok(_) | Err(_) => return Ok(Progress::Ended),
    }
    let found = security.read_header(origin, header)?;
    let end = found.map_or(header.len(), |(bytes, _)| bytes);
    if end < before || end >= HEADER_BYTES_MAX {
        return Err(SessionFault("has a PROXY header that is too long"));
    }
    let mut taken = before;
    while taken < end {
        match recv(socket, &mut header[taken..end], RecvFlags::DONTWAIT) {
            Ok((_, count @ 1..)) => taken += count,
            Err(Errno::INTR) => {}
            // They were there.
            _ => return Ok(Progress::Ended),
        }
    }
    Ok(found.map_or(Progress::Part, |(_, client)| Progress::Whole(client)))
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
