//! The number of a client's queries, their rate, bytes, errors and times.

use super::times::{GroupTimes, RecentTimes};
use crate::limits;

/// The queries of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// Queries so far.
    queries: u64,
    /// Queries at the last measurement of the rate, and its time, nanoseconds.
    measured: (u64, u64),
    /// Queries in a second, between the last two measurements.
    per_second: u64,
    errors: u64,
    bytes_in: u64,
    bytes_out: u64,
    times: RecentTimes,
}

impl Traffic {
    /// Counts a query with a body of this length.
    #[inline]
    pub(crate) fn count(&mut self, body_bytes: usize) {
        self.queries += 1;
        self.bytes_in += body_bytes as u64;
    }

    /// Counts the answer to a query.
    #[inline]
    pub(crate) fn end(&mut self, time_ns: u64, body_bytes: usize, is_error: bool) {
        self.times.add(time_ns / 1_000);
        self.bytes_out += body_bytes as u64;
        self.errors += u64::from(is_error);
    }

    /// Counts a query that the proxy refused.
    pub(crate) fn refuse(&mut self, body_bytes: usize) {
        self.count(body_bytes);
        self.errors += 1;
    }

    /// Queries that ended with an error.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }

    /// Bytes of requests and of answers, without their headers.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.bytes_in, self.bytes_out)
    }

    /// Times of the last queries.
    pub(crate) fn times(&self) -> GroupTimes {
        self.times.into()
    }

    /// Measures the rate since the last measurement.
    pub(crate) fn measure(&mut self, now_ns: u64) {
        let (queries, at_ns) = self.measured;
        let elapsed_ns = match at_ns {
            // It came within the two seconds before, nobody knows when.
            0 => limits::SECOND_NS,
            at_ns => now_ns.saturating_sub(at_ns).max(1),
        };
        let made = u128::from(self.queries - queries) * u128::from(limits::SECOND_NS);
        self.per_second = made.div_ceil(u128::from(elapsed_ns)) as u64;
        self.measured = (self.queries, now_ns);
    }

    /// Queries so far.
    pub(crate) fn queries(&self) -> u64 {
        self.queries
    }

    /// Queries in a second, rounded up, as measured last; of a client that came since the last
    /// round, all of them.
    pub(crate) fn per_second(&self) -> u64 {
        if self.measured.1 == 0 { self.queries } else { self.per_second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_time_between_two_measurements() {
        let mut newcomer = Traffic::default();
        (0..100).for_each(|_| newcomer.count(1));
        assert_eq!(newcomer.per_second(), 100, "seen at once");
        newcomer.measure(1_000 * limits::SECOND_NS);
        assert_eq!(newcomer.per_second(), 100);
        let mut traffic = Traffic::default();
        traffic.measure(10 * limits::SECOND_NS);
        (0..1_000).for_each(|_| traffic.count(1));
        traffic.measure(12 * limits::SECOND_NS);
        assert_eq!((traffic.queries(), traffic.per_second()), (1_000, 500));
        traffic.count(1);
        traffic.measure(14 * limits::SECOND_NS);
        assert_eq!((traffic.queries(), traffic.per_second()), (1_001, 1), "a few are not none");
        traffic.measure(16 * limits::SECOND_NS);
        assert_eq!(traffic.per_second(), 0);
        traffic.measure(16 * limits::SECOND_NS);
        assert_eq!(traffic.per_second(), 0, "at the same time");
    }
}
