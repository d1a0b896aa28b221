//! A client as small as can be, and nodes for it.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use shunt_node::run::{Nodes, NodesOptions};
use shunt_storage::StoreOptions;
use shunt_storage::row_cache::RowCacheOptions;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::framing::{Input, Next, Output, Scratch};
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage, encode, split_response_prefix};

/// How long nodes may take to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn start(directory: &Path, nodes: usize) -> Nodes {
    Nodes::start(options(directory, nodes)).unwrap()
}

pub(crate) fn options(directory: &Path, nodes: usize) -> NodesOptions {
    let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)); nodes];
    NodesOptions {
        cluster_name: "loopback".to_owned(),
        loops_per_node: 2,
        ..NodesOptions::new(directory.to_owned(), listen)
    }
}

/// A node with a keyspace whose writes do not wait for the disk, and with a row cache of so many bytes.
pub(crate) fn started(directory: &Path, row_cache_bytes: usize, tables: &[&str]) -> Nodes {
    let row_cache =
        (row_cache_bytes > 0).then(|| RowCacheOptions { memory_bytes: row_cache_bytes, ..RowCacheOptions::default() });
    let store = StoreOptions { row_cache, ..StoreOptions::default() };
    let nodes = Nodes::start(NodesOptions { store, ..options(directory, 1) }).unwrap();
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(&KEYSPACE.replace("batch", "periodic"));
    tables.iter().for_each(|table| client.run(table));
    nodes
}

/// All rows of an answer.
pub(crate) fn rows(client: &mut Client, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
    let (opcode, body) = client.query(text);
    assert_eq!(opcode, opcode::RESULT, "{text}: {:?}", ErrorMessage::decode(4, &body));
    let Ok(ResultMessage::Rows(found)) = ResultMessage::decode(4, &body) else { return Vec::new() };
    found.rows().map(|row| row.unwrap().values().map(|value| value.map(<[u8]>::to_vec)).collect()).collect()
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    version: u8,
    input: Input,
    pub(crate) output: Output,
    received: Vec<u8>,
    /// What came and was not asked for yet.
    answers: VecDeque<(Header, Vec<u8>)>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, version: u8) -> Client {
        Client::connect_with(address, version, None)
    }

    /// What is sent is compressed by whoever sends it, if at all.
    pub(crate) fn connect_with(address: SocketAddr, version: u8, compression: Option<Algorithm>) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (input, output) = (Input::default(), Output::default());
        let mut client = Client { stream, version, input, output, received: Vec::new(), answers: VecDeque::new() };
        let compression_asked = compression.map(|algorithm| ("COMPRESSION", algorithm.name()));
        let startup = [("CQL_VERSION", "3.0.0")].into_iter().chain(compression_asked);
        client.send(opcode::STARTUP, |body| encode::startup(body, startup));
        client.input.compression = compression;
        let mut header = [0; HEADER_BYTES];
        client.stream.read_exact(&mut header).unwrap();
        let header = Header::decode(&header).unwrap();
        assert_eq!(header.opcode, opcode::READY);
        client.stream.read_exact(&mut vec![0; header.length as usize]).unwrap();
        if version >= 5 {
            client.output.start_segments(false);
            // What follows READY comes in segments.
            let ready = Header::response(5, 0, opcode::READY).to_bytes();
            client.input.feed(&ready, &mut Scratch::default(), |_, _| Next::Segments { lz4: false }).unwrap();
        }
        client
    }

    pub(crate) fn send(&mut self, opcode: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.send_on(1, opcode, write);
    }

    pub(crate) fn send_on(&mut self, stream: i16, opcode: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        write(&mut body);
        self.output.push(&mut out, Header::request(self.version, stream, opcode), &body);
        self.output.finish(&mut out);
        self.stream.write_all(&out).unwrap();
    }

    pub(crate) fn send_query(&mut self, stream: i16, text: &str) {
        let version = self.version;
        self.send_on(stream, opcode::QUERY, |body| encode::query_simple(body, version, text, Consistency::ONE));
    }

    pub(crate) fn receive(&mut self) -> (u8, Vec<u8>) {
        let (header, body) = self.next_answer();
        (header.opcode, body)
    }

    /// Stream, opcode and message of the next answer.
    pub(crate) fn receive_any(&mut self) -> (i16, u8, Vec<u8>) {
        let (header, body) = self.next_answer();
        (header.stream, header.opcode, message(header.flags, &body).to_vec())
    }

    fn next_answer(&mut self) -> (Header, Vec<u8>) {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return answer;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the connection was closed");
            self.received.extend_from_slice(&bytes[..count]);
            let answers = &mut self.answers;
            let used = self.input.feed(&self.received, &mut Scratch::default(), |header, body| {
                answers.push_back((header, body.to_vec()));
                Next::Continue
            });
            self.received.drain(..used.unwrap());
        }
    }

    pub(crate) fn query(&mut self, text: &str) -> (u8, Vec<u8>) {
        let version = self.version;
        self.send(opcode::QUERY, |body| encode::query_simple(body, version, text, Consistency::ONE));
        self.receive()
    }

    /// A statement that has to succeed.
    pub(crate) fn run(&mut self, text: &str) {
        let (opcode, body) = self.query(text);
        assert_eq!(opcode, opcode::RESULT, "{text}: {:?}", ErrorMessage::decode(self.version, &body));
    }

    /// The first column of all rows, in order.
    pub(crate) fn column(&mut self, text: &str) -> Vec<Vec<u8>> {
        self.send_query(1, text);
        let (_, _, body) = self.receive_any();
        first_column(self.version, &body)
    }

    pub(crate) fn error(&mut self, text: &str) -> i32 {
        let (_, body) = self.query(text);
        ErrorMessage::decode(self.version, &body).unwrap().code
    }
}

/// What is behind tracing id and warnings.
pub(crate) fn message(flags: u8, body: &[u8]) -> &[u8] {
    split_response_prefix(flags, body).unwrap().1
}

pub(crate) fn first_column(version: u8, body: &[u8]) -> Vec<Vec<u8>> {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, body) else { panic!("no rows") };
    rows.rows().map(|row| row.unwrap().get(0).unwrap_or_default().to_vec()).collect()
}

pub(crate) const KEYSPACE: &str = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} \
                            AND durability = 'batch'";
