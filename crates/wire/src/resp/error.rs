//! Reasons to refuse bytes as RESP.

use std::fmt;

/// A reason to close a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// A line or a string does not end with carriage return and line feed.
    LineEnd,
    /// A line exceeds its limit.
    LineTooLong,
    /// A length or a count is not a number, or is too large.
    Length,
    /// The first byte of a value is unknown.
    Type {
        /// The byte found.
        found: u8,
    },
    /// A command is not an array of strings.
    Command,
    /// A command has too many arguments.
    TooManyArguments,
    /// A value or a command is longer than its limit.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::LineEnd => f.write_str("a line or string does not end with CR LF"),
            Malformed::LineTooLong => f.write_str("a line has no end"),
            Malformed::Length => {
                f.write_str("a length or count is no number below 2^31, or has zeros in front")
            }
            Malformed::Type { found } => write!(f, "no value begins with the byte {found:#04x}"),
            Malformed::Command => f.write_str("a command must be an array of bulk strings"),
            Malformed::TooManyArguments => f.write_str("a command has too many arguments"),
            Malformed::TooLong { limit } => write!(f, "more than {limit} bytes"),
        }
    }
}

impl std::error::Error for Malformed {}
