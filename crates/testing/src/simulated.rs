//! The client in the simulated world, fully controlled by a test: sends any bytes on command and
//! stores the answers.

use std::net::SocketAddr;

use shunt_reactor::sim::SECOND;
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::Header;

use crate::{Answer, Handshake};

/// State of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// No connection.
    Idle,
    /// Connection being opened.
    Connecting,
    /// Connection open.
    Open,
    /// Connection closed by the server.
    Closed(CloseReason),
}

/// A client with a manual handshake.
pub struct Client {
    server: SocketAddr,
    conn: Option<ConnId>,
    /// State of its connection.
    pub state: State,
    cql: crate::Client,
    compression: Option<Algorithm>,
    waiting: Vec<u8>,
    /// Answers received and not taken yet.
    pub answers: Vec<Answer>,
    /// True to count answers and drop them.
    pub discards_answers: bool,
    /// Number of answers so far.
    pub count: u64,
    /// Number of times that bytes arrived.
    pub reads: usize,
    /// Number of times that the server closed the connection.
    pub closings: u64,
}

impl Client {
    /// A client that connects at its first send.
    pub fn new(server: SocketAddr) -> Client {
        Client {
            server,
            conn: None,
            state: State::Idle,
            cql: unopened(None),
            compression: None,
            waiting: Vec::new(),
            answers: Vec::new(),
            discards_answers: false,
            count: 0,
            reads: 0,
            closings: 0,
        }
    }

    /// Sends these bytes, connecting first if needed.
    pub fn send(&mut self, io: &mut Io, bytes: &[u8]) {
        match (self.state, self.conn) {
            (State::Open, Some(conn)) => io.output(conn).extend_from_slice(bytes),
            (State::Connecting, _) => self.waiting.extend_from_slice(bytes),
            _ => {
                self.waiting = bytes.to_vec();
                self.cql = unopened(self.compression);
                self.conn = Some(io.connect(self.server, 5 * SECOND));
                self.state = State::Connecting;
            }
        }
    }

    /// Sends an envelope, framed as agreed.
    pub fn push(&mut self, io: &mut Io, header: Header, body: &[u8]) {
        let mut bytes = Vec::new();
        self.cql.push(&mut bytes, header, body);
        self.cql.finish(&mut bytes);
        self.send(io, &bytes);
    }

    /// Expects the compression requested in STARTUP.
    pub fn expect_compression(&mut self, compression: Option<Algorithm>) {
        self.compression = compression;
        self.cql.expect_compression(compression);
    }

    /// Stops reading.
    pub fn stop_reading(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn {
            io.pause_reading(conn);
        }
    }

    /// Resumes reading.
    pub fn resume_reading(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn {
            io.resume_reading(conn);
        }
    }

    /// Closes the connection with a reset.
    pub fn reset(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn.take() {
            io.abort(conn);
        }
        self.state = State::Idle;
    }

    /// True if the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// The answer on this stream.
    pub fn on(&self, stream: i16) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.stream() == stream)
    }

    /// The last answer.
    pub fn last(&self) -> &Answer {
        self.answers.last().expect("an answer")
    }
}

fn unopened(compression: Option<Algorithm>) -> crate::Client {
    crate::Client::new(Handshake { compression, ..Handshake::default() })
}

impl Service for Client {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {
        unreachable!("clients do not listen");
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.state = State::Open;
        io.output(conn).extend_from_slice(&std::mem::take(&mut self.waiting));
    }

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        self.reads += 1;
        // The handshake is manual: nothing is sent automatically.
        let used =
            self.cql.receive(data, &mut Vec::new()).expect("what the server sends is well-formed");
        while let Some(answer) = self.cql.next_answer() {
            self.count += 1;
            if !self.discards_answers {
                self.answers.push(answer);
            }
        }
        used
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, reason: CloseReason) {
        self.closings += 1;
        self.conn = None;
        self.state = State::Closed(reason);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}
