//! Clients that do not take their answers, and clients that take them late.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::Read;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shunt_admin::Part;
use shunt_node::run::Nodes;
use shunt_testing::blocking::Client;
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use support::{PATIENCE, started};

const VALUE_BYTES: usize = 1 << 20;
const READ: &str = "SELECT v FROM k.t WHERE p = 1";

fn filled(directory: &std::path::Path) -> Nodes {
    let nodes = started(directory, 1 << 20, &["CREATE TABLE k.t (p int PRIMARY KEY, v text)"]);
    let value = "v".repeat(VALUE_BYTES);
    Client::connect(nodes.addresses()[0], 4).run(&format!("INSERT INTO k.t (p, v) VALUES (1, '{value}')"));
    nodes
}

/// As the status page has it.
fn connections(nodes: &Nodes) -> u64 {
    let admin = nodes.admin();
    let mut page = admin.status();
    let Poll::Ready(status) = page.as_mut().poll(&mut Context::from_waker(Waker::noop())) else { panic!("it waits") };
    status["store"]["nodes"][0]["connections"].as_u64().unwrap()
}

#[test]
fn who_does_not_read_is_cut_off_before_the_node_holds_all_answers() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path());
    let mut deaf = Client::connect(nodes.addresses()[0], 4);
    // All at once: those that came before the first answer are all carried out.
    let reads: Vec<u8> = (0..600).flat_map(|stream| bytes::query(4, stream, READ)).collect();
    deaf.send_bytes(&reads);
    let deadline = Instant::now() + Duration::from_secs(120);
    while connections(&nodes) > 0 {
        assert!(Instant::now() < deadline, "the node keeps the answers for it");
        std::thread::yield_now();
    }
    deaf.socket().set_read_timeout(Some(Duration::from_secs(5))).unwrap();
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
fn who_reads_late_gets_every_answer() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path());
    for version in 3..=5 {
        let mut client = Client::connect(nodes.addresses()[0], version);
        (0..60).for_each(|stream| client.send_query(stream, READ));
        let mut streams: Vec<i16> = (0..60)
            .map(|_| {
                let answer = client.receive();
                assert_eq!((answer.opcode(), answer.first_column()[0].len()), (opcode::RESULT, VALUE_BYTES));
                answer.stream()
            })
            .collect();
        streams.sort();
        assert!(streams.into_iter().eq(0..60), "version {version}");
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}
