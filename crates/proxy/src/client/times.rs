//! The times of one client's last queries in 100 bytes, and those of a group of clients.

/// Buckets: two for each power of two of microseconds. The last one takes all times from 12 s on.
const BUCKETS: usize = 48;
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
        self.buckets[bucket_of(time_us)] += 1;
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
        let all: u64 = self.buckets.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut passed = 0;
        let found = self.buckets.iter().position(|bucket| {
            passed += bucket;
            passed >= rank
        });
        found.map(middle_us)
    }
}

#[inline]
fn bucket_of(time_us: u64) -> usize {
    if time_us < 2 {
        return time_us as usize;
    }
    let power = time_us.ilog2();
    let half = (time_us >> (power - 1)) as usize & 1;
    (power as usize * 2 + half).min(BUCKETS - 1)
}

/// The time in the middle of a bucket.
fn middle_us(bucket: usize) -> u64 {
    if bucket < 2 {
        return bucket as u64;
    }
    let width = 1 << (bucket / 2 - 1);
    (2 + bucket as u64 % 2) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_shows_with_an_error_of_a_quarter_at_most() {
        for time_us in (0..3_000u64).chain((0..23).map(|power| (1 << power) + 1)) {
            let shown = middle_us(bucket_of(time_us));
            assert!(shown.abs_diff(time_us) * 4 <= time_us, "{time_us} shows as {shown}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
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
