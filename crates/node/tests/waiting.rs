//! Requests that wait for the disk or take long do not affect others on the same loop.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::path::Path;
use std::thread;

use shunt_node::run::{Nodes, NodesOptions};
use shunt_storage::StoreOptions;
use shunt_storage::row_cache::{RowCacheOptions, RowCacheStatistics};
use shunt_testing::blocking::Client;
use shunt_testing::{Answer, bytes};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, encode};
use support::{KEYSPACE, PATIENCE, options};

/// Many more than a worker reads for one request before a worker for long ones takes over.
const ROWS: i64 = 6_000;

/// One node with one loop, so that all connections share it, and a row cache.
fn start(directory: &Path) -> Nodes {
    let store =
        StoreOptions { row_cache: Some(RowCacheOptions::default()), ..StoreOptions::default() };
    Nodes::start(NodesOptions { loops_per_node: 1, store, ..options(directory, 1) }).unwrap()
}

fn statistics(nodes: &Nodes) -> RowCacheStatistics {
    nodes.figures()[0].row_cache.unwrap()
}

/// A node with a table of so many rows.
fn filled(directory: &Path, rows: i64) -> Nodes {
    let nodes = start(directory);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(&KEYSPACE.replace("batch", "periodic"));
    client.run("CREATE TABLE k.t (a int PRIMARY KEY, b text)");
    for first in (0..rows).step_by(500) {
        let insert = |row| format!("INSERT INTO k.t (a, b) VALUES ({row}, 'value');");
        let inserts: String = (first..(first + 500).min(rows)).map(insert).collect();
        client.run(&format!("BEGIN UNLOGGED BATCH {inserts} APPLY BATCH"));
    }
    nodes
}

#[test]
fn rows_on_disk_are_read_by_workers_and_then_come_from_the_row_cache() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path(), 3_000);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run("CREATE TABLE k.c (p int, c int, v text, PRIMARY KEY (p, c))");
    (0..3).for_each(|row| {
        client.run(&format!("INSERT INTO k.c (p, c, v) VALUES (1, {row}, 'v{row}')"))
    });
    assert!(nodes.stop(PATIENCE).is_in_time());
    // Twice, so that the log's content is in files.
    assert!(start(directory.path()).stop(PATIENCE).is_in_time());
    let asked = ["SELECT b FROM t WHERE a = 7", "SELECT v FROM c WHERE p = 1 AND c = 2"];
    let expected: [&[u8]; 2] = [b"value", b"v2"];
    // The engine's own threads may have read the row after an opening, but not after every one.
    let opened = || {
        let nodes = start(directory.path());
        let mut client = Client::connect(nodes.addresses()[0], 5);
        client.run("USE k");
        client.run(asked[0]);
        if nodes.figures()[0].would_block > 0 {
            return Some((nodes, client));
        }
        drop(client);
        assert!(nodes.stop(PATIENCE).is_in_time());
        None
    };
    let (nodes, mut client) =
        (0..20).find_map(|_| opened()).expect("the row was in memory after every opening");
    for (text, expected) in asked.into_iter().zip(expected) {
        assert_eq!(client.column(text), [expected]);
        let before = statistics(&nodes);
        assert!(before.fills > 0, "{text}: {before:?}");
        for _ in 0..5 {
            assert_eq!(client.column(text), [expected]);
        }
        let after = statistics(&nodes);
        assert_eq!(
            (after.memory_hits - before.memory_hits, after.misses, after.fills),
            (5, before.misses, before.fills)
        );
    }
    // A slice, a page and a scan bypass the cache.
    let before = statistics(&nodes);
    assert_eq!(client.column("SELECT v FROM c WHERE p = 1").len(), 3);
    assert_eq!(client.column("SELECT a FROM t LIMIT 10").len(), 10);
    assert_eq!(client.column("SELECT a FROM t").len(), 3_000);
    assert_eq!(statistics(&nodes), before);
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// Sends two queries that a node reads at once: otherwise a worker may finish the first before the
/// second is sent.
fn send_both(client: &mut Client, texts: [&str; 2]) {
    client.send_bytes(
        &(1..)
            .zip(texts)
            .flat_map(|(stream, text)| bytes::query(4, stream, text))
            .collect::<Vec<u8>>(),
    );
}

#[test]
fn a_point_read_overtakes_a_count_of_everything() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path(), ROWS);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run("SELECT b FROM k.t WHERE a = 7");
    send_both(&mut client, ["SELECT count(*) FROM k.t", "SELECT b FROM k.t WHERE a = 7"]);
    let expected = [(2, vec![b"value".to_vec()]), (1, vec![ROWS.to_be_bytes().to_vec()])];
    let seen = |answer: &Answer| (answer.stream(), answer.first_column());
    assert_eq!([client.receive(), client.receive()].each_ref().map(seen), expected);
    // The same in an aggregated frame: the slow answer follows in a later one.
    let bodies = ["SELECT count(*) FROM k.t", "SELECT b FROM k.t WHERE a = 7"]
        .map(|text| bytes::body(|out| encode::query_simple(out, 4, text, Consistency::ONE)));
    let headers = (1..).map(|stream| Header::request(4, stream, opcode::QUERY));
    client.send_bytes(&bytes::aggregate(9, headers.zip(bodies.iter().map(Vec::as_slice))));
    for expected in expected {
        let entries = client.receive().entries();
        let [(client_id, answer)] = &entries[..] else { panic!("{} answers", entries.len()) };
        assert_eq!((*client_id, seen(answer)), (9, expected));
    }
    assert!(nodes.stop(PATIENCE).is_in_time());
}

#[test]
fn a_node_that_stops_answers_what_is_with_workers() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path(), ROWS);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    let mut gone = Client::connect(nodes.addresses()[0], 4);
    gone.send_query(1, "SELECT count(*) FROM k.t");
    send_both(
        &mut client,
        ["SELECT count(*) FROM k.t", "SELECT release_version FROM system.local"],
    );
    // Both are with the node now, one with a worker.
    assert_eq!(client.receive().stream(), 2);
    drop(gone);
    let stopping = thread::spawn(move || nodes.stop(PATIENCE));
    let answer = client.receive();
    assert_eq!((answer.stream(), answer.first_column()), (1, vec![ROWS.to_be_bytes().to_vec()]));
    assert!(stopping.join().unwrap().is_in_time());
}

#[test]
fn statements_with_workers_see_the_connection_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = filled(directory.path(), 2_000);
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(&KEYSPACE.replace("KEYSPACE k", "KEYSPACE other"));
    client.run("CREATE TABLE other.t (a int PRIMARY KEY, b text)");
    client.run("USE k");
    client.send_query(1, "SELECT count(*) FROM t");
    client.send_query(2, "USE other");
    let mut answers = [client.receive(), client.receive()];
    answers.sort_by_key(Answer::stream);
    assert_eq!(answers[0].first_column(), [2_000i64.to_be_bytes()]);
    assert_eq!(client.column("SELECT count(*) FROM t"), [0i64.to_be_bytes()]);
    // A conditional statement blocked by a lock blocks all of them, whichever worker has it.
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = Client::connect(nodes.addresses()[0], 4);
            scope.spawn(move || {
                (0..50).for_each(|row| {
                    client.run(&format!(
                        "INSERT INTO other.t (a, b) VALUES ({row}, 'mine') IF NOT EXISTS"
                    ));
                });
            });
        }
    });
    assert_eq!(client.column("SELECT count(*) FROM t"), [50i64.to_be_bytes()]);
    assert!(nodes.stop(PATIENCE).is_in_time());
}
