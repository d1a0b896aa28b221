//! The delay of a turn of the loop that gathers more work.

use shunt_reactor::Io;

use crate::config::Window;
use crate::metrics::CoreMetrics;

/// Chooses the delay of a turn of the loop.
///
/// Delaying the turn saves wake-ups at mid load. An idle loop would only add latency, and a
/// saturated one gathers by itself, so the window opens between the two: when queries come faster
/// than one per window, but a turn still carries few.
pub(crate) struct WindowControl {
    setting: Window,
    window_ns: u64,
    queries: u64,
    turns: u64,
    since_ns: u64,
}

/// Window while gathering pays, nanoseconds.
const WINDOW_OPEN_NS: u64 = 25_000;
/// Queries per turn from which the loop gathers enough by itself.
const ENOUGH_PER_TURN: u64 = 16;

impl WindowControl {
    pub(crate) fn new(setting: Window) -> Self {
        Self { setting, window_ns: 0, queries: 0, turns: 0, since_ns: 0 }
    }

    pub(crate) fn start(&mut self, io: &mut Io) {
        self.since_ns = io.now_ns();
        self.window_ns = match self.setting {
            Window::Fixed { us } => us * 1_000,
            Window::Auto => 0,
        };
        io.set_window_ns(self.window_ns);
    }

    /// Records the end of a turn with this many queries.
    #[inline]
    pub(crate) fn turn(&mut self, queries: u32) {
        self.queries += u64::from(queries);
        self.turns += u64::from(queries > 0);
    }

    pub(crate) fn tick(&mut self, io: &mut Io, metrics: &CoreMetrics) {
        if self.setting == Window::Auto {
            let elapsed_ns = io.now_ns().saturating_sub(self.since_ns).max(1);
            let window_ns = Self::fitting(self.queries, self.turns, elapsed_ns);
            if window_ns != self.window_ns {
                self.window_ns = window_ns;
                io.set_window_ns(window_ns);
            }
        }
        self.since_ns = io.now_ns();
        (self.queries, self.turns) = (0, 0);
        metrics.window_ns.set(self.window_ns);
    }

    fn fitting(queries: u64, turns: u64, elapsed_ns: u64) -> u64 {
        let per_window = queries.saturating_mul(WINDOW_OPEN_NS) / elapsed_ns;
        let gathers_by_itself = turns > 0 && queries / turns >= ENOUGH_PER_TURN;
        if per_window >= 1 && !gathers_by_itself { WINDOW_OPEN_NS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn the_window_opens_only_between_idle_and_saturated() {
        let second = limits::SECOND_NS;
        let idle = WindowControl::fitting(1_000, 1_000, second);
        let mid = WindowControl::fitting(60_000, 30_000, second);
        let saturated = WindowControl::fitting(200_000, 8_000, second);
        assert_eq!((idle, mid, saturated), (0, WINDOW_OPEN_NS, 0));
    }
}
