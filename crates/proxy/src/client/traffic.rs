//! The number of a client's queries, their rate, bytes, errors and times.

use std::mem::offset_of;

use shunt_admin::Label as _;

use super::times::{GroupTimes, RecentTimes};
use crate::limits;
use crate::query_end::{End, ErrorKind};

/// Numbers of queries that ended with an error, by its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors(pub [u64; ErrorKind::COUNT]);

impl Errors {
    /// Adds the errors of others.
    pub fn add(&mut self, other: Errors) {
        for (errors, more) in self.0.iter_mut().zip(other.0) {
            *errors += more;
        }
    }

    /// Subtracts errors that were added.
    pub(crate) fn take_back(&mut self, other: Errors) {
        for (errors, fewer) in self.0.iter_mut().zip(other.0) {
            *errors = errors.saturating_sub(fewer);
        }
    }

    /// Errors of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The queries of one client. Most queries and answers change its first two cache lines alone.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Traffic {
    /// Queries so far.
    queries: u64,
    bytes_in: u64,
    bytes_out: u64,
    times: RecentTimes,
    /// Queries at the last measurement of the rate, and its time, nanoseconds.
    measured: (u64, u64),
    /// Queries in a second, between the last two measurements.
    per_second: u64,
    /// Queries that ended with an error, by its kind.
    errors: [u32; ErrorKind::COUNT],
}

/// Bytes of two cache lines.
const HOT_BYTES_MAX: usize = 2 * 64;
const _: () = assert!(offset_of!(Traffic, times) + RecentTimes::HOT_BYTES <= HOT_BYTES_MAX);

impl Traffic {
    /// Counts a query with a body of this length.
    #[inline]
    pub(crate) fn count(&mut self, body_bytes: usize) {
        self.queries += 1;
        self.bytes_in += body_bytes as u64;
    }

    /// Counts the answer to a query.
    #[inline]
    pub(crate) fn end(&mut self, end: &End) {
        self.times.add(end.wait_ns, end.node_ns);
        self.bytes_out += end.bytes_out;
        if let Some(error) = end.error {
            self.count_error(error);
        }
    }

    /// Counts a query that the proxy refused.
    pub(crate) fn refuse(&mut self, body_bytes: usize, error: ErrorKind) {
        self.count(body_bytes);
        self.count_error(error);
    }

    #[cold]
    fn count_error(&mut self, error: ErrorKind) {
        let errors = &mut self.errors[error.index()];
        *errors = errors.saturating_add(1);
    }

    /// Queries that ended with an error, by its kind.
    pub(crate) fn errors(&self) -> Errors {
        Errors(self.errors.map(u64::from))
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
            // The client came at an unknown time within the last two seconds.
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
    fn errors_count_by_kind_and_times_by_part() {
        let mut traffic = Traffic::default();
        traffic.count(7);
        traffic.end(&End::new((1_000, 21_000), 1_021_000, 0, 5));
        let end = End::new((0, 0), 64_000, 0, 9);
        traffic.end(&End { error: Some(ErrorKind::Unauthorized), ..end });
        traffic.refuse(3, ErrorKind::Overloaded);
        let errors = traffic.errors();
        assert_eq!((errors.total(), traffic.bytes(), traffic.queries()), (2, (10, 14), 2));
        for kind in [ErrorKind::Unauthorized, ErrorKind::Overloaded] {
            assert_eq!(errors.0[kind.index()], 1, "{kind:?}");
        }
        let times = traffic.times();
        let near = |shown: Option<u64>, us: u64| shown.is_some_and(|it| it.abs_diff(us) * 4 <= us);
        assert!(near(times.wait_percentile_us(0.5), 20) && near(times.wait_percentile_us(1.0), 64));
        assert_eq!(times.node_percentile_us(0.5), Some(0), "no node had the other");
        assert!(near(times.node_percentile_us(1.0), 1_000), "{times:?}");
    }

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
