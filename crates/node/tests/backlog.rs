//! Clients that do not read their answers, and clients that read them late.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::Read;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shunt_admin::Part;
use shunt_node::run::{Nodes, NodesOptions};
use shunt_testing::blocking::Client;
use shunt_testing::{Handshake, bytes};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{Consistency, encode};
use support::{PATIENCE, started};

const VALUE_BYTES: usize = 1 << 20;
const READ: &str = "SELECT v FROM k.t WHERE p = 1";

fn filled(directory: &std::path::Path) -> Nodes {
    let nodes = started(directory, 1 << 20, &["CREATE TABLE k.t (p int PRIMARY KEY, v text)"]);
    let value = "v".repeat(VALUE_BYTES);
    Client::connect(nodes.addresses()[0], 4)
        .run(&format!("INSERT INTO k.t (p, v) VALUES (1, '{value}')"));
    nodes
}

fn connections(nodes: &Nodes) -> u64 {
    status(nodes, "connections")
}

/// A value on the status page.
fn status(nodes: &Nodes, what: &str) -> u64 {
    let admin = nodes.admin();
    let mut page = admin.status();
    let Poll::Ready(status) = page.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits")
    };
    status["store"]["nodes"][0][what].as_u64().unwrap()
}

#[test]
fn a_client_that_does_not_read_is_cut_off_before_the_node_holds_all_answers() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path());
    let mut deaf = Client::connect(nodes.addresses()[0], 4);
    // All at once: requests before the first answer are all executed.
    let reads: Vec<u8> = (0..600).flat_map(|stream| bytes::query(4, stream, READ)).collect();
    deaf.send_bytes(&reads);
    let deadline = Instant::now() + PATIENCE;
    while connections(&nodes) > 0 {
        assert!(Instant::now() < deadline, "the node keeps the answers for it");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let (mut taken, mut bytes) = (0, vec![0; 1 << 20]);
    while let Ok(count @ 1..) = deaf.socket().read(&mut bytes) {
        taken += count;
    }
    assert!(taken < 600 * VALUE_BYTES, "it got all");
    let mut other = Client::connect(nodes.addresses()[0], 4);
    assert_eq!(other.column(READ)[0].len(), VALUE_BYTES);
    assert!(nodes.stop(PATIENCE).is_in_time());
}

#[test]
fn a_client_that_reads_late_gets_every_answer() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path());
    for version in 3..=5 {
        let mut client = Client::connect(nodes.addresses()[0], version);
        (0..60).for_each(|stream| client.send_query(stream, READ));
        let mut streams: Vec<i16> = (0..60)
            .map(|_| {
                let answer = client.receive();
                assert_eq!(
                    (answer.opcode(), answer.first_column()[0].len()),
                    (opcode::RESULT, VALUE_BYTES)
                );
                answer.stream()
            })
            .collect();
        streams.sort();
        assert!(streams.into_iter().eq(0..60), "version {version}");
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// Text of this length that LZ4 cannot shorten.
fn noise(length: usize) -> String {
    let next = |state: &u64| {
        Some(state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F))
    };
    let states = std::iter::successors(Some(1), next);
    states.take(length).map(|state: u64| char::from(b'0' + (state >> 58) as u8)).collect()
}

/// A client of v5 sends many reads in one segment, perhaps a few in a second, and reads no answer:
/// the node stops inside the first segment, as the answers exceed the kernels' buffers. When the
/// client reads, it gets them all in order although no more bytes arrive.
#[test]
fn a_node_that_pauses_inside_a_segment_goes_on_there() {
    const FIRST: i16 = 500;
    let directory = tempfile::tempdir().unwrap();
    // One loop, so that another client's answer proves that earlier bytes have been read.
    let options = NodesOptions { loops_per_node: 1, ..support::options(directory.path(), 1) };
    let nodes = Nodes::start(options).unwrap();
    let address = nodes.addresses()[0];
    let mut other = Client::connect(address, 4);
    other.run(&support::KEYSPACE.replace("batch", "periodic"));
    other.run("CREATE TABLE k.t (p int PRIMARY KEY, v text)");
    // Nearly as much as a loop reads for one request before a worker takes over.
    let value = noise(200 << 10);
    other.run(&format!("INSERT INTO k.t (p, v) VALUES (1, '{value}')"));
    for (compression, second) in [(None, 0), (Some(Algorithm::Lz4), 0), (None, 5)] {
        let mut client = Client::open(address, Handshake { compression, ..Handshake::new(5) });
        let body = bytes::body(|out| encode::query_simple(out, 5, READ, Consistency::ONE));
        let (mut segments, mut writer) = (Vec::new(), SegmentWriter::new(compression.is_some()));
        for stream in 0..FIRST + second {
            let header =
                Header { length: body.len() as u32, ..Header::request(5, stream, opcode::QUERY) };
            writer.push(&mut segments, &header.to_bytes(), &body);
            if stream == FIRST - 1 {
                writer.finish(&mut segments);
            }
        }
        writer.finish(&mut segments);
        let before = status(&nodes, "requests");
        client.send_bytes(&segments);
        while status(&nodes, "requests") == before {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        other.run("SELECT key FROM system.local");
        let served = status(&nodes, "requests") - before - 1;
        assert!(
            served < FIRST as u64,
            "it served {served} requests of a client that reads no answers"
        );
        for stream in 0..FIRST + second {
            let answer = client.receive();
            assert_eq!(
                (answer.stream(), answer.opcode()),
                (stream, opcode::RESULT),
                "{compression:?}"
            );
            assert_eq!(answer.first_column()[0], value.as_bytes());
        }
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}
