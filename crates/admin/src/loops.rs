//! The metrics of several event loops as one.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value as Json};

use crate::counter::{Family, Label};
use crate::encode::{Value, plain};
use crate::histogram::{Histogram, Snapshot};
use crate::liveness::Heartbeats;

/// The metrics of each event loop of a part, and the heartbeats of the loops.
#[derive(Debug)]
pub struct Loops<M> {
    each: Vec<Arc<M>>,
    heartbeats: Heartbeats,
}

impl<M> Loops<M> {
    /// Creates the metrics of a part from those of each loop.
    pub fn new(each: Vec<Arc<M>>) -> Self {
        Self { heartbeats: Heartbeats::new(each.len()), each }
    }

    /// The metrics of each loop.
    pub fn each(&self) -> impl Iterator<Item = &M> {
        self.each.iter().map(|metrics| &**metrics)
    }

    /// Number of loops.
    pub fn count(&self) -> usize {
        self.each.len()
    }

    /// Sum of a number over all loops.
    pub fn sum(&self, number: impl Fn(&M) -> u64) -> u64 {
        self.each.iter().map(|metrics| number(metrics)).sum()
    }

    /// The same sum as the only value of a family.
    pub fn plain(&self, number: impl Fn(&M) -> u64) -> [Value; 1] {
        [plain(self.sum(number) as f64)]
    }

    /// One value per label value, summed over all loops.
    pub fn by<L: Label, const N: usize>(&self, family: impl Fn(&M) -> &Family<L, N>) -> Vec<Value> {
        let value = |label: &L| {
            (
                vec![(L::NAME, label.text().to_owned())],
                self.sum(|metrics| family(metrics).of(*label).get()) as f64,
            )
        };
        L::ALL.iter().map(value).collect()
    }

    /// The same for `/status`: a number for each label value.
    pub fn named<L: Label, const N: usize>(
        &self,
        family: impl Fn(&M) -> &Family<L, N>,
    ) -> Map<String, Json> {
        let value = |label: &L| {
            (label.text().to_owned(), self.sum(|metrics| family(metrics).of(*label).get()).into())
        };
        L::ALL.iter().map(value).collect()
    }

    /// A histogram of nanoseconds over all loops, for `/status`: the count, and quantiles in
    /// microseconds.
    pub fn microseconds(&self, histogram: impl Fn(&M) -> &Histogram) -> Json {
        self.histogram(histogram).microseconds()
    }

    /// A histogram over all loops.
    pub fn histogram(&self, histogram: impl Fn(&M) -> &Histogram) -> Snapshot {
        let mut sum = Snapshot::default();
        self.each.iter().for_each(|metrics| histogram(metrics).add_to(&mut sum));
        sum
    }

    /// The entry `name` with the loops that have not turned for ten seconds; empty if all turn.
    pub fn stuck(&self, name: &str, turns: impl Fn(&M) -> u64, now: Instant) -> Map<String, Json> {
        let stuck = self.heartbeats.stuck(self.each.iter().map(|metrics| turns(metrics)), now);
        let entry = (!stuck.is_empty()).then(|| (name.to_owned(), stuck.into()));
        entry.into_iter().collect()
    }
}
