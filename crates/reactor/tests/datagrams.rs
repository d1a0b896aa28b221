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
    for (at_once, in_groups) in
        [0, 1, 2, 3, 32, usize::MAX].into_iter().flat_map(|count| [(count, false), (count, true)])
    {
        let socket = bind_datagrams("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
        let many = socket.local_addr().unwrap();
        let (_mailer, inbox) = mailbox(1).unwrap();
        let options = LoopOptions {
            datagrams_at_once: at_once,
            datagrams_in_groups: in_groups,
            ..options(socket)
        };
        let server = std::thread::spawn(move || run(IoChoice::Epoll, options, &mut Many, inbox));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(b"begin", many).unwrap();
        let mut buffer = [0; 200];
        let mut left: Vec<u8> = (0..MANY).filter(|number| number % 3 != 2).collect();
        while !left.is_empty() {
            let length = client.recv(&mut buffer).unwrap();
            let number = buffer[0];
            assert_eq!(&buffer[..length], vec![number; usize::from(number) + 1]);
            // In groups, those of one size go together; otherwise the order stays.
            let place = left.iter().position(|one| *one == number).unwrap();
            assert!(in_groups || place == 0, "{number} came before {left:?}");
            left.remove(place);
        }
        client.send_to(b"end", many).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"33");
        server.join().unwrap().unwrap();
    }
}

/// Sends this loop's peers datagrams of few sizes, and notes the ones that it gets.
struct Crowd {
    peers: Vec<SocketAddr>,
    got: std::sync::mpsc::Sender<Vec<u8>>,
}

/// Length of datagram `number` to a peer: runs of one size, shorter ones, and some without bytes.
fn crowd_length(number: u16) -> usize {
    match number {
        0 => 0,
        1..=90 => 300,
        91..=93 => 20,
        _ => usize::from(number) * 5,
    }
}

/// All of them fit into the buffer of a socket that is not read.
const CROWD: u16 = 100;

impl Service for Crowd {
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

    fn datagram(&mut self, io: &mut Io, _from: SocketAddr, data: &[u8]) {
        match data {
            b"end" => io.stop(),
            b"begin" => {
                for number in 0..CROWD {
                    for peer in &self.peers {
                        let mut datagram = number.to_be_bytes().repeat(1_000);
                        datagram.truncate(crowd_length(number));
                        io.send_datagram(*peer, &datagram);
                    }
                }
                assert_eq!(io.datagrams_dropped(), 0);
            }
            _ => _ = self.got.send(data.to_vec()),
        }
    }
}

#[test]
fn datagrams_that_leave_in_groups_come_one_by_one() {
    for (from, to) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
        for in_groups in [false, true] {
            let (got, from_loop) = std::sync::mpsc::channel();
            let [sender, receiver] = [from, to]
                .map(|address| bind_datagrams(address.parse().unwrap(), 1).unwrap().remove(0));
            let [begin, end] = [&sender, &receiver].map(|socket| socket.local_addr().unwrap());
            // This one has no part in the kernel's gathering of what comes.
            let plain = UdpSocket::bind(to).unwrap();
            plain.set_read_timeout(Some(PATIENCE)).unwrap();
            let start = |socket: UdpSocket, peers: Vec<SocketAddr>| {
                let options = LoopOptions { datagrams_in_groups: in_groups, ..options(socket) };
                let (mut crowd, (_mailer, inbox)) =
                    (Crowd { peers, got: got.clone() }, mailbox(1).unwrap());
                std::thread::spawn(move || run(IoChoice::Epoll, options, &mut crowd, inbox))
            };
            let loops = [
                start(sender, vec![end, plain.local_addr().unwrap()]),
                start(receiver, Vec::new()),
            ];
            plain.send_to(b"begin", begin).unwrap();
            let mut wanted: Vec<Vec<u8>> = (0..CROWD)
                .map(|number| {
                    let mut datagram = number.to_be_bytes().repeat(1_000);
                    datagram.truncate(crowd_length(number));
                    datagram
                })
                .collect();
            wanted.sort();
            let mut buffer = [0; 70_000];
            let mut at_plain: Vec<Vec<u8>> = (0..CROWD)
                .map(|_| {
                    let length = plain.recv(&mut buffer).unwrap();
                    buffer[..length].to_vec()
                })
                .collect();
            at_plain.sort();
            assert_eq!(at_plain, wanted);
            let mut at_loop: Vec<Vec<u8>> =
                (0..CROWD).map(|_| from_loop.recv_timeout(PATIENCE).unwrap()).collect();
            at_loop.sort();
            assert_eq!(at_loop, wanted);
            for (address, running) in [begin, end].into_iter().zip(loops) {
                plain.send_to(b"end", address).unwrap();
                running.join().unwrap().unwrap();
            }
        }
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
