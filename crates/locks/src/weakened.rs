//! Steps that a test may leave out, to see that its checks notice. A product has them all.

/// Steps to leave out: true skips the step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without {
    /// Check the lease again when a row was acknowledged.
    pub check_after_ack: bool,
    /// Keep tokens below the lease's limit.
    pub limit: bool,
    /// Delay memory locks after a take-over.
    pub grace: bool,
    /// Write the row of a found holder again before telling it that it has the lock.
    pub confirmation: bool,
    /// Give that row a later timestamp.
    pub later_timestamp: bool,
    /// Let the free row of a sharer end an exclusive hold.
    pub free_shared_row: bool,
    /// Write the row before confirming a renewal longer than its TTL.
    pub longer_row: bool,
    /// Refuse a repeated request of a holder instead of granting it.
    pub refusal: bool,
}

impl crate::Locks {
    /// Leaves these steps out from now on.
    pub fn leave_out(&mut self, without: Without) {
        self.without = without;
    }
}
