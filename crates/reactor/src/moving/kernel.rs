//! Reads an established connection out of the kernel and makes one of what was read, with
//! TCP_REPAIR. The order of the calls matters: much can be set in one state of the socket only.
//!
//! No packet is taken in while a connection is read, but the kernel goes on to send by itself: what
//! waits for the device to take more or for its time (a softirq or a timer on another processor
//! sends it), probes, and acknowledgements. Were a byte sent that the frozen state takes for
//! unsent, the client would acknowledge what the restored socket has never sent, and each such
//! acknowledgement is dropped: the connection would stand still for good. The other way round no
//! harm is done: what is taken for sent and was not is sent again, as if it were lost. So, in this
//! order:
//!
//! 1. How many bytes were ever sent, and then how many wait, is looked at while no queue is chosen:
//!    only what is sent leaves the latter then.
//! 2. The receive queue is read, and then the send queue is chosen, until the end: with that the
//!    kernel marks what it would send as sent, and sends nothing (`tcp_write_xmit`). Probes it
//!    still sends.
//! 3. All that waits is marked so. From here on there is nothing left that could be sent for the
//!    first time.
//! 4. If still as many bytes were ever sent as in the beginning, exactly those that waited then are
//!    unsent. If not, all that the client's window has room for counts as sent.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};

use super::frozen::{Frozen, FrozenLimits, Intake, NotFrozen, TcpState, Window};
use super::limits::{ACKNOWLEDGED_PART_MAX, READS_MAX};
use super::repair::{self, Info, Queue};
use crate::driver::socket;

/// The window of a socket before it is connected. By half of it, but 536 bytes at most, the kernel
/// judges at the connect how large full segments are; without one it takes 88. The first larger one
/// then counts as full, and by the memory that it takes beside its bytes the kernel judges all:
/// what takes no more of it than that one is not put together when memory is short, but dropped, in
/// the middle of what the peer was promised. So it was after some 170 requests of 100 bytes.
const FIRST_WINDOW: u32 = 64 << 10;

/// What must not have changed while a connection was read. No queue has to be chosen to look at it.
#[derive(Copy, Clone, Eq, PartialEq)]
struct Snapshot {
    info: Info,
    /// Not acknowledged, or not sent.
    send_bytes: usize,
    /// Ever received.
    received: u64,
    receive_bytes: usize,
}

/// What was not sent at some time before the send queue was chosen.
#[derive(Copy, Clone)]
struct Unsent {
    bytes: usize,
    /// Ever sent, before the others were counted.
    sent: u64,
}

/// Reads the connection out. With `Ok` the kernel has forgotten it without sending anything; with
/// an error it goes on.
pub(crate) fn freeze(socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
    let refused = |error: io::Error| NotFrozen::Io(error.kind());
    let info = repair::info(socket).map_err(refused)?;
    if !info.is_established() {
        // A peer that has no more to say takes what is left all the same.
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
    // Before any packet is dropped for it.
    is_short(repair::send_queue_bytes(socket).map_err(refused)?.0, room.output_bytes_max)?;
    is_short(repair::receive_queue_bytes(socket).map_err(refused)?, room.unread_bytes_max)?;
    repair::begin(socket).map_err(refused)?;
    let outcome =
        repair::drop_packets(socket).map_err(refused).and_then(|()| read_out(socket, room));
    if outcome.is_ok() {
        // Under repair this sends nothing either. A close would do it too, but only once no child
        // that is about to be started holds a copy of the descriptor.
        let _ = rustix::net::connect_unspec(socket);
    } else {
        // In this order: a packet that comes under repair would find the socket as it was before.
        // Neither can fail on a socket for which the other direction succeeded; if one did, the
        // connection would end by its time limits.
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

/// `None` if something has changed meanwhile: a packet that had passed the filter before it was
/// there, or a timer.
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
    // Only now: a connection that stays would have to find out that nothing of it has arrived.
    repair::mark_as_sent(socket)?;
    let window = repair::window(socket)?;
    // What is acknowledged from now on carries a time that the restored socket's must not be
    // before.
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

/// The last `count` bytes of the send queue: it may begin with a segment of which a part was
/// acknowledged.
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

/// Makes a connected socket of the state. What is not acknowledged goes into it as sent, as far as
/// there is room; the rest is put before what is unsent, as if it had never been. What is unread
/// stays in `frozen`, and the socket goes on behind it.
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
    // The connect computes the size of segments, and takes them for as small as they can be if it
    // is not told.
    repair::set_mss(&socket, state.mss)?;
    // What came between the connect and the timestamp, for instance, would be acknowledged with a
    // timestamp from which the peer would not come back.
    repair::drop_packets(&socket)?;
    socket::prepare_accepted(&socket)?;
    rustix::net::sockopt::set_socket_oobinline(&socket, true)?; // as of a listener
    if let Some(bytes) = intake.bytes {
        // Before the connect, which draws its first window from it.
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
        // Both addresses are there, or the bind would have failed: so is the connection.
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

/// Tells a peer whose window was closed that it is open, or it would ask by a timer alone, which
/// doubles each time that nobody is there to answer. The kernel tells it when something is read:
/// the last byte of what is unread, which was put in for that. The window probe does not tell it,
/// for it is an old segment to the peer, but the kernel takes it for told by that, so that this
/// comes first.
fn tell_window(socket: &OwnedFd) -> io::Result<()> {
    repair::end(socket, false)?;
    rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut [0][..], RecvFlags::DONTWAIT))?;
    repair::begin(socket)
}

/// A window as it can be set: the kernel takes none that was told by a segment beyond our own
/// window. There is such a segment where that window was closed for want of memory, after more had
/// come behind a hole. The number only keeps older segments from telling the window, and the end of
/// the repair sets it back by itself.
fn settable(window: Window, next: u32) -> Window {
    let end = next.wrapping_add(window.receive);
    let is_beyond = window.send_update.wrapping_sub(end).cast_signed() > 0;
    Window { send_update: if is_beyond { end } else { window.send_update }, ..window }
}

/// A timestamp that is not before the last one that was sent. The kernel tells its clock without
/// the lowest bit, and takes that bit as a sign that its unit is the microsecond.
fn next_timestamp(timestamp: u32) -> u32 {
    timestamp.wrapping_add(2) & !1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
