//! A client that speaks to a stub in the simulated world, one envelope at a time.

use std::net::SocketAddr;

use shunt_bench::stub::{Ring, Stub, StubOptions};
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::framing::{Input, Next, Output, Scratch};
use shunt_wire::cql::message::encode;

/// Connects once and keeps every envelope that comes.
pub(crate) struct Probe {
    target: SocketAddr,
    conn: Option<ConnId>,
    input: Input,
    pub(crate) output: Output,
    switch: Option<bool>,
    pub(crate) answers: Vec<(Header, Vec<u8>)>,
    pub(crate) reads: usize,
    pub(crate) closed: bool,
}

impl Service for Probe {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.conn = Some(io.connect(self.target, SECOND));
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        self.reads += 1;
        let (answers, switch) = (&mut self.answers, &mut self.switch);
        let outcome = self.input.feed(data, &mut Scratch::default(), |header, body| {
            answers.push((header, body.to_vec()));
            switch.take().map_or(Next::Continue, |lz4| Next::Segments { lz4 })
        });
        outcome.expect("what the stub sends is valid")
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.closed = true;
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// A stub and a client of its first node.
pub(crate) struct Talk {
    pub(crate) world: World,
    pub(crate) stub: HostId<Stub>,
    pub(crate) probe: HostId<Probe>,
    pub(crate) version: u8,
}

/// Addresses of a ring of this many nodes.
pub(crate) fn addresses(nodes: u8) -> Vec<SocketAddr> {
    (1..=nodes).map(|last| ([10, 9, 9, last], 9042).into()).collect()
}

impl Talk {
    /// A ring of three, after no handshake yet.
    pub(crate) fn new(version: u8, change: impl FnOnce(&mut StubOptions)) -> Talk {
        let mut world = World::new(1, Options::crumbs());
        let ring = addresses(3);
        let mut options = StubOptions::new(Ring::even(&ring, 1));
        change(&mut options);
        let stub = world.add("stub", Stub::new(options));
        for &address in &ring {
            world.listen(stub, address);
        }
        let probe = Probe {
            target: ring[0],
            conn: None,
            input: Input::default(),
            output: Output::default(),
            switch: None,
            answers: Vec::new(),
            reads: 0,
            closed: false,
        };
        let probe = world.add("probe", probe);
        world.run_for(SECOND);
        Talk { world, stub, probe, version }
    }

    /// After STARTUP was answered with READY.
    pub(crate) fn open(version: u8, compression: Option<Algorithm>, change: impl FnOnce(&mut StubOptions)) -> Talk {
        let mut talk = Talk::new(version, change);
        let answer = talk.startup(compression);
        assert_eq!(answer.0.opcode, opcode::READY);
        talk
    }

    /// Sends STARTUP and follows what it agrees on.
    pub(crate) fn startup(&mut self, compression: Option<Algorithm>) -> (Header, Vec<u8>) {
        let mut body = Vec::new();
        let compressions = compression.map(|algorithm| ("COMPRESSION", algorithm.name()));
        encode::startup(&mut body, [("CQL_VERSION", "3.0.0")].into_iter().chain(compressions));
        let version = self.version;
        self.world.with(self.probe, |probe, _| {
            probe.switch = (version == 5).then_some(compression.is_some());
            probe.input.compression = compression.filter(|_| version < 5);
        });
        let answer = self.ask(0, opcode::STARTUP, &body);
        self.world.with(self.probe, |probe, _| match version {
            5 => probe.output.start_segments(compression.is_some()),
            _ => probe.output.compression = compression,
        });
        answer
    }

    /// Sends an envelope without waiting.
    pub(crate) fn send(&mut self, header: Header, body: &[u8]) {
        self.world.with(self.probe, |probe, io| {
            let conn = probe.conn.expect("started");
            probe.output.push(io.output(conn), header, body);
            probe.output.finish(io.output(conn));
        });
    }

    /// The answers since the last look, after giving it time to come.
    pub(crate) fn answers(&mut self) -> Vec<(Header, Vec<u8>)> {
        self.world.run_for(20 * SECOND);
        self.world.with(self.probe, |probe, _| std::mem::take(&mut probe.answers))
    }

    /// Sends a request and returns its answer, which must be the only one.
    pub(crate) fn ask(&mut self, stream: i16, opcode: u8, body: &[u8]) -> (Header, Vec<u8>) {
        self.ask_with(Header::request(self.version, stream, opcode), body)
    }

    /// As [`Talk::ask`] with a header of one's own.
    pub(crate) fn ask_with(&mut self, header: Header, body: &[u8]) -> (Header, Vec<u8>) {
        self.send(header, body);
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        let answer = answers.remove(0);
        assert!(answer.0.response && answer.0.stream == header.stream, "{:?}", answer.0);
        answer
    }

    /// The body of a RESULT to this text.
    pub(crate) fn query(&mut self, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        encode::query_simple(&mut body, self.version, text, shunt_wire::cql::message::Consistency(1));
        let (header, body) = self.ask(3, opcode::QUERY, &body);
        assert_eq!(header.opcode, opcode::RESULT, "{text}: {}", String::from_utf8_lossy(&body));
        body
    }
}
