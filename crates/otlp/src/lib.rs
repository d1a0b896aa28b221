//! Spans to a collector of OpenTelemetry, over OTLP/HTTP with JSON
//! (<https://opentelemetry.io/docs/specs/otlp/>).
//!
//! ```text
//! spans -> bounded queue -> encode (requests of bounded size) -> post -> collector
//! ```
//!
//! An [`Exporter`] is a task of a tokio runtime, away from the event loops. A collector that is
//! unreachable, slow or hostile costs the queue, one request and one answer, each of bounded size,
//! and one connection; spans beyond that are dropped and counted. JSON is one of the
//! specification's two stable encodings, and needs no generated code and no other crate.

mod encode;
mod endpoint;
mod exporter;
mod headers;
mod metrics;
mod post;
mod span;
#[cfg(test)]
mod tests;

pub use endpoint::Endpoint;
pub use exporter::{Exporter, QUEUE_SPANS_MAX, Settings, SpanSender};
pub use metrics::{ExportMetrics, Failure, Loss};
pub use span::{Attribute, Kind, Span, SpanId, TraceId};
