//! HTTP/1.0 and HTTP/1.1 (RFC 9110, RFC 9112) for whoever stands between a client and a server:
//! heads, where a body ends, and whether the connection goes on.
//!
//! ```text
//! bytes ─ head (lines, limits) ─┬─ request  ─┐
//!                               └─ response ─┴─ fields (what they say together) ─ body (where it ends)
//! ```
//! Nothing here holds a body or changes one: chunks pass as they are, checked. What two readers of
//! the same bytes could understand differently is refused by name ([`Refusal`]) instead of being
//! read in one of the ways: that is what request smuggling lives on.
//!
//! A head costs no allocation once the list of positions has its size; the bytes stay the caller's.

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

/// The versions that are understood.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// HTTP/1.0: the connection ends after an answer unless both sides say otherwise.
    Http10,
    /// HTTP/1.1: the connection goes on unless one side says otherwise.
    Http11,
}

impl Version {
    /// As it stands in a head.
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

/// Whether the byte may stand in a token (RFC 9110, section 5.6.2): a method, or the name of a
/// field.
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

/// The elements of a list (RFC 9110, section 5.6.1), without blanks around them; empty ones are
/// left out.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}
