//! The shim as a process: datagrams in, one MGET for each to the Redis or Valkey beside it,
//! datagrams out.
//!
//! While the server is absent, each request is answered at once with the advice to use TCP, where
//! the client learns the cause. A server that is silent for too long loses its connection.
//!
//! In a coordinating shim, requests for several servers go to `coordinated.rs`, and come back as
//! requests to all shims, including this one.

mod coordinated;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::netmc::{DATAGRAM_BYTES_MAX, Op};
use shunt_wire::resp::{Scanner, Step as Answer, Value, Version, put_command, value, values};

use crate::Mail;
use crate::limits;
use crate::login::{Login, Step};
use crate::metrics::{ShimMetrics, Why};
use crate::shim::{Asked, CoordinatorOptions, Found, Shim, ShimOptions};
use coordinated::Coordinated;

/// Key of the periodic timer.
const TICK: u64 = 1;
/// Stands for an answer that fits no datagram.
const TOO_BIG: &[u8] = b"-ERR too big\r\n";
/// Key of the coordinator's timer.
const DUE: u64 = 2;

/// Options of a shim as a process.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Options of the protocol.
    pub shim: ShimOptions,
    /// Address of the server.
    pub server: SocketAddr,
    /// The server is a node of a Redis Cluster, which refuses an MGET of keys in several slots.
    pub is_in_cluster: bool,
    /// Login for the connection to it.
    pub login: Login,
    /// Options of the coordinator, if this shim has one.
    pub coordinator: Option<CoordinatorOptions>,
    /// Time limit for the server's answer.
    pub timeout_ns: u64,
}

/// A query to the server.
#[derive(Debug)]
struct Question {
    asked: Asked,
    at_ns: u64,
    /// Answers to come.
    left: usize,
    /// Answers so far, if there are several.
    answers: Vec<u8>,
}

/// The shim of one event loop.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    shim: Shim,
    link: Option<ConnId>,
    /// First commands of the connection that are still unanswered.
    begins: VecDeque<Step>,
    /// The connection takes queries.
    is_up: bool,
    /// Reason for its refusal of the last connection.
    refused: Option<String>,
    /// Earliest time of the next connect.
    connect_at_ns: u64,
    scanner: Scanner,
    /// Queries in the order of their answers.
    asked: VecDeque<Question>,
    coordinated: Option<Coordinated>,
    metrics: Arc<ShimMetrics>,
    buffer: Vec<u8>,
    is_draining: bool,
}

impl Store {
    /// Creates a shim that has not started.
    pub fn new(options: StoreOptions) -> Self {
        let coordinator = options.coordinator.as_ref();
        Self {
            shim: coordinator.map_or_else(
                || Shim::new(&options.shim),
                |coordinator| {
                    Shim::coordinating(&options.shim, &coordinator.peers, coordinator.own_number())
                },
            ),
            coordinated: coordinator.map(Coordinated::new),
            options,
            link: None,
            begins: VecDeque::new(),
            is_up: false,
            refused: None,
            connect_at_ns: 0,
            scanner: Scanner::new(limits::COMMAND_BYTES_MAX),
            asked: VecDeque::new(),
            metrics: Arc::default(),
            buffer: Vec::new(),
            is_draining: false,
        }
    }

    /// The shim's metrics.
    pub fn metrics(&self) -> Arc<ShimMetrics> {
        self.metrics.clone()
    }

    fn connect(&mut self, io: &mut Io) {
        if self.link.is_none() && io.now_ns() >= self.connect_at_ns {
            let link = io.connect(self.options.server, limits::CONNECT_NS);
            self.options
                .login
                .put(Version::Two, io.output(link), |step| self.begins.push_back(step));
            self.link = Some(link);
        }
    }

