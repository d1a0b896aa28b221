//! Backpressure in both directions: pausing, resuming, draining.

use std::io::{Read, Write};
use std::time::Duration;

use shunt_reactor::{CloseReason, ConnId, IoChoice};

use crate::support::*;

for_each_driver!(
    kept_bytes_come_with_the_resume,
    a_paused_connection_costs_no_turns,
    a_reset_while_paused_is_reported,
    an_end_while_paused_comes_after_the_resume,
    pause_and_resume_in_one_turn,
    drained_without_another_event,
    drained_when_a_slow_reader_has_read,
    unacknowledged_is_what_the_peer_has_not_got,
    output_is_one_write_per_turn,
    held_output_leaves_once_it_is_let_go,
    a_flood_starves_nobody,
);

/// Consumes ten bytes, pauses, and is resumed by mail.
fn kept_bytes_come_with_the_resume(choice: IoChoice) {
    let mut conns = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Accepted(conn, _) => {
            conns.push(conn);
            0
        }
        Event::Received(conn, data) => {
            io.pause_reading(conn);
            assert!(io.is_paused(conn));
            tell(data.to_vec());
            data.len().min(10)
        }
        Event::Mail(_) => {
            io.resume_reading(conns[0]);
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    let bytes = pattern(35, 1);
    client.write_all(&bytes).unwrap();
    assert_eq!(next(&told), bytes);
    for start in [10, 20] {
        server.core.post(0);
        assert_eq!(next(&told), bytes[start..]);
    }
    // The resume comes before, after or between the next bytes.
    client.write_all(b"more").unwrap();
    server.core.post(0);
    let mut last = next(&told);
    if last.len() == 5 {
        server.core.post(0);
        last.extend(next(&told));
    }
    assert_eq!(last[5..], *b"more");
}

/// Level-triggered events of a paused connection must not turn the loop.
fn a_paused_connection_costs_no_turns(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Accepted(conn, _) => {
            io.pause_reading(conn);
            tell(0);
            0
        }
        Event::Mail(_) => {
            tell(io.counters().turns);
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    next(&told);
    for _ in 0..50 {
        client.write_all(&pattern(1000, 1)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    server.core.post(0);
    assert!(next(&told) < 20);
}

fn a_reset_while_paused_is_reported(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Received(conn, data) => {
            io.pause_reading(conn);
            tell(None);
            data.len()
        }
        Event::Closed(_, reason) => {
            tell(Some(reason));
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"x").unwrap();
    assert_eq!(next(&told), None);
    reset_on_close(&client);
    drop(client);
    assert_eq!(next(&told), Some(CloseReason::Reset));
}

fn an_end_while_paused_comes_after_the_resume(choice: IoChoice) {
    let mut conns: Vec<ConnId> = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Received(conn, data) => {
            conns.push(conn);
            tell(format!("{}", data.len()));
            if conns.len() == 1 {
                io.pause_reading(conn);
                return 0;
            }
            data.len()
        }
        Event::Closed(_, reason) => {
            tell(format!("{reason:?}"));
            0
        }
        Event::Mail(1) => {
            tell("mail".into());
            0
        }
        Event::Mail(_) => {
            io.resume_reading(conns[0]);
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"abc").unwrap();
    assert_eq!(next(&told), "3");
    drop(client);
    std::thread::sleep(Duration::from_millis(20));
    server.core.post(1);
    assert_eq!(next(&told), "mail");
    server.core.post(2);
    assert_eq!(next(&told), "3");
    assert_eq!(next(&told), "Peer");
}

fn pause_and_resume_in_one_turn(choice: IoChoice) {
    let mut waiting: Vec<ConnId> = Vec::new();
    let server = Server::start(choice, move |io, event| match event {
        Event::Received(conn, data) => {
            io.output(conn).push(data[0]);
            io.pause_reading(conn);
            waiting.push(conn);
            1
        }
        Event::TurnEnded => {
            for conn in waiting.drain(..) {
                io.resume_reading(conn);
            }
            0
        }
        _ => 0,
    });
    round_trip(&mut server.connect(), &pattern(3000, 9));
}

/// No socket has an event after the request for the notification.
fn drained_without_another_event(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Accepted(conn, _) => {
            io.output(conn).extend_from_slice(b"hello");
            io.notify_drained(conn, 0);
            0
        }
        Event::Drained(conn) => {
            tell(io.backlog(conn));
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    assert_eq!(next(&told), 0);
    assert_eq!(read_exactly(&mut client, 5), b"hello");
    // It is reported only once.
    assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
}

fn drained_when_a_slow_reader_has_read(choice: IoChoice) {
    const BYTES: usize = 16 << 20;
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Accepted(conn, _) => {
            io.output(conn).extend(pattern(BYTES, 3));
            assert_eq!(io.backlog(conn), BYTES);
            io.notify_drained(conn, 1000);
            0
        }
        Event::Mail(_) => {
            tell(usize::MAX);
            0
        }
        Event::Drained(conn) => {
            tell(io.backlog(conn));
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.peek(&mut [0]).unwrap();
    server.core.post(0);
    assert_eq!(next(&told), usize::MAX, "drained although nobody has read");
    assert!(read_exactly(&mut client, BYTES) == pattern(BYTES, 3));
    assert!(next(&told) <= 1000);
}

/// The bytes in the loop or in the kernel: all of them as long as nobody reads, and none once all
/// are read.
fn unacknowledged_is_what_the_peer_has_not_got(choice: IoChoice) {
    const BYTES: usize = 16 << 20;
    let mut conns = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Accepted(conn, _) => {
            conns.push(conn);
            io.output(conn).extend(pattern(BYTES, 3));
            0
        }
        Event::Mail(_) => {
            io.ask_unacknowledged(conns[0]);
            0
        }
        Event::Unacknowledged(conn, bytes) => {
            assert_eq!(conn, conns[0]);
            tell(bytes);
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.peek(&mut [0]).unwrap();
    server.core.post(0);
    let first = next(&told);
    assert!(first > 0 && first <= BYTES, "{first} of {BYTES} bytes, and nobody has read one");
    assert!(read_exactly(&mut client, BYTES) == pattern(BYTES, 3));
    let mut last = first;
    while last > 0 {
        server.core.post(0);
        let bytes = next(&told);
        assert!(bytes <= last, "nothing is written any more");
        last = bytes;
    }
}

fn output_is_one_write_per_turn(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Received(conn, data) => {
            for byte in data {
                io.output(conn).push(*byte);
            }
            data.len()
        }
        Event::TurnEnded => 0,
        Event::Closed(conn, _) => {
            tell((io.writes_of(conn), io.counters().reads));
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    for seed in 0..20 {
        round_trip(&mut client, &pattern(500, seed));
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let (writes, reads) = next(&told);
    assert!(writes >= 20 && writes <= reads, "{writes} writes for {reads} reads");
}

/// More than the kernel takes at once, so that the rest is held while the socket becomes writable
/// again and again.
fn held_output_leaves_once_it_is_let_go(choice: IoChoice) {
    const BYTES: usize = 8 << 20;
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Accepted(conn, _) => {
            io.output(conn).extend(pattern(BYTES, 4));
            0
        }
        Event::Received(conn, data) => {
            io.hold(conn, data == b"hold");
            io.output(conn).extend_from_slice(data);
            tell(io.backlog(conn));
            data.len()
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"hold").unwrap();
    assert!(next(&told) > 4);
    assert!(read_exactly(&mut client, BYTES) == pattern(BYTES, 4));
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    client.write_all(b"go").unwrap();
    assert_eq!(next(&told), 6);
    assert_eq!(read_exactly(&mut client, 6), b"holdgo");
}

fn a_flood_starves_nobody(choice: IoChoice) {
    let server = Server::start(choice, echo_short);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut flood = server.connect();
                let bytes = vec![0; 1 << 20];
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    flood.write_all(&bytes).unwrap();
                }
            });
        }
        let mut client = server.connect();
        for seed in 0..200 {
            round_trip(&mut client, &pattern(70, seed));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Echoes messages, swallows floods.
fn echo_short(io: &mut shunt_reactor::Io, event: Event<'_>) -> usize {
    match event {
        Event::Received(_, data) if data[0] == 0 && data.len() > 70 => data.len(),
        other => echo(io, other),
    }
}
