//! The times at which queries are sent: after each answer (closed loop), or by a Poisson process
//! (open loop).
//!
//! In the open loop a query's latency counts from its intended time, including the wait for a free
//! stream id. So a slow system hides no latency (no coordinated omission).

use std::collections::VecDeque;

use crate::random::Random;

/// The arrivals of an open loop.
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

/// Most waiting arrivals. An overloaded system makes arrivals wait; further ones are dropped and
/// counted.
pub(super) const WAITING_MAX: usize = 1 << 20;

impl Pace {
    /// Creates arrivals at `rate` per second, the first at about `start_ns`.
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

    /// Moves the arrivals that are due at `now_ns` into the queue; returns the time of the next
    /// one.
    pub fn advance(&mut self, now_ns: u64) -> u64 {
        while self.next_ns <= now_ns as f64 {
            if self.waiting.len() < self.waiting_max {
                self.waiting.push_back(self.next_ns as u64);
            } else {
                self.shed += 1;
            }
            self.next_ns += self.random.exponential(self.mean_gap_ns);
        }
        // Always later than `now_ns`, so that a timer set to it never fires without a due arrival.
        self.next_ns.ceil() as u64
    }

    /// Takes the intended time of the oldest waiting arrival.
    pub fn take(&mut self) -> Option<u64> {
        self.waiting.pop_front()
    }

    /// Number of waiting arrivals.
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
