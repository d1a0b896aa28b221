//! Encrypted connections: handshakes beside the acceptor, and those of outgoing connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shunt_reactor::sim::{Random, TornSession};
use shunt_reactor::{
    Accepted, Acceptor, Admission, CloseReason, ConnId, HandshakeLimits, Io, IoChoice, Security,
    Session, SessionFault, SessionInfo, listen,
};

use crate::support::*;

for_each_driver!(
    bytes_pass_in_both_directions,
    plain_and_encrypted_clients_share_a_port,
    a_refused_client_reads_the_refusal,
    the_oldest_silent_client_makes_room,
    an_address_makes_room_for_itself_alone,
    many_addresses_close_no_client_that_has_a_few,
    the_end_waits_for_the_bytes_before_it,
    a_client_may_end_in_the_write_that_ends_its_handshake,
    an_end_is_answered_with_an_end,
    answers_reach_a_client_that_sends_no_more,
    a_stream_that_is_cut_gives_nothing_of_its_last_record,
    a_silent_client_has_a_deadline,
    a_broken_record_ends_the_connection,
    outgoing_connections_are_encrypted,
    a_failed_handshake_of_an_outgoing_connection_is_reported,
    a_server_that_ends_a_handshake_was_reached,
);

/// First byte of a simulated handshake, and of two kinds of other clients.
const HANDSHAKE: u8 = b'H';
const REFUSED: u8 = b'r';

struct Sessions {
    seeds: AtomicU64,
    ended: Mutex<Sender<Result<SessionInfo, SessionFault>>>,
}

impl Security for Sessions {
    fn admit(&self, _origin: &Accepted, head: &[u8]) -> Admission {
        match head[0] {
            HANDSHAKE => {
                let random = Random::new(self.seeds.fetch_add(1, Relaxed));
                Admission::Session(Box::new(TornSession::new(random, false)))
            }
            REFUSED => Admission::Refused(b"no".to_vec()),
            _ => Admission::Plain,
        }
    }

    fn handshake_ended(&self, _origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        let _ = self.ended.lock().unwrap().send(outcome.cloned());
    }
}

struct SecureServer {
    core: Loop,
    address: SocketAddr,
    ended: std::sync::mpsc::Receiver<Result<SessionInfo, SessionFault>>,
    _acceptor: Acceptor,
}

impl SecureServer {
    fn start(
        choice: IoChoice,
        limits: HandshakeLimits,
        handler: impl FnMut(&mut shunt_reactor::Io, Event<'_>) -> usize + Send + 'static,
    ) -> SecureServer {
        let core = Loop::start(choice, handler);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, ended) = channel();
        let security: Arc<dyn Security> =
            Arc::new(Sessions { seeds: AtomicU64::new(7), ended: Mutex::new(sender) });
        let acceptor = Acceptor::start_with(
            vec![listener.into()],
            vec![core.slot()],
            Some((security, limits)),
        )
        .unwrap();
        SecureServer { core, address, ended, _acceptor: acceptor }
    }
}

const PATIENT: HandshakeLimits =
    HandshakeLimits { threads: 2, pending_max: 100, time_max: PATIENCE };

/// A blocking client with a session.
struct Client {
    stream: TcpStream,
    session: TornSession,
    received: Vec<u8>,
    plain: Vec<u8>,
    ended: bool,
}

impl Client {
    /// Completes the handshake, and sends `first` with its last flight.
    fn connect(address: SocketAddr, seed: u64, first: &[u8]) -> Client {
        let mut client = Client::begin(connect(address), seed);
        client.complete(first);
        client
    }

    /// Sends the first flight.
    fn begin(stream: TcpStream, seed: u64) -> Client {
        let mut client = Client {
            stream,
            session: TornSession::new(Random::new(seed), true),
            received: Vec::new(),
            plain: Vec::new(),
            ended: false,
        };
        let mut out = Vec::new();
        client.session.take_pending(&mut out);
        // A byte at a time: the server finds the start of a record only.
        out.iter().for_each(|byte| client.stream.write_all(&[*byte]).unwrap());
        client
    }

    fn complete(&mut self, first: &[u8]) {
        while self.session.is_handshaking() {
            assert!(self.read());
        }
        self.write(first);
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut out = Vec::new();
        self.session.take_pending(&mut out);
        self.session.seal(bytes, &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    /// Reads once. False at the end of the stream.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 50_000];
        let count = self.stream.read(&mut bytes).unwrap();
        self.received.extend_from_slice(&bytes[..count]);
        let opened = self.session.open(&mut self.received, &mut self.plain).unwrap();
        self.received.drain(..opened.consumed);
        self.ended |= opened.ended;
        if self.session.has_pending() && !self.session.is_handshaking() {
            self.write(b"");
        }
        count > 0
    }

    fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        while self.plain.len() < count {
            assert!(self.read());
        }
        self.plain.drain(..count).collect()
    }
}

