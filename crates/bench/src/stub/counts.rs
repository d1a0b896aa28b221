//! The counts of a stub node, and their report.

use std::{net::SocketAddr, ops::AddAssign};

use serde::{Deserialize, Serialize};

/// Counters of one node or one connection.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Number of reads from sockets: as many as the peer's writes, or fewer if the kernel joined
    /// some.
    pub reads: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Envelopes received; an aggregated frame counts as one.
    pub frames: u64,
    /// Aggregated frames received.
    pub aggregated_frames: u64,
    /// QUERY, EXECUTE and BATCH requests, including those in aggregated frames.
    pub queries: u64,
    /// Queries that came in aggregated frames.
    pub aggregated_queries: u64,
    /// PREPARE requests.
    pub prepares: u64,
    /// OPTIONS requests, which are also heartbeats.
    pub options: u64,
    /// `CLIENT_GONE` entries of aggregated frames.
    pub clients_gone: u64,
    /// Queries whose partition key is not on this node; a multiget counts if none of its keys is.
    pub misrouted: u64,
    /// SELECTs with several keys (`IN`).
    #[serde(default)]
    pub multigets: u64,
    /// Keys of these SELECTs.
    #[serde(default)]
    pub multiget_keys: u64,
    /// Keys of these SELECTs that are not on this node.
    #[serde(default)]
    pub multiget_keys_elsewhere: u64,
    /// Errors answered, intentional ones included.
    pub errors: u64,
    /// Input that was not CQL; its connection was closed.
    pub protocol_errors: u64,
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.bytes_in += other.bytes_in;
        self.frames += other.frames;
        self.aggregated_frames += other.aggregated_frames;
        self.queries += other.queries;
        self.aggregated_queries += other.aggregated_queries;
        self.prepares += other.prepares;
        self.options += other.options;
        self.clients_gone += other.clients_gone;
        self.misrouted += other.misrouted;
        self.multigets += other.multigets;
        self.multiget_keys += other.multiget_keys;
        self.multiget_keys_elsewhere += other.multiget_keys_elsewhere;
        self.errors += other.errors;
        self.protocol_errors += other.protocol_errors;
    }
}

impl Counts {
    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            reads: self.reads - earlier.reads,
            bytes_in: self.bytes_in - earlier.bytes_in,
            frames: self.frames - earlier.frames,
            aggregated_frames: self.aggregated_frames - earlier.aggregated_frames,
            queries: self.queries - earlier.queries,
            aggregated_queries: self.aggregated_queries - earlier.aggregated_queries,
            prepares: self.prepares - earlier.prepares,
            options: self.options - earlier.options,
            clients_gone: self.clients_gone - earlier.clients_gone,
            misrouted: self.misrouted - earlier.misrouted,
            multigets: self.multigets - earlier.multigets,
            multiget_keys: self.multiget_keys - earlier.multiget_keys,
            multiget_keys_elsewhere: self.multiget_keys_elsewhere - earlier.multiget_keys_elsewhere,
            errors: self.errors - earlier.errors,
            protocol_errors: self.protocol_errors - earlier.protocol_errors,
        }
    }

    /// Returns the queries per read: at least the queries per write of the peer.
    pub fn queries_per_read(&self) -> f64 {
        self.queries as f64 / self.reads.max(1) as f64
    }

    /// Returns the queries per envelope: 1 without aggregated frames.
    pub fn queries_per_frame(&self) -> f64 {
        self.queries as f64 / self.frames.max(1) as f64
    }
}

/// One open connection in a [`Report`].
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConnectionReport {
    /// The other end.
    pub peer: SocketAddr,
    /// Counters of the connection.
    pub counts: Counts,
}

/// One node in a [`Report`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct NodeReport {
    /// Sum over all connections of the node, closed ones included.
    pub counts: Counts,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// The open connections.
    pub connections: Vec<ConnectionReport>,
}

/// The counts of a stub process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// The nodes, in ring order.
    pub nodes: Vec<NodeReport>,
    /// Turns of the event loops.
    pub turns: u64,
    /// Writes to sockets by the event loops.
    pub writes: u64,
}

impl Report {
    /// Adds the counts of another core of the same stub.
    pub fn merge(&mut self, other: Report) {
        self.nodes.resize_with(self.nodes.len().max(other.nodes.len()), NodeReport::default);
        for (own, others) in self.nodes.iter_mut().zip(other.nodes) {
            own.counts += &others.counts;
            own.accepted += others.accepted;
            own.connections.extend(others.connections);
        }
        self.turns += other.turns;
        self.writes += other.writes;
    }

    /// Sum over all nodes.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for node in &self.nodes {
            total += &node.counts;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, NodeReport, Report};

    #[test]
    fn merging_and_differences() {
        let node = |queries, reads| NodeReport {
            counts: Counts { queries, reads, ..Counts::default() },
            ..NodeReport::default()
        };
        let mut report = Report { nodes: vec![node(10, 5)], turns: 1, writes: 2 };
        report.merge(Report { nodes: vec![node(30, 5), node(1, 1)], turns: 1, writes: 1 });
        assert_eq!((report.total().queries, report.total().reads, report.writes), (41, 11, 3));
        let later = Counts { queries: 100, reads: 10, ..Counts::default() };
        let delta = later.since(&Counts { queries: 20, reads: 2, ..Counts::default() });
        assert!((delta.queries_per_read() - 10.0).abs() < 1e-9);
    }
}
