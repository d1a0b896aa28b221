//! Locks made of conditional statements: however many connections contend for one, it has one
//! holder.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use shunt_node::run::Nodes;
use shunt_testing::blocking::Client;
use support::{PATIENCE, started};

/// Contending connections.
const CLIENTS: usize = 8;

/// True if a conditional statement was applied.
fn applied(client: &mut Client, text: &str) -> bool {
    client.rows(text)[0][0].as_deref() == Some(&[1])
}

/// Takes and releases locks; returns how often another holder was seen.
fn contend(
    nodes: &Nodes,
    keys: usize,
    rounds: usize,
    take: fn(usize, usize) -> String,
    give: fn(usize, usize) -> String,
) {
    let holders: Vec<AtomicUsize> = (0..keys).map(|_| AtomicUsize::new(0)).collect();
    let (violations, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for me in 1..=CLIENTS {
            let mut client = Client::connect(nodes.addresses()[0], 4);
            let (holders, violations, taken) = (&holders, &violations, &taken);
            scope.spawn(move || {
                for round in 0..rounds {
                    let key = (me + round) % keys;
                    if !applied(&mut client, &take(key, me)) {
                        continue;
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                    let before = holders[key].swap(me, Ordering::SeqCst);
                    let after = holders[key].swap(0, Ordering::SeqCst);
                    // No other client held it before or in between, and it is still held for
                    // release.
                    let mine = before == 0 && after == me && applied(&mut client, &give(key, me));
                    violations.fetch_add(usize::from(!mine), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(taken.into_inner() > 0, "nobody ever held a lock");
    assert_eq!(violations.into_inner(), 0, "times that a lock had two holders");
}

const LOCKS: &str = "CREATE TABLE k.locks (name int, slot int, owner int, keeper int static, PRIMARY KEY (name, slot))";

#[test]
fn a_lock_has_one_holder() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = started(
        directory.path(),
        1 << 20,
        &["CREATE TABLE k.locks (name int PRIMARY KEY, owner int)"],
    );
    contend(
        &nodes,
        3,
        200,
        |key, me| format!("INSERT INTO k.locks (name, owner) VALUES ({key}, {me}) IF NOT EXISTS"),
        |key, me| format!("DELETE FROM k.locks WHERE name = {key} IF owner = {me}"),
    );
    assert!(nodes.stop(PATIENCE).is_in_time());
}

#[test]
fn a_lock_in_a_static_column_has_one_holder() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = started(directory.path(), 1 << 20, &[LOCKS]);
    contend(
        &nodes,
        3,
        200,
        |key, me| format!("UPDATE k.locks SET keeper = {me} WHERE name = {key} IF keeper = null"),
        |key, me| format!("DELETE keeper FROM k.locks WHERE name = {key} IF keeper = {me}"),
    );
    assert!(nodes.stop(PATIENCE).is_in_time());
}

/// Released by deleting the whole partition: the header's deletion must not cover the next holder's
/// write.
#[test]
fn a_lock_taken_by_a_batch_has_one_holder() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = started(directory.path(), 1 << 20, &[LOCKS]);
    contend(
        &nodes,
        3,
        150,
        |key, me| {
            format!(
                "BEGIN BATCH INSERT INTO k.locks (name, slot, owner) VALUES ({key}, 0, {me}) IF NOT EXISTS; \
                 UPDATE k.locks SET owner = {me} WHERE name = {key} AND slot = 1 APPLY BATCH"
            )
        },
        |key, me| {
            format!(
                "BEGIN BATCH UPDATE k.locks SET keeper = 0 WHERE name = {key} AND slot = 0 IF owner = {me}; \
                 DELETE FROM k.locks WHERE name = {key} AND slot >= 0 AND slot < 9 APPLY BATCH"
            )
        },
    );
    assert!(nodes.stop(PATIENCE).is_in_time());
}
