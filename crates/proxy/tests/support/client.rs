//! A simulated CQL client: connects, logs in, prepares, keeps requests in flight, checks every answer as it comes, and
//! starts again when its connection is lost.

use std::collections::BTreeMap;
use std::net::IpAddr;

use shunt_reactor::sim::{MILLISECOND, Random, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::framing::{Input, Next, Output, Scratch};
use shunt_wire::cql::message::{Consistency, ErrorMessage, encode};

pub use super::client_options::ClientOptions;
use super::model::{Fate, Model};
use super::operation::{Maker, Operation, Statement, Statements, Verdict, prepared_of, texts};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Down,
    Connecting,
    Startup,
    Login,
    Register,
    Use,
    PrepareInsert,
    PrepareSelect,
    Ready,
}

/// What came of a client's requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub right: u64,
    pub refused: u64,
    pub connections: u64,
    /// Established connections that the other side or the network ended.
    pub losses: u64,
    /// Connections given up because an answer did not come.
    pub out_of_patience: u64,
    /// Handshakes answered with ERROR or not finished.
    pub handshakes_failed: u64,
    pub slowest_ns: u64,
    pub events: u64,
}

/// What a test may tell a client.
#[derive(Clone, Copy, Debug)]
pub enum ClientMail {
    /// Send this many more requests.
    More(u64),
    /// Send nothing new.
    Stop,
    /// Close the connection (and open another).
    Reconnect,
}

/// Timers.
const CONNECT: u64 = 1;
const SEND: u64 = 2;
const CHECK: u64 = 3;
const READ: u64 = 4;

pub struct Client {
    pub options: ClientOptions,
    pub model: Model,
    pub tally: Tally,
    random: Random,
    conn: Option<ConnId>,
    step: Step,
    step_since_ns: u64,
    input: Input,
    output: Output,
    scratch: Scratch,
    first: Option<Statement>,
    statements: Option<Statements>,
    /// By stream id; ordered, because iteration must not depend on anything but the seed.
    pub in_flight: BTreeMap<i16, Operation>,
    /// Requests it may still send.
    left: u64,
    send_due: bool,
    asked: u32,
    body: Vec<u8>,
    /// Of the last handshake that was answered with one.
    pub last_error: String,
}

impl Client {
    pub fn new(options: ClientOptions) -> Client {
        Client {
            model: Model::new(options.number),
            random: Random::new(options.seed),
            options,
            tally: Tally::default(),
            conn: None,
            step: Step::Down,
            step_since_ns: 0,
            input: Input::default(),
            output: Output::default(),
            scratch: Scratch::default(),
            first: None,
            statements: None,
            in_flight: BTreeMap::new(),
            left: 0,
            send_due: false,
            asked: 0,
            body: Vec::new(),
            last_error: String::new(),
        }
    }

    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    pub fn is_down(&self) -> bool {
        self.step == Step::Down
    }

    /// Nothing in flight and nothing left to send.
    pub fn is_idle(&self) -> bool {
        self.left == 0 && self.in_flight.is_empty()
    }

    /// Requests sent so far.
    pub fn asked(&self) -> u32 {
        self.asked
    }

    fn enter(&mut self, io: &Io, step: Step) {
        self.step = step;
        self.step_since_ns = io.now_ns();
    }

    fn push(&mut self, io: &mut Io, op: u8, flags: u8, stream: i16, body: &[u8]) {
        let Some(conn) = self.conn else { return };
        let header = Header { flags, ..Header::request(self.options.version, stream, op) };
        self.output.push(io.output(conn), header, body);
    }

    fn handshake_request(&mut self, io: &mut Io, step: Step, op: u8, fill: impl FnOnce(&mut Vec<u8>, u8)) {
        self.enter(io, step);
        let mut body = Vec::new();
        fill(&mut body, self.options.version);
        self.push(io, op, 0, 0, &body);
    }

    fn handshake_answer(&mut self, io: &mut Io, header: Header, body: &[u8]) -> Next {
        let version = self.options.version;
        match (self.step, header.opcode) {
            (Step::Startup, opcode::READY) => {
                let next = self.switch_framing();
                self.after_login(io);
                return next;
            }
            (Step::Startup, opcode::AUTHENTICATE) => {
                let next = self.switch_framing();
                let (user, password) = self.options.login.expect("the proxy asked for a login that nobody has");
                let token = format!("\0{user}\0{password}");
                self.handshake_request(io, Step::Login, opcode::AUTH_RESPONSE, |body, _| {
                    encode::auth_response(body, Some(token.as_bytes()));
                });
                return next;
            }
            (Step::Login, opcode::AUTH_SUCCESS) => self.after_login(io),
            (Step::Register, opcode::READY) => self.after_register(io),
            (Step::Use, opcode::RESULT) => self.prepare_insert(io),
            (Step::PrepareInsert, opcode::RESULT) => {
                self.first = prepared_of(version, header.flags, body);
                let (_, select) = texts(self.options.uses_keyspace);
                self.prepare(io, Step::PrepareSelect, select);
            }
            (Step::PrepareSelect, opcode::RESULT) => {
                let select = prepared_of(version, header.flags, body).expect("PREPARED");
                self.statements = Some(Statements { insert: self.first.take().expect("PREPARED"), select });
                self.enter(io, Step::Ready);
                self.send(io);
            }
            (_, opcode::ERROR) => {
                let error = ErrorMessage::decode(version, body).expect("the body of an ERROR");
                self.last_error = format!("{:?}: {:#x} {}", self.step, error.code, error.message);
                self.tally.handshakes_failed += 1;
                self.give_up(io);
                return Next::Stop;
            }
            (step, op) => panic!("opcode {op:#x} is no answer to {step:?}"),
        }
        Next::Continue
    }

