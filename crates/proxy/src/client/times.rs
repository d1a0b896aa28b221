//! The times of one client's last queries in 100 bytes, and those of a group of clients.

use crate::time_buckets::TimeBuckets;

/// Buckets: two for each power of two of microseconds. The last one takes all times from 12 s on.
const BUCKETS: usize = 48;
type Scale = TimeBuckets<1, BUCKETS>;
/// Queries after which all counts are halved.
const HALVED_AT: u16 = 1 << 15;

/// Times of a client's last queries; older ones count less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentTimes {
    buckets: [u16; BUCKETS],
    /// Sum of the buckets.
    count: u16,
}

impl Default for RecentTimes {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0 }
    }
}

impl RecentTimes {
    /// Adds a time.
    #[inline]
    pub(crate) fn add(&mut self, time_us: u64) {
        if self.count >= HALVED_AT {
            self.halve();
        }
        self.buckets[Scale::bucket_of(time_us)] += 1;
        self.count += 1;
    }

    #[cold]
    fn halve(&mut self) {
        self.buckets.iter_mut().for_each(|bucket| *bucket /= 2);
        self.count = self.buckets.iter().sum();
    }
}

/// Times of the last queries of several clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    buckets: [u64; BUCKETS],
}

impl Default for GroupTimes {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS] }
    }
}

impl From<RecentTimes> for GroupTimes {
    fn from(times: RecentTimes) -> Self {
        Self { buckets: times.buckets.map(u64::from) }
    }
}

impl GroupTimes {
    /// Adds those of others.
    pub fn add(&mut self, other: &GroupTimes) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
    }

    /// The time, in microseconds, within which this share of the queries ended (0.99 for p99), with
    /// an error of a quarter at most; `None` without any.
    pub fn percentile_us(&self, share: f64) -> Option<u64> {
        Scale::percentile_us(&self.buckets, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_shows_with_an_error_of_a_quarter_at_most() {
        for time_us in (0..3_000u64).chain((0..23).map(|power| (1 << power) + 1)) {
            let shown = Scale::middle_us(Scale::bucket_of(time_us));
            assert!(shown.abs_diff(time_us) * 4 <= time_us, "{time_us} shows as {shown}");
        }
        assert_eq!(Scale::bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_last_queries_count_most_and_nothing_overflows() {
        let mut times = RecentTimes::default();
        (0..200_000).for_each(|_| times.add(10));
        (0..200_000).for_each(|_| times.add(1_000));
        let mut group = GroupTimes::from(times);
        (0..1_000).for_each(|_| group.add(&GroupTimes::from(times)));
        let shown = group.percentile_us(0.5).expect("times");
        assert!(shown.abs_diff(1_000) <= 250, "{shown}");
        assert_eq!(GroupTimes::default().percentile_us(0.99), None);
    }
}
