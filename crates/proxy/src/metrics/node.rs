//! The counters of one core about one node.

use std::sync::{Arc, Mutex, PoisonError};

use shunt_topology::NodeId;

use super::{Counter, Family, Gauge, GivenUp, Histogram};

/// Counters of one core's links to one node. Written by that core only.
#[derive(Debug, Default)]
pub struct NodeMetrics {
    /// Queries sent.
    pub queries: Counter,
    /// Writes to links that carried queries.
    pub writes: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Queries in flight now.
    pub in_flight: Gauge,
    /// Open links now.
    pub links: Gauge,
    /// Open links now that carry aggregated frames.
    pub aggregated_links: Gauge,
    /// Connects or handshakes that failed.
    pub connect_failures: Counter,
    /// Links closed because another node answered at its address, of this cluster or another.
    pub strangers: Counter,
    /// Links that were open and died.
    pub links_lost: Counter,
    /// Links whose place a link with new certificates has taken.
    pub links_renewed: Counter,
    /// Links that the proxy gave up.
    pub links_given_up: Family<GivenUp, { GivenUp::COUNT }>,
    /// Stream ids held now by queries that timed out.
    pub streams_orphaned: Gauge,
    /// Queries that the node did not answer in time.
    pub timed_out: Counter,
    /// Answers that said that the node itself cannot serve.
    pub errors: Counter,
    /// 1 while the core has ejected the node.
    pub ejected: Gauge,
    /// Ejections of the node.
    pub ejections: Counter,
    /// Percentage of its share of queries that the core keeps from the node now.
    pub withheld_percent: Gauge,
    /// Nanoseconds from sending a query to its answer.
    pub latency_ns: Histogram,
}

/// Registry through which the admin thread finds a core's [`NodeMetrics`]. Locked only when the
/// topology changes and when metrics are shown; on the data path a core keeps the `Arc`s in its own
/// table indexed by [`NodeId`].
#[derive(Debug, Default)]
pub struct NodeRegistry {
    nodes: Mutex<Vec<Option<Arc<NodeMetrics>>>>,
}

impl NodeRegistry {
    /// The metrics of a node, made on first use and kept for the life of the process. Takes a lock:
    /// call it when the topology changes, not per query.
    pub fn node(&self, id: NodeId) -> Arc<NodeMetrics> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(id.0);
        if nodes.len() <= index {
            nodes.resize(index + 1, None);
        }
        Arc::clone(nodes[index].get_or_insert_default())
    }

    /// The metrics of a node if its core has any.
    pub fn get(&self, id: NodeId) -> Option<Arc<NodeMetrics>> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(usize::from(id.0)).cloned().flatten()
    }
}
