//! Reads an established connection out of the kernel and recreates one from that state, with
//! TCP_REPAIR. The order of the calls matters: many values can be set in one state of the socket
//! only.
//!
//! The kernel takes in no packet while a connection is read, but goes on sending by itself: bytes
//! that wait for the device or for their time (a softirq or a timer on another processor sends
//! them), probes, and acknowledgements. If a byte were sent that the frozen state takes for unsent,
//! the client would acknowledge bytes that the restored socket has never sent, and the kernel drops
//! each such acknowledgement: the connection would stand still for good. The other way round does
//! no harm: bytes taken for sent that were not are sent again, as if they were lost. So, in this
//! order:
//!
//! 1. The code reads the number of bytes ever sent, and then of those that wait, while no queue is
//!    chosen: only sending reduces the latter then.
//! 2. It reads the receive queue, and then chooses the send queue, until the end: with that the
//!    kernel marks what it would send as sent, and sends nothing (`tcp_write_xmit`). It still sends
//!    probes.
//! 3. It marks all waiting bytes as sent. From here on no byte is left that could be sent for the
//!    first time.
//! 4. If the number of bytes ever sent has not changed since the beginning, exactly those that
//!    waited then are unsent. If it has, all bytes that fit the client's window count as sent.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};

use super::frozen::{Frozen, FrozenLimits, Intake, NotFrozen, TcpState, Window};
use super::limits::{ACKNOWLEDGED_PART_MAX, READS_MAX};
use super::repair::{self, Info, Queue};
use crate::driver::socket;

/// Window of a socket before it is connected. At the connect the kernel estimates the size of full
/// segments as half of it, but 536 bytes at most; without a window as 88. The first larger segment
/// then counts as full, and its memory beside its bytes is the kernel's measure for all: when
/// memory is short, it does not merge segments with no more overhead than that one but drops them,
/// in the middle of the window that the peer was promised. Without this setting that happened after
/// some 170 requests of 100 bytes.
const FIRST_WINDOW: u32 = 64 << 10;

/// Counters that must not change while a connection is read. Reading them needs no chosen queue.
#[derive(Copy, Clone, Eq, PartialEq)]
struct Snapshot {
    info: Info,
    /// Bytes not acknowledged, or not sent.
    send_bytes: usize,
    /// Bytes ever received.
    received: u64,
    receive_bytes: usize,
}

/// Bytes that were unsent at some time before the send queue was chosen.
#[derive(Copy, Clone)]
struct Unsent {
    bytes: usize,
    /// Bytes ever sent, counted before the others.
    sent: u64,
}

/// Reads the connection out. With `Ok` the kernel has forgotten it without sending a packet; with
/// an error it goes on.
pub(crate) fn freeze(socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
    let refused = |error: io::Error| NotFrozen::Io(error.kind());
    let info = repair::info(socket).map_err(refused)?;
    if !info.is_established() {
        // A peer that has no more to send takes the remaining bytes all the same.
        let left = if info.is_half_closed() {
            repair::send_queue_bytes(socket).map_err(refused)?.0
        } else {
            0
        };
        return Err(if left > 0 { NotFrozen::TooLong(left) } else { NotFrozen::NotEstablished });
    }
    if info.has_microsecond_timestamps() {
        return Err(NotFrozen::Unsupported);
    }
    // Check this before any packet is dropped for it.
    is_short(repair::send_queue_bytes(socket).map_err(refused)?.0, room.output_bytes_max)?;
    is_short(repair::receive_queue_bytes(socket).map_err(refused)?, room.unread_bytes_max)?;
    repair::begin(socket).map_err(refused)?;
    let outcome =
        repair::drop_packets(socket).map_err(refused).and_then(|()| read_out(socket, room));
    if outcome.is_ok() {
        // Under repair this sends nothing either. A close would do it too, but only if no child
        // process that is about to start holds a copy of the descriptor.
        let _ = rustix::net::connect_unspec(socket);
    } else {
        // Keep this order: a packet that comes under repair would find the socket as it was before.
        // Neither call can fail on a socket for which the other direction succeeded; if one did,
        // the connection would end by its time limits.
        let _ = repair::end(socket, false);
        let _ = repair::take_packets(socket);
    }
    outcome
}

