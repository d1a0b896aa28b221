//! A span, as the exporter takes it.

use std::sync::Arc;

/// Number of a trace.
pub type TraceId = [u8; 16];
/// Number of a span.
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
    /// A text that others have too.
    Shared(Arc<str>),
    /// A text of this span.
    Text(String),
    /// A word of the program.
    Word(&'static str),
    /// A number.
    Number(i64),
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Span {
    /// Number of the trace.
    pub trace_id: TraceId,
    /// Number of the span.
    pub span_id: SpanId,
    /// Number of the span that caused it.
    pub parent_id: SpanId,
    /// True if another process has that span.
    pub has_remote_parent: bool,
    /// Name, which many spans share.
    pub name: Arc<str>,
    /// Side of the request.
    pub kind: Kind,
    /// Start, nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// End, nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// Names, by the semantic conventions where they have one, and values.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// True if the request failed.
    pub is_error: bool,
}
