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
    /// A holder that was found in a row is told that it has the lock before the row was written again.
    pub(crate) confirmation: bool,
    /// The row of such a holder is written again with the timestamp that it had.
    pub(crate) later_timestamp: bool,
    /// A free row of one who shared a lock says nothing of an exclusive holder.
    pub(crate) free_shared_row: bool,
    /// A renewal for longer than the row says is confirmed at once.
    pub(crate) longer_row: bool,
    /// Who asks again for what it has is told that it is granted.
    pub(crate) refusal: bool,
}

mod bounds;
mod histories;
mod model;
mod semantics;
mod store;
mod world;
