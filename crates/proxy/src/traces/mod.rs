//! Traces: spans of the requests whose clients record a trace, for a collector of OpenTelemetry.
//!
//! ```text
//! decode: traceparent -> table (in flight) -> the request's end: span -> table (ended)
//!   -> mail -> export (control thread) -> shunt_otlp -> collector
//! ```
//!
//! A client names the trace of a request in its custom payload. Without a payload, the core tests
//! one bit. With a payload but without a sampled trace, it reads the first entries of the payload.
//! The bytes of the request go to the node unchanged.
//!
//! Tracing must never:
//! - cost a request its answer or its place;
//! - wait for the collector;
//! - allocate or lock on the path of a query;
//! - keep memory beyond a bound, whatever clients send;
//! - let one host take the spans of all others;
//! - show a value of a query.

pub(crate) mod spans;
pub mod exemplars;
pub mod export;
pub(crate) mod key;
pub mod metrics;
pub mod report;
pub mod table;
