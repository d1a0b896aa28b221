//! The result of a round of load: counts and the latency histogram.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::load::mix::Operation;

/// Counts of the load generator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadCounts {
    /// Queries answered, with success or an error. A read-modify-write is two queries.
    pub answered: u64,
    /// Answered queries that were SELECTs.
    pub selects: u64,
    /// ERROR answers by error code.
    pub errors: BTreeMap<u32, u64>,
    /// Answers that cannot be right: unknown stream ids, wrong opcodes or result kinds, undecodable
    /// bytes.
    pub wrong_answers: u64,
    /// Values and rows found that belong to other keys than those asked for (with `verify`).
    pub wrong_values: u64,
    /// Keys asked for that were not found (with `verify`).
    pub not_found: u64,
    /// With `--locks`: locks that were not granted, or not held at their release. With
    /// `--transfers`: transfers whose condition did not hold.
    pub not_applied: u64,
    /// Transfers made (with `--transfers`).
    pub applied: u64,
    /// Connections that were lost.
    pub connections_lost: u64,
    /// Queries without an answer: in flight on lost connections, or still in flight 15 s after the
    /// end.
    pub queries_lost: u64,
    /// Open loop: arrivals dropped because too many waited.
    pub shed: u64,
    /// Open loop: arrivals that waited for a free stream id at the end of the round.
    pub waiting: u64,
    /// Latencies by operation, if a round has several kinds.
    pub operations: Vec<OperationLatency>,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationLatency {
    /// The kind.
    pub operation: Operation,
    /// Latencies in nanoseconds. That of a read-modify-write lasts from the read's intended time to
    /// the write's answer.
    pub latency: Histogram<u64>,
}

impl LoadCounts {
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let errors = self
            .errors
            .iter()
            .map(|(code, count)| (*code, count - earlier.errors.get(code).unwrap_or(&0)));
        Self {
            answered: self.answered - earlier.answered,
            selects: self.selects - earlier.selects,
            errors: errors.filter(|&(_, count)| count > 0).collect(),
            wrong_answers: self.wrong_answers - earlier.wrong_answers,
            wrong_values: self.wrong_values - earlier.wrong_values,
            not_found: self.not_found - earlier.not_found,
            not_applied: self.not_applied - earlier.not_applied,
            applied: self.applied - earlier.applied,
            connections_lost: self.connections_lost - earlier.connections_lost,
            queries_lost: self.queries_lost - earlier.queries_lost,
            shed: self.shed - earlier.shed,
            waiting: self.waiting,
            operations: self.operations.clone(),
        }
    }

    /// Adds only the faults of `later`.
    pub(super) fn add_faults(&mut self, later: &Self) {
        for (code, count) in &later.errors {
            *self.errors.entry(*code).or_insert(0) += count;
        }
        self.wrong_answers += later.wrong_answers;
        self.wrong_values += later.wrong_values;
        self.not_found += later.not_found;
        self.not_applied += later.not_applied;
        self.connections_lost += later.connections_lost;
        self.queries_lost += later.queries_lost;
    }

    /// Sum of all ERROR answers.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// True if every answer had the right kind (an ERROR counts as an answer).
    pub fn is_sound(&self) -> bool {
        self.wrong_answers == 0 && self.wrong_values == 0
    }
}

/// One measured round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Number of the round, from 0.
    pub number: u32,
    /// Duration, nanoseconds.
    pub wall_ns: u64,
    /// Counts of the round.
    pub counts: LoadCounts,
    /// Latencies of all operations, nanoseconds.
    pub latency: Histogram<u64>,
    /// Turns of the load generator's loop in the round.
    pub turns: u64,
    /// Transfers made since the start, warm-up included.
    pub applied_so_far: u64,
    /// Transfers since the start with an unknown outcome: errors, and queries without an answer.
    pub in_doubt_so_far: u64,
}

impl Round {
    /// Returns the answers per second.
    pub fn rate(&self) -> f64 {
        self.counts.answered as f64 * 1e9 / self.wall_ns.max(1) as f64
    }

    /// Returns the latency at a quantile (0 to 1), microseconds.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// Creates an empty latency histogram: 1 ns to 100 s with three digits.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3)
        .expect("constant bounds within what the histogram allows")
}
