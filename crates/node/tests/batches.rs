//! Batches seen by many concurrent readers: whole or not at all on one partition, with and without
//! the row cache.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use shunt_node::run::Nodes;
use shunt_testing::blocking::Client;
use support::{PATIENCE, started};

/// Fewest writes of a test, and reads beside them.
const WRITES: usize = 200;
const READS: usize = 10;

/// One writer overwrites related rows, in one batch each; readers must always see all of one batch.
/// The writer goes on until the readers have read beside it.
fn torn(
    nodes: &Nodes,
    batch: impl Fn(usize) -> String + Sync,
    read: &str,
    whole: impl Fn(&[Vec<Option<Vec<u8>>>]) -> bool + Sync,
) {
    let done = AtomicBool::new(false);
    let (reads, broken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut writer = Client::connect(nodes.addresses()[0], 4);
    writer.run(&batch(1));
    thread::scope(|scope| {
        let start_reader = |_| {
            let mut reader = Client::connect(nodes.addresses()[0], 4);
            let (done, reads, broken, whole) = (&done, &reads, &broken, &whole);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let found = reader.rows(read);
                    reads.fetch_add(1, Ordering::Relaxed);
                    broken.fetch_add(usize::from(!whole(&found)), Ordering::Relaxed);
                }
            })
        };
        let readers: Vec<_> = (0..3).map(start_reader).collect();
        // A reader that has ended early has failed.
        let is_awaited = || {
            reads.load(Ordering::Relaxed) < READS && !readers.iter().any(|one| one.is_finished())
        };
        (2..).take_while(|number| *number < WRITES || is_awaited()).for_each(|number| {
            writer.run(&batch(number));
        });
        done.store(true, Ordering::Relaxed);
    });
    let reads = reads.into_inner();
    assert_eq!(broken.into_inner(), 0, "reads of {reads} that saw a part of a batch: {read}");
}

/// True if all values of all rows are equal.
fn one_number(rows: &[Vec<Option<Vec<u8>>>], count: usize) -> bool {
    let first = rows.first().and_then(|row| row[0].clone());
    rows.len() == count && first.is_some() && rows.iter().flatten().all(|value| *value == first)
}

const CACHES: [usize; 2] = [0, 1 << 20];

#[test]
fn a_row_and_the_deletion_of_its_partition_are_seen_together() {
    for cache in CACHES {
        let directory = tempfile::tempdir().unwrap();
        let nodes = started(
            directory.path(),
            cache,
            &["CREATE TABLE k.t (p int, c int, v int, PRIMARY KEY (p, c))"],
        );
        let batch = |number| {
            format!(
                "BEGIN BATCH DELETE FROM k.t USING TIMESTAMP {} WHERE p = 1; \
                 INSERT INTO k.t (p, c, v) VALUES (1, 1, {number}) USING TIMESTAMP {} APPLY BATCH",
                2 * number,
                2 * number + 1
            )
        };
        torn(&nodes, batch, "SELECT v FROM k.t WHERE p = 1 AND c = 1", |rows| one_number(rows, 1));
        assert!(nodes.stop(PATIENCE).is_in_time());
    }
}

#[test]
fn static_columns_are_seen_with_the_rows_that_were_written_with_them() {
    for cache in CACHES {
        let directory = tempfile::tempdir().unwrap();
        let nodes = started(
            directory.path(),
            cache,
            &["CREATE TABLE k.t (p int, c int, s int static, v int, PRIMARY KEY (p, c))"],
        );
        let batch = |number| {
            format!(
                "BEGIN BATCH UPDATE k.t SET s = {number} WHERE p = 1; \
                 UPDATE k.t SET v = {number} WHERE p = 1 AND c = 1 APPLY BATCH"
            )
        };
        torn(&nodes, batch, "SELECT s, v FROM k.t WHERE p = 1 AND c = 1", |rows| {
            one_number(rows, 1)
        });
        assert!(nodes.stop(PATIENCE).is_in_time());
    }
}

#[test]
fn rows_named_by_in_and_slices_of_a_partition_are_of_one_moment() {
    for cache in CACHES {
        let directory = tempfile::tempdir().unwrap();
        let nodes = started(
            directory.path(),
            cache,
            &["CREATE TABLE k.t (p int, c int, d int, v int, PRIMARY KEY (p, c, d))"],
        );
        let batch = |number: usize| {
            let row = |row: usize| {
                format!("UPDATE k.t SET v = {number} WHERE p = 1 AND c = {row} AND d = 0;")
            };
            format!("BEGIN BATCH {} APPLY BATCH", (0..20).map(row).collect::<String>())
        };
        for (read, count) in [
            ("SELECT v FROM k.t WHERE p = 1 AND c IN (0, 1, 2, 3, 4) AND d = 0", 5),
            (
                "SELECT v FROM k.t WHERE p = 1 AND (c, d) IN ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), \
              (7, 0), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (15, 0), (16, 0), (17, 0), (18, 0), \
              (19, 0))",
                20,
            ),
            ("SELECT v FROM k.t WHERE p = 1 AND c IN (0, 4, 9) AND d >= 0", 3),
        ] {
            torn(&nodes, batch, read, |rows| one_number(rows, count));
        }
        assert!(nodes.stop(PATIENCE).is_in_time());
    }
}
