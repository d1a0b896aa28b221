//! HTTP/1.0 and HTTP/1.1 (RFC 9110, RFC 9112) for an intermediary between client and server: heads,
//! the end of a body, and the persistence of the connection.
//!
//! ```text
//! bytes ─ head (lines, limits) ─┬─ request  ─┐
//!                               └─ response ─┴─ fields (combined meaning) ─ body (its end)
//! ```
//! The module stores and changes no body: it checks chunks and passes them on. Bytes that two
//! readers could understand differently are refused by name ([`Refusal`]) instead of interpreted,
//! since request smuggling depends on such differences.
//!
//! A head costs no allocation once the list of positions has grown; the bytes remain the caller's.

mod body;
mod error;
mod fields;
mod head;
mod limits;
mod names;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use body::{BodyReader, Framing};
pub use error::Refusal;
pub use head::{Head, HeadReader};
pub use limits::{CHUNK_LINE_BYTES_MAX, HeadLimits, TRAILER_BYTES_MAX};
pub use request::RequestHead;
pub use response::{ContentRange, ResponseHead};

/// The supported versions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// HTTP/1.0: the connection ends after an answer unless both sides agree otherwise.
    Http10,
    /// HTTP/1.1: the connection persists unless one side closes it.
    Http11,
}

impl Version {
    /// The version as written in a head.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        }
    }

    /// Reads `HTTP/1.0` or `HTTP/1.1`.
    fn read(text: &[u8]) -> Result<Version, Refusal> {
        match text {
            b"HTTP/1.1" => Ok(Version::Http11),
            b"HTTP/1.0" => Ok(Version::Http10),
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                Err(Refusal::Version)
            }
            _ => Err(Refusal::StartLine),
        }
    }
}

/// True if a token may contain the byte (RFC 9110, section 5.6.2), as in a method or a field name.
const fn is_token(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'#'
            | b'$'
            | b'%'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~'
    ) || byte.is_ascii_alphanumeric()
}

/// The elements of a list (RFC 9110, section 5.6.1) without surrounding blanks; empty elements are
/// omitted.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}