fn bytes_pass_in_both_directions(choice: IoChoice) {
    let server = SecureServer::start(choice, PATIENT, |io, event| match event {
        Event::Received(conn, b"end") => {
            io.close(conn);
            3
        }
        event => echo(io, event),
    });
    let mut clients: Vec<_> = (0..20)
        .map(|seed| Client::connect(server.address, seed, format!("first {seed}").as_bytes()))
        .collect();
    for (seed, client) in clients.iter_mut().enumerate() {
        let first = format!("first {seed}");
        assert_eq!(client.read_exactly(first.len()), first.as_bytes());
    }
    for _ in 0..20 {
        assert_eq!(next(&server.ended).unwrap().version, "sim");
    }
    // More than one write seals, and more than the kernel holds.
    let bytes = pattern(3_000_000, 5);
    for client in &mut clients[..3] {
        std::thread::scope(|scope| {
            let mut out = Vec::new();
            client.session.take_pending(&mut out);
            client.session.seal(&bytes, &mut out).unwrap();
            let mut stream = client.stream.try_clone().unwrap();
            scope.spawn(move || stream.write_all(&out).unwrap());
            // What the session answers meanwhile would mix with the rest of that write.
            let mut received = vec![0; 1 << 16];
            while client.plain.len() < bytes.len() {
                let count = client.stream.read(&mut received).unwrap();
                assert!(count > 0);
                client.received.extend_from_slice(&received[..count]);
                let opened = client.session.open(&mut client.received, &mut client.plain).unwrap();
                client.received.drain(..opened.consumed);
            }
        });
        assert!(client.plain == bytes);
        client.plain.clear();
    }
    for client in &mut clients {
        client.write(b"end");
        while client.read() {}
        assert!(client.ended, "the end of the stream was not announced");
    }
}

fn plain_and_encrypted_clients_share_a_port(choice: IoChoice) {
    let server = SecureServer::start(choice, PATIENT, echo);
    let mut plain = connect(server.address);
    round_trip(&mut plain, b"plain");
    let mut encrypted = Client::connect(server.address, 1, b"sealed");
    assert_eq!(encrypted.read_exactly(6), b"sealed");
    round_trip(&mut plain, b"plain again");
    assert_eq!(server.core.load.load(Relaxed), 2);
}

fn a_refused_client_reads_the_refusal(choice: IoChoice) {
    let server = SecureServer::start(choice, PATIENT, echo);
    let mut client = connect(server.address);
    client.write_all(&vec![REFUSED; 30_000]).unwrap();
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"no");
    assert_eq!(server.core.load.load(Relaxed), 0);
}

/// True once the server has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(0) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
        Ok(_) => false,
    }
}

fn the_oldest_silent_client_makes_room(choice: IoChoice) {
    // A quarter for one address.
    let limits = HandshakeLimits { threads: 1, pending_max: 12, time_max: PATIENCE };
    let server = SecureServer::start(choice, limits, echo);
    // Each has begun a handshake, or has said nothing at all.
    let mut silent: Vec<_> = (0..5)
        .map(|number| {
            let mut client = connect(server.address);
            if number % 2 == 0 {
                client.write_all(&[HANDSHAKE]).unwrap();
            }
            client
        })
        .collect();
    let mut client = Client::connect(server.address, 3, b"served");
    assert_eq!(client.read_exactly(6), b"served");
    assert!(silent[..3].iter_mut().all(is_closed), "the oldest had to go");
    silent[4].set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert!(!is_closed(&mut silent[4]), "the youngest had room");
    let faults: Vec<_> = server.ended.try_iter().filter_map(Result::err).collect();
    assert_eq!(faults.len(), 3);
    assert!(faults[0].to_string().contains("too many handshakes"), "{faults:?}");
}

/// Connects from another address of this host.
fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    guard(&stream);
    stream
}

fn an_address_makes_room_for_itself_alone(choice: IoChoice) {
    let limits = HandshakeLimits { threads: 1, pending_max: 8, time_max: PATIENCE };
    let server = SecureServer::start(choice, limits, echo);
    let mut client = Client::begin(connect_from([127, 0, 0, 9], server.address), 5);
    // The server has answered the first flight, so it knows the client.
    assert_eq!(client.stream.peek(&mut [0]).unwrap(), 1);
    let mut silent: Vec<_> = (0..30).map(|_| connect(server.address)).collect();
    assert!(silent[..20].iter_mut().all(is_closed));
    client.complete(b"still there");
    assert_eq!(client.read_exactly(11), b"still there");
}

