//! Connections of a separate network namespace that are read out of the kernel and put in again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, sockopt};

use super::super::unacknowledged;
use super::*;

/// Runs a test in a separate network whose segments are as small as those of Ethernet; skips it if
/// none can be made.
fn on_small_segments(test: fn(&str)) {
    let run = move || {
        // SAFETY: only this thread leaves the network of the others; memory and files stay shared.
        let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
        let up = || Command::new("ip").args(["link", "set", "lo", "up", "mtu", "1500"]).status();
        if !alone || !up().is_ok_and(|status| status.success()) {
            println!(
                "skipped: no network namespace can be made here (needs root and `ip` of iproute2)"
            );
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
        let after = restore(&mut frozen, Intake::default()).unwrap();
        assert_eq!(
            repair::mss(&after).unwrap(),
            mss,
            "{address}: what timestamps leave of a segment"
        );
        assert!(sockopt::tcp_nodelay(&after).unwrap());
        assert!(sockopt::socket_keepalive(&after).unwrap());
        assert!(sockopt::socket_reuseaddr(&after).unwrap());
        let (old, new) = accepted(address);
        assert_eq!(
            sockopt::tcp_user_timeout(&after).unwrap(),
            sockopt::tcp_user_timeout(&new).unwrap()
        );
        drop((old, new));
        let info = repair::info(&after).unwrap();
        assert_eq!(repair::info(&restore_again(&after)).unwrap(), info);
    });
}

fn restore_again(socket: &OwnedFd) -> OwnedFd {
    restore(&mut freeze(socket, FrozenLimits::default()).unwrap(), Intake::default()).unwrap()
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
fn received_bytes_are_never_frozen_as_unsent() {
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
            assert!(
                got <= sent,
                "{address}: {got} bytes have come of {sent} that are known to be sent"
            );
        }
    });
}

/// Polls so often that this takes three minutes, and does not count time in which the machine is
/// paused. The kernel doubles its wait for an acknowledgement with each lost packet, up to two
/// minutes.
fn until(what: &str, is_so: impl Fn() -> bool) {
    assert!(is_so_within(180_000, is_so), "waited in vain for {what}");
}

/// Polls about this many milliseconds.
fn is_so_within(polls: u32, is_so: impl Fn() -> bool) -> bool {
    (0..polls).any(|_| {
        let so = is_so();
        if !so {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        so
    })
}

/// Packets that the socket dropped.
fn dropped(socket: &OwnedFd) -> u32 {
    let mut counts = [0_u32; 9];
    let mut length = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `counts`, which has that size; both
    // outlive the call.
    let outcome = unsafe {
        let name = libc::SO_MEMINFO;
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            counts.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(outcome, 0);
    counts[8]
}

/// Reads this many bytes, within a minute.
fn read_to_end(socket: &mut TcpStream, bytes: usize) -> Vec<u8> {
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut found = vec![0; bytes];
    socket.read_exact(&mut found).unwrap();
    found
}

/// True if no sent bytes are in flight, and the peer's window has no room for the waiting ones.
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
        let mut after = TcpStream::from(restore(&mut frozen, Intake::default()).unwrap());
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
        // The kernel would buffer more for a connection that is read so fast.
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
        let send =
            || assert_eq!(rustix::net::send(&client, &[7; 1_000], SendFlags::DONTWAIT), Ok(1_000));
        (0..10).for_each(|_| send());
        until("what was sent", || repair::receive_queue_bytes(&before).unwrap() == 10_000);
        // From here on the peer has a promise of more room than the socket has.
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
        let mut after = TcpStream::from(restore(&mut frozen, Intake::default()).unwrap());
        read_to_end(&mut after, 14_000 - frozen.unread.len());
    });
}

