//! Counts of a node's event loops. Each loop writes its own, with plain loads and stores; the admin
//! thread reads them.

pub use shunt_admin::RequestKind;
use shunt_admin::{Counter, Family, Gauge, Histogram};

/// Counters of one event loop.
#[derive(Debug, Default)]
pub struct LoopMetrics {
    /// Incremented once per turn of the loop, as a sign of life.
    pub turns: Counter,
    /// Connections open now.
    pub connections: Gauge,
    /// Connections accepted.
    pub accepted: Counter,
    /// Requests, including those in aggregated frames.
    pub requests: Family<RequestKind, { RequestKind::COUNT }>,
    /// Requests answered with ERROR.
    pub errors: Counter,
    /// Connections closed because of invalid input.
    pub protocol_errors: Counter,
    /// Connections closed because their clients did not read their answers.
    pub cut_off: Counter,
    /// Requests in each aggregated frame.
    pub requests_per_frame: Histogram,
    /// Requests passed to workers because they had to wait for the disk or take long.
    pub handed_over: Counter,
    /// Writes among these that came faster than compaction.
    pub stalled: Counter,
    /// Answers currently waiting for the disk.
    pub waiting: Gauge,
    /// Requested traces that were not kept.
    pub traces_lost: Counter,
}
