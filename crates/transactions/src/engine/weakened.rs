//! Steps that a test leaves out, to see that its checks notice. A product has them all.

/// A step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// The lease is not checked when the record is acknowledged.
    CheckAfterRecord,
    /// No record is written.
    Record,
    /// Partitions are free before the writes are acknowledged.
    LocksUntilApplied,
    /// Partitions are not locked.
    Locks,
    /// Partitions that are only read are not locked.
    ReadLocks,
    /// A record of unknown outcome is given up as not written.
    RepeatedRecord,
    /// Partitions of the log are deleted before a quorum knows the low mark above them.
    AcknowledgedLow,
    /// A place is finished before a quorum has its record at the next.
    AcknowledgedForward,
    /// A decision by a row in memory does not first overwrite outstanding writes of others.
    RowMadeAnew,
    /// A row is kept although the outcome of its last write is unknown.
    RowForgotten,
}

/// A step of an opening that its caller leaves out.
#[cfg(feature = "weakened")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningStep {
    /// Unfinished work of former owners is not searched for.
    Recovery,
    /// Former generations are not sealed.
    Seal,
}

#[cfg(feature = "weakened")]
impl crate::Transactions {
    /// Leaves this step out from now on.
    pub fn leave_out(&mut self, without: Option<Without>) {
        self.without = without;
    }

    /// True if this step is left out.
    #[must_use]
    pub fn leaves_out(&self, step: Without) -> bool {
        self.without == Some(step)
    }
}
