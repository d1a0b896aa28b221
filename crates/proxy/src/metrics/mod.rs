//! The counters of the cores, and their exposition.
//!
//! A core writes its own [`CoreMetrics`] with plain loads and stores (no lock, no
//! read-modify-write); the admin thread reads them at any moment and sums over the cores. Queries
//! allocate nothing.

mod control;
pub mod exposition;
mod handover;
mod locks;
mod multiget;
mod node;
mod own_statements;
mod transactions;

pub use control::ControlMetrics;
pub use handover::{HandedOver, HandoverMetrics, StaysFor};
pub use locks::{LockEvent, LockMetrics, Partitions, PermissionAnswer};
pub use multiget::MultigetMetrics;
pub use node::{NodeMetrics, NodeRegistry};
pub use own_statements::OwnStatementMetrics;
pub use shunt_tls_upkeep::{HandshakeResult, HeaderResult, Servers, TlsMetrics};
pub use transactions::{Observation, TransactionEvent, TransactionMetrics};

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::ids::ClientRef;
pub use crate::multiget::reasons::{Lost, Whole};
use crate::traces::metrics::TraceMetrics;
pub use shunt_admin::{
    Counter, Family, Gauge, Gauges, Histogram, Label, RequestKind as QueryKind, Snapshot,
};

use shunt_admin::labels;