    /// The answer to STARTUP was the last one outside of segments (v5) or uncompressed (v3, v4).
    fn switch_framing(&mut self) -> Next {
        if self.options.version < 5 {
            self.output.compression = self.options.compression;
            return Next::Continue;
        }
        let lz4 = self.options.compression.is_some();
        self.output.start_segments(lz4);
        Next::Segments { lz4 }
    }

    fn after_login(&mut self, io: &mut Io) {
        if self.options.registers {
            self.handshake_request(io, Step::Register, opcode::REGISTER, |body, _| {
                encode::register(body, ["SCHEMA_CHANGE", "STATUS_CHANGE"]);
            });
        } else {
            self.after_register(io);
        }
    }

    fn after_register(&mut self, io: &mut Io) {
        if self.options.uses_keyspace {
            self.handshake_request(io, Step::Use, opcode::QUERY, |body, version| {
                encode::query_simple(body, version, "USE bench", Consistency::ONE);
            });
        } else {
            self.prepare_insert(io);
        }
    }

    fn prepare_insert(&mut self, io: &mut Io) {
        let (insert, _) = texts(self.options.uses_keyspace);
        self.prepare(io, Step::PrepareInsert, insert);
    }

    fn prepare(&mut self, io: &mut Io, step: Step, text: &str) {
        self.handshake_request(io, step, opcode::PREPARE, |body, version| encode::prepare(body, version, text, None));
    }

    /// Sends as many requests as may be in flight.
    fn send(&mut self, io: &mut Io) {
        while self.step == Step::Ready && self.left > 0 && self.in_flight.len() < self.options.outstanding {
            let stream = self.free_stream();
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            let mut maker = Maker {
                version: self.options.version,
                statements: self.statements.as_ref().expect("ready"),
                model: &mut self.model,
                random: &mut self.random,
                value_bytes: self.options.value_bytes,
                keyed_only: self.options.keyed_only,
                uses_keyspace: self.options.uses_keyspace,
                timestamp_us: self.options.timestamps.then(|| io.now_ns() as i64 / 1000),
                registers: self.options.registers_shared,
            };
            let (operation, op, flags) = maker.draw(io.now_ns(), &mut body);
            self.in_flight.insert(stream, operation);
            self.push(io, op, flags, stream, &body);
            self.body = body;
            self.left -= 1;
            self.asked += 1;
            if self.random.chance(0.5) {
                break; // The rest after a pause, so that requests come alone and together.
            }
        }
        self.schedule(io);
    }

    fn schedule(&mut self, io: &mut Io) {
        let wants = self.left > 0 && self.in_flight.len() < self.options.outstanding;
        if wants && !std::mem::replace(&mut self.send_due, true) {
            let pause_ns = self.random.below(self.options.think_ns + 1);
            io.set_timer(io.now_ns() + pause_ns, SEND);
        }
    }

    fn free_stream(&mut self) -> i16 {
        loop {
            let stream = self.random.below(32_768) as i16;
            if !self.in_flight.contains_key(&stream) {
                return stream;
            }
        }
    }

    fn answer(&mut self, io: &mut Io, header: Header, body: &[u8]) {
        let operation = self.in_flight.remove(&header.stream);
        let Some(operation) = operation else {
            panic!("client {}: stream {} was answered and had not been asked", self.options.number, header.stream);
        };
        let IpAddr::V4(own_address) = self.options.proxy.ip() else { panic!("IPv4 only here") };
        let version = self.options.version;
        let verdict = operation.judge(&self.model, version, own_address.octets(), &header, body);
        let (fate, found) = match &verdict {
            Verdict::Right => (Fate::Acknowledged, None),
            Verdict::Found(found) => (Fate::Acknowledged, *found),
            Verdict::NotBegun(_) => (Fate::NotBegun, None),
            Verdict::Refused(_) => (Fate::Unknown, None),
        };
        operation.settle(&mut self.model, fate, found, io.now_ns());
        match verdict {
            Verdict::Right | Verdict::Found(_) => self.tally.right += 1,
            Verdict::NotBegun(why) | Verdict::Refused(why) => {
                self.last_error = why;
                self.tally.refused += 1;
            }
        }
        if let Some(conn) = self.conn
            && self.random.chance(self.options.dawdles)
        {
            io.pause_reading(conn);
            io.set_timer(io.now_ns() + self.random.below(200 * MILLISECOND), READ);
        }
        self.tally.slowest_ns = self.tally.slowest_ns.max(io.now_ns() - operation.sent_ns);
        self.schedule(io);
    }

