//! Reads an established connection out of the kernel and makes one of what was read, with TCP_REPAIR. The order of the calls
//! matters: much can be set in one state of the socket only.
//!
//! No packet is taken in while a connection is read, but the kernel goes on to send by itself: what waits for the device to
//! take more or for its time (a softirq or a timer on another processor sends it), probes, and acknowledgements. Were a byte
//! sent that the frozen state takes for unsent, the client would acknowledge what the restored socket has never sent, and
//! each such acknowledgement is dropped: the connection would stand still for good. The other way round no harm is done: what
//! is taken for sent and was not is sent again, as if it were lost. So, in this order:
//!
//! 1. How many bytes were ever sent, and then how many wait, is looked at while no queue is chosen: only what is sent leaves
//!    the latter then.
//! 2. The receive queue is read, and then the send queue is chosen, until the end: with that the kernel marks what it would
//!    send as sent, and sends nothing (`tcp_write_xmit`). Probes it still sends.
//! 3. All that waits is marked so. From here on there is nothing left that could be sent for the first time.
//! 4. If still as many bytes were ever sent as in the beginning, exactly those that waited then are unsent. If not, all that
//!    the client's window has room for counts as sent.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};

use super::limits::{ACKNOWLEDGED_PART_MAX, READS_MAX};
use super::repair::{self, Info, Queue};
use super::{Frozen, FrozenLimits, NotFrozen, TcpState, Window};
use crate::driver::socket;

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

