//! Connections that begin with the header of a balancer.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shunt_reactor::{
    Accepted, Acceptor, Admission, ClientAddress, HandshakeLimits, IoChoice, Security,
    SessionFault, SessionInfo, listen,
};

use crate::support::*;

for_each_driver!(
    every_split_of_a_header_names_the_client,
    the_balancer_may_speak_for_itself,
    a_connection_without_its_header_is_refused,
    a_header_that_never_ends_has_a_deadline,
    a_connection_may_end_before_its_header,
    a_balancer_has_room_for_headers_and_each_client_its_share,
);

/// A header is an address between these bytes, or nothing.
const BEGIN: u8 = b'<';
const END: u8 = b'>';
/// First byte of a client that is never admitted.
const SILENT: &[u8] = b"";

/// Expects a header on every connection.
struct Headers {
    told: Mutex<Sender<(ClientAddress, &'static str)>>,
}

impl Headers {
    fn tell(&self, origin: &Accepted, SessionFault(why): SessionFault) {
        let _ = self.told.lock().unwrap().send((origin.peer, why));
    }
}

impl Security for Headers {
    fn expects_header(&self, _origin: &Accepted) -> bool {
        true
    }

    fn read_header(
        &self,
        origin: &Accepted,
        bytes: &[u8],
    ) -> Result<Option<(usize, ClientAddress)>, SessionFault> {
        if bytes[0] != BEGIN {
            return Err(SessionFault("no header"));
        }
        let Some(end) = bytes.iter().position(|byte| *byte == END) else { return Ok(None) };
        let address = std::str::from_utf8(&bytes[1..end]).unwrap();
        let client = match address {
            "" => origin.peer,
            address => ClientAddress::Forwarded(address.parse().unwrap()),
        };
        Ok(Some((end + 1, client)))
    }

    fn refuse_header(&self, origin: &Accepted, fault: SessionFault, head: &[u8]) -> Vec<u8> {
        self.tell(origin, fault);
        [b"refused ", head].concat()
    }

    fn admit(&self, _origin: &Accepted, _head: &[u8]) -> Admission {
        Admission::Plain
    }

    fn handshake_ended(&self, origin: &Accepted, outcome: Result<&SessionInfo, SessionFault>) {
        self.tell(origin, outcome.unwrap_err());
    }
}

struct Balanced {
    _core: Loop,
    address: SocketAddr,
    accepted: Receiver<ClientAddress>,
    told: Receiver<(ClientAddress, &'static str)>,
    _acceptor: Acceptor,
}

const PATIENT: HandshakeLimits =
    HandshakeLimits { threads: 1, pending_max: 100, time_max: PATIENCE };

impl Balanced {
    fn start(choice: IoChoice, limits: HandshakeLimits) -> Balanced {
        let (handler, accepted) = reporting(|io, event, tell: &dyn Fn(ClientAddress)| {
            if let Event::Accepted(_, origin) = &event {
                tell(origin.peer);
            }
            echo(io, event)
        });
        let core = Loop::start(choice, handler);
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, told) = channel();
        let security: Arc<dyn Security> = Arc::new(Headers { told: Mutex::new(sender) });
        let acceptor = Acceptor::start_with(
            vec![listener.into()],
            vec![core.slot()],
            Some((security, limits)),
        )
        .unwrap();
        Balanced { _core: core, address, accepted, told, _acceptor: acceptor }
    }

    fn connect(&self, first: &[u8]) -> TcpStream {
        let mut stream = connect(self.address);
        stream.write_all(first).unwrap();
        stream
    }
}

fn forwarded(address: &str) -> ClientAddress {
    ClientAddress::Forwarded(address.parse().unwrap())
}

/// Everything that comes until the end.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut bytes);
    bytes
}

