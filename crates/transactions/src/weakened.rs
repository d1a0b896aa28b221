//! Steps that a test leaves out, to see that its checks notice.

/// A step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The lease is not looked at again when the record is acknowledged.
    CheckAfterRecord,
    /// No record is written.
    Record,
    /// Partitions are free before the writes are acknowledged.
    LocksUntilApplied,
    /// Partitions are not locked.
    Locks,
    /// A record of which nobody knows is given up as one that was not written.
    RepeatedRecord,
    /// Partitions of the log are deleted before a quorum knows the low mark above them.
    AcknowledgedLow,
    /// A place is done with before a quorum has its record at the next.
    AcknowledgedForward,
}
