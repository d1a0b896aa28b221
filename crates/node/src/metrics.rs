//! The counts of a node's event loops. Each loop writes its own, with plain loads and stores; the
//! admin thread reads them.

pub use shunt_admin::RequestKind;
use shunt_admin::{Counter, Family, Gauge, Histogram};

/// Counters of one event loop.
#[derive(Debug, Default)]
pub struct LoopMetrics {
    /// Counts up by one per turn of the loop; liveness is judged by it.
    pub turns: Counter,
    /// Connections open now.
    pub connections: Gauge,
    /// Connections accepted.
    pub accepted: Counter,
    /// Requests, those in aggregated frames included.
    pub requests: Family<RequestKind, { RequestKind::COUNT }>,
    /// The requests among these that were answered with ERROR.
    pub errors: Counter,
    /// Connections closed for what their client sent.
    pub protocol_errors: Counter,
    /// Connections closed as their clients did not take their answers.
    pub cut_off: Counter,
    /// Requests in each aggregated frame.
    pub requests_per_frame: Histogram,
    /// Requests that were left to workers, because they had to wait for the disk or take long.
    pub handed_over: Counter,
    /// The writes among these that came faster than compaction.
    pub stalled: Counter,
    /// Answers that wait for the disk now.
    pub waiting: Gauge,
    /// Traces that were asked for and not kept.
    pub traces_lost: Counter,
}
