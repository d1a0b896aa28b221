//! Nodes on sockets: handshakes of every version, statements, aggregated frames, and the state
//! after a restart.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::Read;
use std::time::Instant;

use shunt_node::run::Nodes;
use shunt_testing::blocking::Client;
use shunt_testing::{Answer, Handshake, bytes};
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{Consistency, Event, encode, error_code};
use support::{KEYSPACE, PATIENCE, options, start};

#[test]
fn acknowledged_writes_survive_a_restart_in_every_version() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 3);
    let mut first = Client::connect(nodes.addresses()[0], 4);
    first.run(KEYSPACE);
    first.run("CREATE TABLE k.t (a int PRIMARY KEY, b text)");
    for version in 3..=5 {
        for (index, address) in nodes.addresses().iter().enumerate() {
            let mut client = Client::connect(*address, version);
            client.run("USE k");
            client.run(&format!("INSERT INTO t (a, b) VALUES ({version}{index}, 'x')"));
        }
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
    let nodes = start(directory.path(), 3);
    for (index, version) in (3..=5).enumerate() {
        let mut client = Client::connect(nodes.addresses()[index], version);
        assert_eq!(client.column("SELECT a FROM k.t").len(), 9, "version {version}");
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
    assert!(
        Nodes::start(options(directory.path(), 1))
            .is_err_and(|why| why.to_string().contains("3 node(s)"))
    );
}

#[test]
fn errors_are_answered_and_the_connection_lives_on() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let mut client = Client::connect(nodes.addresses()[0], 5);
    assert_eq!(client.error("SELEC 1"), error_code::SYNTAX_ERROR);
    assert_eq!(client.error("SELECT * FROM k.t"), error_code::INVALID);
    client.run(KEYSPACE);
    assert_eq!(client.error(KEYSPACE), error_code::ALREADY_EXISTS);
    assert_eq!(
        client.error("CREATE MATERIALIZED VIEW k.v AS SELECT * FROM k.t PRIMARY KEY (a)"),
        error_code::INVALID
    );
    assert_eq!(client.column("SELECT cluster_name FROM system.local"), [b"loopback"]);
    assert!(nodes.stop(PATIENCE).is_in_time());
}

