//! A client that talks to a stub in the simulated world, one envelope at a time.

use std::net::SocketAddr;

use shunt_bench::stub::{Ring, Stub, StubOptions};
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_testing::simulated::Client;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{BODY_BYTES_MAX, Header, opcode};
use shunt_wire::cql::message::encode;
use shunt_wire::cql::reader::EnvelopeReader;

/// A stub and a client of its first node.
pub(crate) struct Talk {
    pub(crate) world: World,
    pub(crate) stub: HostId<Stub>,
    pub(crate) client: HostId<Client>,
    pub(crate) version: u8,
}

/// Returns the addresses of a ring of this many nodes.
pub(crate) fn addresses(nodes: u8) -> Vec<SocketAddr> {
    (1..=nodes).map(|last| ([10, 9, 9, last], 9042).into()).collect()
}

/// Reads the complete requests that a server received; returns their length in `data`.
pub(crate) fn take_requests(
    reader: &mut EnvelopeReader,
    data: &[u8],
    mut take: impl FnMut(Header, &[u8]),
) -> usize {
    let mut scratch = Vec::new();
    let mut envelopes = reader.read(data, &mut scratch);
    while let Some((header, body)) = envelopes.next(BODY_BYTES_MAX, None).expect("whole") {
        take(header, body);
    }
    envelopes.finish()
}

impl Talk {
    /// Creates a ring of three and a client before its handshake.
    pub(crate) fn new(version: u8, change: impl FnOnce(&mut StubOptions)) -> Talk {
        let mut world = World::new(1, Options::crumbs());
        let ring = addresses(3);
        let mut options = StubOptions::new(Ring::even(&ring, 1));
        change(&mut options);
        let stub = world.add("stub", Stub::new(options));
        for &address in &ring {
            world.listen(stub, address);
        }
        let client = world.add("client", Client::new(ring[0]));
        world.with(client, |client, io| client.send(io, &[]));
        world.run_for(SECOND);
        Talk { world, stub, client, version }
    }

    /// The same after STARTUP was answered with READY.
    pub(crate) fn open(
        version: u8,
        compression: Option<Algorithm>,
        change: impl FnOnce(&mut StubOptions),
    ) -> Talk {
        let mut talk = Talk::new(version, change);
        let answer = talk.startup(compression);
        assert_eq!(answer.0.opcode, opcode::READY);
        talk
    }

    /// Sends STARTUP and applies what it agrees on.
    pub(crate) fn startup(&mut self, compression: Option<Algorithm>) -> (Header, Vec<u8>) {
        let mut body = Vec::new();
        let compressions = compression.map(|algorithm| ("COMPRESSION", algorithm.name()));
        encode::startup(&mut body, [("CQL_VERSION", "3.0.0")].into_iter().chain(compressions));
        self.world.with(self.client, |client, _| client.expect_compression(compression));
        self.ask(0, opcode::STARTUP, &body)
    }

    /// Sends an envelope without waiting.
    pub(crate) fn send(&mut self, header: Header, body: &[u8]) {
        self.world.with(self.client, |client, io| client.push(io, header, body));
    }

    /// Returns the answers since the last call, after a wait for them.
    pub(crate) fn answers(&mut self) -> Vec<(Header, Vec<u8>)> {
        self.world.run_for(20 * SECOND);
        let answers = self.world.with(self.client, |client, _| std::mem::take(&mut client.answers));
        answers.into_iter().map(|answer| (answer.header, answer.body)).collect()
    }

    /// Sends a request and returns its answer, which must be the only one.
    pub(crate) fn ask(&mut self, stream: i16, opcode: u8, body: &[u8]) -> (Header, Vec<u8>) {
        self.ask_with(Header::request(self.version, stream, opcode), body)
    }

    /// The same as [`Talk::ask`] with a given header.
    pub(crate) fn ask_with(&mut self, header: Header, body: &[u8]) -> (Header, Vec<u8>) {
        self.send(header, body);
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        let answer = answers.remove(0);
        assert!(answer.0.response && answer.0.stream == header.stream, "{:?}", answer.0);
        answer
    }

    /// Returns the body of the RESULT of this text.
    pub(crate) fn query(&mut self, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        encode::query_simple(
            &mut body,
            self.version,
            text,
            shunt_wire::cql::message::Consistency(1),
        );
        let (header, body) = self.ask(3, opcode::QUERY, &body);
        assert_eq!(header.opcode, opcode::RESULT, "{text}: {}", String::from_utf8_lossy(&body));
        body
    }
}
