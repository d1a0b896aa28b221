//! A histogram of times in little memory: linear within powers of two.

use crate::time_buckets::TimeBuckets;

/// Number of buckets. The last one takes all times from 63 s on.
const BUCKETS: usize = 192;
/// Eight buckets for each power of two.
type Scale = TimeBuckets<3, BUCKETS>;
/// Times after which all counts are halved.
const HALVED_AT: u32 = 1 << 20;

/// Times in microseconds. A percentile differs from the true one by 1/16 of it at most (by 1 µs
/// below 16 µs). After each million of times old ones count half, so that no bucket overflows and
/// a percentile follows the load.
///
/// The count comes first: `Totals` lays it beside its other sums, and only the bucket is elsewhere.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Times {
    /// Sum of the buckets.
    count: u32,
    buckets: [u32; BUCKETS],
}

impl Default for Times {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0 }
    }
}

impl Times {
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

    /// Adds others.
    pub fn merge(&mut self, other: &Times) {
        while self.count.checked_add(other.count).is_none() {
            self.halve();
        }
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
    }

    /// The time, in microseconds, within which this share of all is (0.99 for p99); `None` without
    /// any.
    pub fn percentile_us(&self, share: f64) -> Option<u64> {
        Scale::percentile_us(&self.buckets, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_shows_with_an_error_of_a_sixteenth_at_most() {
        for time_us in (0..3_000u64).chain((0..26).flat_map(|power| {
            let start = 1u64 << power;
            [start - 1, start, start + 1, start + start / 3]
        })) {
            let shown = Scale::middle_us(Scale::bucket_of(time_us));
            assert!(shown.abs_diff(time_us) * 16 <= time_us, "{time_us} shows as {shown}");
        }
        assert_eq!(Scale::bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(Scale::bucket_of(63 << 20), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_times() {
        let mut times = Times::default();
        assert_eq!(times.percentile_us(0.5), None);
        (1..=1_000).for_each(|time_us| times.add(time_us));
        let near = |share: f64, expected: u64| {
            let shown = times.percentile_us(share).expect("times");
            assert!(shown.abs_diff(expected) * 16 <= expected, "{share}: {shown}");
        };
        near(0.5, 500);
        near(0.99, 990);
        near(1.0, 1_000);
        assert_eq!(times.percentile_us(0.0), Some(1));
    }

    #[test]
    fn old_times_fade_and_nothing_overflows() {
        let mut times = Times::default();
        (0..3 * HALVED_AT).for_each(|_| times.add(10));
        assert!(times.count <= HALVED_AT);
        (0..3 * HALVED_AT).for_each(|_| times.add(1_000));
        let shown = times.percentile_us(0.5).expect("times");
        assert!(shown.abs_diff(1_000) < 64, "{shown}");
        let mut all = Times::default();
        (0..10_000).for_each(|_| all.merge(&times));
        assert_eq!(all.percentile_us(0.5), Some(shown));
    }
}
