//! Errors of the control protocol.

use super::kinds::VERSION;

/// Fault in bytes of the control protocol, or in a message to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The length is below a header's or above any message's.
    Length(u32),
    /// No message has this kind, or not from this side.
    Kind(u8),
    /// The MAC does not match: the sender lacks the key, or sent the message elsewhere.
    Mac,
    /// A message of this kind is shorter than its fields.
    Short(u8),
    /// A message of this kind has bytes behind its fields.
    Behind(u8),
    /// The named field has an invalid value.
    Field(&'static str),
    /// The named field is too long.
    Oversized(&'static str),
    /// Two fields contradict each other, as described.
    Contradictory(&'static str),
    /// The other side has another version of the protocol.
    Version(u16),
    /// The agent serves another protocol than requested.
    Protocol(u8),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "a message of the control protocol cannot be {length} bytes long")
            }
            Self::Kind(kind) => write!(f, "no message of kind {kind} can come from this side"),
            Self::Mac => {
                f.write_str("a message is not authentic: do both sides have the same key file?")
            }
            Self::Short(kind) => write!(f, "a message of kind {kind} is cut short"),
            Self::Behind(kind) => write!(f, "a message of kind {kind} has bytes behind its fields"),
            Self::Field(name) => write!(f, "the field `{name}` has a value that means nothing"),
            Self::Oversized(name) => write!(f, "the field `{name}` is too long"),
            Self::Contradictory(what) => f.write_str(what),
            Self::Version(version) => write!(
                f,
                "the other side speaks version {version} of the control protocol, this one {}: run the same release on both",
                VERSION
            ),
            Self::Protocol(number) => {
                write!(
                    f,
                    "the agent serves protocol {number}, which is not the one asked for: see its `--protocol`"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
