//! The faults that a record can have.

use std::fmt;

/// Reasons why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The record has another version of the format.
    Version {
        /// Version in the record.
        found: u8,
    },
    /// The record names a schema that the catalogue lacks.
    UnknownSchema {
        /// Id in the record.
        id: u32,
    },
    /// The record has several fragments, at least one of them broken.
    Unmerged,
    /// The record's bytes are invalid.
    Malformed {
        /// Name of the invalid part.
        what: &'static str,
        /// Offset of the invalid part.
        at: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Version { found } => write!(f, "record format {found} is not known"),
            DecodeError::UnknownSchema { id } => write!(f, "schema {id} is not in the catalogue"),
            DecodeError::Unmerged => {
                write!(f, "a fragment is broken and the others are kept unmerged")
            }
            DecodeError::Malformed { what, at } => write!(f, "{what} at byte {at} of the record"),
        }
    }
}

impl std::error::Error for DecodeError {}
