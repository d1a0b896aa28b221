//! Reasons to refuse bytes as HTTP/1.1.

use std::fmt;

/// A reason to refuse a head or a body. Each variant is a single fault, so that an answer, a log
/// line or a test can name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// A line ends with a line feed alone.
    BareLineFeed,
    /// A carriage return without a line feed.
    BareCarriageReturn,
    /// A byte of value 0.
    Nul,
    /// The first line is not a request line or a status line.
    StartLine,
    /// A method contains bytes that are not allowed in a token.
    Method,
    /// CONNECT, which asks for a tunnel.
    Connect,
    /// A target has blanks, control characters or bytes beyond ASCII, or a form that the method
    /// does not allow.
    Target,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    Version,
    /// A status that is not a number of three digits from 100.
    Status,
    /// A line that begins with a blank: a folded field (obs-fold).
    FoldedField,
    /// A blank between the name of a field and its colon.
    SpaceBeforeColon,
    /// A field without a colon, or a name with bytes that are not allowed in a token.
    FieldName,
    /// A value with control characters.
    FieldValue,
    /// A line longer than its limit.
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A head longer than its limit.
    HeadTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// More fields than the limit.
    TooManyFields {
        /// The limit.
        limit: usize,
    },
    /// HTTP/1.1 without Host, a head with several, or one that is not a host.
    Host,
    /// A Content-Length that is not a decimal number of at most 2^63 - 1.
    ContentLength,
    /// Content-Length more than once, with equal or different values.
    SeveralContentLengths,
    /// Content-Length and Transfer-Encoding in one head.
    LengthAndEncoding,
    /// A Transfer-Encoding that is not exactly `chunked`, is repeated, or comes with HTTP/1.0.
    TransferEncoding,
    /// An expectation other than 100-continue.
    Expectation,
    /// Connection names a field that says where the message ends or which host it is for.
    ConnectionNamesFraming,
    /// The Connection fields have more options than the limit.
    TooManyConnectionOptions {
        /// The limit.
        limit: usize,
    },
    /// Connection names an end-to-end field.
    ConnectionNamesOther,
    /// A field name that differs from a significant one only in characters other than letters and
    /// digits; some servers treat both as the same.
    DisguisedField,
    /// The authority of the target differs from Host.
    TargetAndHost,
    /// A chunk whose size is not a hexadecimal number or has an invalid end of line.
    ChunkSize,
    /// A chunk larger than 2^63 - 1 bytes.
    ChunkTooLarge,
    /// The bytes behind a chunk are not a line end.
    ChunkEnd,
    /// A chunk's line or the trailer is too long.
    ChunkLineTooLong,
    /// A trailer field is malformed or not allowed there.
    Trailer,
}

impl Refusal {
    /// The status of the answer to the refused request (RFC 9110, section 15; RFC 6585 for 431).
    pub fn status(self) -> u16 {
        match self {
            Refusal::Version => 505,
            Refusal::Connect => 501,
            Refusal::LineTooLong { .. }
            | Refusal::HeadTooLong { .. }
            | Refusal::TooManyFields { .. }
            | Refusal::TooManyConnectionOptions { .. } => 431,
            Refusal::Expectation => 417,
            Refusal::ChunkTooLarge => 413,
            _ => 400,
        }
    }

