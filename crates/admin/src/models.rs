//! Models of counters, histograms and heartbeats. Loom tries every order of writer and readers
//! within a bound of preemptions, and every value that a reader may see.
//!
//! Run with `cargo test -p shunt-admin --features loom --lib models`. Each counter is ordered by
//! itself alone (`Relaxed`). No weaker ordering exists to try, so the mutations that were tried
//! leave a step out or split it in two.
//!
//! The owner is the first thread: loom 0.7.3 leaves out orders in which a read-modify-write of an
//! atomic comes after a plain read of it (loom issues 166 and 392). With the owner first, later
//! reads still return every value that is allowed. Each model asserts which outcomes it saw, so
//! that no order is left out unnoticed.

#![allow(clippy::unwrap_used, reason = "a model may panic")]
#![allow(unreachable_pub, reason = "as `labels!` has it")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use loom::thread;

use crate::liveness::STUCK_AFTER;
use crate::{Counter, Family, Gauge, Heartbeats, Histogram};

/// Bound of preemptions; most mistakes need one or two.
const PREEMPTIONS_MAX: usize = 3;

crate::labels! {
    /// The label of the counters in the models.
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

/// Never: the sum of a family decreases between two reads, shows a value that was not counted, or
/// misses a value in the end.
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

/// Never: a gauge shows more than it ever held, which rules out the wrapped value of a subtraction
/// that exceeds the content.
///
/// Caught: a subtraction that wraps, even for a moment.
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

/// Never: a histogram's count or sum decreases between two reads, or misses a value in the end.
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
    // Count and sum may belong to different moments; readers must not rely on a match.
    assert!(
        [(0, 0, 0), (0, 2, 0), (1, 2, 1799)].iter().all(|looks| seen.contains(looks)),
        "{seen:?}"
    );
}

/// Never: a loop that has stopped counts as turning because its recorded count went back.
///
/// Caught: `stuck` reads the turns before it takes the lock.
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
