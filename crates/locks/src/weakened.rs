//! Steps that a test may leave out, to see that its checks notice. A product has them all.

/// Steps that are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without {
    /// The lease is not looked at again when a row was acknowledged.
    pub check_after_ack: bool,
    /// Tokens may reach the lease's limit.
    pub limit: bool,
    /// Locks in memory are granted at once after a take-over.
    pub grace: bool,
    /// A holder that was found in a row is told that it has the lock before the row was written
    /// again.
    pub confirmation: bool,
    /// The row of such a holder is written again with the timestamp that it had.
    pub later_timestamp: bool,
    /// A free row of one who shared a lock says nothing of an exclusive holder.
    pub free_shared_row: bool,
    /// A renewal for longer than the row says is confirmed at once.
    pub longer_row: bool,
    /// Who asks again for what it has is told that it is granted.
    pub refusal: bool,
}

impl crate::Locks {
    /// Leaves these steps out from now on.
    pub fn leave_out(&mut self, without: Without) {
        self.without = without;
    }
}
