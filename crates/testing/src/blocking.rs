//! The client on a socket, one thread per connection. Waits three minutes for an answer, which only
//! a defect exceeds.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, encode};

use crate::{Answer, Handshake, Rows, Statement, bytes};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(180);
/// Wait for the server to accept more requests after which its buffers count as full.
const FULL_AFTER: Duration = Duration::from_millis(500);

/// A client with a completed handshake.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    cql: crate::Client,
    received: Vec<u8>,
}

impl Client {
    /// Connects in this protocol version.
    pub fn connect(address: SocketAddr, version: u8) -> Client {
        Client::open(address, Handshake::new(version))
    }

    /// Connects with this handshake, which must succeed.
    pub fn open(address: SocketAddr, handshake: Handshake) -> Client {
        Client::try_open(address, handshake)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// Connects with this handshake. A refusal of the server fails the test.
    ///
    /// # Errors
    /// The connection cannot be opened, or ends.
    pub fn try_open(address: SocketAddr, handshake: Handshake) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut client =
            Client { stream, cql: crate::Client::new(handshake), received: Vec::new() };
        let mut out = Vec::new();
        client.cql.start(&mut out);
        client.stream.write_all(&out)?;
        while !client.cql.is_ready() {
            client.read()?;
            if let Some(refusal) = client.cql.refusal() {
                panic!("the handshake was refused: {:x?}", refusal.error());
            }
        }
        Ok(client)
    }

    /// The socket, for raw bytes and other limits.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Statements prepared by the handshake, in order.
    pub fn statements(&self) -> &[Statement] {
        self.cql.statements()
    }

    /// Reads available bytes, and sends the next requests of the handshake.
    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16_384];
        let count = self.stream.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received.extend_from_slice(&bytes[..count]);
        let mut out = Vec::new();
        let used = self.cql.receive(&self.received, &mut out).map_err(io::Error::other)?;
        self.received.drain(..used);
        self.cql.finish(&mut out);
        self.stream.write_all(&out)
    }

    /// Sends several requests at once: stream, opcode and body of each.
    ///
    /// # Errors
    /// The connection is gone. The server may still have executed the requests.
    pub fn try_send<B: AsRef<[u8]>>(
        &mut self,
        requests: impl IntoIterator<Item = (i16, u8, B)>,
    ) -> io::Result<()> {
        let mut out = Vec::new();
        for (stream, opcode, body) in requests {
            self.cql.request(&mut out, stream, opcode, body.as_ref());
        }
        self.cql.finish(&mut out);
        self.stream.write_all(&out)
    }

    /// Sends these bytes unchanged.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes the bytes");
    }

    /// Sends a request without waiting; the header has its flags.
    pub fn send(&mut self, header: Header, body: &[u8]) {
        let mut out = Vec::new();
        self.cql.push(&mut out, header, body);
        self.cql.finish(&mut out);
        self.stream.write_all(&out).expect("the server takes a request");
    }

    fn query_body(&self, text: &str) -> Vec<u8> {
        bytes::body(|out| encode::query_simple(out, self.cql.version(), text, Consistency::ONE))
    }

    /// Sends QUERY without waiting.
    pub fn send_query(&mut self, stream: i16, text: &str) {
        let body = self.query_body(text);
        self.send(Header::request(self.cql.version(), stream, opcode::QUERY), &body);
    }

    /// Sends this QUERY repeatedly without reading answers, until the connection accepts no more.
    ///
    /// # Panics
    /// The connection accepts far more than kernels buffer.
    pub fn send_until_full(&mut self, text: &str) {
        self.stream.set_write_timeout(Some(FULL_AFTER)).expect("a socket has timeouts");
        let body = self.query_body(text);
        let thousand = || (0..1000).map(|_| (1, opcode::QUERY, &body));
        if (0..20_000).all(|_| self.try_send(thousand()).is_ok()) {
            panic!("a gigabyte of queries was taken from a client that reads no answers");
        }
    }

    /// The next answer or event; `None` if the connection ends first, or nothing arrives.
    pub fn try_receive(&mut self) -> Option<Answer> {
        loop {
            if let Some(answer) = self.cql.next_answer() {
                return Some(answer);
            }
            self.read().ok()?;
        }
    }

    /// The next answer, which must arrive.
    pub fn receive(&mut self) -> Answer {
        self.try_receive().expect("an answer")
    }

    /// Sends a text and waits for its answer of any kind.
    pub fn query(&mut self, text: &str) -> Answer {
        self.send_query(1, text);
        self.receive()
    }

    /// Values of all rows of a statement that must succeed; empty if it is not a read.
    pub fn rows(&mut self, text: &str) -> Rows {
        let answer = self.query(text);
        assert_ne!(answer.opcode(), opcode::ERROR, "{text}: {:x?}", answer.error());
        answer.rows()
    }

    /// Runs a statement that must succeed.
    pub fn run(&mut self, text: &str) {
        self.rows(text);
    }

    /// The first column of a read, in order.
    pub fn column(&mut self, text: &str) -> Vec<Vec<u8>> {
        self.query(text).first_column()
    }

    /// Code of the error that a statement must get.
    pub fn error(&mut self, text: &str) -> i32 {
        self.query(text).error().0
    }

    /// Prepares a text.
    pub fn prepare(&mut self, text: &str) -> Statement {
        let version = self.cql.version();
        let body = bytes::body(|out| encode::prepare(out, version, text, None));
        self.send(Header::request(version, 1, opcode::PREPARE), &body);
        self.receive().prepared()
    }

    /// Sends several texts at once and waits for their answers; `None` for those that never arrive.
    pub fn pipeline(&mut self, texts: &[String]) -> Vec<Option<Answer>> {
        let bodies: Vec<_> = texts.iter().map(|text| self.query_body(text)).collect();
        let requests =
            bodies.iter().enumerate().map(|(stream, body)| (stream as i16, opcode::QUERY, body));
        let mut answers = vec![None; texts.len()];
        if self.try_send(requests).is_err() {
            return answers;
        }
        for _ in texts {
            let Some(answer) = self.try_receive() else { break };
            let place = answer.stream() as usize;
            assert!(answers[place].is_none(), "a second answer to {}", texts[place]);
            answers[place] = Some(answer);
        }
        answers
    }
}
