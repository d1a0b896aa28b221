//! Why a transaction came to nothing.

use shunt_transactions::rejection::Rejection;

use crate::fault::Fault;

/// An error that is told instead of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Fault(Fault),
    /// None of its tables takes part in transactions. Where a statement is one because of its
    /// table, that has changed just now.
    NoMode(Fault),
    /// A node's error, in its own words.
    Node {
        code: i32,
        message: String,
    },
}

impl From<Rejection> for Failed {
    fn from(rejection: Rejection) -> Failed {
        Failed::Fault(rejection.into())
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Failed {
        Failed::Fault(fault)
    }
}
