//! The timers of the load's event loop.

/// The end of the phase.
pub(super) const TIMER_PHASE: u64 = 0;
/// The next arrival.
pub(super) const TIMER_ARRIVAL: u64 = 1;
/// The next check for a stall.
pub(super) const TIMER_STALL: u64 = 2;
/// The first of the sessions' retries; the session's number is added to it.
pub(super) const TIMER_SESSION: u64 = 16;