fn every_split_of_a_header_names_the_client(choice: IoChoice) {
    let server = Balanced::start(choice, PATIENT);
    let stream = b"<10.0.0.1:7>hello";
    for split in 1..stream.len() {
        let mut client = server.connect(&stream[..split]);
        client.write_all(&stream[split..]).unwrap();
        assert_eq!(next(&server.accepted), forwarded("10.0.0.1:7"), "{split}");
        assert_eq!(read_exactly(&mut client, 5), b"hello");
    }
    // A byte at a time, the first ones known to be read: the thread takes what belongs to a header.
    let mut client = server.connect(b"");
    stream.iter().for_each(|byte| client.write_all(&[*byte]).unwrap());
    assert_eq!(read_exactly(&mut client, 5), b"hello");
    round_trip(&mut client, b"<11.0.0.1:7>");
}

fn the_balancer_may_speak_for_itself(choice: IoChoice) {
    let server = Balanced::start(choice, PATIENT);
    let mut client = server.connect(b"<>");
    round_trip(&mut client, b"probe");
    let own = client.local_addr().unwrap();
    assert_eq!(next(&server.accepted), ClientAddress::Tcp(own));
}

fn a_connection_without_its_header_is_refused(choice: IoChoice) {
    let server = Balanced::start(choice, PATIENT);
    let client = server.connect(b"no header");
    let own = ClientAddress::Tcp(client.local_addr().unwrap());
    assert_eq!(rest(&client), b"refused no header");
    assert_eq!(next(&server.told), (own, "no header"));
    let too_long = server.connect(&[BEGIN; 1024]);
    assert!(next(&server.told).1.contains("too long"));
    assert!(rest(&too_long).starts_with(b"refused <<<"));
    assert!(server.accepted.try_recv().is_err());
}

fn a_header_that_never_ends_has_a_deadline(choice: IoChoice) {
    let limits = HandshakeLimits { time_max: Duration::from_millis(50), ..PATIENT };
    let server = Balanced::start(choice, limits);
    for head in [SILENT, b"<10.0.0.1", b"<10.0.0.1:7>"] {
        let client = server.connect(head);
        assert_eq!(next(&server.told).1, "the handshake took too long");
        assert_eq!(rest(&client), b"");
    }
}

fn a_connection_may_end_before_its_header(choice: IoChoice) {
    let server = Balanced::start(choice, PATIENT);
    // A probe without a byte is nothing to tell of.
    drop(server.connect(SILENT));
    let client = server.connect(b"<10.");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(next(&server.told).1, "ended within its PROXY header");
    assert_eq!(rest(&client), b"refused <10.");
}

fn a_balancer_has_room_for_headers_and_each_client_its_share(choice: IoChoice) {
    // A quarter for one client: two.
    let limits = HandshakeLimits { threads: 1, pending_max: 8, time_max: PATIENCE };
    let server = Balanced::start(choice, limits);
    // One at a time, because no more than a quarter may wait for the thread itself.
    let mut silent: Vec<_> = (0..6)
        .map(|number| {
            let client = server.connect(b"<10.0.0.1:7>");
            if number > 1 {
                let (peer, why) = next(&server.told);
                assert_eq!(peer, forwarded("10.0.0.1:7"));
                assert!(why.contains("too many handshakes"), "{why}");
            } else {
                // The thread has taken it once a probe behind it is served.
                round_trip(&mut server.connect(b"<>"), b"probe");
            }
            client
        })
        .collect();
    assert!(silent[..4].iter().all(|client| rest(client).is_empty()));
    // More connections of the balancer than a quarter wait for the rest of their headers.
    let mut waiting: Vec<_> = (0..4)
        .map(|_| {
            let client = server.connect(b"<10.0.0.2");
            round_trip(&mut server.connect(b"<>"), b"probe");
            client
        })
        .collect();
    for client in &mut waiting {
        client.write_all(b":7>still there").unwrap();
        assert_eq!(read_exactly(client, 11), b"still there");
    }
    for client in &mut silent[4..] {
        round_trip(client, b"and so are these");
    }
}
