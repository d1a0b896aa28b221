//! The report of a round: latency, cost per query of the watched processes, and the counters of
//! nodes and proxy.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use hdrhistogram::Histogram;

use crate::{load::result::Round, measure::ProcessDelta};

/// The cost of a watched process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// CPU microseconds per query, all threads.
    pub cpu_us_per_query: f64,
    /// Share of the CPU time that was spent in the kernel (coarse).
    pub system_share: f64,
    /// CPU time over wall time.
    pub utilisation: f64,
    /// Times a thread went to sleep, per query.
    pub voluntary_switches_per_query: f64,
    /// Times the kernel preempted a thread.
    pub forced_switches: u64,
    /// Resident memory at the end, bytes.
    pub resident_bytes: u64,
}

impl ProcessReport {
    /// Computes the costs of `delta` over `queries`.
    pub fn new(delta: &ProcessDelta, queries: u64) -> Self {
        let queries = queries.max(1) as f64;
        Self {
            pid: delta.pid,
            cpu_us_per_query: delta.cpu_ns as f64 / 1e3 / queries,
            system_share: delta.system_share,
            utilisation: delta.utilisation,
            voluntary_switches_per_query: delta.voluntary_switches as f64 / queries,
            forced_switches: delta.forced_switches,
            resident_bytes: delta.resident_bytes,
        }
    }
}

/// Queries per frame, read and write at the nodes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NodeSide {
    /// Queries per read at the nodes (several writes may be read at once).
    pub queries_per_read: Option<f64>,
    /// Queries per envelope at the nodes.
    pub queries_per_frame: Option<f64>,
    /// Connections to the nodes.
    pub connections: Option<u64>,
    /// Share of queries sent to a node without the key.
    pub misrouted_share: Option<f64>,
    /// Queries per write to the nodes, as the proxy counts them.
    pub queries_per_write: Option<f64>,
}

/// The report of one round.
#[derive(Clone, Debug, Serialize)]
pub struct RoundReport {
    /// Number of the round, from 0.
    pub round: u32,
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of answers.
    pub queries: u64,
    /// Answers per second.
    pub rate: f64,
    /// Share of the answers that were ERRORs.
    pub error_share: f64,
    /// ERRORs by code.
    pub errors: BTreeMap<String, u64>,
    /// Answers that cannot be right.
    pub wrong_answers: u64,
    /// Values that belong to another key.
    pub wrong_values: u64,
    /// Keys that were not found.
    pub not_found: u64,
    /// With `--locks`: locks that were not granted, or not held at their release. With
    /// `--transfers`: transfers whose condition did not hold.
    pub not_applied: u64,
    /// Transfers made in the round (with `--transfers`).
    pub applied: u64,
    /// Transfers made since the start, warm-up and last answers included.
    pub applied_so_far: u64,
    /// Transfers since the start with an unknown outcome: errors, and queries without an answer.
    pub in_doubt_so_far: u64,
    /// Connections lost.
    pub connections_lost: u64,
    /// Queries without an answer: in flight on lost connections, or still in flight 15 s after the
    /// last round.
    pub queries_lost: u64,
    /// Open loop: arrivals dropped.
    pub shed: u64,
    /// Open loop: arrivals that still waited for a free stream id at the end. No figure includes
    /// their latency. More than a few mean that the rate exceeded the capacity.
    pub waiting: u64,
    /// Latency in microseconds by quantile, over all operations; `None` if no operation ended in
    /// the round.
    pub latency_us: Option<Latency>,
    /// Latency by operation (`read`, `update`, `insert`, `rmw`, `scan`, `multiget`; `acquire`,
    /// `release`), if the load has several kinds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub operations: BTreeMap<&'static str, OperationReport>,
    /// Watched processes.
    pub processes: Vec<ProcessReport>,
    /// The load generator itself.
    pub own: Option<ProcessReport>,
    /// CPU microseconds of one 70-byte send and receive on loopback during the round.
    pub calibration_us: Option<f64>,
    /// TCP segments per query that all sockets of the machine sent: load, measured processes and
    /// nodes together.
    pub segments_per_query: Option<f64>,
    /// The nodes' side.
    pub nodes: NodeSide,
}

/// One kind of operation in a round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OperationReport {
    /// Operations that ended, with success or an error.
    pub count: u64,
    /// Latency in microseconds by quantile; `None` if no operation ended.
    pub latency_us: Option<Latency>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