    /// The connection is gone or useless: what was in flight is of unknown fate.
    fn reset(&mut self, io: &mut Io) {
        self.conn = None;
        self.step = Step::Down;
        (self.input, self.output) = (Input::default(), Output::default());
        for (_, operation) in std::mem::take(&mut self.in_flight) {
            operation.settle(&mut self.model, Fate::Unknown, None, io.now_ns());
        }
        io.set_timer(io.now_ns() + self.random.range(&(50 * MILLISECOND..500 * MILLISECOND)), CONNECT);
    }

    fn give_up(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn {
            io.abort(conn);
        }
        self.reset(io);
    }

    fn check_patience(&mut self, io: &mut Io) {
        let patience_ns = self.options.patience_ns;
        let late = |since_ns: u64| io.now_ns().saturating_sub(since_ns) > patience_ns;
        let waits = !matches!(self.step, Step::Down | Step::Ready);
        if self.in_flight.values().any(|operation| late(operation.sent_ns)) {
            self.tally.out_of_patience += 1;
            self.give_up(io);
        } else if waits && late(self.step_since_ns) {
            self.tally.handshakes_failed += 1;
            self.give_up(io);
        }
        io.set_timer(io.now_ns() + SECOND, CHECK);
    }

    fn connect(&mut self, io: &mut Io) {
        if self.step == Step::Down {
            self.conn = Some(io.connect(self.options.proxy, 5 * SECOND));
            self.enter(io, Step::Connecting);
        }
    }
}

impl Service for Client {
    type Mail = ClientMail;

    fn started(&mut self, io: &mut Io) {
        io.set_timer(io.now_ns() + self.random.below(100 * MILLISECOND), CONNECT);
        io.set_timer(io.now_ns() + SECOND, CHECK);
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {
        unreachable!("clients do not listen");
    }

    fn connected(&mut self, io: &mut Io, _conn: ConnId) {
        self.tally.connections += 1;
        let compression = match self.options.compression {
            Some(Algorithm::Lz4) => Some("lz4"),
            Some(Algorithm::Snappy) => Some("snappy"),
            None => None,
        };
        let options = [("CQL_VERSION", "3.0.0")].into_iter().chain(compression.map(|name| ("COMPRESSION", name)));
        self.handshake_request(io, Step::Startup, opcode::STARTUP, |body, _| encode::startup(body, options));
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        assert_eq!(self.conn, Some(conn));
        let mut input = std::mem::take(&mut self.input);
        let mut scratch = std::mem::take(&mut self.scratch);
        if self.options.version < 5 && self.step != Step::Startup {
            input.compression = self.options.compression;
        }
        let used = input.feed(data, &mut scratch, |header, body| {
            if self.conn != Some(conn) {
                return Next::Stop;
            }
            // Before it has looked at STARTUP, the proxy does not know which version the client wants to hear.
            let early = self.step == Step::Startup && header.opcode == opcode::ERROR;
            assert!(header.response && (header.version == self.options.version || early), "{header:?}");
            if header.opcode == opcode::EVENT {
                assert!(
                    header.stream == -1 && self.options.registers,
                    "an event for a client that registered for none"
                );
                self.tally.events += 1;
                return Next::Continue;
            }
            match self.step {
                Step::Ready => {
                    self.answer(io, header, body);
                    Next::Continue
                }
                _ => self.handshake_answer(io, header, body),
            }
        });
        let used = used.unwrap_or_else(|fault| panic!("client {}: {fault}", self.options.number));
        self.scratch = scratch;
        if self.conn == Some(conn) {
            self.input = input;
        }
        used
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, _reason: CloseReason) {
        assert_eq!(self.conn, Some(conn));
        self.tally.losses += u64::from(self.step != Step::Connecting);
        self.reset(io);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, key: u64) {
        match key {
            CONNECT => self.connect(io),
            SEND => {
                self.send_due = false;
                self.send(io);
            }
            READ => {
                if let Some(conn) = self.conn {
                    io.resume_reading(conn);
                }
            }
            _ => self.check_patience(io),
        }
    }

    fn mail(&mut self, io: &mut Io, mail: ClientMail) {
        match mail {
            ClientMail::More(count) => {
                self.left += count;
                self.schedule(io);
            }
            ClientMail::Stop => self.left = 0,
            ClientMail::Reconnect => self.give_up(io),
        }
    }

    fn turn_ended(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn
            && self.output.is_segmented()
        {
            self.output.finish(io.output(conn));
        }
    }
}