#[test]
fn bytes_around_an_urgent_byte_are_not_lost() {
    on_small_segments(|address| {
        let listener = crate::acceptor::listen(address.parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let client = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let before = OwnedFd::from(listener.accept().unwrap().0);
        for (bytes, flags) in
            [(b"ab", SendFlags::empty()), (b"c!", SendFlags::OOB), (b"de", SendFlags::empty())]
        {
            assert_eq!(rustix::net::send(&client, bytes, flags), Ok(2));
        }
        until("what was sent", || repair::counts(&before).unwrap().received == 6);
        let (mut unread, mut after) = (Vec::new(), None);
        if let Ok(mut frozen) = freeze(&before, FrozenLimits::default()) {
            after = Some(restore(&mut frozen, Intake::default()).unwrap());
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
        assert!(
            after & 1 == 0 && (1..=2).contains(&after.wrapping_sub(before)),
            "{before} {after}"
        );
    }
}

/// Limits on the buffers of a proxy's host and of an agent's.
const OWNER: Intake = Intake { bytes: Some(64 << 10), promises_no_more: false };
const GUEST: Intake = Intake { bytes: Some(128 << 10), promises_no_more: true };

/// Reads a client's connection for a while, `before` bytes at a time, and then moves it from host
/// to host, where nobody reads. At each the client sends pieces of `size` bytes, up to `bytes` in
/// all. Returns false if a host heard it only after it read.
///
/// The kernel may promise more room than it has: its estimate of the memory that a segment takes is
/// rough. It then drops a segment within the window that it promised, closes the window, and hears
/// nothing of that peer, not even an acknowledgement, until somebody reads.
fn is_heard_where_nobody_reads(address: &str, before: usize, size: usize, bytes: usize) -> bool {
    let (listener, three_seconds) =
        (crate::acceptor::listen(address.parse().unwrap()).unwrap(), Duration::from_secs(3));
    crate::acceptor::limit_receive(&listener, OWNER.bytes.unwrap()).unwrap();
    listener.set_nonblocking(false).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let mut server = listener.accept().unwrap().0;
    // The kernel derives its promise of room from the first segments.
    for _ in 0..64 {
        client.write_all(&vec![7; before]).unwrap();
        read_to_end(&mut server, before);
    }
    let (client, mut server) = (OwnedFd::from(client), OwnedFd::from(server));
    for (host, intake) in [GUEST, OWNER, GUEST, OWNER].into_iter().enumerate() {
        let room = FrozenLimits { unread_bytes_max: 1 << 30, ..FrozenLimits::default() };
        let mut frozen = freeze(&server, room).unwrap();
        server = restore(&mut frozen, intake).unwrap();
        // The number of bytes that the client can send does not matter.
        let (mut sent, begun) = (0, Instant::now());
        while sent < bytes && !is_stuck(&client) && begun.elapsed() < three_seconds {
            match rustix::net::send(&client, &vec![7; size], SendFlags::DONTWAIT) {
                Ok(count) => sent += count,
                Err(_) => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
        if rustix::net::send(&server, &[8; 1_000], SendFlags::DONTWAIT) != Ok(1_000) {
            // No guard is here: a reset answered the packets that the client sent while its
            // connection was away.
            return true;
        }
        if !is_so_within(3_000, || unacknowledged(&server) == 0) {
            let promised = frozen.state.window.receive;
            let what = format!(
                "an acknowledgement: {before}, then {size} of {bytes}: host {host} had {promised} \
                 promised"
            );
            let mut server = TcpStream::from(server);
            read_to_end(&mut server, sent);
            let server = OwnedFd::from(server);
            until(&what, || unacknowledged(&server) == 0);
            return false;
        }
    }
    true
}

#[test]
fn a_client_is_heard_whatever_it_sends_where_nobody_reads() {
    on_small_segments(|address| {
        let mut late = Vec::new();
        for before in [100, 1_000, 16 << 10] {
            for size in [50, 100, 500, 536, 800, 1_400, 4_000, 64 << 10] {
                for bytes in [20_000, 60_000, 300_000] {
                    if !is_heard_where_nobody_reads(address, before, size, bytes) {
                        late.push((before, size, bytes));
                    }
                }
            }
        }
        // On a busy machine this happens to one of some 5,000 connections.
        assert!(late.len() <= 3, "heard only after a read: {late:?}");
    });
}