labels! {
    /// The end of a query, or an event on its way. `Ok`, `Error`, `Overloaded`, `TimedOut`,
    /// `LinkLost` and `Intercepted` are ends (each query has exactly one); `Retried` and
    /// `Reprepared` come on top.
    pub enum Outcome = "outcome" {
        /// A node answered without ERROR.
        Ok = "ok",
        /// A node answered with ERROR.
        Error = "error",
        /// The proxy refused it because a bound was reached.
        Overloaded = "overloaded",
        /// The deadline passed without an answer.
        TimedOut = "timed_out",
        /// The link died and the query could not be retried.
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
    /// The reason why a client was turned away.
    pub enum Refusal = "reason" {
        /// `clients_max` is reached.
        TooMany = "too_many",
        /// The ring is not known yet, or no node is up.
        NoRing = "no_ring",
        /// The client did not finish its handshake in time.
        HandshakeTimeout = "handshake_timeout",
        /// A node refused its login.
        Authentication = "authentication",
        /// No node could check its login in time.
        LoginUnchecked = "login_unchecked",
        /// No identity matches its certificate.
        NoIdentity = "no_identity",
        /// `clients_max` of its tenant is reached.
        Tenant = "tenant",
        /// The proxy is shutting down.
        Draining = "draining",
    }
}

labels! {
    /// Why the proxy closed a client's connection.
    pub enum Closing = "reason" {
        /// `clients_max` was reached at its arrival.
        TooMany = "too_many",
        /// The proxy is shutting down.
        Draining = "draining",
        /// The proxy is shutting down, and `drain_timeout_ms` is over.
        CutOff = "cut_off",
        /// The client broke the protocol, or exceeded a size bound.
        ProtocolError = "protocol_error",
        /// The client began with a protocol version that the proxy does not speak; drivers step
        /// down and come back.
        Version = "version",
        /// Too many combinations of role, keyspace and version were in use.
        TooManyPools = "too_many_pools",
        /// The ring was not known within `handshake_timeout_ms`.
        NoRing = "no_ring",
        /// The client did not log in within `handshake_timeout_ms`.
        HandshakeTimeout = "handshake_timeout",
        /// A node refused its login.
        Authentication = "authentication",
        /// No node could check its login in time.
        LoginUnchecked = "login_unchecked",
        /// No identity matches its certificate.
        NoIdentity = "no_identity",
        /// `clients_max` of its tenant was reached at its login.
        Tenant = "tenant",
        /// A reload took its identity or gave it another role.
        IdentityChanged = "identity_changed",
        /// Every node refuses its login or its keyspace now.
        AccessLost = "access_lost",
        /// The client took too long to send one request.
        RequestTimeout = "request_timeout",
        /// The client did not take its replies.
        RepliesUntaken = "replies_untaken",
        /// `clients_bytes_max` was reached, and its untaken bytes were the most.
        BytesMax = "bytes_max",
        /// The client's TLS session failed.
        Tls = "tls",
        /// The client's host did not acknowledge the proxy's output.
        Unreachable = "unreachable",
        /// An operator asked for it.
        Operator = "operator",
    }
}

labels! {
    /// The error that a request in flight gets when an operator closes its client.
    pub enum FinalError = "error" {
        /// The request may have changed something.
        WriteTimeout = "write_timeout",
        /// The request changed nothing.
        Overloaded = "overloaded",
    }
}

labels! {
    /// The reason why a client is not read from.
    pub enum StallReason = "reason" {
        /// The ring is not known yet.
        NoRing = "no_ring",
        /// No link of its pool is open.
        NoLink = "no_link",
        /// The link that its next query must take is full.
        LinkFull = "link_full",
        /// The client does not take its replies.
        RepliesUntaken = "replies_untaken",
        /// The client's login or USE is in progress.
        LoginOrUse = "login_or_use",
        /// The proxy is shutting down.
        Draining = "draining",
        /// The proxy was paused, and asks which tables take part in transactions now.
        StoodStill = "stood_still",
        /// The client's next request takes long to read, and the loop has read its limit of such
        /// bytes in this turn.
        Heavy = "heavy",
        /// The client's tenant has reached a limit.
        Tenant = "tenant",
    }
}

labels! {
    /// The state of a pool.
    pub enum PoolState = "state" {
        /// A link takes queries.
        Open = "open",
        /// The pool has clients and no link yet, but one is opening.
        Opening = "opening",
        /// The pool has clients and no link, and none is opening: nodes are down, or refuse it.
        Unreachable = "unreachable",
        /// The pool has neither clients nor links.
        Idle = "idle",
    }
}

labels! {
    /// The reason why the proxy gave a link up.
    pub enum GivenUp = "reason" {
        /// The link was not open within `connect_timeout_ms`.
        HandshakeTimeout = "handshake_timeout",
        /// The node did not answer a probe.
        Silent = "silent",
        /// Too many of its queries timed out.
        TimedOutQueries = "timed_out_queries",
        /// One query was never answered; replaced, not broken.
        UnansweredQuery = "unanswered_query",
        /// The node broke the protocol.
        ProtocolError = "protocol_error",
        /// Another node has the node's address, or does not identify itself.
        Stranger = "stranger",
        /// The node said that it is shutting down; replaced, not broken.
        NodeLeaving = "node_leaving",
        /// The node refused the login, keyspace or options of its pool.
        Refused = "refused",
    }
}

labels! {
    /// An event of hedged reads.
    pub enum HedgeEvent = "event" {
        /// A late read went to another node too.
        Sent = "sent",
        /// The client got the second node's answer, or the first node failed first.
        Won = "won",
        /// The client got the first node's answer, or the second node failed first.
        Abandoned = "abandoned",
        /// A read was late, but there was no credit for a second one, or more than a third of the
        /// last reads were late.
        Withheld = "withheld",
    }
}

labels! {
    /// The choice of a query's node.
    pub enum Routing = "by" {
        /// By the token of its partition key.
        Token = "token",
        /// Any node of the local datacentre.
        Any = "any",
    }
}

/// Counters of one core. Only that core's thread writes them; any thread reads them.
#[derive(Debug, Default)]
pub struct CoreMetrics {
    /// Index of the core.
    pub core: usize,
    /// Name of the I/O driver in use, set when the loop starts.
    pub driver: OnceLock<String>,
    /// Number of turns of the loop, by which liveness is judged. Idle loops must still turn about
    /// once a second.
    pub turns: Counter,
    /// Clients of this core as the acceptor sees them: it adds when it hands a connection over, the
    /// core subtracts when the connection ends. The acceptor uses it to find the least-loaded core.
    pub load: Arc<AtomicUsize>,

    /// Clients connected now.
    pub clients: Gauge,
    /// Clients among them that have TLS.
    pub tls_clients: Gauge,
    /// Clients accepted.
    pub clients_accepted: Counter,
    /// Clients turned away.
    pub clients_refused: Family<Refusal, { Refusal::COUNT }>,
    /// Clients not being read from now (backpressure).
    pub clients_paused: Gauge,
    /// 1 while the core has only one replica's answer, or an old one, until it has read modes and
    /// rules itself.
    pub modes_in_doubt: Gauge,
    /// Microseconds that this proxy's clock is behind the nodes', as far as this core knows; 0 if
    /// it is not.
    pub clock_behind_us: Gauge,
    /// 1 while no node has told this core its time.
    pub clock_unmeasured: Gauge,
    /// Times a client was paused.
    pub client_pauses: Counter,
    /// Times a client waited because it had its part of a crowded link.
    pub share_waits: Counter,
    /// Clients not being read from now, by reason; one may have several.
    pub clients_stalled: Gauges<StallReason, { StallReason::COUNT }>,
    /// Times that a client got such a reason.
    pub client_stalls: Family<StallReason, { StallReason::COUNT }>,
    /// Clients that the proxy closed.
    pub clients_closed: Family<Closing, { Closing::COUNT }>,
    /// Errors to requests in flight of clients that an operator closed.
    pub final_errors: Family<FinalError, { FinalError::COUNT }>,
    /// Clients closed with an error for their input.
    pub client_protocol_errors: Counter,
    /// Bytes received from clients.
    pub client_bytes_in: Counter,
    /// Bytes sent to clients.
    pub client_bytes_out: Counter,

    /// Requests of clients.
    pub queries: Family<QueryKind, { QueryKind::COUNT }>,
    /// Ends and events of clients' requests.
    pub outcomes: Family<Outcome, { Outcome::COUNT }>,
    /// Choices of nodes for queries.
    pub routed: Family<Routing, { Routing::COUNT }>,
    /// Events of hedged reads.
    pub hedges: Family<HedgeEvent, { HedgeEvent::COUNT }>,
    /// Nanoseconds after which a read is late now; 0 if reads are not hedged.
    pub hedge_after_ns: Gauge,
    /// Clients' requests in flight now.
    pub in_flight: Gauge,
    /// Statements of the proxy itself.
    pub own_statements: OwnStatementMetrics,
    /// Queries slower than `slow_query_ms`, or that nodes could not carry out in time.
    pub slow_queries: Counter,
    /// Traces of clients' requests.
    pub traces: TraceMetrics,
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
    /// Memory of idle buffers, kept for reuse, bytes.
    pub idle_buffer_bytes: Gauge,

    /// Pools now.
    pub pools: Gauges<PoolState, { PoolState::COUNT }>,
    /// Clients now, by the state of their pool.
    pub pool_clients: Gauges<PoolState, { PoolState::COUNT }>,

    /// Locks of this core, and its fleet.
    pub locks: LockMetrics,
    /// Transactions of this core.
    pub transactions: TransactionMetrics,
    /// Reads of several partitions.
    pub multigets: MultigetMetrics,
    /// Large answers that bypass the proxy.
    pub handover: HandoverMetrics,
    /// Per-node metrics of this core.
    pub nodes: NodeRegistry,
}

impl CoreMetrics {
    /// Metrics of core `core`, all zero.
    pub fn new(core: usize) -> Self {
        Self { core, ..Self::default() }
    }

    /// Counts an end or an event of a request, among those of its origin.
    #[inline]
    pub(crate) fn count_outcome(&self, origin: ClientRef, outcome: Outcome) {
        let own = &self.own_statements;
        let outcomes = if origin == ClientRef::PROXY { &own.outcomes } else { &self.outcomes };
        outcomes.of(outcome).add(1);
    }

    /// Counts the end of a request, which is no longer in flight.
    #[inline]
    pub(crate) fn count_end(&self, origin: ClientRef, outcome: Outcome) {
        self.count_outcome(origin, outcome);
        let own = &self.own_statements;
        let in_flight = if origin == ClientRef::PROXY { &own.in_flight } else { &self.in_flight };
        in_flight.sub(1);
    }
}
