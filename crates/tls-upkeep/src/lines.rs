//! The limit on log lines of handshakes: one a second for each reason.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The reasons that have been logged.
#[derive(Debug, Default)]
pub struct Lines(Mutex<Vec<Line>>);

#[derive(Debug)]
struct Line {
    why: &'static str,
    next: Instant,
    suppressed: u64,
}

impl Lines {
    /// Time between two lines of a reason.
    pub const INTERVAL: Duration = Duration::from_secs(1);

    /// Returns, if a line with this reason may be written now, the number of those left out before.
    pub fn admit(&self, why: &'static str, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = now + Self::INTERVAL;
        let Some(line) = lines.iter_mut().find(|line| line.why == why) else {
            // The reasons are constants of the program, so there are few.
            lines.push(Line { why, next, suppressed: 0 });
            return Some(0);
        };
        if now < line.next {
            line.suppressed += 1;
            return None;
        }
        line.next = next;
        Some(std::mem::take(&mut line.suppressed))
    }

    /// Reasons with lines left out, no line since, and a line allowed now, each with the number
    /// left out.
    pub fn overdue(&self, now: Instant) -> Vec<(&'static str, u64)> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = lines.iter_mut().filter(|line| line.suppressed > 0 && now >= line.next);
        due.map(|line| {
            line.next = now + Self::INTERVAL;
            (line.why, std::mem::take(&mut line.suppressed))
        })
        .collect()
    }
}
