//! A span, as the exporter takes it.

use std::sync::Arc;

/// Id of a trace.
pub type TraceId = [u8; 16];
/// Id of a span.
pub type SpanId = [u8; 8];

/// The side of a request that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The handling of a request that came from elsewhere.
    Server,
    /// A request to a server.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text that several spans share.
    Shared(Arc<str>),
    /// A text of this span alone.
    Text(String),
    /// A constant of the program.
    Word(&'static str),
    /// A number.
    Number(i64),
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Span {
    /// Id of the trace.
    pub trace_id: TraceId,
    /// Id of the span.
    pub span_id: SpanId,
    /// Id of the span that caused this one.
    pub parent_id: SpanId,
    /// True if the parent belongs to another process.
    pub has_remote_parent: bool,
    /// Name, which many spans share.
    pub name: Arc<str>,
    /// Side of the request.
    pub kind: Kind,
    /// Start, nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// End, nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// Names and values. Names follow the semantic conventions where these define one.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// True if the request failed.
    pub is_error: bool,
}
