//! A client under the test's full control: it sends what it is told to, and keeps what it receives.

use std::net::SocketAddr;

use shunt_reactor::sim::SECOND;
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::framing::{Input, Next, Scratch};
use shunt_wire::cql::message::ErrorMessage;

/// What it got.
#[derive(Clone, Debug)]
pub struct Answer {
    pub header: Header,
    pub body: Vec<u8>,
}

impl Answer {
    /// Code and text of an ERROR.
    pub fn error(&self) -> (i32, String) {
        assert_eq!(self.header.opcode, opcode::ERROR, "{:?}", self.header);
        let error = ErrorMessage::decode(self.header.version, &self.body).expect("the body of an ERROR");
        (error.code, error.message.to_owned())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    Idle,
    Connecting,
    Open,
    /// The proxy closed it.
    Closed(CloseReason),
}

pub struct Offender {
    proxy: SocketAddr,
    conn: Option<ConnId>,
    pub state: State,
    waiting: Vec<u8>,
    input: Input,
    scratch: Scratch,
    pub answers: Vec<Answer>,
    /// Whether segments sent to it may be LZ4.
    pub lz4: bool,
    /// Answers are counted and thrown away.
    pub forgetful: bool,
    pub count: u64,
    /// Connects again at once when the proxy closes the connection, and sends this.
    pub again: Option<Vec<u8>>,
    pub closings: u64,
}

impl Offender {
    pub fn new(proxy: SocketAddr) -> Offender {
        Offender {
            proxy,
            conn: None,
            state: State::Idle,
            waiting: Vec::new(),
            input: Input::default(),
            scratch: Scratch::default(),
            answers: Vec::new(),
            lz4: false,
            forgetful: false,
            count: 0,
            again: None,
            closings: 0,
        }
    }

    /// Sends these bytes, connecting first if there is no connection.
    pub fn send(&mut self, io: &mut Io, bytes: &[u8]) {
        match (self.state, self.conn) {
            (State::Open, Some(conn)) => io.output(conn).extend_from_slice(bytes),
            (State::Connecting, _) => self.waiting.extend_from_slice(bytes),
            _ => {
                self.waiting = bytes.to_vec();
                self.input = Input::default();
                self.conn = Some(io.connect(self.proxy, 5 * SECOND));
                self.state = State::Connecting;
            }
        }
    }

    /// v3 and v4: bodies of answers may be compressed with this.
    pub fn expect_compression(&mut self, algorithm: Algorithm) {
        self.input.compression = Some(algorithm);
    }

    /// Reads nothing any more.
    pub fn go_deaf(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn {
            io.pause_reading(conn);
        }
    }

    /// Reads again.
    pub fn hear(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn {
            io.resume_reading(conn);
        }
    }

    /// Vanishes without a word beyond the reset.
    pub fn vanish(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn.take() {
            io.abort(conn);
        }
        self.state = State::Idle;
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// The answer on this stream.
    pub fn on(&self, stream: i16) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.header.stream == stream)
    }

    /// The answer that came last.
    pub fn last(&self) -> &Answer {
        self.answers.last().expect("an answer")
    }
}

impl Service for Offender {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {
        unreachable!("clients do not listen");
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.state = State::Open;
        io.output(conn).extend_from_slice(&std::mem::take(&mut self.waiting));
    }

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        let (answers, count, forgetful, lz4) = (&mut self.answers, &mut self.count, self.forgetful, self.lz4);
        let used = self.input.feed(data, &mut self.scratch, |header, body| {
            *count += 1;
            if !forgetful {
                answers.push(Answer { header, body: body.to_vec() });
            }
            // What follows the answer to a v5 STARTUP is in segments.
            let started = matches!(header.opcode, opcode::READY | opcode::AUTHENTICATE);
            if header.version >= 5 && started { Next::Segments { lz4 } } else { Next::Continue }
        });
        used.expect("what the proxy sends is well-formed")
    }

    fn closed(&mut self, io: &mut Io, _conn: ConnId, reason: CloseReason) {
        self.closings += 1;
        self.conn = None;
        self.state = State::Closed(reason);
        if let Some(bytes) = self.again.clone() {
            self.send(io, &bytes);
        }
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}
