//! The ends of a connection: who hears of them, what is still delivered, and that a stale id does
//! nothing.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use shunt_reactor::{CloseReason, ConnId, IoChoice, LoopOptions};

use crate::support::*;

for_each_driver!(
    the_peer_closes,
    the_peer_resets,
    close_flushes_to_a_slow_reader,
    close_is_bounded,
    a_close_beside_a_send_that_is_stuck,
    a_close_right_after_a_resume,
    abort_resets,
    abort_while_a_send_is_stuck,
    the_loop_ends_while_a_send_is_stuck,
    a_write_to_a_dead_peer_is_noticed_once,
    a_kept_end_of_the_stream_ends_nothing,
    an_end_of_the_output_is_acknowledged_and_closes_nothing,
    answers_reach_a_half_closed_peer,
    no_callback_after_the_services_own_close,
    a_stale_id_reaches_nobody,
    the_last_flush_leaves_before_the_loop_ends,
    load_is_counted_down,
);

fn the_peer_closes(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| {
        if let Event::Closed(conn, reason) = event {
            assert!(io.is_open(conn));
            tell((reason, io.unread(conn)));
        }
        0
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"half a frame").unwrap();
    drop(client);
    assert_eq!(next(&told), (CloseReason::Peer, 12));
    assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
}

