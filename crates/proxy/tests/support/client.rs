//! A simulated CQL client: connects, logs in, prepares, keeps requests in flight, checks every
//! answer as it comes, and starts again when its connection is lost.

use std::collections::BTreeMap;
use std::net::IpAddr;

use shunt_reactor::sim::{MILLISECOND, Random, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::{Answer, Handshake, Step};
use shunt_wire::cql::envelope::{Header, flag, opcode};

pub use super::client_options::ClientOptions;
use super::model::{Fate, Model};
use super::operation::{Kind, Maker, Operation, Statements, Verdict, texts};

/// Counts of events of a client's requests and connections.
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

/// An order of the test to a client.
#[derive(Clone, Copy, Debug)]
pub enum ClientMail {
    /// Send this many more requests.
    More(u64),
    /// Send nothing new.
    Stop,
    /// Close the connection (and open another).
    Reconnect,
}

/// Keys of the timers.
const CONNECT: u64 = 1;
const SEND: u64 = 2;
const CHECK: u64 = 3;
const READ: u64 = 4;

pub struct Client {
    pub options: ClientOptions,
    pub model: Model,
    pub tally: Tally,
    /// Times of answered reads of a key.
    pub read_times_ns: Vec<u64>,
    random: Random,
    /// The connection, which may not be open yet.
    conn: Option<ConnId>,
    cql: shunt_testing::Client,
    step_since_ns: u64,
    /// The requests in flight by stream id; ordered, because iteration must not depend on anything
    /// but the seed.
    pub in_flight: BTreeMap<i16, Operation>,
    /// Requests that it may still send.
    left: u64,
    send_due: bool,
    asked: u32,
    body: Vec<u8>,
    /// The ERROR of the last failed handshake.
    pub last_error: String,
}

impl Client {
    pub fn new(options: ClientOptions) -> Client {
        Client {
            model: Model::new(options.number),
            random: Random::new(options.seed),
            cql: unopened(&options),
            options,
            tally: Tally::default(),
            read_times_ns: Vec::new(),
            conn: None,
            step_since_ns: 0,
            in_flight: BTreeMap::new(),
            left: 0,
            send_due: false,
            asked: 0,
            body: Vec::new(),
            last_error: String::new(),
        }
    }

    pub fn is_ready(&self) -> bool {
        self.cql.is_ready()
    }

    pub fn is_down(&self) -> bool {
        self.conn.is_none()
    }

    /// True if nothing is in flight and nothing is left to send.
    pub fn is_idle(&self) -> bool {
        self.left == 0 && self.in_flight.is_empty()
    }

    /// Requests sent so far.
    pub fn asked(&self) -> u32 {
        self.asked
    }

    /// Sends as many requests as may be in flight.
    fn send(&mut self, io: &mut Io) {
        while self.cql.is_ready()
            && self.left > 0
            && self.in_flight.len() < self.options.outstanding
        {
            let stream = self.free_stream();
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            let [insert, select] = self.cql.statements() else { panic!("two statements") };
            let mut maker = Maker {
                version: self.options.version,
                statements: Statements { insert, select },
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
            if let Some(conn) = self.conn {
                let header = Header { flags, ..Header::request(self.options.version, stream, op) };
                self.cql.push(io.output(conn), header, &body);
            }
            self.body = body;
            self.left -= 1;
            self.asked += 1;
            if self.random.chance(0.5) {
                break; // The rest goes after a pause, so that requests come alone and together.
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

    fn answer(&mut self, io: &mut Io, answer: &Answer) {
        let operation = self.in_flight.remove(&answer.stream());
        let Some(operation) = operation else {
            panic!(
                "client {}: stream {} was answered and had not been asked",
                self.options.number,
                answer.stream()
            );
        };
        let IpAddr::V4(own_address) = self.options.proxy.ip() else { panic!("IPv4 only here") };
        let verdict = operation.judge(&self.model, own_address.octets(), answer);
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
        let time_ns = io.now_ns() - operation.sent_ns;
        self.tally.slowest_ns = self.tally.slowest_ns.max(time_ns);
        if matches!(operation.kind, Kind::Read(..)) {
            self.read_times_ns.push(time_ns);
        }
        self.schedule(io);
    }

    /// Handles a connection that is gone or useless: the outcome of its requests is unknown.
    fn reset(&mut self, io: &mut Io) {
        self.conn = None;
        self.cql = unopened(&self.options);
        for (_, operation) in std::mem::take(&mut self.in_flight) {
            operation.settle(&mut self.model, Fate::Unknown, None, io.now_ns());
        }
        io.set_timer(
            io.now_ns() + self.random.range(&(50 * MILLISECOND..500 * MILLISECOND)),
            CONNECT,
        );
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
        let waits = self.conn.is_some() && !self.cql.is_ready();
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
        if self.conn.is_none() {
            self.conn = Some(io.connect(self.options.proxy, 5 * SECOND));
            self.step_since_ns = io.now_ns();
        }
    }

    /// Acts on a step of the handshake: it went on, ended, or failed.
    fn follow_handshake(&mut self, io: &mut Io, before: Step) {
        let step = self.cql.step();
        if step == before {
            return;
        }
        self.step_since_ns = io.now_ns();
        if let Some(header) = self.cql.startup_answer() {
            assert_eq!(
                header.flags & flag::COMPRESSION,
                0,
                "the answer to STARTUP is never compressed"
            );
        }
        if let Some(refusal) = self.cql.refusal() {
            let (code, text) = refusal.error();
            self.last_error = format!("{before:?}: {code:#x} {text}");
            self.tally.handshakes_failed += 1;
            self.give_up(io);
        } else if step == Step::Ready {
            self.send(io);
        }
    }
}

/// The other half of a connection that is not open yet.
fn unopened(options: &ClientOptions) -> shunt_testing::Client {
    let (insert, select) = texts(options.uses_keyspace);
    shunt_testing::Client::new(Handshake {
        version: options.version,
        compression: options.compression,
        login: options.login.map(|(user, password)| (user.to_owned(), password.to_owned())),
        events: if options.registers { vec!["SCHEMA_CHANGE", "STATUS_CHANGE"] } else { Vec::new() },
        keyspace: options.uses_keyspace.then(|| "bench".to_owned()),
        statements: vec![insert.to_owned(), select.to_owned()],
    })
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

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.tally.connections += 1;
        self.step_since_ns = io.now_ns();
        self.cql.start(io.output(conn));
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        assert_eq!(self.conn, Some(conn));
        let before = self.cql.step();
        // Only the handshake sends something at once.
        let mut nothing = Vec::new();
        let used = self
            .cql
            .receive(data, if before == Step::Ready { &mut nothing } else { io.output(conn) });
        let used = used.unwrap_or_else(|fault| panic!("client {}: {fault}", self.options.number));
        self.follow_handshake(io, before);
        while self.conn == Some(conn)
            && let Some(answer) = self.cql.next_answer()
        {
            match answer.opcode() {
                opcode::EVENT => self.tally.events += 1,
                _ => self.answer(io, &answer),
            }
        }
        used
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, _reason: CloseReason) {
        assert_eq!(self.conn, Some(conn));
        self.tally.losses += u64::from(self.cql.step() != Step::Manual);
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
        if let Some(conn) = self.conn.filter(|_| self.cql.step() != Step::Manual) {
            self.cql.finish(io.output(conn));
        }
    }
}
