//! Datagrams between real sockets: a received one is handed over with its sender, and sent ones
//! leave with the turn.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use shunt_reactor::{
    Accepted, CloseReason, ConnId, Io, IoChoice, LoopOptions, Service, bind_datagrams, mailbox, run,
};

/// Far beyond what anything takes here.
const PATIENCE: Duration = Duration::from_secs(180);

/// Echoes datagrams; `end` stops it.
struct Echo;

impl Service for Echo {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, _mail: ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}

    fn datagram(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        if data == b"end" {
            io.stop();
        }
        // Nobody can take it: it is dropped and counted, and the next one leaves all the same.
        if data == b"too long" {
            io.send_datagram(from, &[0; 70_000]);
            assert_eq!(io.datagrams_dropped(), 0);
            return;
        }
        let text = [data, format!(" {}", io.datagrams_dropped()).as_bytes()].concat();
        io.send_datagram(from, &text);
    }
}

/// Sends this many at once for each received one; every third is lost, because it is too long.
struct Many;

const MANY: u8 = 100;

impl Service for Many {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, _mail: ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}

    fn datagram(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        if data == b"end" {
            io.stop();
            return io.send_datagram(from, format!("{}", io.datagrams_dropped()).as_bytes());
        }
        for number in 0..MANY {
            let length = if number % 3 == 2 { 70_000 } else { usize::from(number) + 1 };
            io.send_datagram(from, &vec![number; length]);
        }
    }
}

#[test]
fn a_datagram_that_cannot_be_sent_takes_no_other_with_it() {
    for at_once in [0, 1, 2, 3, 32, usize::MAX] {
        let socket = bind_datagrams("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        let many = socket.local_addr().unwrap();
        let (_mailer, inbox) = mailbox(1).unwrap();
        let options = LoopOptions { datagrams_at_once: at_once, ..options(socket) };
        let server = std::thread::spawn(move || run(IoChoice::Epoll, options, &mut Many, inbox));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(b"begin", many).unwrap();
        let mut buffer = [0; 200];
        for number in (0..MANY).filter(|number| number % 3 != 2) {
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], vec![number; usize::from(number) + 1]);
        }
        client.send_to(b"end", many).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"33");
        server.join().unwrap().unwrap();
    }
}

fn options(socket: UdpSocket) -> LoopOptions {
    LoopOptions { datagrams: Some(Arc::new(socket)), ..LoopOptions::default() }
}

#[test]
fn datagrams_come_and_go() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let socket = bind_datagrams(address.parse().unwrap(), 1).unwrap().remove(0);
        let echo = socket.local_addr().unwrap();
        let (_mailer, inbox) = mailbox(1).unwrap();
        let server =
            std::thread::spawn(move || run(IoChoice::Epoll, options(socket), &mut Echo, inbox));
        let client = UdpSocket::bind(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = |text: &str| {
            client.send_to(text.as_bytes(), echo).unwrap();
            let mut buffer = [0; 100];
            let (length, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!(from, echo);
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        assert_eq!(answer("one"), "one 0");
        client.send_to(b"too long", echo).unwrap();
        // It may have come in the same turn, whose end drops the one before it.
        assert!((0..100).any(|_| answer("two") == "two 1"));
        assert_eq!(answer("end"), "end 1");
        server.join().unwrap().unwrap();
    }
}

#[test]
fn several_loops_share_an_address_and_one_alone_does_not() {
    let sockets = bind_datagrams("127.0.0.1:0".parse().unwrap(), 3).unwrap();
    let address = sockets[0].local_addr().unwrap();
    assert!(sockets.iter().all(|socket| socket.local_addr().unwrap() == address));
    let alone = bind_datagrams("127.0.0.1:0".parse().unwrap(), 1).unwrap();
    assert!(bind_datagrams(alone[0].local_addr().unwrap(), 1).is_err());
}

#[test]
fn only_epoll_has_them() {
    let socket = bind_datagrams("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let (_mailer, inbox) = mailbox(1).unwrap();
    let error = run(IoChoice::Uring, options(socket), &mut Echo, inbox).unwrap_err();
    assert!(error.to_string().contains("epoll"), "{error}");
}