fn the_peer_resets(choice: IoChoice) {
    let (handler, told) = reporting(|_, event, tell| match event {
        Event::Received(_, data) => {
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

/// The client has sent more than the service ever reads, which must not cost it the answer.
fn close_flushes_to_a_slow_reader(choice: IoChoice) {
    const BYTES: usize = 8 << 20;
    let server = Server::start(choice, |io, event| {
        if let Event::Received(conn, _) = event {
            io.output(conn).extend(pattern(BYTES, 5));
            io.close(conn);
            assert!(!io.is_open(conn));
        }
        0
    });
    let mut client = server.connect();
    client.write_all(&pattern(200_000, 1)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(read_exactly(&mut client, BYTES) == pattern(BYTES, 5));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// A peer that neither reads nor closes does not keep the connection for ever.
fn close_is_bounded(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| {
        match event {
            Event::Accepted(conn, _) => {
                io.output(conn).extend(pattern(32 << 20, 5));
                io.close(conn);
                io.set_timer(io.now_ns(), 0);
            }
            Event::Timer(_) if io.connections() == 0 => tell(()),
            Event::Timer(_) => io.set_timer(io.now_ns() + 1_000_000, 0),
            _ => {}
        }
        0
    });
    let options = LoopOptions { linger_ns: 50_000_000, ..LoopOptions::default() };
    let server = Server::start_with(choice, options, handler);
    let client = server.connect();
    next(&told);
    drop(client);
}

/// Bytes that another peer does not take must not delay the end of this connection until the loop
/// has another event.
fn a_close_beside_a_send_that_is_stuck(choice: IoChoice) {
    let mut first: Option<ConnId> = None;
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Accepted(conn, _) => {
            first.get_or_insert(conn);
            tell(());
            0
        }
        Event::Received(conn, data) => {
            io.output(conn).extend_from_slice(b"bye");
            io.output(first.unwrap()).resize(32 << 20, 7);
            io.close(conn);
            data.len()
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let _stuck = server.connect();
    next(&told);
    let mut client = server.connect();
    client.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut client, 3), b"bye");
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// Bytes that the peer still sends are taken and discarded, as after any other close: it may read
/// only when it is done.
fn a_close_right_after_a_resume(choice: IoChoice) {
    let mut conns = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Accepted(conn, _) => {
                io.pause_reading(conn);
                conns.push(conn);
                tell(());
            }
            Event::Mail(_) => {
                io.resume_reading(conns[0]);
                io.close(conns[0]);
            }
            _ => {}
        }
        0
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    next(&told);
    client.write_all(&pattern(100_000, 1)).unwrap();
    // The loop has noticed it now, and asks for no more.
    std::thread::sleep(Duration::from_millis(50));
    server.core.post(0);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.write_all(&vec![0; 64 << 20]).unwrap();
}

fn abort_resets(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Received(conn, data) => {
            io.output(conn).extend_from_slice(b"never sent");
            io.abort(conn);
            assert!(!io.is_open(conn));
            data.len()
        }
        Event::Closed(..) => {
            tell(());
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"x").unwrap();
    assert_eq!(client.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(told.try_recv().is_err());
}

/// The kernel may still be reading the buffer; the slot is reused soon.
fn abort_while_a_send_is_stuck(choice: IoChoice) {
    let mut conns: Vec<ConnId> = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Accepted(conn, _) if conns.is_empty() => {
            conns.push(conn);
            io.output(conn).extend(pattern(32 << 20, 1));
            0
        }
        Event::Mail(0) => {
            io.abort(conns[0]);
            0
        }
        Event::Mail(_) => {
            tell(io.connections());
            0
        }
        Event::Closed(conn, _) => {
            assert_ne!(conn, conns[0], "told of a connection it had aborted");
            0
        }
        other => echo(io, other),
    });
    let server = Server::start(choice, handler);
    let mut stuck = server.connect();
    stuck.peek(&mut [0]).unwrap();
    server.core.post(0);
    let mut received = Vec::new();
    // The client sees a reset, or the end if it had read all earlier bytes; in any case not
    // everything.
    let _ = stuck.read_to_end(&mut received);
    assert!(received.len() < 32 << 20 && pattern(32 << 20, 1).starts_with(&received));
    until("no connection", || {
        server.core.post(1);
        next(&told) == 0
    });
    round_trip(&mut server.connect(), &pattern(5000, 2));
}

fn the_loop_ends_while_a_send_is_stuck(choice: IoChoice) {
    let server = Server::start(choice, |io, event| {
        if let Event::Accepted(conn, _) = event {
            io.output(conn).extend(pattern(32 << 20, 1));
        }
        0
    });
    let mut stuck = server.connect();
    stuck.peek(&mut [0]).unwrap();
    server.core.join();
    let mut received = Vec::new();
    let _ = stuck.read_to_end(&mut received);
    assert!(pattern(32 << 20, 1).starts_with(&received));
}

fn a_write_to_a_dead_peer_is_noticed_once(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Received(conn, data) => {
            // The service would talk to it for ever.
            io.pause_reading(conn);
            io.notify_drained(conn, usize::MAX);
            data.len()
        }
        Event::Drained(conn) => {
            if io.backlog(conn) < 1 << 20 {
                io.output(conn).extend_from_slice(&[7; 10_000]);
            }
            io.notify_drained(conn, usize::MAX);
            0
        }
        Event::Closed(conn, reason) => {
            assert!(io.is_open(conn));
            tell(reason);
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    for _ in 0..20 {
        let mut client = server.connect();
        client.write_all(b"x").unwrap();
        read_exactly(&mut client, 20_000);
        drop(client);
        assert_eq!(next(&told), CloseReason::Reset);
    }
    assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
}

/// The service is not told of the end, can ask for it, and goes on writing.
fn a_kept_end_of_the_stream_ends_nothing(choice: IoChoice) {
    let mut conns = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Accepted(conn, _) => {
                io.keep_end(conn);
                conns.push(conn);
                tell(Ok(false));
            }
            Event::Mail(0) => tell(Ok(io.has_ended(conns[0]))),
            Event::Mail(1) => io.output(conns[0]).extend_from_slice(b"late"),
            Event::Mail(_) => io.close(conns[0]),
            Event::Closed(_, reason) => tell(Err(reason)),
            _ => {}
        }
        0
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    assert_eq!(next(&told), Ok(false));
    let has_ended = || {
        server.core.post(0);
        next(&told)
    };
    assert_eq!(has_ended(), Ok(false));
    client.shutdown(std::net::Shutdown::Write).unwrap();
    until("the end of the stream", || has_ended() == Ok(true));
    for _ in 0..3 {
        server.core.post(1);
        assert_eq!(read_exactly(&mut client, 4), b"late");
    }
    server.core.post(2);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert!(told.try_recv().is_err(), "it was not told of the end");
}

/// The service learns that the peer has its end, and hears of nothing else.
fn an_end_of_the_output_is_acknowledged_and_closes_nothing(choice: IoChoice) {
    let mut conns = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Accepted(conn, _) => {
                io.keep_end(conn);
                conns.push(conn);
                tell(Ok(usize::MAX));
            }
            Event::Mail(0) => tell(Ok(usize::from(io.has_ended(conns[0])))),
            Event::Mail(1) => io.end_output(conns[0]),
            Event::Mail(2) => io.ask_unacknowledged(conns[0]),
            Event::Mail(_) => io.close(conns[0]),
            Event::Unacknowledged(_, bytes) => tell(Ok(bytes)),
            Event::Closed(_, reason) => tell(Err(reason)),
            _ => {}
        }
        0
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    assert_eq!(next(&told), Ok(usize::MAX));
    let ask = |question| {
        server.core.post(question);
        next(&told)
    };
    client.shutdown(std::net::Shutdown::Write).unwrap();
    until("the end of the stream", || ask(0) == Ok(1));
    server.core.post(1);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    until("the acknowledgement of the end", || ask(2) == Ok(0));
    assert_eq!(ask(0), Ok(1), "it is still there");
    server.core.post(3);
    assert!(told.try_recv().is_err(), "it was not told of the end");
}

fn answers_reach_a_half_closed_peer(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Received(conn, data) if data.ends_with(b".") => {
            io.output(conn).extend(pattern(4 << 20, 8));
            data.len()
        }
        Event::Closed(_, reason) => {
            tell(reason);
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"all I have to say.").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(next(&told), CloseReason::Peer);
    assert!(read_exactly(&mut client, 4 << 20) == pattern(4 << 20, 8));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

fn no_callback_after_the_services_own_close(choice: IoChoice) {
    let mut over = false;
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Received(conn, data) => {
            assert!(!over, "received after close");
            over = true;
            io.notify_drained(conn, 0);
            io.close(conn);
            io.resume_reading(conn);
            data.len()
        }
        Event::Drained(_) | Event::Closed(..) => panic!("told of a connection it had closed"),
        Event::Mail(_) => {
            tell(io.connections());
            0
        }
        _ => 0,
    });
    let server = Server::start(choice, handler);
    let mut client = server.connect();
    client.write_all(b"x").unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.write_all(b"more").unwrap();
    drop(client);
    until("no connection", || {
        server.core.post(0);
        next(&told) == 0
    });
    server.core.join();
}

fn a_stale_id_reaches_nobody(choice: IoChoice) {
    let mut old: Option<ConnId> = None;
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Accepted(conn, _) => {
            tell(Some(conn));
            match old {
                None => old = Some(conn),
                Some(old) => {
                    assert_eq!(old.index, conn.index);
                    assert!(!io.is_open(old) && io.is_open(conn));
                    io.output(old).extend_from_slice(b"for somebody else");
                    io.pause_reading(old);
                    io.notify_drained(old, 0);
                    io.keep_sent(old);
                    io.abort(old);
                    io.close(old);
                    assert_eq!(io.retain(old), u32::MAX);
                    io.release(old, 0);
                    assert!(io.sent(old, 0).is_empty());
                    assert_eq!((io.backlog(old), io.backlog(conn), io.unread(old)), (0, 0, 0));
                }
            }
            0
        }
        Event::Mail(_) => {
            if io.connections() == 0 {
                tell(None);
            }
            0
        }
        other => echo(io, other),
    });
    let server = Server::start(choice, handler);
    let first = server.connect();
    let id = next(&told).unwrap();
    drop(first);
    // Once the slot is free the next connection gets it.
    loop {
        server.core.post(0);
        match told.recv_timeout(Duration::from_millis(5)) {
            Ok(None) => break,
            Ok(Some(_)) => panic!("nobody else connects"),
            Err(_) => {}
        }
    }
    let mut second = server.connect();
    let other = std::iter::from_fn(|| Some(next(&told))).flatten().next().unwrap();
    assert_eq!(id.index, other.index);
    assert_ne!(id.generation, other.generation);
    round_trip(&mut second, b"only this");
}

fn the_last_flush_leaves_before_the_loop_ends(choice: IoChoice) {
    let server = Server::start(choice, |io, event| match event {
        Event::Received(conn, data) => {
            io.output(conn).extend_from_slice(b"goodbye");
            io.stop();
            data.len()
        }
        _ => 0,
    });
    let mut client = server.connect();
    client.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut client, 7), b"goodbye");
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    server.core.join();
}

fn load_is_counted_down(choice: IoChoice) {
    use std::sync::atomic::Ordering::Relaxed;
    let server = Server::start(choice, echo);
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &mut clients {
        round_trip(client, b"x");
    }
    assert_eq!(server.core.load.load(Relaxed), 5);
    clients.truncate(2);
    until("two connections", || server.core.load.load(Relaxed) == 2);
    round_trip(&mut clients[0], b"y");
}
