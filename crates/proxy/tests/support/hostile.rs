//! Malicious or broken clients. Whatever they do must hurt nobody but themselves.

use std::net::SocketAddr;

use shunt_reactor::sim::{MILLISECOND, Random, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{Header, opcode};

/// The way in which a client breaks the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Misbehaviour {
    /// Sends random bytes, before or after a proper STARTUP.
    Garbage,
    /// Sends proper requests with some bytes changed.
    Mutant,
    /// Announces bodies of up to 2 GB and sends some of them.
    Huge,
    /// Sends a request a byte at a time.
    Slow,
    /// Sends queries and never reads an answer.
    Deaf,
    /// Connects, sends half of a message, and stays silent.
    Mute,
    /// Speaks v5 with wrong segments.
    BadSegments,
}

pub const MISBEHAVIOURS: [Misbehaviour; 7] = [
    Misbehaviour::Garbage,
    Misbehaviour::Mutant,
    Misbehaviour::Huge,
    Misbehaviour::Slow,
    Misbehaviour::Deaf,
    Misbehaviour::Mute,
    Misbehaviour::BadSegments,
];

pub struct Hostile {
    pub misbehaviour: Misbehaviour,
    pub proxy: SocketAddr,
    pub connections: u64,
    pub closed_on_it: u64,
    random: Random,
    conn: Option<ConnId>,
    /// Bytes that Slow has still to send.
    rest: Vec<u8>,
}

const CONNECT: u64 = 1;
const ACT: u64 = 2;

impl Hostile {
    pub fn new(misbehaviour: Misbehaviour, proxy: SocketAddr, seed: u64) -> Hostile {
        let random = Random::new(seed ^ (misbehaviour as u64 + 1) << 48);
        Hostile {
            misbehaviour,
            proxy,
            connections: 0,
            closed_on_it: 0,
            random,
            conn: None,
            rest: Vec::new(),
        }
    }

    fn query(&mut self, version: u8) -> Vec<u8> {
        let text = match self.random.below(3) {
            0 => "SELECT * FROM system.local",
            1 => "SELECT v FROM bench.kv WHERE k = 0x00",
            _ => "INSERT INTO elsewhere.kv (k, v) VALUES (0x01, 0x02)",
        };
        bytes::query(version, 0, text)
    }

    fn act(&mut self, io: &mut Io, conn: ConnId) {
        let mut noise = vec![0; 1 + self.random.index(200)];
        self.random.fill(&mut noise);
        let again_ns = match self.misbehaviour {
            Misbehaviour::Garbage => {
                io.output(conn).extend_from_slice(&noise);
                50 * MILLISECOND
            }
            Misbehaviour::Mutant => {
                let mut query = self.query(4);
                for _ in 0..1 + self.random.below(3) {
                    let at = self.random.index(query.len());
                    query[at] = self.random.next() as u8;
                }
                io.output(conn).extend_from_slice(&query);
                20 * MILLISECOND
            }
            Misbehaviour::Huge => {
                let length = 1 << self.random.range(&(14..31)) as u32;
                let header = Header { length, ..Header::request(4, 1, opcode::QUERY) };
                io.output(conn).extend_from_slice(&header.to_bytes());
                io.output(conn).extend_from_slice(&noise);
                50 * MILLISECOND
            }
            Misbehaviour::Slow => {
                if self.rest.is_empty() {
                    self.rest = self.query(4);
                }
                io.output(conn).push(self.rest.remove(0));
                2 * SECOND
            }
            Misbehaviour::Deaf => {
                for _ in 0..20 {
                    let query = self.query(4);
                    if io.backlog(conn) < 1 << 20 {
                        io.output(conn).extend_from_slice(&query);
                    }
                }
                5 * MILLISECOND
            }
            Misbehaviour::Mute => {
                let query = self.query(4);
                let part = self.random.index(query.len());
                io.output(conn).extend_from_slice(&query[..part]);
                return;
            }
            Misbehaviour::BadSegments => {
                let lengths = [0, 0xff, noise.len() as u8];
                let pick = self.random.index(3);
                io.output(conn).extend_from_slice(&[lengths[pick], 0, 2, 1, 2, 3]);
                io.output(conn).extend_from_slice(&noise);
                50 * MILLISECOND
            }
        };
        io.set_timer(io.now_ns() + again_ns, ACT);
    }
}

impl Service for Hostile {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        io.set_timer(io.now_ns() + self.random.below(200 * MILLISECOND), CONNECT);
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {
        unreachable!("clients do not listen");
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.connections += 1;
        self.rest.clear();
        let version = if self.misbehaviour == Misbehaviour::BadSegments { 5 } else { 4 };
        if self.misbehaviour != Misbehaviour::Garbage || self.random.chance(0.5) {
            io.output(conn).extend_from_slice(&bytes::startup(version, None));
        }
        if self.misbehaviour == Misbehaviour::Deaf {
            io.pause_reading(conn);
        }
        io.set_timer(io.now_ns() + 100 * MILLISECOND, ACT);
    }

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        data.len()
    }

    fn closed(&mut self, io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.conn = None;
        self.closed_on_it += 1;
        io.set_timer(io.now_ns() + 100 * MILLISECOND, CONNECT);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, key: u64) {
        match (key, self.conn) {
            (CONNECT, None) => self.conn = Some(io.connect(self.proxy, 5 * SECOND)),
            (ACT, Some(conn)) => self.act(io, conn),
            _ => {}
        }
    }

    fn mail(&mut self, io: &mut Io, (): ()) {
        if let Some(conn) = self.conn.take() {
            io.abort(conn);
        }
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}
