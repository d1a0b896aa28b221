//! When queries are sent: as answers come (closed loop), or when a Poisson process says so (open
//! loop).
//!
//! In the open loop a query's latency counts from its intended time, also while it waits here for a
//! free stream id; nothing is left out because the system was slow (no coordinated omission).

use std::collections::VecDeque;

use crate::random::Random;

/// Arrivals of an open loop.
#[derive(Debug)]
pub struct Pace {
    mean_gap_ns: f64,
    next_ns: f64,
    random: Random,
    waiting: VecDeque<u64>,
    waiting_max: usize,
    /// Arrivals that were dropped because too many waited.
    pub shed: u64,
}

/// An overloaded system makes arrivals wait; more than this many are dropped and counted.
pub(super) const WAITING_MAX: usize = 1 << 20;

impl Pace {
    /// `rate` queries per second, the first about at `start_ns`.
    pub fn new(rate: f64, start_ns: u64, seed: u64) -> Self {
        let mean_gap_ns = 1e9 / rate.max(1e-3);
        Self {
            mean_gap_ns,
            next_ns: start_ns as f64,
            random: Random::new(seed),
            waiting: VecDeque::with_capacity(4096),
            waiting_max: WAITING_MAX,
            shed: 0,
        }
    }

    /// Moves the arrivals that are due at `now_ns` into the queue; returns when the next one is
    /// due.
    pub fn advance(&mut self, now_ns: u64) -> u64 {
        while self.next_ns <= now_ns as f64 {
            if self.waiting.len() < self.waiting_max {
                self.waiting.push_back(self.next_ns as u64);
            } else {
                self.shed += 1;
            }
            self.next_ns += self.random.exponential(self.mean_gap_ns);
        }
        // Never the present itself, so that a timer set to it does not fire without an arrival
        // being due.
        self.next_ns.ceil() as u64
    }

    /// The intended time of the oldest arrival that waits.
    pub fn take(&mut self) -> Option<u64> {
        self.waiting.pop_front()
    }

    /// Arrivals that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn the_rate_is_kept_whatever_the_steps() {
        let mut pace = Pace::new(100_000.0, 0, 1);
        let (mut now, mut taken) = (0, 0u32);
        while now < 1_000_000_000 {
            now += 37_777;
            let next = pace.advance(now);
            assert!(next > now);
            while let Some(intended) = pace.take() {
                assert!(intended <= now);
                taken += 1;
            }
        }
        assert!((98_000..102_000).contains(&taken), "{taken}");
    }

    #[test]
    fn overload_is_bounded_and_counted() {
        let mut pace = Pace::new(1e9, 0, 1);
        pace.waiting_max = 1000;
        pace.advance(1_000_000);
        assert_eq!(pace.waiting(), 1000);
        assert!(pace.shed > 900_000);
    }
}
