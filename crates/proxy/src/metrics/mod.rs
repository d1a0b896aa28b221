//! What the cores count, and how it is shown.
//!
//! A core writes its own [`CoreMetrics`] with plain loads and stores (no lock, no read-modify-write); the admin thread
//! reads them at any moment and sums over the cores. Nothing is allocated per query.

mod control;
mod exposition;
mod node;

pub use control::ControlMetrics;
pub use exposition::Sources;
pub use node::{NodeMetrics, NodeRegistry};

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

pub use shunt_admin::{Counter, Family, Gauge, Histogram, Label, RequestKind as QueryKind, Snapshot};

use shunt_admin::labels;

labels! {
    /// How a query ended, or what happened to it on the way. `Ok`, `Error`, `Overloaded`, `TimedOut`, `LinkLost` and
    /// `Intercepted` are ends (each query has exactly one); `Retried` and `Reprepared` come on top.
    pub enum Outcome = "outcome" {
        /// A node answered, not with ERROR.
        Ok = "ok",
        /// A node answered with ERROR.
        Error = "error",
        /// Refused by the proxy because a bound was reached.
        Overloaded = "overloaded",
        /// Not answered before the deadline.
        TimedOut = "timed_out",
        /// Its link died and it could not be retried.
        LinkLost = "link_lost",
        /// Sent again after its link died.
        Retried = "retried",
        /// Prepared again on a node that did not know the statement.
        Reprepared = "reprepared",
        /// Answered by the proxy itself.
        Intercepted = "intercepted",
    }
}

labels! {
    /// Why a client was turned away.
    pub enum Refusal = "reason" {
        /// `clients_max` is reached.
        TooMany = "too_many",
        /// The ring is not known yet, or no node is up.
        NoRing = "no_ring",
        /// It did not finish its handshake in time.
        HandshakeTimeout = "handshake_timeout",
        /// Login failed.
        Authentication = "authentication",
        /// The proxy is shutting down.
        Draining = "draining",
    }
}

labels! {
    /// How a query's node was chosen.
    pub enum Routing = "by" {
        /// By the token of its partition key.
        Token = "token",
        /// Any node of the local datacentre.
        Any = "any",
    }
}

/// Counters of one core. Written by that core's thread only; read by anybody.
#[derive(Debug, Default)]
pub struct CoreMetrics {
    /// Index of the core.
    pub core: usize,
    /// Name of the I/O driver in use, set when the loop starts.
    pub driver: OnceLock<String>,
    /// Counts up by one per turn of the loop; liveness is judged by it. Idle loops must still turn about once a second.
    pub turns: Counter,
    /// Clients of this core as the acceptor sees them: it adds when it hands a connection over, the core subtracts
    /// when the connection ends. Used to find the least-loaded core.
    pub load: Arc<AtomicUsize>,

    /// Clients connected now.
    pub clients: Gauge,
    /// Clients accepted.
    pub clients_accepted: Counter,
    /// Clients turned away.
    pub clients_refused: Family<Refusal, { Refusal::COUNT }>,
    /// Clients not being read from now (backpressure).
    pub clients_paused: Gauge,
    /// Times a client was paused.
    pub client_pauses: Counter,
    /// Malformed messages from clients; each closed its connection.
    pub client_protocol_errors: Counter,
    /// Bytes received from clients.
    pub client_bytes_in: Counter,
    /// Bytes sent to clients.
    pub client_bytes_out: Counter,

    /// Requests of clients.
    pub queries: Family<QueryKind, { QueryKind::COUNT }>,
    /// How they ended.
    pub outcomes: Family<Outcome, { Outcome::COUNT }>,
    /// How their node was chosen.
    pub routed: Family<Routing, { Routing::COUNT }>,
    /// Queries in flight now.
    pub in_flight: Gauge,
    /// Nanoseconds from a request's decoding to its reply's encoding.
    pub latency_ns: Histogram,

    /// Queries that went out in one write to a node.
    pub queries_per_write: Histogram,
    /// Aggregated frames (opcode 0x64) sent.
    pub aggregated_frames: Counter,
    /// Malformed or unexpected messages from nodes; each closed its link.
    pub node_protocol_errors: Counter,
    /// The waiting window in force now, nanoseconds.
    pub window_ns: Gauge,
    /// Memory of buffers that wait to be used again, bytes.
    pub idle_buffer_bytes: Gauge,

    /// Per-node metrics of this core.
    pub nodes: NodeRegistry,
}

impl CoreMetrics {
    /// Metrics of core `core`, all zero.
    pub fn new(core: usize) -> Self {
        Self { core, ..Self::default() }
    }
}
