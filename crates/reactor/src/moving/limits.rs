//! Bounds of moving connections that are not a matter of taste.

use std::time::Duration;

/// Attempts to read the state of a connection that changes meanwhile. Packets are dropped during a
/// read, so a second attempt is rare and a third one was never seen.
pub(super) const READS_MAX: usize = 4;

/// Most bytes of a partly acknowledged segment: an IP packet is no longer.
pub(super) const ACKNOWLEDGED_PART_MAX: usize = 64 << 10;

/// Most connections in a depot; a freeze beyond it is refused.
pub(super) const DEPOSITS_MAX: usize = 4096;

/// Time that a connection stays in a depot before it is closed. The holder of its state has a
/// deadline of a few seconds for restoring it.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(60);

/// Time that a loop waits, blocked, for the depot's answer. The depot only stores and returns.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