/// Reads the connection out. With `Ok` the kernel has forgotten it without sending anything; with an error it goes on.
pub(crate) fn freeze(socket: &OwnedFd, room: FrozenLimits) -> Result<Frozen, NotFrozen> {
    let refused = |error: io::Error| NotFrozen::Io(error.kind());
    let info = repair::info(socket).map_err(refused)?;
    if !info.is_established() {
        // A peer that has no more to say takes what is left all the same.
        let left = if info.is_half_closed() { repair::send_queue_bytes(socket).map_err(refused)?.0 } else { 0 };
        return Err(if left > 0 { NotFrozen::TooLong(left) } else { NotFrozen::NotEstablished });
    }
    if info.has_microsecond_timestamps() {
        return Err(NotFrozen::Unsupported);
    }
    // Before any packet is dropped for it.
    is_short(repair::send_queue_bytes(socket).map_err(refused)?.0, room.output_bytes_max)?;
    is_short(repair::receive_queue_bytes(socket).map_err(refused)?, room.unread_bytes_max)?;
    repair::begin(socket).map_err(refused)?;
    let outcome = repair::drop_packets(socket).map_err(refused).and_then(|()| read_out(socket, room));
    if outcome.is_ok() {
        // Under repair this sends nothing either. A close would do it too, but only once no child that is about to be
        // started holds a copy of the descriptor.
        let _ = rustix::net::connect_unspec(socket);
    } else {
        // In this order: a packet that comes under repair would find the socket as it was before. Neither can fail on a
        // socket for which the other direction succeeded; if one did, the connection would end by its time limits.
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

/// `None` if something has changed meanwhile: a packet that had passed the filter before it was there, or a timer.
fn read_once(socket: &OwnedFd, before: Snapshot, unsent: Unsent) -> io::Result<Option<Frozen>> {
    let (local, peer) = repair::addresses(socket)?;
    repair::choose(socket, Queue::Receive)?;
    let receive_sequence = repair::sequence(socket)?;
    let unread = repair::peek(socket, before.receive_bytes)?;
    repair::choose(socket, Queue::Send)?;
    let write_sequence = repair::sequence(socket)?;
    let mut unacknowledged = send_queue(socket, before.send_bytes)?;
    let mss = repair::mss(socket)?;
    let complete = unacknowledged.len() == before.send_bytes && unread.len() == before.receive_bytes;
    if !complete || Snapshot::of(socket)? != before {
        return Ok(None);
    }
    // Only now: a connection that stays would have to find out that nothing of it has arrived.
    repair::mark_as_sent(socket)?;
    let window = repair::window(socket)?;
    // What is acknowledged from now on carries a time that the restored socket's must not be before.
    let timestamp = if before.info.has_timestamps() { Some(repair::timestamp(socket)?) } else { None };
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
    let unsent_bytes = if counts.sent == unsent.sent { unsent.bytes } else { unsent.bytes.min(beyond_window) };
    let unsent = unacknowledged.split_off(before.send_bytes.saturating_sub(unsent_bytes));
    Ok(Some(Frozen { state, unacknowledged, unsent, unread }))
}

/// The last `count` bytes of the send queue: it may begin with a segment of which a part was acknowledged.
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

/// Makes a connected socket of the state. What is not acknowledged goes into it as sent, as far as there is room; the rest
/// is put before what is unsent, as if it had never been. What is unread stays in `frozen`, and the socket goes on behind it.
/// `receive_bytes`: what the kernel takes in while nobody reads, if that is not as much as of any other connection.
pub(crate) fn restore(frozen: &mut Frozen, receive_bytes: Option<usize>) -> Result<OwnedFd, io::ErrorKind> {
    make(frozen, receive_bytes).map_err(|error| error.kind())
}

fn make(frozen: &mut Frozen, receive_bytes: Option<usize>) -> io::Result<OwnedFd> {
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
    // The connect computes the size of segments, and takes them for as small as they can be if it is not told.
    repair::set_mss(&socket, state.mss)?;
    // What came between the connect and the timestamp, for instance, would be acknowledged with a timestamp from which the
    // peer would not come back.
    repair::drop_packets(&socket)?;
    socket::prepare_accepted(&socket)?;
    rustix::net::sockopt::set_socket_oobinline(&socket, true)?; // as of a listener
    if let Some(bytes) = receive_bytes {
        // Before the connect, which draws its first window from it.
        socket::limit_receive(&socket, bytes)?;
    }
    rustix::net::bind(&socket, &state.local)?;
    rustix::net::connect(&socket, &state.peer).map_err(|error| match error {
        // Both addresses are there, or the bind would have failed: so is the connection.
        rustix::io::Errno::ADDRNOTAVAIL => io::ErrorKind::AddrInUse.into(),
        error => io::Error::from(error),
    })?;
    repair::set_agreed(&socket, state.mss, state.window_scales, state.sack, state.timestamp.is_some())?;
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

/// Tells a peer whose window was closed that it is open, or it would ask by a timer alone, which doubles each time that nobody
/// is there to answer. The kernel tells it when something is read: the last byte of what is unread, which was put in for that.
/// The window probe does not tell it, for it is an old segment to the peer, but the kernel takes it for told by that, so
/// that this comes first.
fn tell_window(socket: &OwnedFd) -> io::Result<()> {
    repair::end(socket, false)?;
    rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut [0][..], RecvFlags::DONTWAIT))?;
    repair::begin(socket)
}

/// A window as it can be set: the kernel takes none that was told by a segment beyond our own window. There is such a segment
/// where that window was closed for want of memory, after more had come behind a hole. The number only keeps older segments
/// from telling the window, and the end of the repair sets it back by itself.
fn settable(window: Window, next: u32) -> Window {
    let end = next.wrapping_add(window.receive);
    let is_beyond = window.send_update.wrapping_sub(end).cast_signed() > 0;
    Window { send_update: if is_beyond { end } else { window.send_update }, ..window }
}

/// A timestamp that is not before the last one that was sent. The kernel tells its clock without the lowest bit, and takes
/// that bit as a sign that its unit is the microsecond.
fn next_timestamp(timestamp: u32) -> u32 {
    timestamp.wrapping_add(2) & !1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::process::Command;
    use std::time::Duration;

    use rustix::net::{SendFlags, sockopt};

    use super::*;

    /// In a network of its own whose segments are as small as those of Ethernet; not at all where none can be made.
    fn on_small_segments(test: fn(&str)) {
        let run = move || {
            // SAFETY: only this thread leaves the network of the others; memory and files stay shared.
            let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            let up = || Command::new("ip").args(["link", "set", "lo", "up", "mtu", "1500"]).status();
            if !alone || !up().is_ok_and(|status| status.success()) {
                println!("skipped: no network namespace can be made here (needs root and `ip` of iproute2)");
                return;
            }
            ["127.0.0.1:0", "[::1]:0"].into_iter().for_each(test);
        };
        if let Err(panic) = std::thread::spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn accepted(address: &str) -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = OwnedFd::from(listener.accept().unwrap().0);
        socket::prepare_accepted(&socket).unwrap();
        (client, socket)
    }

    #[test]
    fn a_restored_socket_sends_segments_as_large_as_before_and_has_the_options_of_an_accepted_one() {
        on_small_segments(|address| {
            let (_client, before) = accepted(address);
            let mut frozen = freeze(&before, FrozenLimits::default()).unwrap();
            let mss = if address.starts_with('[') { 1428 } else { 1448 };
            let after = restore(&mut frozen, None).unwrap();
            assert_eq!(repair::mss(&after).unwrap(), mss, "{address}: what timestamps leave of a segment");
            assert!(sockopt::tcp_nodelay(&after).unwrap());
            assert!(sockopt::socket_keepalive(&after).unwrap());
            assert!(sockopt::socket_reuseaddr(&after).unwrap());
            let (old, new) = accepted(address);
            assert_eq!(sockopt::tcp_user_timeout(&after).unwrap(), sockopt::tcp_user_timeout(&new).unwrap());
            drop((old, new));
            let info = repair::info(&after).unwrap();
            assert_eq!(repair::info(&restore_again(&after)).unwrap(), info);
        });
    }

    fn restore_again(socket: &OwnedFd) -> OwnedFd {
        restore(&mut freeze(socket, FrozenLimits::default()).unwrap(), None).unwrap()
    }

    #[test]
    fn a_listener_can_be_opened_beside_a_restored_connection() {
        on_small_segments(|address| {
            let (_client, before) = accepted(address);
            let local = repair::addresses(&before).unwrap().0;
            let _after = restore_again(&before);
            crate::acceptor::listen(local).unwrap();
        });
    }

    #[test]
    fn what_a_peer_has_got_is_never_frozen_as_unsent() {
        on_small_segments(|address| {
            for round in 0..600 {
                let (mut client, socket) = accepted(address);
                // The kernel sends the rest bit by bit, by itself.
                let rate = 50_000_000_u32;
                // SAFETY: the kernel reads four bytes of `rate`, which outlives the call.
                let paced = unsafe {
                    let (level, name) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
                    libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const rate).cast(), 4)
                };
                assert_eq!(paced, 0);
                let written = rustix::net::send(&socket, &[7; 200_000], SendFlags::DONTWAIT).unwrap();
                std::thread::park_timeout(Duration::from_micros(round % 64 * 16));
                let room = FrozenLimits { output_bytes_max: 1 << 20, ..FrozenLimits::default() };
                let frozen = freeze(&socket, room).unwrap();
                client.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
                let (mut got, mut buffer) = (0, [0; 1 << 16]);
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    got += count;
                }
                let sent = written - frozen.unsent.len();
                assert!(got <= sent, "{address}: {got} bytes have come of {sent} that are known to be sent");
            }
        });
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..30_000 {
            if is_so() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        panic!("waited in vain for {what}");
    }

    /// Packets that the socket did not take.
    fn dropped(socket: &OwnedFd) -> u32 {
        let mut counts = [0_u32; 9];
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `counts`, which has that size; both outlive the call.
        let outcome = unsafe {
            let name = libc::SO_MEMINFO;
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, counts.as_mut_ptr().cast(), &raw mut length)
        };
        assert_eq!(outcome, 0);
        counts[8]
    }

    /// What comes of so many bytes, within a minute.
    fn read_to_end(socket: &mut TcpStream, bytes: usize) -> Vec<u8> {
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut found = vec![0; bytes];
        socket.read_exact(&mut found).unwrap();
        found
    }

    /// Nothing of what was sent is under way, and there is more to send, for which the peer's window has no room.
    fn is_stuck(client: &OwnedFd) -> bool {
        let (all, unsent) = repair::send_queue_bytes(client).unwrap();
        all > 0 && all == unsent
    }

    #[test]
    fn a_peer_whose_window_was_closed_hears_that_it_is_open() {
        on_small_segments(|address| {
            // Later than this test waits: a peer that hears nothing asks no sooner.
            if std::fs::write("/proc/sys/net/ipv4/tcp_rto_min_us", "120000000").is_err() {
                println!("skipped: this kernel has no net.ipv4.tcp_rto_min_us");
                return;
            }
            let (client, before) = accepted(address);
            let client = OwnedFd::from(client);
            let mut written = 0;
            while !is_stuck(&client) {
                let more = rustix::net::send(&client, &[7; 1 << 16], SendFlags::DONTWAIT);
                written += more.unwrap_or_else(|_| {
                    std::thread::park_timeout(Duration::from_millis(1));
                    0
                });
            }
            let room = FrozenLimits { unread_bytes_max: 1 << 30, ..FrozenLimits::default() };
            let mut frozen = freeze(&before, room).unwrap();
            let mut after = TcpStream::from(restore(&mut frozen, None).unwrap());
            read_to_end(&mut after, written - frozen.unread.len());
        });
    }

    #[test]
    fn no_more_than_a_listener_is_limited_to_is_taken_in() {
        on_small_segments(|address| {
            let listener = crate::acceptor::listen(address.parse().unwrap()).unwrap();
            crate::acceptor::limit_receive(&listener, 32 << 10).unwrap();
            listener.set_nonblocking(false).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut server = listener.accept().unwrap().0;
            let client = OwnedFd::from(client);
            // The kernel would take in more of one that is read so fast.
            for _ in 0..64 {
                rustix::net::send(&client, &[7; 16 << 10], SendFlags::empty()).unwrap();
                read_to_end(&mut server, 16 << 10);
            }
            while !is_stuck(&client) {
                let _ = rustix::net::send(&client, &[7; 1 << 16], SendFlags::DONTWAIT);
                std::thread::park_timeout(Duration::from_millis(1));
            }
            assert!(repair::receive_queue_bytes(&OwnedFd::from(server)).unwrap() <= 32 << 10);
        });
    }

    #[test]
    fn a_connection_that_had_no_room_for_what_came_behind_a_hole_goes_on() {
        on_small_segments(|address| {
            let (client, before) = accepted(address);
            let client = OwnedFd::from(client);
            let send = || assert_eq!(rustix::net::send(&client, &[7; 1_000], SendFlags::DONTWAIT), Ok(1_000));
            (0..10).for_each(|_| send());
            until("what was sent", || repair::receive_queue_bytes(&before).unwrap() == 10_000);
            // The peer was told of more room than there is from here on.
            socket::limit_receive(&before, 1).unwrap();
            repair::drop_packets(&before).unwrap();
            send();
            until("a packet that is dropped", || dropped(&before) > 0);
            repair::take_packets(&before).unwrap();
            (0..3).for_each(|_| send());
            until("the end of the window", || {
                repair::begin(&before).unwrap();
                let window = repair::window(&before).unwrap();
                repair::end(&before, false).unwrap();
                window.receive == 0
            });
            let mut frozen = freeze(&before, FrozenLimits::default()).unwrap();
            let TcpState { window, receive_sequence, .. } = frozen.state;
            assert!(
                window.send_update.wrapping_sub(receive_sequence) > 10_000,
                "it was told by what is behind the hole"
            );
            let mut after = TcpStream::from(restore(&mut frozen, None).unwrap());
            read_to_end(&mut after, 14_000 - frozen.unread.len());
        });
    }

    #[test]
    fn what_is_around_an_urgent_byte_is_not_lost() {
        on_small_segments(|address| {
            let listener = crate::acceptor::listen(address.parse().unwrap()).unwrap();
            listener.set_nonblocking(false).unwrap();
            let client = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let before = OwnedFd::from(listener.accept().unwrap().0);
            for (bytes, flags) in [(b"ab", SendFlags::empty()), (b"c!", SendFlags::OOB), (b"de", SendFlags::empty())] {
                assert_eq!(rustix::net::send(&client, bytes, flags), Ok(2));
            }
            until("what was sent", || repair::counts(&before).unwrap().received == 6);
            let (mut unread, mut after) = (Vec::new(), None);
            if let Ok(mut frozen) = freeze(&before, FrozenLimits::default()) {
                after = Some(restore(&mut frozen, None).unwrap());
                unread = frozen.unread;
            }
            let more = read_to_end(&mut after.unwrap_or(before).into(), 6 - unread.len());
            assert_eq!([unread, more].concat(), b"abc!de", "{address}");
        });
    }

    #[test]
    fn timestamps_go_on_and_stay_in_milliseconds() {
        for before in [0, 1, 2, 3, u32::MAX - 1, u32::MAX] {
            let after = next_timestamp(before);
            assert!(after & 1 == 0 && (1..=2).contains(&after.wrapping_sub(before)), "{before} {after}");
        }
    }
}
