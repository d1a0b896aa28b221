//! Tests of the whole.

/// Steps that are left out, to see that something then goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Without {
    /// The lease is not looked at again when a row was acknowledged.
    pub(crate) check_after_ack: bool,
    /// Tokens may reach the lease's limit.
    pub(crate) limit: bool,
    /// Locks in memory are granted at once after a take-over.
    pub(crate) grace: bool,
}

mod histories;
mod semantics;
mod store;
mod world;
