//! Limits on log lines that others can cause: connections to the agent's port that prove no key,
//! and clients that read slowly. An event loop writes one line a second of each kind. The line says
//! how many lines were left out before it.
//!
//! This must never hide the first line of a kind, or forget how many were left out.

use tracing::warn;

use crate::limits::LOG_INTERVAL_NS;

/// Kinds of lines that are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A control connection whose other end lacks the key.
    Refused,
    /// A control connection that the agent closed for a wrong message, or for a newer connection.
    Closed,
    /// A control connection that was silent for too long.
    Silent,
    /// An answer on its client's own connection.
    BrokenOff,
}

const KINDS: [(Line, &str); 4] = [
    (Line::Refused, "control connections are refused"),
    (Line::Closed, "control connections are closed"),
    (Line::Silent, "control connections are closed for their silence"),
    (Line::BrokenOff, "answers on clients' own connections are broken off"),
];

/// Earliest time of each kind's next line, and the lines left out since the last one.
#[derive(Debug, Default)]
pub(crate) struct LogLimits([(u64, u64); KINDS.len()]);

impl LogLimits {
    /// Decides whether a line may be written now: `Some` with the number of lines left out before
    /// it, or `None`.
    pub(crate) fn admit(&mut self, line: Line, now_ns: u64) -> Option<u64> {
        let (next_ns, suppressed) = &mut self.0[line as usize];
        if now_ns < *next_ns {
            *suppressed += 1;
            return None;
        }
        *next_ns = now_ns + LOG_INTERVAL_NS;
        Some(std::mem::take(suppressed))
    }

    /// Logs how many lines were left out, if no line has said so since.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        for (line, what) in KINDS {
            let (next_ns, suppressed) = self.0[line as usize];
            if suppressed > 0
                && now_ns >= next_ns
                && let Some(suppressed) = self.admit(line, now_ns)
            {
                warn!(suppressed, "more {what}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_refused_connections_in_a_second_are_one_line_and_none_is_forgotten() {
        let mut limits = LogLimits::default();
        let mut refuse = |at: u64| limits.admit(Line::Refused, at * LOG_INTERVAL_NS / 100);
        assert_eq!(refuse(0), Some(0));
        assert!((1..100).all(|at| refuse(at).is_none()));
        assert_eq!(refuse(100), Some(99));
        assert!(refuse(101).is_none());
        assert_eq!(limits.admit(Line::Silent, 0), Some(0), "kinds do not hold one another back");
        limits.tick(LOG_INTERVAL_NS);
        assert_eq!(limits.0[Line::Refused as usize].1, 1, "not before its time");
        limits.tick(2 * LOG_INTERVAL_NS);
        assert_eq!(limits.0[Line::Refused as usize], (3 * LOG_INTERVAL_NS, 0));
    }

    #[test]
    fn each_kind_has_a_place_of_its_own() {
        assert!(KINDS.iter().enumerate().all(|(place, (line, _))| *line as usize == place));
    }
}