fn many_addresses_close_no_client_that_has_a_few(choice: IoChoice) {
    let limits = HandshakeLimits { threads: 1, pending_max: 32, time_max: PATIENCE };
    let server = SecureServer::start(choice, limits, echo);
    // The server has answered each before the next one comes, so it knows their order.
    let begin = |source| {
        let client = Client::begin(connect_from(source, server.address), 1);
        assert_eq!(client.stream.peek(&mut [0]).unwrap(), 1);
        client
    };
    let mut first: Vec<_> = (1..=32).map(|last| begin([127, 0, 1, last])).collect();
    let mut clients: Vec<_> = (0..2).map(|_| begin([127, 0, 0, 9])).collect();
    let _later: Vec<_> = (1..=20).map(|last| begin([127, 0, 2, last])).collect();
    // Their answers come before the end.
    let is_gone = |client: &mut Client| match client.stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(first[..22].iter_mut().all(is_gone), "the oldest go");
    for client in &mut clients {
        client.complete(b"served");
        assert_eq!(client.read_exactly(6), b"served");
    }
}

fn the_end_waits_for_the_bytes_before_it(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| {
        match event {
            // A byte at a time, with a pause after each.
            Event::Received(conn, data) => {
                tell(Some(data[0]));
                io.pause_reading(conn);
                io.set_timer(io.now_ns(), u64::from(conn.index) << 32 | u64::from(conn.generation));
                return 1;
            }
            Event::Timer(key) => io.resume_reading(shunt_reactor::ConnId {
                index: (key >> 32) as u32,
                generation: key as u32,
            }),
            Event::Closed(_, reason) => {
                assert_eq!(reason, CloseReason::Peer);
                tell(None);
            }
            _ => {}
        }
        0
    });
    let server = SecureServer::start(choice, PATIENT, handler);
    let mut client = Client::connect(server.address, 1, b"");
    let mut out = Vec::new();
    client.session.seal(b"abcdefgh", &mut out).unwrap();
    client.session.end(&mut out);
    client.stream.write_all(&out).unwrap();
    let seen: Vec<_> = std::iter::from_fn(|| next(&told)).collect();
    assert_eq!(seen, b"abcdefgh");
}

fn a_client_may_end_in_the_write_that_ends_its_handshake(choice: IoChoice) {
    for first in [&b"a question"[..], b""] {
        let server = SecureServer::start(choice, PATIENT, echo);
        let mut client = Client::begin(connect(server.address), 1);
        let mut bytes = [0; 50_000];
        while client.session.is_handshaking() {
            let count = client.stream.read(&mut bytes).unwrap();
            assert!(count > 0);
            client.received.extend_from_slice(&bytes[..count]);
            let opened = client.session.open(&mut client.received, &mut client.plain).unwrap();
            client.received.drain(..opened.consumed);
        }
        let mut out = Vec::new();
        client.session.take_pending(&mut out);
        client.session.seal(first, &mut out).unwrap();
        client.session.end(&mut out);
        client.stream.write_all(&out).unwrap();
        while client.read() {}
        assert!(client.ended && client.plain == first);
    }
}

fn an_end_is_answered_with_an_end(choice: IoChoice) {
    let server = SecureServer::start(choice, PATIENT, echo);
    let mut client = Client::connect(server.address, 1, b"hello");
    assert_eq!(client.read_exactly(5), b"hello");
    let mut out = Vec::new();
    client.session.end(&mut out);
    client.stream.write_all(&out).unwrap();
    while client.read() {}
    assert!(client.ended);
}

fn answers_reach_a_client_that_sends_no_more(choice: IoChoice) {
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
    let server = SecureServer::start(choice, PATIENT, handler);
    // Without an end that the session announces, as careless clients close.
    let mut client = Client::connect(server.address, 1, b"all I have to say.");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(next(&told), CloseReason::Peer);
    let mut received = Vec::new();
    client.stream.read_to_end(&mut received).unwrap();
    client.received.extend_from_slice(&received);
    let opened = client.session.open(&mut client.received, &mut client.plain).unwrap();
    assert!(opened.ended && client.plain == pattern(4 << 20, 8));
}

