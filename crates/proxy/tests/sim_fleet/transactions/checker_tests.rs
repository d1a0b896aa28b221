//! The checker finds each of its anomalies, and none in a sound history.

use shunt_reactor::sim::Random;

use super::checker::{Fate, INITIALLY, Seen, Summary, Transaction, check};

const X: u32 = 0;
const Y: u32 = 1;

/// A transaction that lasted from one time to another.
fn done(from: u64, to: u64, reads: &[(u32, i64, usize)], writes: &[u32]) -> Transaction {
    let reads = reads.iter().map(|(key, version, writer)| Seen {
        key: *key,
        version: *version,
        writer: *writer,
    });
    Transaction {
        asked_ns: from,
        fate: Fate::Done(to),
        reads: reads.collect(),
        writes: writes.to_vec(),
    }
}

fn unknown(from: u64, writes: &[u32]) -> Transaction {
    Transaction { asked_ns: from, fate: Fate::Unknown, reads: Vec::new(), writes: writes.to_vec() }
}

#[track_caller]
fn finds(history: &[Transaction], what: &str) {
    let found = check(history).expect_err("it is not serialisable");
    assert!(found.starts_with(what), "{found}");
}

const NEW_X: (u32, i64, usize) = (X, 0, INITIALLY);
const NEW_Y: (u32, i64, usize) = (Y, 0, INITIALLY);

#[test]
fn a_history_in_order_has_no_cycle() {
    let history = [
        done(0, 10, &[NEW_X, NEW_Y], &[X, Y]),
        done(5, 30, &[(X, 1, 0)], &[X]),
        unknown(31, &[Y]),
        done(40, 50, &[(X, 2, 1), (Y, 2, 2)], &[]),
        // It runs at the same time as the write that it does not see.
        done(9, 60, &[(Y, 1, 0)], &[]),
        unknown(0, &[X]),
    ];
    let summary = check(&history).expect("it is serialisable");
    assert_eq!((summary.versions, summary.seen_in_doubt), (6, 1));
    assert_eq!(check(&[]), Ok(Summary::default()));
}

#[test]
fn writes_in_two_orders_are_g0() {
    let writes = [done(0, 100, &[], &[X, Y]), done(0, 100, &[], &[X, Y])];
    let reads = [(X, 1, 0), (X, 2, 1), (Y, 1, 1), (Y, 2, 0)].map(|read| done(0, 100, &[read], &[]));
    finds(&[writes.to_vec(), reads.to_vec()].concat(), "G0:");
}

#[test]
fn two_who_see_each_other_are_g1c() {
    finds(
        &[done(0, 100, &[NEW_X, (Y, 1, 1)], &[X]), done(0, 100, &[NEW_Y, (X, 1, 0)], &[Y])],
        "G1c:",
    );
}

#[test]
fn read_skew_and_lost_updates_are_found() {
    finds(
        &[done(0, 100, &[NEW_X, (Y, 1, 1)], &[]), done(0, 100, &[NEW_X, NEW_Y], &[X, Y])],
        "G-single:",
    );
    finds(&[done(0, 100, &[NEW_X], &[X]), done(0, 100, &[NEW_X], &[X])], "two made version 1");
}

#[test]
fn write_skew_is_g2() {
    finds(&[done(0, 100, &[NEW_X, NEW_Y], &[X]), done(0, 100, &[NEW_X, NEW_Y], &[Y])], "G2:");
    // Three transactions take part, one of which only reads.
    let history = [
        done(0, 100, &[NEW_X, NEW_Y], &[X]),
        done(0, 100, &[NEW_Y], &[Y]),
        done(0, 100, &[NEW_X, (Y, 1, 1)], &[]),
    ];
    assert!(check(&history[..2]).is_ok());
    finds(&history, "G2:");
}

