//! Models of counters, histograms and heartbeats: every order in which their writer and their
//! readers can meet, within a bound of preemptions, and every value that a processor's memory may
//! show a reader.
//!
//! `cargo test -p shunt-admin --features loom --lib models`. Each counter is ordered by itself
//! alone (`Relaxed`); there is no weaker order to try, so what was tried are steps left out, or
//! done in two.
//!
//! The owner is the thread that begins: loom 0.7.3 leaves out orders in which one that both reads
//! and writes an atomic comes after one that only reads it (its issues 166 and 392). Where it comes
//! first, later reads still return every value that they may. So that nothing is left out
//! unnoticed, each model says which outcomes it has to have seen.

#![allow(clippy::unwrap_used, reason = "a model may panic")]
#![allow(unreachable_pub, reason = "as `labels!` has it")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use loom::thread;

use crate::liveness::STUCK_AFTER;
use crate::{Counter, Family, Gauge, Heartbeats, Histogram};

/// Switches away from a thread that could go on; most mistakes take one or two.
const PREEMPTIONS_MAX: usize = 3;

crate::labels! {
    /// What is counted here.
    pub enum Part = "part" {
        One = "one",
        Other = "other",
    }
}

/// The outcomes of all executions of a model.
fn outcomes<T: Ord + Send + 'static>(model: impl Fn() -> T + Send + Sync + 'static) -> BTreeSet<T> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    let inserted = Arc::clone(&seen);
    builder.check(move || {
        let outcome = model();
        inserted.lock().unwrap().insert(outcome);
    });
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Never: the sum of a family goes back between two looks at it, shows what was not counted, or
/// misses some in the end.
///
/// Caught: an addition in two stores; a second thread that adds to the same counter.
#[test]
fn a_sum_of_counters_never_goes_back() {
    let seen = outcomes(|| {
        let family = Arc::new(Family::<Part, { Part::COUNT }>::default());
        let looker = {
            let family = Arc::clone(&family);
            thread::spawn(move || [family.total(), family.total()])
        };
        family.of(Part::One).add(2);
        family.of(Part::Other).add(1);
        family.of(Part::One).add(1);
        let looks = looker.join().unwrap();
        assert!(looks.is_sorted() && looks[1] <= 4, "{looks:?}");
        assert_eq!(family.total(), 4);
        looks
    });
    assert!(
        [[0, 0], [0, 2], [2, 3], [0, 4], [4, 4]].iter().all(|looks| seen.contains(looks)),
        "{seen:?}"
    );
}

/// Never: a gauge shows more than there ever was, so never what is left when more is subtracted
/// than was there.
///
/// Caught: a subtraction that wraps, if only for a moment.
#[test]
fn a_gauge_stays_between_nothing_and_the_most_there_was() {
    let seen = outcomes(|| {
        let gauge = Arc::new(Gauge::default());
        let looker = {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || [gauge.get(), gauge.get()])
        };
        gauge.add(1);
        gauge.add(1);
        gauge.sub(3);
        let looks = looker.join().unwrap();
        assert!(looks.iter().all(|look| *look <= 2), "{looks:?}");
        assert_eq!(gauge.get(), 0);
        looks
    });
    assert!([[0, 0], [0, 2], [1, 2], [2, 0]].iter().all(|looks| seen.contains(looks)), "{seen:?}");
}

/// Never: a histogram's count or sum goes back between two looks, or misses a value in the end.
///
/// Caught: a bucket, or the sum, counted in two stores; a second thread that records.
#[test]
fn a_histogram_never_goes_back() {
    let seen = outcomes(|| {
        let histogram = Arc::new(Histogram::default());
        let looker = {
            let histogram = Arc::clone(&histogram);
            thread::spawn(move || [histogram.snapshot(), histogram.snapshot()])
        };
        [900, 899].into_iter().for_each(|value| histogram.record(value));
        let [first, second] = looker.join().unwrap();
        assert!(first.count() <= second.count() && second.count() <= 2);
        assert!(first.sum() <= second.sum() && second.sum() <= 1799);
        let last = histogram.snapshot();
        assert_eq!((last.count(), last.sum()), (2, 1799));
        (first.count(), second.count(), second.sum())
    });
    // Count and sum are not of one moment, and nobody may rely on that.
    assert!(
        [(0, 0, 0), (0, 2, 0), (1, 2, 1799)].iter().all(|looks| seen.contains(looks)),
        "{seen:?}"
    );
}

/// Never: a loop that has stood still since it was seen is taken for one that turns, because what
/// was seen of it went back.
///
/// Caught: `stuck` takes the turns before it takes the lock.
#[test]
fn a_loop_that_stands_still_is_found_by_the_next_late_look() {
    let seen = outcomes(|| {
        let start = Instant::now();
        let (heartbeats, turns) = (Arc::new(Heartbeats::new(1)), Arc::new(Counter::default()));
        let lookers = [(), ()].map(|()| {
            let (heartbeats, turns) = (Arc::clone(&heartbeats), Arc::clone(&turns));
            thread::spawn(move || {
                let mut seen = 0;
                let look = std::iter::once_with(|| turns.get()).inspect(|turns| seen = *turns);
                assert!(heartbeats.stuck(look, start).is_empty(), "no time has passed");
                seen
            })
        });
        turns.add(1);
        let looks = lookers.map(|looker| looker.join().unwrap());
        let stuck = heartbeats.stuck([turns.get()], start + STUCK_AFTER * 2);
        assert_eq!(stuck.len(), usize::from(looks.contains(&1)), "{looks:?}");
        looks
    });
    assert_eq!(seen, [[0, 0], [0, 1], [1, 0], [1, 1]].into());
}
