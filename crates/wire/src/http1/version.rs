//! The versions of HTTP that are understood.

use super::error::Refusal;

/// A version of HTTP.
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
    pub(super) fn read(text: &[u8]) -> Result<Version, Refusal> {
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
