//! The number that ties a request in flight to its trace.

/// The number of a request's trace in the core's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceKey(u32);

impl TraceKey {
    /// The key of a request whose trace is not recorded.
    pub(crate) const NONE: TraceKey = TraceKey(0);

    /// The key of the trace with this number, which is not 0.
    pub(super) fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of the trace.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}
