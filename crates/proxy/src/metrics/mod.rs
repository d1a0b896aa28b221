//! The counters of the cores, and how they are shown.
//!
//! A core writes its own [`CoreMetrics`] with plain loads and stores (no lock, no
//! read-modify-write); the admin thread reads them at any moment and sums over the cores. Nothing
//! is allocated per query.

mod control;
mod exposition;
mod handover;
mod locks;
mod multiget;
mod node;
mod transactions;

pub use control::ControlMetrics;
pub use exposition::Sources;
pub use handover::{HandedOver, HandoverMetrics, StaysFor};
pub use locks::{LockEvent, LockMetrics, Partitions, PermissionAnswer};
pub use multiget::MultigetMetrics;
pub use node::{NodeMetrics, NodeRegistry};
pub use transactions::{Observation, TransactionEvent, TransactionMetrics};

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

pub use crate::multiget::reasons::{Lost, Whole};
pub use shunt_admin::{
    Counter, Family, Gauge, Gauges, Histogram, Label, RequestKind as QueryKind, Snapshot,
};

use shunt_admin::labels;

labels! {
    /// How a query ended, or what happened to it on the way. `Ok`, `Error`, `Overloaded`,
    /// `TimedOut`, `LinkLost` and `Intercepted` are ends (each query has exactly one); `Retried`
    /// and `Reprepared` come on top.
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
        /// A node refused its login.
        Authentication = "authentication",
        /// No node could check its login in time.
        LoginUnchecked = "login_unchecked",
        /// The proxy is shutting down.
        Draining = "draining",
    }
}

labels! {
    /// Why the proxy closed a client's connection.
    pub enum Closing = "reason" {
        /// `clients_max` was reached when it came.
        TooMany = "too_many",
        /// The proxy is shutting down.
        Draining = "draining",
        /// The same, and `drain_timeout_ms` was over.
        CutOff = "cut_off",
        /// It broke the protocol, or sent what is too large.
        ProtocolError = "protocol_error",
        /// It began with a version of the protocol that is not spoken here; drivers step down and
        /// come back.
        Version = "version",
        /// There were too many combinations of role, keyspace and version.
        TooManyPools = "too_many_pools",
        /// The ring was not known within `handshake_timeout_ms`.
        NoRing = "no_ring",
        /// It did not log in within `handshake_timeout_ms`.
        HandshakeTimeout = "handshake_timeout",
        /// A node refused its login.
        Authentication = "authentication",
        /// No node could check its login in time.
        LoginUnchecked = "login_unchecked",
        /// Every node refuses what it was let in with: its login, its keyspace.
        AccessLost = "access_lost",
        /// It took too long to send one request.
        RequestTimeout = "request_timeout",
        /// It did not take its replies.
        RepliesUntaken = "replies_untaken",
        /// `clients_bytes_max` was reached, and it left most lying.
        BytesMax = "bytes_max",
        /// Its host did not acknowledge what was sent to it.
        Unreachable = "unreachable",
    }
}

labels! {
    /// Why a client is not read from.
    pub enum StallReason = "reason" {
        /// The ring is not known yet.
        NoRing = "no_ring",
        /// No link of its pool is open.
        NoLink = "no_link",
        /// The link that its next query must take is full.
        LinkFull = "link_full",
        /// It does not take its replies.
        RepliesUntaken = "replies_untaken",
        /// Its login or USE is under way.
        LoginOrUse = "login_or_use",
        /// The proxy is shutting down.
        Draining = "draining",
        /// The proxy stood still, and asks which tables take part in transactions by now.
        StoodStill = "stood_still",
        /// Its next request takes long to read, and the loop has read as much of that kind as it
        /// does in one turn.
        Heavy = "heavy",
    }
}

labels! {
    /// The state of a pool.
    pub enum PoolState = "state" {
        /// A link takes queries.
        Open = "open",
        /// It has clients and no link yet, but one is being opened.
        Opening = "opening",
        /// It has clients, no link, and none is being opened: nodes are down, or refuse it.
        Unreachable = "unreachable",
        /// It has neither clients nor links.
        Idle = "idle",
    }
}

labels! {
    /// Why a link was given up by the proxy.
    pub enum GivenUp = "reason" {
        /// It was not open within `connect_timeout_ms`.
        HandshakeTimeout = "handshake_timeout",
        /// The node did not answer a probe.
        Silent = "silent",
        /// Too many of its queries timed out.
        TimedOutQueries = "timed_out_queries",
        /// One query was never answered; replaced, not broken.
        UnansweredQuery = "unanswered_query",
        /// The node broke the protocol.
        ProtocolError = "protocol_error",
        /// Somebody else has the node's address, or does not say who it is.
        Stranger = "stranger",
        /// The node said that it is shutting down; replaced, not broken.
        NodeLeaving = "node_leaving",
        /// The node refused the login, keyspace or options of its pool.
        Refused = "refused",
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
    /// Counts up by one per turn of the loop; liveness is judged by it. Idle loops must still turn
    /// about once a second.
    pub turns: Counter,
    /// Clients of this core as the acceptor sees them: it adds when it hands a connection over, the
    /// core subtracts when the connection ends. Used to find the least-loaded core.
    pub load: Arc<AtomicUsize>,

    /// Clients connected now.
    pub clients: Gauge,
    /// Clients accepted.
    pub clients_accepted: Counter,
    /// Clients turned away.
    pub clients_refused: Family<Refusal, { Refusal::COUNT }>,
    /// Clients not being read from now (backpressure).
    pub clients_paused: Gauge,
    /// 1 while the core began by one replica's word and has not read modes and rules since.
    pub modes_in_doubt: Gauge,
    /// Times a client was paused.
    pub client_pauses: Counter,
    /// Clients not being read from now, by reason; one may have several.
    pub clients_stalled: Gauges<StallReason, { StallReason::COUNT }>,
    /// Times a client got such a reason.
    pub client_stalls: Family<StallReason, { StallReason::COUNT }>,
    /// Clients that the proxy closed.
    pub clients_closed: Family<Closing, { Closing::COUNT }>,
    /// Clients closed with an error for what they sent.
    pub client_protocol_errors: Counter,
    /// Bytes received from clients.
    pub client_bytes_in: Counter,
    /// Bytes sent to clients.
    pub client_bytes_out: Counter,

    /// Requests of clients.
    pub queries: Family<QueryKind, { QueryKind::COUNT }>,
    /// Statements of the proxy's own; they are among the requests too.
    pub own_statements: Counter,
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

    /// Pools now.
    pub pools: Gauges<PoolState, { PoolState::COUNT }>,
    /// Clients now, by the state of their pool.
    pub pool_clients: Gauges<PoolState, { PoolState::COUNT }>,

    /// Locks of this core, and the fleet.
    pub locks: LockMetrics,
    /// Its transactions.
    pub transactions: TransactionMetrics,
    /// Reads of several partitions.
    pub multigets: MultigetMetrics,
    /// Large answers past the proxy.
    pub handover: HandoverMetrics,
    /// Per-node metrics of this core.
    pub nodes: NodeRegistry,
}

impl CoreMetrics {
    /// Metrics of core `core`, all zero.
    pub fn new(core: usize) -> Self {
        Self { core, ..Self::default() }
    }
}