    /// A short name for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::BareLineFeed => "bare-line-feed",
            Refusal::BareCarriageReturn => "bare-carriage-return",
            Refusal::Nul => "nul",
            Refusal::StartLine => "start-line",
            Refusal::Method => "method",
            Refusal::Connect => "connect",
            Refusal::Target => "target",
            Refusal::Version => "version",
            Refusal::Status => "status",
            Refusal::FoldedField => "folded-field",
            Refusal::SpaceBeforeColon => "space-before-colon",
            Refusal::FieldName => "field-name",
            Refusal::FieldValue => "field-value",
            Refusal::LineTooLong { .. } => "line-too-long",
            Refusal::HeadTooLong { .. } => "head-too-long",
            Refusal::TooManyFields { .. } => "too-many-fields",
            Refusal::TooManyConnectionOptions { .. } => "too-many-connection-options",
            Refusal::Host => "host",
            Refusal::ContentLength => "content-length",
            Refusal::SeveralContentLengths => "several-content-lengths",
            Refusal::LengthAndEncoding => "length-and-encoding",
            Refusal::TransferEncoding => "transfer-encoding",
            Refusal::Expectation => "expectation",
            Refusal::ConnectionNamesFraming => "connection-names-framing",
            Refusal::ConnectionNamesOther => "connection-names-other",
            Refusal::DisguisedField => "disguised-field",
            Refusal::TargetAndHost => "target-and-host",
            Refusal::ChunkSize => "chunk-size",
            Refusal::ChunkTooLarge => "chunk-too-large",
            Refusal::ChunkEnd => "chunk-end",
            Refusal::ChunkLineTooLong => "chunk-line-too-long",
            Refusal::Trailer => "trailer",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Refusal::LineTooLong { limit } => {
                return write!(f, "a line of the head has more than {limit} bytes");
            }
            Refusal::HeadTooLong { limit } => {
                return write!(f, "the head has more than {limit} bytes");
            }
            Refusal::TooManyFields { limit } => {
                return write!(f, "the head has more than {limit} fields");
            }
            Refusal::TooManyConnectionOptions { limit } => {
                return write!(f, "Connection has more than {limit} options");
            }
            Refusal::BareLineFeed => {
                "a line ends with a line feed that has no carriage return in front of it"
            }
            Refusal::BareCarriageReturn => {
                "there is a carriage return without a line feed behind it"
            }
            Refusal::Nul => "there is a byte of value 0",
            Refusal::StartLine => "the first line is none of HTTP/1.1",
            Refusal::Method => "the method is no token",
            Refusal::Connect => "CONNECT asks for a tunnel, and there are none here",
            Refusal::Target => {
                "the target has forbidden characters, or a form that the method does not allow"
            }
            Refusal::Version => "only HTTP/1.0 and HTTP/1.1 are spoken here",
            Refusal::Status => "the status is not three digits, 100 or more",
            Refusal::FoldedField => {
                "a field is continued on a line that begins with a blank, which is obsolete"
            }
            Refusal::SpaceBeforeColon => {
                "there is a blank between the name of a field and its colon"
            }
            Refusal::FieldName => "a field has no colon, or its name is no token",
            Refusal::FieldValue => "the value of a field has a control character",
            Refusal::Host => "there must be exactly one Host, and it must be a name or an address",
            Refusal::ContentLength => "Content-Length is not a decimal number below 2^63",
            Refusal::SeveralContentLengths => "there is more than one Content-Length",
            Refusal::LengthAndEncoding => "there are both Content-Length and Transfer-Encoding",
            Refusal::TransferEncoding => {
                "Transfer-Encoding is taken once, in HTTP/1.1, and only as `chunked`"
            }
            Refusal::Expectation => "the only expectation that is known is 100-continue",
            Refusal::ConnectionNamesFraming => {
                "Connection names a field that the message cannot be read without"
            }
            Refusal::ConnectionNamesOther => {
                "Connection names a field that is not for this connection alone"
            }
            Refusal::DisguisedField => {
                "a field is named almost like one that matters, and some servers take it for that one"
            }
            Refusal::TargetAndHost => "the target and Host name different hosts",
            Refusal::ChunkSize => {
                "the size of a chunk is no hexadecimal number on a line of its own"
            }
            Refusal::ChunkTooLarge => "a chunk says that it has 2^63 bytes or more",
            Refusal::ChunkEnd => "a chunk is longer than it says, or its line end is missing",
            Refusal::ChunkLineTooLong => {
                "a line with the size of a chunk, or what follows the last one, is too long"
            }
            Refusal::Trailer => "a field behind the last chunk is malformed or may not stand there",
        };
        f.write_str(text)
    }
}

impl std::error::Error for Refusal {}