impl Latency {
    /// Computes the quantiles of latencies in nanoseconds; `None` without values.
    pub fn new(latency: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        (!latency.is_empty()).then(|| Self {
            min: latency.min() as f64 / 1e3,
            mean: latency.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: latency.max() as f64 / 1e3,
        })
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "min {:.1}  mean {:.1}  p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1}",
            self.min, self.mean, self.p50, self.p90, self.p99, self.p999, self.max
        )
    }
}

impl RoundReport {
    /// Creates a report with the load's own part; the watcher fills in the rest.
    pub fn new(round: &Round) -> Self {
        let counts = &round.counts;
        Self {
            round: round.number,
            seconds: round.wall_ns as f64 / 1e9,
            queries: counts.answered,
            rate: round.rate(),
            error_share: counts.errors_total() as f64 / counts.answered.max(1) as f64,
            errors: counts
                .errors
                .iter()
                .map(|(code, count)| (format!("{code:#06x}"), *count))
                .collect(),
            wrong_answers: counts.wrong_answers,
            wrong_values: counts.wrong_values,
            not_found: counts.not_found,
            not_applied: counts.not_applied,
            applied: counts.applied,
            applied_so_far: round.applied_so_far,
            in_doubt_so_far: round.in_doubt_so_far,
            connections_lost: counts.connections_lost,
            queries_lost: counts.queries_lost,
            shed: counts.shed,
            waiting: counts.waiting,
            latency_us: Latency::new(&round.latency),
            operations: counts
                .operations
                .iter()
                .map(|part| {
                    let report = OperationReport {
                        count: part.latency.len(),
                        latency_us: Latency::new(&part.latency),
                    };
                    (part.operation.name(), report)
                })
                .collect(),
            processes: Vec::new(),
            own: None,
            calibration_us: None,
            segments_per_query: None,
            nodes: NodeSide::default(),
        }
    }
}

impl fmt::Display for RoundReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "round {}: {} queries in {:.2} s, {:.0} per second",
            self.round, self.queries, self.seconds, self.rate
        )?;
        if let Some(latency) = &self.latency_us {
            writeln!(out, "  latency us   {latency}")?;
        }
        for (name, OperationReport { count, latency_us }) in &self.operations {
            if let Some(latency) = latency_us {
                writeln!(out, "  {name:<8} us  {latency}  ({count} of them)")?;
            }
        }
        let own = self.own.iter().map(|process| ("load generator", process));
        for (name, process) in self.processes.iter().map(|process| ("process", process)).chain(own)
        {
            writeln!(
                out,
                "  {name} {}: {:.3} us CPU per query ({:.0} % kernel), {:.0} % of a CPU, {:.3} sleeps per query, {:.1} MB",
                process.pid,
                process.cpu_us_per_query,
                process.system_share * 100.0,
                process.utilisation * 100.0,
                process.voluntary_switches_per_query,
                process.resident_bytes as f64 / 1e6
            )?;
        }
        self.write_sides(out)?;
        self.write_faults(out)
    }
}

impl RoundReport {
    fn write_sides(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(calibration) = self.calibration_us {
            writeln!(out, "  one 70-byte send and receive on loopback: {calibration:.2} us CPU")?;
        }
        if let Some(segments) = self.segments_per_query {
            writeln!(out, "  TCP segments of the whole machine: {segments:.2} per query")?;
        }
        let nodes = &self.nodes;
        if let Some(per_write) = nodes.queries_per_write {
            writeln!(out, "  proxy: {per_write:.2} queries per write to nodes")?;
        }
        if let (Some(per_read), Some(per_frame)) = (nodes.queries_per_read, nodes.queries_per_frame)
        {
            let connections = nodes.connections.unwrap_or_default();
            let misrouted = nodes.misrouted_share.unwrap_or_default() * 100.0;
            writeln!(
                out,
                "  nodes: {per_read:.2} queries per read, {per_frame:.2} per frame, {connections} connections, {misrouted:.1} % misrouted"
            )?;
        }
        Ok(())
    }

    fn write_faults(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = [
            ("wrong answers", self.wrong_answers),
            ("wrong values", self.wrong_values),
            ("not found", self.not_found),
            ("not granted, not held when released, or not moved", self.not_applied),
            ("connections lost", self.connections_lost),
            ("queries without an answer", self.queries_lost),
            ("arrivals dropped", self.shed),
            ("arrivals waiting at the end", self.waiting),
        ];
        for (name, number) in numbers.into_iter().filter(|&(_, number)| number > 0) {
            writeln!(out, "  {name}: {number}")?;
        }
        for (code, count) in &self.errors {
            writeln!(out, "  error {code}: {count}")?;
        }
        Ok(())
    }
}
