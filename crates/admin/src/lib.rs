//! Observability: counters, their text form for Prometheus, and the HTTP pages.
//!
//! ```text
//! data path -> Counter, Gauge, Histogram <- Part (proxy, nodes) <- Pages <- HTTP
//! ```
//! The parts only read what the data path counts anyway. One thread writes a counter with plain
//! loads and stores (no lock, no read-modify-write); the admin thread reads it at any moment.

mod authorization;
mod browser;
mod changes;
mod connections;
mod counter;
mod encode;
mod exemplars;
mod histogram;
mod history;
mod host;
mod hosts;
mod listeners;
mod liveness;
mod loops;
#[cfg(all(test, feature = "loom"))]
mod models;
mod page_turns;
mod pages;
mod process;
mod request_kind;
mod runbook;
mod server;
mod sync;

pub use counter::{Counter, Family, Gauge, Gauges, Label};
pub use encode::{Encoder, Labels, MetricFamily, MetricKind, Value, plain};
pub use exemplars::Exemplar;
pub use histogram::{BUCKETS, Histogram, Snapshot};
pub use history::Reading;
pub use host::is_meant;
pub use hosts::{HostConnection, HostMetrics, Hosts};
pub use listeners::Listeners;
pub use liveness::Heartbeats;
pub use loops::Loops;
pub use pages::{Access, Change, MetricState, Pages, Part, Refusal, State};
/// Units of metrics.
pub use prometheus_client::registry::Unit;
pub use request_kind::RequestKind;
/// The JSON types of [`Part::stuck`] and [`Part::status`].
pub use serde_json::{Map, Value as Json};
