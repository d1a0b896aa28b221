//! Watches processes, nodes and proxy over a round: samples at its begin, differences at its end.

use std::{collections::BTreeMap, io, net::SocketAddr};

use crate::{
    load::report::{NodeSide, ProcessReport, RoundReport},
    measure::{Calibration, ProcessDelta, ProcessSample, http_get, segments},
    stub::{Report, serve::fetch_report},
};

/// The processes and pages to watch.
#[derive(Debug, Default)]
pub struct Watch {
    /// Processes to report.
    pub pids: Vec<u32>,
    /// Statistics address of a stub in another process.
    pub stub_statistics: Option<SocketAddr>,
    /// Admin address of a proxy.
    pub proxy_admin: Option<SocketAddr>,
    /// Measure loopback before and after (stops the load for some milliseconds).
    pub calibration: Option<Calibration>,
    begin: Option<Samples>,
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Samples {
    processes: Vec<(u32, Option<ProcessSample>)>,
    own: Option<ProcessSample>,
    stub: Option<Report>,
    proxy: Option<(f64, f64)>,
    segments: Option<u64>,
    calibration_ns: Option<f64>,
}

#[derive(Debug)]
struct Ended {
    processes: Vec<ProcessDelta>,
    own: Option<ProcessDelta>,
    calibration_us: Option<f64>,
    segments: Option<u64>,
    nodes: NodeSide,
}

/// Messages of a calibration.
const CALIBRATION_ROUNDS: u32 = 1500;

impl Watch {
    /// Begins a round.
    pub fn begin(&mut self) {
        // First the steps that cost this process time; the processes' clocks are read last.
        let calibration_ns = self.calibrate();
        let stub = self.stub();
        let proxy = self.proxy();
        let segments = segments::sent();
        let own = ProcessSample::take(std::process::id()).ok();
        let processes = self.pids.iter().map(|&pid| (pid, ProcessSample::take(pid).ok())).collect();
        self.begin = Some(Samples { processes, own, stub, proxy, segments, calibration_ns });
    }

    /// Ends a round.
    pub fn end(&mut self) {
        let Some(begin) = self.begin.take() else { return };
        let delta = |pid: u32, earlier: Option<ProcessSample>| {
            let now = ProcessSample::take(pid).ok()?;
            Some(now.since(&earlier?, pid))
        };
        let processes =
            begin.processes.iter().filter_map(|&(pid, earlier)| delta(pid, earlier)).collect();
        let own = delta(std::process::id(), begin.own);
        let segments = segments::sent().zip(begin.segments).map(|(after, before)| after - before);
        let nodes = self.nodes(&begin);
        let calibration_us = self
            .calibrate()
            .zip(begin.calibration_ns)
            .map(|(after, before)| (before + after) / 2e3);
        self.ended.push(Ended { processes, own, calibration_us, segments, nodes });
    }

    /// Adds the measurements of round `position` to its report.
    pub fn complete(&self, position: usize, report: &mut RoundReport) {
        let Some(ended) = self.ended.get(position) else { return };
        let queries = report.queries;
        report.processes =
            ended.processes.iter().map(|delta| ProcessReport::new(delta, queries)).collect();
        report.own = ended.own.as_ref().map(|delta| ProcessReport::new(delta, queries));
        report.calibration_us = ended.calibration_us;
        report.segments_per_query =
            ended.segments.map(|count| count as f64 / queries.max(1) as f64);
        report.nodes = ended.nodes;
    }

    fn calibrate(&mut self) -> Option<f64> {
        self.calibration.as_mut()?.measure(CALIBRATION_ROUNDS).ok()
    }

    fn stub(&self) -> Option<Report> {
        fetch_report(self.stub_statistics?).ok()
    }

    fn proxy(&self) -> Option<(f64, f64)> {
        proxy_queries_and_writes(self.proxy_admin?).ok()
    }

    fn nodes(&self, begin: &Samples) -> NodeSide {
        let mut side = NodeSide::default();
        if let Some((before, after)) = begin.stub.as_ref().zip(self.stub().as_ref()) {
            side = node_side(before, after);
        }
        if let Some((before, after)) = begin.proxy.zip(self.proxy()) {
            side.queries_per_write = Some((after.0 - before.0) / (after.1 - before.1).max(1.0));
        }
        side
    }
}

/// Computes the queries at the nodes between two reports; empty if no query arrived.
pub fn node_side(before: &Report, after: &Report) -> NodeSide {
    let counts = after.total().since(&before.total());
    if counts.queries == 0 {
        return NodeSide::default();
    }
    NodeSide {
        queries_per_read: Some(counts.queries_per_read()),
        queries_per_frame: Some(counts.queries_per_frame()),
        connections: Some(connections_with_queries(before, after)),
        misrouted_share: Some(counts.misrouted as f64 / counts.queries as f64),
        queries_per_write: None,
    }
}

/// Counts the connections open at the end that carried queries in between.
fn connections_with_queries(before: &Report, after: &Report) -> u64 {
    // Keyed by node as well: a client's port may serve connections to several nodes.
    let queries = |report: &Report| -> BTreeMap<_, u64> {
        let nodes = report.nodes.iter().enumerate();
        let connections =
            nodes.flat_map(|(node, seen)| seen.connections.iter().map(move |found| (node, found)));
        connections.map(|(node, found)| ((node, found.peer), found.counts.queries)).collect()
    };
    let earlier = queries(before);
    let busy = |(from, count): &((usize, SocketAddr), u64)| {
        *count > earlier.get(from).copied().unwrap_or(0)
    };
    queries(after).into_iter().filter(busy).count() as u64
}

/// Returns the queries sent to nodes and the writes that carried them, from a proxy's `/metrics`.
///
/// # Errors
/// No server answers there, or these counters are missing.
pub fn proxy_queries_and_writes(admin: SocketAddr) -> io::Result<(f64, f64)> {
    let text = http_get(admin, "/metrics")?;
    let missing =
        || io::Error::new(io::ErrorKind::InvalidData, "no shunt_node_* counters in /metrics");
    let queries = sum_of(&text, "shunt_node_queries").ok_or_else(missing)?;
    Ok((queries, sum_of(&text, "shunt_node_writes").ok_or_else(missing)?))
}

/// Returns the sum over all label sets of a counter in Prometheus' text format.
fn sum_of(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix("_total").unwrap_or(rest);
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        let rest = rest.rsplit_once('}').map_or(rest, |(_, rest)| rest);
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let mut values = text.lines().filter_map(value).peekable();
    values.peek()?;
    Some(values.sum())
}

#[cfg(test)]
mod tests {
    use super::sum_of;

    #[test]
    fn counters_of_all_labels() {
        let text = "# TYPE shunt_node_writes counter\nshunt_node_writes_total{node=\"1\"} 5\n\
                    shunt_node_writes_total{node=\"2 }\"} 7.5\nshunt_node_writes_other 9\nshunt_node_queries_total 3 1700\n";
        assert_eq!(sum_of(text, "shunt_node_writes"), Some(12.5));
        assert_eq!(sum_of(text, "shunt_node_queries"), Some(3.0));
        assert_eq!(sum_of(text, "shunt_turns"), None);
    }
}
