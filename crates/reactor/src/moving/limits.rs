//! The bounds of moving connections that are not a matter of taste.

use std::time::Duration;

/// How often the state of a connection is read when it changes meanwhile. Packets are dropped while
/// it is read, so a second time is rare and a third one never seen.
pub(super) const READS_MAX: usize = 4;

/// Most bytes of a segment of which only a part was acknowledged: an IP packet is no longer.
pub(super) const ACKNOWLEDGED_PART_MAX: usize = 64 << 10;

/// Most connections that lie in a depot; a freeze beyond it is refused.
pub(super) const DEPOSITS_MAX: usize = 4096;

/// How long a connection lies in a depot before it is closed. Whoever has its state has a deadline
/// of a few seconds for restoring it somewhere.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(60);

/// How long a loop waits for the depot's answer, standing still. The depot only puts away and takes
/// out.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
