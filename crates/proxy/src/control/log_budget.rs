//! The limit on log lines that a node can cause: some at once, and one a second after that.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits;

/// Lines at once: a datacentre that starts or fails shows each of so many nodes.
const LINES_MAX: u64 = 64;
/// Time after which one more line is allowed.
const INTERVAL: Duration = Duration::from_nanos(limits::LOG_INTERVAL_NS);

/// Lines that may still be written, and the number of those left out since the last one.
#[derive(Debug, Default)]
pub(super) struct LogBudget {
    /// Lines written that still count.
    written: u64,
    /// The time of the last look.
    looked: Option<Instant>,
    suppressed: u64,
}

impl LogBudget {
    /// Decides whether a line may be written now: `Some` with the number of lines left out before
    /// it, or `None`.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        let since = *self.looked.get_or_insert(now);
        let intervals = now.duration_since(since).as_nanos() / INTERVAL.as_nanos();
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.written = self.written.saturating_sub(intervals.into());
        self.looked = since.checked_add(INTERVAL.saturating_mul(intervals));
        if self.written >= LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lines_come_at_once_and_later_ones_at_a_rate() {
        let (mut budget, start) = (LogBudget::default(), Instant::now());
        let (mut written, mut told) = (0, 0);
        for step in 0..10_000 {
            if let Some(suppressed) = budget.admit(start + step * INTERVAL / 1_000) {
                written += 1;
                told += 1 + suppressed;
            }
        }
        assert_eq!(written, LINES_MAX + 9);
        let later = start + 3_600 * INTERVAL;
        assert_eq!(budget.admit(later), Some(10_000 - told), "no line is forgotten");
        let more = (0..1_000).filter(|_| budget.admit(later).is_some()).count() as u64;
        assert_eq!(more, LINES_MAX - 1, "no more at once than at first");
    }
}
