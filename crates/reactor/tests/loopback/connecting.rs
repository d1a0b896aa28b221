//! Outgoing connections.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use shunt_reactor::{CloseReason, ConnId, IoChoice};

use crate::support::*;

for_each_driver!(
    connects_and_talks,
    a_refused_connect,
    a_connect_that_times_out,
    an_address_nobody_can_have,
    given_up_while_connecting,
);

/// Bytes written before the connection stands are sent when it does.
fn connects_and_talks(choice: IoChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (handler, told) = reporting(move |io, event, tell| match event {
        Event::Started => {
            let conn = io.connect(address, PATIENCE_NS);
            assert!(io.is_open(conn));
            io.output(conn).extend_from_slice(b"early ");
            0
        }
        Event::Connected(conn) => {
            io.output(conn).extend_from_slice(b"bird");
            tell(io.counters().connects);
            0
        }
        other => echo(io, other),
    });
    let _core = Loop::start(choice, handler);
    let (mut peer, _) = listener.accept().unwrap();
    guard(&peer);
    assert_eq!(read_exactly(&mut peer, 10), b"early bird");
    assert_eq!(next(&told), 1);
    round_trip(&mut peer, b"echo");
}

fn closed_addresses() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn outcome_of_connect(choice: IoChoice, address: SocketAddr, timeout_ns: u64) -> CloseReason {
    let mut started: Option<ConnId> = None;
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Started => {
                let conn = io.connect(address, timeout_ns);
                io.output(conn).extend_from_slice(b"never sent");
                started = Some(conn);
            }
            Event::Connected(_) => panic!("connected"),
            Event::Closed(conn, reason) => {
                assert_eq!(Some(conn), started);
                tell(reason);
            }
            _ => {}
        }
        0
    });
    let core = Loop::start(choice, handler);
    let reason = next(&told);
    core.join();
    reason
}

fn a_refused_connect(choice: IoChoice) {
    let reason = outcome_of_connect(choice, closed_addresses(), PATIENCE_NS);
    assert_eq!(reason, CloseReason::ConnectFailed(ErrorKind::ConnectionRefused));
}

/// A listener whose queue is full leaves a connect without an answer, as long as both values live.
fn silent_address() -> (SocketAddr, (TcpListener, TcpStream)) {
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let in_queue = TcpStream::connect(address).unwrap();
    (address, (listener, in_queue))
}

fn a_connect_that_times_out(choice: IoChoice) {
    let (address, _alive) = silent_address();
    assert_eq!(outcome_of_connect(choice, address, 30_000_000), CloseReason::ConnectTimedOut);
}

/// The system call fails; still the error is not reported inline.
fn an_address_nobody_can_have(choice: IoChoice) {
    // Broadcast addresses cannot be connected to over TCP.
    let address = "255.255.255.255:9".parse().unwrap();
    let reason = outcome_of_connect(choice, address, PATIENCE_NS);
    assert!(matches!(reason, CloseReason::ConnectFailed(_)), "{reason:?}");
}

fn given_up_while_connecting(choice: IoChoice) {
    let (address, _alive) = silent_address();
    let mut conns: Vec<ConnId> = Vec::new();
    let (handler, told) = reporting(move |io, event, tell| {
        match event {
            Event::Started => {
                conns.extend((0..4).map(|_| io.connect(address, PATIENCE_NS)));
                // One before the connect has even started, and one after.
                io.close(conns[0]);
                io.abort(conns[1]);
                io.set_timer(io.now_ns() + 1_000_000, 1);
            }
            // The first two are on their way out.
            Event::Timer(1) if io.connections() > 2 => io.set_timer(io.now_ns() + 100_000, 1),
            Event::Timer(1) => {
                assert_eq!(io.connections(), 2);
                io.output(conns[2]).push(1);
                io.close(conns[2]);
                io.abort(conns[3]);
                io.set_timer(io.now_ns(), 2);
            }
            Event::Timer(_) if io.connections() == 0 => tell(()),
            Event::Timer(_) => io.set_timer(io.now_ns() + 100_000, 2),
            Event::Connected(_) | Event::Closed(..) => panic!("told of a connection it had closed"),
            _ => {}
        }
        0
    });
    let core = Loop::start(choice, handler);
    next(&told);
    core.join();
}
