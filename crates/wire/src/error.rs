//! Errors of decoding.
//!
//! One small `Copy` type for all decoders of message bodies: it names the field, its offset and the
//! expectation, and costs nothing until it is printed.

use std::fmt;

/// Reason and place of a failure to decode a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DecodeError {
    /// The fault itself.
    pub problem: Problem,
    /// The field of the specification that was read, such as `"page size"`.
    pub field: &'static str,
    /// Offset in the decoder's input where reading stopped: the start of the field, or the end of
    /// its length if only the content is missing.
    pub offset: usize,
}

/// The kinds of [`DecodeError`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Problem {
    /// The field needs more bytes than are left.
    Truncated {
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes present.
        left: usize,
    },
    /// A length or count is negative.
    Negative {
        /// The value found.
        found: i32,
    },
    /// Text is not UTF-8.
    NotUtf8,
    /// A number is not in the list of known values.
    Unknown {
        /// The value found.
        found: u32,
        /// The known values.
        expected: &'static str,
    },
    /// A number exceeds its limit.
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
