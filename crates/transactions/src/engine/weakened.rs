//! Steps that a test leaves out, to see that its checks notice. A product has them all.

/// A step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// The lease is not looked at again when the record is acknowledged.
    CheckAfterRecord,
    /// No record is written.
    Record,
    /// Partitions are free before the writes are acknowledged.
    LocksUntilApplied,
    /// Partitions are not locked.
    Locks,
    /// Partitions that are only read are not locked.
    ReadLocks,
    /// A record of which nobody knows is given up as one that was not written.
    RepeatedRecord,
    /// Partitions of the log are deleted before a quorum knows the low mark above them.
    AcknowledgedLow,
    /// A place is done with before a quorum has its record at the next.
    AcknowledgedForward,
    /// Whoever decides by a row in memory has not written over what others may have on its way to
    /// it.
    RowMadeAnew,
    /// Nor over what has come of its own write, of which nobody has told.
    RowForgotten,
}

/// A step of an opening, that whoever carries openings out leaves out.
#[cfg(feature = "weakened")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningStep {
    /// What former owners left undone is not looked for.
    Recovery,
    /// Their generations are not sealed.
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