#[test]
fn violations_of_real_time_are_found() {
    let write = done(0, 10, &[NEW_X], &[X]);
    finds(&[write.clone(), done(11, 20, &[NEW_X], &[])], "G-single with real time:");
    assert!(check(&[write.clone(), done(10, 20, &[NEW_X], &[])]).is_ok(), "at the same time");
    // A version whose maker was requested only afterwards.
    finds(&[done(0, 10, &[(X, 1, 1)], &[]), done(11, 20, &[NEW_X], &[X])], "G1c with real time:");
    finds(&[done(0, 10, &[(X, 1, 1)], &[]), unknown(11, &[X])], "G1c with real time:");
    // The cycle passes a transaction that is unrelated to them.
    let history = [write, done(11, 20, &[NEW_Y], &[Y]), done(21, 30, &[NEW_X, (Y, 1, 1)], &[])];
    finds(&history, "G-single with real time:");
}

#[test]
fn values_that_nobody_can_have_written_are_found() {
    let none = Transaction { fate: Fate::NotDone, ..unknown(0, &[X]) };
    finds(&[none, done(0, 10, &[(X, 1, 0)], &[])], "G1a");
    finds(&[unknown(0, &[Y]), done(0, 10, &[(X, 1, 0)], &[])], "0 was not written by");
    finds(&[done(0, 10, &[(X, 1, 7)], &[])], "0 is of nobody");
    finds(&[done(0, 10, &[(X, 1, INITIALLY)], &[])], "version 1");
    let twice = [done(0, 10, &[NEW_X], &[X]), done(0, 10, &[(X, 3, 0)], &[])];
    finds(&twice, "#0 (asked 0, Done(10), read [(0, 0)], writes [0]) made version");
}

/// A history of transactions that were executed one after the other, each at some time between
/// request and answer.
fn serial(random: &mut Random, count: usize) -> Vec<Transaction> {
    let keys = 6;
    let (mut state, mut history) = (vec![(0, INITIALLY); keys], Vec::new());
    for index in 0..count {
        let at_ns = 1_000 * (index as u64 + 1);
        let mut touched: Vec<usize> = (0..keys).collect();
        random.shuffle(&mut touched);
        touched.truncate(1 + random.index(3));
        let written = touched[..random.index(touched.len() + 1)].to_vec();
        let is_known = random.below(10) > 0;
        let seen =
            |key: &usize| Seen { key: *key as u32, version: state[*key].0, writer: state[*key].1 };
        let reads = touched.iter().map(seen).filter(|_| is_known).collect();
        written.iter().for_each(|key| state[*key] = (state[*key].0 + 1, index));
        let fate = if is_known { Fate::Done(at_ns + random.below(5_000)) } else { Fate::Unknown };
        let writes = written.iter().map(|key| *key as u32).collect();
        history.push(Transaction {
            asked_ns: at_ns.saturating_sub(random.below(5_000)),
            fate,
            reads,
            writes,
        });
    }
    history
}

#[test]
fn serial_histories_have_no_cycle_and_have_one_when_a_read_is_made_older() {
    let mut random = Random::new(1);
    let mut stale = 0;
    for _ in 0..200 {
        let history = serial(&mut random, 60);
        check(&history).expect("it is serial");
        // A late reader sees the first version of a key that has others.
        let reader = (40..60)
            .find(|index| history[*index].writes.is_empty() && !history[*index].reads.is_empty());
        let Some(reader) = reader else { continue };
        let mut changed = history.clone();
        let seen = &mut changed[reader].reads[0];
        let is_over =
            |one: &Transaction| matches!(one.fate, Fate::Done(_)) && one.writes.contains(&seen.key);
        if history[..reader - 12].iter().any(is_over) {
            (seen.version, seen.writer) = (0, INITIALLY);
            assert!(check(&changed).is_err_and(|what| what.contains("G")), "{changed:?}");
            stale += 1;
        }
    }
    assert!(stale > 50, "{stale}");
}

#[test]
fn a_long_history_is_no_harder() {
    let history = serial(&mut Random::new(2), 20_000);
    let summary = check(&history).expect("it is serial");
    // Each transaction has only a few.
    assert!(summary.edges < 12 * history.len(), "{summary:?}");
}