fn read_out(socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
    let refused = |error: io::Error| NotFrozen::Io(error.kind());
    let unsent = Unsent::of(socket).map_err(refused)?;
    for _ in 0..READS_MAX {
        let before = Snapshot::of(socket).map_err(refused)?;
        if !before.info.is_established() {
            return Err(NotFrozen::NotEstablished);
        }
        is_short(before.send_bytes, room.output_bytes_max)?;
        is_short(before.receive_bytes, room.unread_bytes_max)?;
        if let Some(frozen) = read_once(socket, before, unsent).map_err(refused)? {
            return Ok(frozen);
        }
    }
    Err(NotFrozen::Moved)
}

fn is_short(bytes: usize, bytes_max: usize) -> Result<(), NotFrozen> {
    if bytes > bytes_max { Err(NotFrozen::TooLong(bytes)) } else { Ok(()) }
}

/// Returns `None` if the connection changed meanwhile: by a packet that had passed before the
/// filter was there, or by a timer.
fn read_once(socket: &OwnedFd, before: Snapshot, unsent: Unsent) -> io::Result<Option<Frozen>> {
    let (local, peer) = repair::addresses(socket)?;
    repair::choose(socket, Queue::Receive)?;
    let receive_sequence = repair::sequence(socket)?;
    let unread = repair::peek(socket, before.receive_bytes)?;
    repair::choose(socket, Queue::Send)?;
    let write_sequence = repair::sequence(socket)?;
    let mut unacknowledged = send_queue(socket, before.send_bytes)?;
    let mss = repair::mss(socket)?;
    let complete =
        unacknowledged.len() == before.send_bytes && unread.len() == before.receive_bytes;
    if !complete || Snapshot::of(socket)? != before {
        return Ok(None);
    }
    // Not earlier: a connection that stays would have to find out that none of it has arrived.
    repair::mark_as_sent(socket)?;
    let window = repair::window(socket)?;
    // Acknowledgements from now on carry a time that the restored socket's must not precede.
    let timestamp =
        if before.info.has_timestamps() { Some(repair::timestamp(socket)?) } else { None };
    let counts = repair::counts(socket)?;
    if Snapshot::of(socket)? != before {
        return Ok(None);
    }
    let state = TcpState {
        local,
        peer,
        send_sequence: write_sequence.wrapping_sub(before.send_bytes as u32),
        receive_sequence: receive_sequence.wrapping_sub(before.receive_bytes as u32),
        mss,
        timestamp,
        sack: before.info.has_sack(),
        window_scales: before.info.window_scales(),
        window,
    };
    let beyond_window = before.send_bytes.saturating_sub(window.send as usize);
    let unsent_bytes =
        if counts.sent == unsent.sent { unsent.bytes } else { unsent.bytes.min(beyond_window) };
    let unsent = unacknowledged.split_off(before.send_bytes.saturating_sub(unsent_bytes));
    Ok(Some(Frozen { state, unacknowledged, unsent, unread }))
}

/// The last `count` bytes of the send queue: it may begin with a partly acknowledged segment.
fn send_queue(socket: &OwnedFd, count: usize) -> io::Result<Vec<u8>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = repair::peek(socket, count + 1)?;
    if bytes.len() > count {
        bytes = repair::peek(socket, count + ACKNOWLEDGED_PART_MAX)?;
    }
    let acknowledged = bytes.len().saturating_sub(count);
    Ok(bytes.split_off(acknowledged))
}

impl Snapshot {
    fn of(socket: &OwnedFd) -> io::Result<Snapshot> {
        Ok(Snapshot {
            info: repair::info(socket)?,
            send_bytes: repair::send_queue_bytes(socket)?.0,
            received: repair::counts(socket)?.received,
            receive_bytes: repair::receive_queue_bytes(socket)?,
        })
    }
}

impl Unsent {
    fn of(socket: &OwnedFd) -> io::Result<Unsent> {
        let sent = repair::counts(socket)?.sent;
        Ok(Unsent { sent, bytes: repair::send_queue_bytes(socket)?.1 })
    }
}

/// Makes a connected socket of the state. Unacknowledged bytes go into it as sent, as far as there
/// is room; the rest precedes the unsent bytes, as if it had never been sent. Unread bytes stay in
/// `frozen`, and the socket goes on after them.
pub(crate) fn restore(frozen: &mut Frozen, intake: Intake) -> Result<OwnedFd, io::ErrorKind> {
    make(frozen, intake).map_err(|error| error.kind())
}