#[test]
fn an_aggregated_frame_is_answered_entry_by_entry() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(KEYSPACE);
    client.run("CREATE TABLE k.t (a int PRIMARY KEY, b text)");
    let texts = [
        "INSERT INTO k.t (a, b) VALUES (1, 'x')",
        "SELECT nothing FROM k.t",
        "SELECT b FROM k.t WHERE a = 1",
    ];
    let bodies =
        texts.map(|text| bytes::body(|out| encode::query_simple(out, 5, text, Consistency::ONE)));
    let headers = (0..).map(|stream| Header::request(5, stream, opcode::QUERY));
    client.send_bytes(&bytes::aggregate(7, headers.zip(bodies.iter().map(Vec::as_slice))));
    // The INSERT waits for the disk and gets a separate frame; the others do not wait for it.
    let mut answers = Vec::new();
    while answers.len() < texts.len() {
        for (client_id, answer) in client.receive().entries() {
            assert_eq!((client_id, answer.header.version), (7, 5));
            answers.push(answer);
        }
    }
    answers.sort_by_key(Answer::stream);
    let opcodes: Vec<u8> = answers.iter().map(Answer::opcode).collect();
    assert_eq!(opcodes, [opcode::RESULT, opcode::ERROR, opcode::RESULT]);
    assert_eq!(answers[2].first_column(), [b"x"]);
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// The request limit applies to the decompressed body of an entry, as in a separate envelope.
#[test]
fn an_entry_larger_than_any_request_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let handshake = Handshake::new(4).compressed(Some(Algorithm::Lz4));
    let mut client = Client::open(nodes.addresses()[0], handshake);
    let mut body = Vec::new();
    assert!(Compressor::new().compress(Algorithm::Lz4, &vec![0; 17 << 20], &mut body));
    let header = Header { flags: flag::COMPRESSION, ..Header::request(4, 1, opcode::QUERY) };
    client.send_bytes(&bytes::aggregate(7, [(header, &body[..])]));
    let (code, text) = client.receive().error();
    assert_eq!(code, error_code::PROTOCOL_ERROR);
    assert!(text.contains("at most 16777216 bytes"), "{text}");
    assert_eq!(
        client.socket().read(&mut [0]).unwrap(),
        0,
        "whoever sends that is not trusted with more"
    );
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// The trace of a write that waits for the disk ends when the answer leaves, in any framing.
#[test]
fn a_traced_write_shows_its_wait_for_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(KEYSPACE);
    client.run("CREATE TABLE k.t (a int PRIMARY KEY, b text)");
    let text = "INSERT INTO k.t (a, b) VALUES (1, 'x')";
    let body = bytes::body(|out| encode::query_simple(out, 4, text, Consistency::ONE));
    let header = Header { flags: flag::TRACING, ..Header::request(4, 1, opcode::QUERY) };
    for request in [bytes::envelope(header, &body), bytes::aggregate(7, [(header, &body[..])])] {
        client.send_bytes(&request);
        let answer = client.receive();
        let answer = match answer.opcode() {
            opcode::AGGREGATE => answer.entries().remove(0).1,
            _ => answer,
        };
        let id = answer.prefix().tracing_id.unwrap();
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let id =
            format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        // Retries until it has a duration, like drivers.
        let duration =
            format!("SELECT duration FROM system_traces.sessions WHERE session_id = {id}");
        let deadline = Instant::now() + PATIENCE;
        while client.column(&duration).is_empty() {
            assert!(Instant::now() < deadline, "no trace came");
        }
        let events = client
            .column(&format!("SELECT activity FROM system_traces.events WHERE session_id = {id}"));
        let last: Vec<_> =
            events.iter().rev().take(2).map(|text| String::from_utf8_lossy(text)).collect();
        assert_eq!(last, ["The log is on disk", "Waiting until the log is on disk"]);
        let client_of = client
            .column(&format!("SELECT client FROM system_traces.sessions WHERE session_id = {id}"));
        assert_eq!(client_of, [[127, 0, 0, 1]]);
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
    let nodes = start(directory.path(), 1);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    assert_eq!(
        client.column("SELECT session_id FROM system_traces.sessions").len(),
        2,
        "traces outlive the process"
    );
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// DELETE removes exactly the rows of SELECT with the same WHERE, whatever the order of the
/// columns.
#[test]
fn a_range_is_deleted_as_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(&KEYSPACE.replace("batch", "periodic"));
    for order in ["c ASC, d ASC", "c DESC, d ASC", "c ASC, d DESC", "c DESC, d DESC"] {
        client.run(&format!(
            "CREATE TABLE k.t (p int, c int, d int, v int, PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY ({order})"
        ));
        for range in [
            "c >= 2",
            "c > 1 AND c < 3",
            "c <= 1",
            "c = 2 AND d > 1",
            "c = 2 AND d >= 1 AND d <= 1",
            "(c, d) > (1, 1)",
            "(c, d) >= (1, 1) AND (c, d) < (3, 1)",
            "c IN (0, 3)",
        ] {
            for row in 0..16 {
                client.run(&format!(
                    "INSERT INTO k.t (p, c, d, v) VALUES (0, {}, {}, {row})",
                    row / 4,
                    row % 4
                ));
            }
            let mut expected = client.column("SELECT v FROM k.t WHERE p = 0");
            let taken = client.column(&format!("SELECT v FROM k.t WHERE p = 0 AND {range}"));
            assert!(!taken.is_empty() && taken.len() < expected.len(), "{range}");
            expected.retain(|row| !taken.contains(row));
            client.run(&format!("DELETE FROM k.t WHERE p = 0 AND {range}"));
            assert_eq!(
                client.column("SELECT v FROM k.t WHERE p = 0"),
                expected,
                "{order}: {range}"
            );
        }
        client.run("DROP TABLE k.t");
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// Drivers cache a keyspace's metadata by table and type, and drop each when told that it is gone.
#[test]
fn each_change_of_the_schema_is_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = start(directory.path(), 1);
    let address = nodes.addresses()[0];
    let mut listener =
        Client::open(address, Handshake { events: vec!["SCHEMA_CHANGE"], ..Handshake::new(4) });
    let mut client = Client::connect(address, 4);
    for statement in [
        KEYSPACE,
        "CREATE TYPE k.y (a int)",
        "CREATE TABLE k.t (k int PRIMARY KEY)",
        "CREATE TABLE k.u (k int PRIMARY KEY)",
        "ALTER TABLE k.t ADD v int",
        "DROP TABLE k.t",
        "DROP KEYSPACE k",
    ] {
        client.run(statement);
    }
    let mut event = || {
        let answer = listener.receive();
        let Ok(Event::SchemaChange(change)) = Event::decode(answer.message()) else {
            panic!("{answer:?}")
        };
        format!("{} {} {}", change.change, change.target, change.name.unwrap_or(change.keyspace))
    };
    let mut events = vec![event()];
    while events.last().is_some_and(|last| last != "DROPPED KEYSPACE k") {
        events.push(event());
    }
    let expected = [
        "CREATED KEYSPACE k",
        "CREATED TYPE y",
        "CREATED TABLE t",
        "CREATED TABLE u",
        "UPDATED TABLE t",
        "DROPPED TABLE t",
        "DROPPED TABLE u",
        "DROPPED TYPE y",
        "DROPPED KEYSPACE k",
    ];
    assert_eq!(events, expected);
    assert!(nodes.stop(PATIENCE).is_in_time());
}
