//! Reasons to refuse a datagram as NetMC.

use std::fmt;

/// A reason to drop a datagram. Each variant is a single fault, so that a metric or a test can name
/// it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// Shorter than a header, or than its header claims.
    Short,
    /// Bytes behind the end that the header gives.
    Long,
    /// An unknown version of the layout.
    Version {
        /// The version found.
        found: u8,
    },
    /// An operation that is unknown or not accepted here.
    Op {
        /// The code found.
        found: u8,
    },
    /// CLO has unknown or conflicting bits.
    Clo,
    /// NUMKEY is 0, more than 16, or more than OP allows.
    NumKey,
    /// KEYIDX does not end as many groups as there are servers, or ends one behind the last key.
    KeyIdx,
    /// OID, STARTIDX or NUMSRV contradict the other fields.
    Place,
    /// A server is repeated.
    Server,
    /// The ends of the groups do not rise, or do not match KEYS.
    Ends,
    /// KEYS does not hold NUMKEY keys, or one is too long.
    Keys,
    /// An item has an unknown status, or a value that its status forbids.
    Item,
}

impl Malformed {
    /// A short name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Malformed::Short => "short",
            Malformed::Long => "long",
            Malformed::Version { .. } => "version",
            Malformed::Op { .. } => "op",
            Malformed::Clo => "clo",
            Malformed::NumKey => "numkey",
            Malformed::KeyIdx => "keyidx",
            Malformed::Place => "place",
            Malformed::Server => "server",
            Malformed::Ends => "ends",
            Malformed::Keys => "keys",
            Malformed::Item => "item",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Version { found } => write!(f, "version {found} of the layout is not known"),
            Malformed::Op { found } => write!(f, "operation {found} is not taken here"),
            other => write!(f, "the field `{}` does not go with the rest", other.name()),
        }
    }
}

impl std::error::Error for Malformed {}