    fn answer<'v>(&mut self, io: &mut Io, asked: &Asked, found: impl Iterator<Item = Found<'v>>) {
        let Self { metrics, coordinated, buffer, .. } = self;
        asked.answer(found, buffer, |reply| match coordinated {
            Some(coordinated) if coordinated.own == asked.from => coordinated.send_itself(reply),
            _ => {
                metrics.replies.add(1);
                io.send_datagram(asked.from, reply);
            }
        });
    }

    /// Sends a query to the server.
    fn serve(&mut self, io: &mut Io, asked: Asked) {
        let Some(link) = self.link.filter(|_| self.is_up) else {
            self.metrics.unserved.add(1);
            return self.answer(io, &asked, std::iter::empty());
        };
        if self.asked.len() >= limits::ASKED_MAX {
            return self.metrics.rejected.of(Why::Busy).add(1);
        }
        self.metrics.requests.add(1);
        self.metrics.keys.add(asked.count() as u64);
        let (out, mut left) = (io.output(link), 1);
        if self.options.is_in_cluster {
            left = asked.count();
            asked.keys().for_each(|key| put_command(out, [&b"GET"[..], key].into_iter()));
        } else {
            let name: &[u8] = if asked.op == Op::Get { b"GET" } else { b"MGET" };
            let arguments: Vec<&[u8]> = std::iter::once(name).chain(asked.keys()).collect();
            put_command(out, arguments.into_iter());
        }
        self.asked.push_back(Question { asked, at_ns: io.now_ns(), left, answers: Vec::new() });
    }

    /// Drops the connection; waiting requests are told to use TCP.
    fn lose(&mut self, io: &mut Io) {
        (self.link, self.is_up) = (None, false);
        self.begins.clear();
        self.connect_at_ns = io.now_ns() + limits::BACK_OFF_NS;
        self.scanner = Scanner::new(limits::COMMAND_BYTES_MAX);
        for Question { asked, .. } in std::mem::take(&mut self.asked) {
            self.metrics.unserved.add(1);
            self.answer(io, &asked, std::iter::empty());
        }
    }

    /// Takes the server's answer to a first command; false if it refuses. The log says so once per
    /// reason.
    fn has_begun(&mut self, step: Step, answer: &[u8]) -> bool {
        if let Some((Value::Error(error), _)) = value(answer) {
            let why = step.refused(error);
            if self.refused.as_ref() != Some(&why) {
                tracing::warn!(server = %self.options.server, "the server {why}");
                self.refused = Some(why);
            }
            return false;
        }
        self.is_up = self.begins.is_empty();
        if self.is_up {
            self.refused = None;
        }
        true
    }

    /// Takes an answer; false if no query awaits one, in which case further answers cannot be
    /// assigned either.
    fn take_answer(&mut self, io: &mut Io, answer: &[u8]) -> bool {
        if let Some(step) = self.begins.pop_front() {
            return self.has_begun(step, answer);
        }
        let Some(question) = self.asked.front_mut() else { return false };
        question.left -= 1;
        if self.options.is_in_cluster {
            // Values too long for a datagram are fetched over TCP as well.
            let kept = if answer.len() > DATAGRAM_BYTES_MAX { TOO_BIG } else { answer };
            question.answers.extend_from_slice(kept);
            if question.left > 0 {
                return true;
            }
        }
        let Some(Question { asked, answers, .. }) = self.asked.pop_front() else { return false };
        let found = |value| match value {
            Value::Bulk(value) => Found::Value(value),
            Value::Nil => Found::Nothing,
            // MGET returns nil for a value of another type.
            Value::Error(text) if asked.op == Op::MultiGet && text.starts_with(b"WRONGTYPE") => {
                Found::Nothing
            }
            Value::Error(_) | Value::Integer(_) | Value::Array(_) | Value::Other => Found::Error,
        };
        match asked.op {
            _ if self.options.is_in_cluster => {
                let mut left = &answers[..];
                let each = std::iter::from_fn(|| {
                    let (value, length) = value(left)?;
                    left = left.get(length..)?;
                    Some(found(value))
                });
                self.answer(io, &asked, each);
            }
            Op::Get => {
                self.answer(io, &asked, value(answer).into_iter().map(|(value, _)| found(value)))
            }
            _ => match values(answer).filter(|(count, _)| *count == asked.count()) {
                Some((_, values)) => self.answer(io, &asked, values.map(found)),
                None => self.answer(io, &asked, std::iter::empty()),
            },
        }
        true
    }
}

impl Service for Store {
    type Mail = Mail;

    fn started(&mut self, io: &mut Io) {
        self.connect(io);
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _origin: &Accepted) {
        // The shim listens on no port.
        io.abort(conn);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {
        self.is_up = self.begins.is_empty();
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut at = 0;
        let taken = loop {
            match self.scanner.find_or_pass_over(&data[at..]) {
                Ok(Answer::Whole(length)) if self.take_answer(io, &data[at..at + length]) => {
                    at += length
                }
                // The client is told to use TCP, and learns there that it requests too much.
                Ok(Answer::TooLong { length, .. }) if self.take_answer(io, TOO_BIG) => at += length,
                Ok(Answer::Waits) => break at,
                Ok(Answer::Part(length)) => break at + length,
                Ok(Answer::Whole(_) | Answer::TooLong { .. }) | Err(_) => {
                    io.abort(conn);
                    self.lose(io);
                    break data.len();
                }
            }
        };
        self.coordinate(io);
        taken
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, _reason: CloseReason) {
        if self.link == Some(conn) {
            self.lose(io);
            self.coordinate(io);
        }
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn datagram(&mut self, io: &mut Io, from: SocketAddr, data: &[u8]) {
        if self.coordinated.is_some() && Op::is_reply(data) {
            self.gather(io, from, data);
            return self.coordinate(io);
        }
        if self.is_draining {
            return;
        }
        match self.shim.datagram(io.now_ns(), from, data) {
            Ok(asked) if asked.is_whole() => self.begin(io, asked),
            Ok(asked) => self.serve(io, asked),
            Err(rejected) => return self.metrics.rejected.of(Why::of(rejected)).add(1),
        }
        self.coordinate(io);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        if key == DUE {
            self.look(io);
            return self.coordinate(io);
        }
        io.set_timer(io.now_ns() + limits::TICK_NS, TICK);
        let is_late = |question: &Question| question.at_ns + self.options.timeout_ns <= io.now_ns();
        if self.asked.front().is_some_and(is_late)
            && let Some(link) = self.link
        {
            io.abort(link);
            self.lose(io);
        }
        self.connect(io);
        self.coordinate(io);
    }

    fn mail(&mut self, io: &mut Io, mail: Mail) {
        self.is_draining = true;
        if mail == Mail::End {
            io.stop();
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        self.metrics.turns.add(1);
        self.metrics.waiting.set(self.asked.len() as u64);
        self.metrics.up.set(u64::from(self.is_up));
        self.metrics.unsent.set(io.datagrams_dropped());
        let coordinating = self.coordinated.as_ref().map_or(0, Coordinated::under_way);
        self.metrics.coordinating.set(coordinating as u64);
        if self.is_draining && self.asked.is_empty() && coordinating == 0 {
            io.stop();
        }
    }
}