fn make(frozen: &mut Frozen, intake: Intake) -> io::Result<OwnedFd> {
    let state = &frozen.state;
    if state.local.is_ipv4() != state.peer.is_ipv4() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let family = if state.local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    repair::begin(&socket)?;
    repair::choose(&socket, Queue::Send)?;
    repair::set_sequence(&socket, state.send_sequence)?;
    repair::choose(&socket, Queue::Receive)?;
    let (unread, last) = frozen.unread.split_at(frozen.unread.len().saturating_sub(1));
    repair::set_sequence(&socket, state.receive_sequence.wrapping_add(unread.len() as u32))?;
    // The connect computes the size of segments, and assumes the smallest possible if it is not
    // told.
    repair::set_mss(&socket, state.mss)?;
    // Packets between the connect and the timestamp, for example, would be acknowledged with a
    // timestamp that the peer would not return from.
    repair::drop_packets(&socket)?;
    socket::prepare_accepted(&socket)?;
    rustix::net::sockopt::set_socket_oobinline(&socket, true)?; // as for a listener
    if let Some(bytes) = intake.bytes {
        // Do this before the connect, which derives its first window from it.
        socket::limit_receive(&socket, bytes)?;
    }
    let next = repair::sequence(&socket)?;
    let first = Window {
        send_update: next,
        receive: FIRST_WINDOW,
        receive_update: next,
        ..Window::default()
    };
    repair::set_window(&socket, first)?;
    rustix::net::bind(&socket, &state.local)?;
    rustix::net::connect(&socket, &state.peer).map_err(|error| match error {
        // The host has both addresses, or the bind would have failed: so the connection exists here
        // already.
        rustix::io::Errno::ADDRNOTAVAIL => io::ErrorKind::AddrInUse.into(),
        error => io::Error::from(error),
    })?;
    repair::set_agreed(
        &socket,
        state.mss,
        state.window_scales,
        state.sack,
        state.timestamp.is_some(),
    )?;
    if let Some(timestamp) = state.timestamp {
        repair::set_timestamp(&socket, next_timestamp(timestamp))?;
    }
    repair::choose(&socket, Queue::Send)?;
    let filled = repair::fill(&socket, &frozen.unacknowledged)?;
    repair::choose(&socket, Queue::Receive)?;
    if repair::fill(&socket, last)? < last.len() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    repair::set_window(&socket, settable(state.window, repair::sequence(&socket)?))?;
    repair::take_packets(&socket)?;
    if intake.promises_no_more {
        repair::promise_no_more(&socket)?;
    }
    if !last.is_empty() {
        tell_window(&socket)?;
    }
    repair::end(&socket, true)?;
    if filled < frozen.unacknowledged.len() {
        frozen.unsent.splice(0..0, frozen.unacknowledged.drain(filled..));
    }
    frozen.unacknowledged.clear();
    Ok(socket)
}

/// Tells a peer whose window was closed that it is open; otherwise the peer would ask by a timer
/// alone, which doubles each time nobody answers. The kernel announces a window after a read: here
/// of the last unread byte, which was put in for that. A window probe does not announce it, because
/// the peer takes it for an old segment, but the kernel then considers it announced; so this comes
/// first.
fn tell_window(socket: &OwnedFd) -> io::Result<()> {
    repair::end(socket, false)?;
    rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut [0][..], RecvFlags::DONTWAIT))?;
    repair::begin(socket)
}

/// A window in a form that can be set: the kernel rejects one announced by a segment beyond our own
/// window. Such a segment exists if that window was closed for lack of memory, after more bytes had
/// come behind a hole. The number only keeps older segments from updating the window, and the end
/// of the repair resets it by itself.
fn settable(window: Window, next: u32) -> Window {
    let end = next.wrapping_add(window.receive);
    let is_beyond = window.send_update.wrapping_sub(end).cast_signed() > 0;
    Window { send_update: if is_beyond { end } else { window.send_update }, ..window }
}

/// A timestamp not before the last one sent. The kernel reports its clock without the lowest bit,
/// and takes that bit as a sign that the unit is the microsecond.
fn next_timestamp(timestamp: u32) -> u32 {
    timestamp.wrapping_add(2) & !1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