fn a_stream_that_is_cut_gives_nothing_of_its_last_record(choice: IoChoice) {
    let (handler, told) = reporting(|_, event, tell| match event {
        Event::Received(_, data) => {
            tell(Ok(data.to_vec()));
            data.len()
        }
        Event::Closed(_, reason) => {
            tell(Err(reason));
            0
        }
        _ => 0,
    });
    let server = SecureServer::start(choice, PATIENT, handler);
    let mut client = Client::connect(server.address, 1, b"whole");
    let mut record = Vec::new();
    client.session.seal(b"cut", &mut record).unwrap();
    // The header of the first record, whose content has one byte at least.
    client.stream.write_all(&record[..4]).unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    let (mut received, mut end) = (Vec::new(), None);
    while end.is_none() {
        match next(&told) {
            Ok(part) => received.extend(part),
            Err(reason) => end = Some(reason),
        }
    }
    assert_eq!((&received[..], end), (&b"whole"[..], Some(CloseReason::Peer)));
}

fn a_silent_client_has_a_deadline(choice: IoChoice) {
    let limits = HandshakeLimits { time_max: Duration::from_millis(50), ..PATIENT };
    let server = SecureServer::start(choice, limits, echo);
    let mut silent = [connect(server.address), connect(server.address)];
    silent[1].write_all(&[HANDSHAKE]).unwrap();
    assert!(silent.iter_mut().all(is_closed));
    for _ in 0..2 {
        let fault = next(&server.ended).unwrap_err();
        assert!(fault.to_string().contains("too long"), "{fault}");
    }
}

fn a_broken_record_ends_the_connection(choice: IoChoice) {
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Closed(_, reason) => {
            tell(reason);
            0
        }
        event => echo(io, event),
    });
    let server = SecureServer::start(choice, PATIENT, handler);
    let mut client = Client::connect(server.address, 3, b"good");
    assert_eq!(client.read_exactly(4), b"good");
    client.stream.write_all(b"D\x00\x01\xffx").unwrap();
    assert!(matches!(next(&told), CloseReason::Session(_)));
    assert!(is_closed(&mut client.stream));
    let mut broken = connect(server.address);
    broken.write_all(b"H\x00\x01\xffx").unwrap();
    assert!(is_closed(&mut broken));
}

fn outgoing_connections_are_encrypted(choice: IoChoice) {
    let server = SecureServer::start(choice, PATIENT, echo);
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Mail(port) => {
            let to = SocketAddr::from(([127, 0, 0, 1], port as u16));
            let session = Box::new(TornSession::new(Random::new(port), true));
            let conn = io.connect_with(to, PATIENCE_NS, session);
            io.output(conn).extend_from_slice(b"before the handshake");
            0
        }
        Event::Connected(conn) => {
            tell(format!("connected {}", io.session_info(conn).unwrap().version));
            io.output(conn).extend_from_slice(b", and after");
            0
        }
        Event::Received(_, data) if data.len() == 31 => {
            tell(String::from_utf8(data.to_vec()).unwrap());
            31
        }
        _ => 0,
    });
    let client = Loop::start(choice, handler);
    client.post(u64::from(server.address.port()));
    assert_eq!(next(&told), "connected sim");
    assert_eq!(next(&told), "before the handshake, and after");
}

/// The end of an outgoing connection whose server answers the first flight like this.
fn end_of_handshake(choice: IoChoice, answer: fn(&mut Io, ConnId)) -> CloseReason {
    let server = Server::start(choice, move |io, event| match event {
        Event::Received(conn, data) => {
            let length = data.len();
            answer(io, conn);
            length
        }
        _ => 0,
    });
    let (handler, told) = reporting(|io, event, tell| match event {
        Event::Mail(port) => {
            let to = SocketAddr::from(([127, 0, 0, 1], port as u16));
            let session = Box::new(TornSession::new(Random::new(port), true));
            io.connect_with(to, PATIENCE_NS, session);
            0
        }
        Event::Connected(_) => panic!("no handshake was done"),
        Event::Closed(_, reason) => {
            tell(reason);
            0
        }
        _ => 0,
    });
    let client = Loop::start(choice, handler);
    client.post(u64::from(server.address.port()));
    next(&told)
}

fn a_failed_handshake_of_an_outgoing_connection_is_reported(choice: IoChoice) {
    let reason = end_of_handshake(choice, |io, conn| {
        io.output(conn).extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(matches!(reason, CloseReason::Session(_)), "{reason:?}");
}

/// A server that was reached is told from one that was not.
fn a_server_that_ends_a_handshake_was_reached(choice: IoChoice) {
    for answer in [Io::close, Io::abort] {
        assert_eq!(end_of_handshake(choice, answer), CloseReason::HandshakeEnded);
    }
}
