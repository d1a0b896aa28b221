//! A limit on log lines of one kind that applications can cause: one line in each interval, with
//! the number of those left out before it.

use crate::limits;

/// Time of the next line, and the number of lines left out since the last.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    next_ns: u64,
    suppressed: u64,
}

impl LogLimit {
    /// Decides whether a line may be written now: `Some` with the number of lines left out before
    /// it, or `None`.
    pub(super) fn admit(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns {
            self.suppressed += 1;
            return None;
        }
        self.next_ns = now_ns + limits::LOG_INTERVAL_NS;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// The number of lines left out, if there are any, there was no line since, and one may be
    /// written now.
    pub(super) fn overdue(&mut self, now_ns: u64) -> Option<u64> {
        let is_due = self.suppressed > 0 && now_ns >= self.next_ns;
        is_due.then(|| self.admit(now_ns)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_interval_and_none_is_forgotten() {
        let mut limit = LogLimit::default();
        let (mut lines, mut left_out) = (0, 0);
        for step in 0..1_000 {
            if let Some(suppressed) = limit.admit(step * limits::LOG_INTERVAL_NS / 100) {
                (lines, left_out) = (lines + 1, left_out + suppressed);
            }
        }
        let end_ns = 10 * limits::LOG_INTERVAL_NS;
        assert_eq!((lines, limit.overdue(end_ns - 1)), (10, None));
        let rest = limit.overdue(end_ns);
        assert_eq!(lines + left_out + rest.unwrap_or_default(), 1_000);
        assert_eq!(limit.overdue(2 * end_ns), None);
    }
}
