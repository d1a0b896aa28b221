//! The drain of a proxy, step by step: `/readyz` says 503 from its beginning on; after
//! `drain_delay_ms` idle clients are closed over `drain_close_ms`; then the cores are told to end.
//!
//! A signal drains the proxy and ends it: from the second step on it takes no new client. An
//! operator's order drains it and ends nothing: it takes the clients that come, serves those that
//! never pause, and can be taken back. A signal after that goes on where the drain is.
//!
//! The steps must never:
//! - turn a client away before the balancer had `drain_delay_ms` to notice;
//! - end the process for an order of an operator, or take a signal back;
//! - wait for clients when there are none.

use std::time::{Duration, Instant};

/// Options of a drain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) delay: Duration,
    pub(super) close: Duration,
}

/// A step that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Close idle clients from now on; take no new ones if the process ends.
    Close,
    /// End the cores.
    Leave,
}

/// A drain in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    began: Instant,
    /// True if the process ends with it.
    pub(super) ends: bool,
    closing_since: Option<Instant>,
    has_left: bool,
}

impl Drain {
    pub(super) fn new(now: Instant, ends: bool) -> Drain {
        Drain { began: now, ends, closing_since: None, has_left: false }
    }

    /// A drain whose last step was taken at once.
    pub(super) fn ended(now: Instant) -> Drain {
        Drain { began: now, ends: true, closing_since: Some(now), has_left: true }
    }

    /// Has the process end with it. Clients that came since it closes some are closed as well.
    pub(super) fn end(&mut self) {
        (self.ends, self.closing_since) = (true, None);
    }

    /// Takes the step that is due, if any.
    pub(super) fn step(&mut self, now: Instant, times: Times, has_clients: bool) -> Option<Step> {
        match self.closing_since {
            _ if self.has_left => None,
            None if now >= self.began + times.delay => {
                self.closing_since = Some(now);
                Some(Step::Close)
            }
            Some(since) if self.ends && (now >= since + times.close || !has_clients) => {
                self.has_left = true;
                Some(Step::Leave)
            }
            _ => None,
        }
    }

    /// True if another step is still to come.
    pub(super) fn has_step(&self) -> bool {
        !self.has_left && (self.ends || self.closing_since.is_none())
    }

    /// True once the cores were told to end.
    pub(super) fn has_left(&self) -> bool {
        self.has_left
    }

    /// Longest time until the cores are told to end.
    pub(super) fn rest(&self, now: Instant, times: Times) -> Duration {
        let delay = (self.began + times.delay).saturating_duration_since(now);
        delay + times.close
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMES: Times = Times { delay: SECOND, close: SECOND };

    /// The steps of a drain by this many half seconds.
    fn steps(
        drain: &mut Drain,
        start: Instant,
        halves: u32,
        has_clients: bool,
    ) -> Vec<(u32, Step)> {
        let at = |half: u32| start + SECOND / 2 * half;
        let mut found = Vec::new();
        for half in 0..=halves {
            while let Some(step) = drain.step(at(half), TIMES, has_clients) {
                found.push((half, step));
            }
        }
        found
    }

    #[test]
    fn a_signal_leaves_time_to_notice_and_then_to_close() {
        let start = Instant::now();
        let mut drain = Drain::new(start, true);
        assert_eq!(drain.rest(start, TIMES), 2 * SECOND);
        let all = [(2, Step::Close), (4, Step::Leave)];
        assert_eq!(steps(&mut drain, start, 8, true), all);
        assert!(drain.has_left() && !drain.has_step());
    }

    #[test]
    fn a_proxy_without_clients_waits_for_none() {
        let start = Instant::now();
        let mut drain = Drain::new(start, true);
        assert_eq!(steps(&mut drain, start, 8, false), [(2, Step::Close), (2, Step::Leave)]);
    }

    #[test]
    fn an_order_ends_nothing_and_a_signal_goes_on_from_there() {
        let start = Instant::now();
        let mut drain = Drain::new(start, false);
        assert!(drain.has_step());
        assert_eq!(steps(&mut drain, start, 100, true), [(2, Step::Close)]);
        assert!(!drain.has_step() && !drain.has_left());
        drain.end();
        let later = start + 60 * SECOND;
        assert_eq!(drain.rest(later, TIMES), SECOND, "the balancer has noticed");
        assert_eq!(steps(&mut drain, later, 8, true), [(0, Step::Close), (2, Step::Leave)]);
    }

    #[test]
    fn without_times_it_ends_at_once() {
        let start = Instant::now();
        let mut drain = Drain::new(start, true);
        let none = Times { delay: Duration::ZERO, close: Duration::ZERO };
        let found = [(); 3].map(|()| drain.step(start, none, true));
        assert_eq!(found, [Some(Step::Close), Some(Step::Leave), None]);
    }
}
