//! Errors that say why bytes could not be decoded.
//!
//! One small `Copy` type for all decoders of message bodies: it names the field, where it starts
//! and what was expected, and costs nothing until somebody prints it.

use std::fmt;

/// Why a body could not be decoded, and where.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DecodeError {
    /// The fault itself.
    pub problem: Problem,
    /// The field of the specification that was being read, such as `"page size"`.
    pub field: &'static str,
    /// Where reading stopped: bytes from the start of the slice that was given to the decoder. This
    /// is where the field starts, or behind its length if the length is there and what it counts is
    /// not.
    pub offset: usize,
}

/// The kinds of [`DecodeError`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Problem {
    /// The field needs more bytes than are left.
    Truncated {
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes that are there.
        left: usize,
    },
    /// A length or count that must not be negative is.
    Negative {
        /// The value found.
        found: i32,
    },
    /// Text that is not UTF-8.
    NotUtf8,
    /// A number that must be one of a list is not.
    Unknown {
        /// The value found.
        found: u32,
        /// The values that are known.
        expected: &'static str,
    },
    /// A number above its limit.
    TooLarge {
        /// The value found.
        found: u64,
        /// The largest value allowed.
        max: u64,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: ", self.field, self.offset)?;
        match self.problem {
            Problem::Truncated { needed, left } => {
                write!(f, "expected {needed} bytes, {left} are left")
            }
            Problem::Negative { found } => {
                write!(f, "expected a length of 0 or more, found {found}")
            }
            Problem::NotUtf8 => write!(f, "expected UTF-8 text"),
            Problem::Unknown { found, expected } => {
                write!(f, "expected {expected}, found {found:#x}")
            }
            Problem::TooLarge { found, max } => write!(f, "expected at most {max}, found {found}"),
        }
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_says_what_where_and_what_was_expected() {
        let error = DecodeError {
            problem: Problem::Truncated { needed: 12, left: 3 },
            field: "query text",
            offset: 4,
        };
        assert_eq!(error.to_string(), "query text at byte 4: expected 12 bytes, 3 are left");
        let error = DecodeError {
            problem: Problem::Unknown { found: 9, expected: "kind 0 or 1" },
            field: "batch child kind",
            offset: 3,
        };
        assert_eq!(
            error.to_string(),
            "batch child kind at byte 3: expected kind 0 or 1, found 0x9"
        );
    }
}
