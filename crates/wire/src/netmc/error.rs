//! Why a datagram is not taken for one of NetMC.

use std::fmt;

/// A reason to drop a datagram. Each is one thing, so that a metric or a test can name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// Shorter than what its header says, or than a header.
    Short,
    /// Bytes behind what the header counts.
    Long,
    /// A version of the layout that is not known here.
    Version {
        /// The version found.
        found: u8,
    },
    /// An operation that is not known, or not taken here.
    Op {
        /// The code found.
        found: u8,
    },
    /// CLO has bits that are not known, or that do not go together.
    Clo,
    /// NUMKEY is 0, more than 16, or more than OP allows.
    NumKey,
    /// KEYIDX does not end as many groups as there are servers, or ends one behind the last key.
    KeyIdx,
    /// OID, STARTIDX or NUMSRV do not go with the rest.
    Place,
    /// A server stands there twice.
    Server,
    /// The ends of the groups do not rise, or are not those of KEYS.
    Ends,
    /// KEYS is not made of as many keys as NUMKEY says, or one is too long.
    Keys,
    /// An item with a status that is not known, or with a value it may not have.
    Item,
}

impl Malformed {
    /// A short name, as in metrics.
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
