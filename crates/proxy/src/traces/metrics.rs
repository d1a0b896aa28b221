//! A core's counters of traces.

use shunt_admin::{Family, labels};
use shunt_otlp::Loss;

labels! {
    /// The trace that a request names.
    pub enum TraceState = "trace" {
        /// The client records the trace, so the proxy does too.
        Sampled = "sampled",
        /// The client does not record the trace.
        Unsampled = "unsampled",
        /// The `traceparent` is malformed.
        Invalid = "invalid",
    }
}

/// A core's counters of traces.
#[derive(Debug, Default)]
pub struct TraceMetrics {
    /// Requests that name a trace.
    pub requests: Family<TraceState, { TraceState::COUNT }>,
    /// Spans that were dropped.
    pub dropped: Family<Loss, { Loss::COUNT }>,
}
