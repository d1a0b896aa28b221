//! A client that carries out a plan and keeps the outcome of each request.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::http1::{BodyReader, Framing, HeadLimits, HeadReader, ResponseHead};

use crate::requests::{Request, unchunked};

const CONNECT_NS: u64 = 5_000_000_000;
const RETRY_NS: u64 = 20_000_000;

/// Outcome of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// An answer that the client takes for complete.
    Whole { status: u16, body: Vec<u8> },
    /// The connection ended, and the client knows that its answer is incomplete.
    Broken,
}

impl Outcome {
    /// A short description.
    pub(crate) fn words(&self) -> String {
        match self {
            Outcome::Whole { status, body } => {
                format!(
                    "{status}, {} bytes: {}",
                    body.len(),
                    body[..body.len().min(80)].escape_ascii()
                )
            }
            Outcome::Broken => "broken".to_owned(),
        }
    }
}

pub(crate) struct Client {
    to: SocketAddr,
    pub(crate) plan: Vec<Request>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Requests sent ahead of answers.
    depth: usize,
    conn: Option<ConnId>,
    /// Requests of the plan that were sent and have no outcome.
    in_flight: VecDeque<usize>,
    sent: usize,
    reader: HeadReader,
    answer: Option<(u16, Framing, BodyReader, bool)>,
    raw: Vec<u8>,
    /// The body of the first request waits for `100 Continue`.
    withheld: bool,
    pub(crate) is_started: bool,
}

impl Client {
    pub(crate) fn new(to: SocketAddr, plan: Vec<Request>, depth: usize) -> Self {
        Self {
            to,
            plan,
            outcomes: Vec::new(),
            depth,
            conn: None,
            in_flight: VecDeque::new(),
            sent: 0,
            reader: HeadReader::new(HeadLimits::DEFAULT),
            answer: None,
            raw: Vec::new(),
            withheld: false,
            is_started: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.outcomes.len() == self.plan.len()
    }

    pub(crate) fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    /// Resets the connection; goes on with another, after the requests sent on this one.
    pub(crate) fn give_up(&mut self, io: &mut Io, conn: ConnId) {
        io.abort(conn);
        self.closed(io, conn, CloseReason::Reset);
    }

    /// True if a part of an answer has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.answer.is_some()
    }

    pub(crate) fn start(&mut self, io: &mut Io) {
        self.is_started = true;
        self.connect(io);
    }

    fn connect(&mut self, io: &mut Io) {
        if self.conn.is_none() && !self.is_done() {
            self.conn = Some(io.connect(self.to, CONNECT_NS));
        }
    }

    fn send(&mut self, io: &mut Io, conn: ConnId) {
        while self.in_flight.len() < self.depth && self.sent < self.plan.len() && !self.withheld {
            let request = &self.plan[self.sent];
            io.output(conn).extend(request.head());
            self.withheld = matches!(request, Request::UploadExpected(_));
            if !self.withheld {
                io.output(conn).extend(request.body());
            }
            self.in_flight.push_back(self.sent);
            self.sent += 1;
        }
    }

    /// Reads one head or a part of a body; `None` if more bytes are needed.
    fn step(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> Option<usize> {
        if let Some((status, framing, body, goes_on)) = &mut self.answer {
            let taken = body.take(data).expect("chunks are right");
            self.raw.extend_from_slice(&data[..taken]);
            if body.is_complete() {
                let (status, framing, goes_on) = (*status, *framing, *goes_on);
                self.finish(io, conn, status, framing, goes_on);
                return Some(taken);
            }
            return (taken > 0).then_some(taken);
        }
        let head = self.reader.read(data).expect("heads are right")?;
        let request = *self.in_flight.front().expect("an answer to nothing");
        let response =
            ResponseHead::read(head, self.plan[request].is_head()).expect("heads are right");
        assert!(head.field("x-own").is_none() && head.field("keep-alive").is_none());
        let (bytes, status, framing, goes_on) =
            (head.len(), response.status, response.framing, response.keep_alive);
        let says_close = head.field("connection") == Some(b"close");
        self.reader.reset();
        if status == 100 {
            // With requests sent ahead, the 100 may be for one whose body is already sent.
            if self.withheld {
                self.withheld = false;
                let last = *self.in_flight.back().unwrap();
                assert!(matches!(self.plan[last], Request::UploadExpected(_)));
                io.output(conn).extend(self.plan[last].body());
                self.send(io, conn);
            }
            return Some(bytes);
        }
        self.answer = Some((status, framing, BodyReader::new(framing), goes_on && !says_close));
        if framing == Framing::None {
            self.finish(io, conn, status, framing, goes_on && !says_close);
        }
        Some(bytes)
    }

    fn finish(&mut self, io: &mut Io, conn: ConnId, status: u16, framing: Framing, goes_on: bool) {
        self.answer = None;
        let raw = std::mem::take(&mut self.raw);
        let body = if framing == Framing::Chunked { unchunked(&raw) } else { raw };
        self.outcomes.push(Outcome::Whole { status, body });
        self.in_flight.pop_front();
        if !goes_on {
            // Requests sent behind it get no answer on this connection: send them again.
            io.close(conn);
            self.restart(io, self.outcomes.len());
            return;
        }
        self.send(io, conn);
    }

    /// Goes on with another connection, starting at this request.
    fn restart(&mut self, io: &mut Io, from: usize) {
        self.conn = None;
        self.in_flight.clear();
        self.answer = None;
        self.withheld = false;
        self.raw.clear();
        self.reader.reset();
        self.sent = from;
        io.set_timer(io.now_ns() + RETRY_NS, 0);
    }
}

impl Service for Client {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.send(io, conn);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut used = 0;
        while self.conn == Some(conn) && used < data.len() {
            match self.step(io, conn, &data[used..]) {
                Some(bytes) => used += bytes,
                None => return used,
            }
        }
        if self.conn == Some(conn) { used } else { data.len() }
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        if self.conn != Some(conn) {
            return;
        }
        let has_sent = !self.in_flight.is_empty();
        match self.answer.take() {
            Some((status, Framing::UntilClose, ..)) if reason == CloseReason::Peer => {
                let body = std::mem::take(&mut self.raw);
                self.outcomes.push(Outcome::Whole { status, body });
            }
            _ if has_sent => self.outcomes.push(Outcome::Broken),
            _ => {}
        }
        let from = self.outcomes.len();
        self.restart(io, from);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, _key: u64) {
        self.connect(io);
    }

    fn mail(&mut self, io: &mut Io, (): ()) {
        self.start(io);
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}
