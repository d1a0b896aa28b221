//! A histogram of times in little memory: linear within powers of two.

use crate::time_buckets::{TimeBuckets, is_sampled, sample_weight};

/// Number of buckets. The last one takes all times from 63 s on.
const BUCKETS: usize = 192;
/// Eight buckets for each power of two.
type Scale = TimeBuckets<3, BUCKETS>;
/// Number of buckets for parts of a time. The last one takes all from 29 s on.
const PART_BUCKETS: usize = 96;
/// Four buckets for each power of two.
type PartScale = TimeBuckets<2, PART_BUCKETS>;
/// Times after which all counts are halved.
const HALVED_AT: u32 = 1 << 20;

/// Times in microseconds, and their parts in the proxy and at nodes. A percentile differs from the
/// true one by 1/16 of it at most, one of a part by 1/8 (by 1 µs below 16 µs) and by chance: after
/// the first few times, parts are those of a sample. After each million of times old ones count
/// half, so that no bucket overflows and a percentile follows the load.
///
/// The count comes first: `Totals` lays it beside its other sums, and only the buckets are
/// elsewhere. Most times change one bucket.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Times {
    /// Sum of the buckets.
    count: u32,
    total: [u32; BUCKETS],
    wait: [u32; PART_BUCKETS],
    node: [u32; PART_BUCKETS],
}

impl Default for Times {
    fn default() -> Self {
        let part = [0; PART_BUCKETS];
        Self { count: 0, total: [0; BUCKETS], wait: part, node: part }
    }
}

impl Times {
    /// Adds the time of a query: nanoseconds in the proxy, and at the node.
    #[inline]
    pub(crate) fn add(&mut self, wait_ns: u64, node_ns: u64) {
        self.total[Scale::bucket_of((wait_ns + node_ns) / 1_000)] += 1;
        self.count += 1;
        if is_sampled(self.count) {
            self.add_parts(wait_ns, node_ns);
        }
    }

    #[cold]
    fn add_parts(&mut self, wait_ns: u64, node_ns: u64) {
        let weight = sample_weight(self.count);
        self.wait[PartScale::bucket_of(wait_ns / 1_000)] += weight;
        self.node[PartScale::bucket_of(node_ns / 1_000)] += weight;
        if self.count >= HALVED_AT {
            self.halve();
        }
    }

    fn buckets(&mut self) -> impl Iterator<Item = &mut u32> {
        let parts = self.wait.iter_mut().chain(&mut self.node);
        self.total.iter_mut().chain(parts)
    }

    #[cold]
    fn halve(&mut self) {
        self.buckets().for_each(|bucket| *bucket /= 2);
        self.count = self.total.iter().sum();
    }

    /// Adds the times of another histogram.
    pub fn merge(&mut self, other: &Times) {
        while self.count.checked_add(other.count).is_none() {
            self.halve();
        }
        let others = other.total.iter().chain(&other.wait).chain(&other.node);
        for (bucket, more) in self.buckets().zip(others) {
            // The buckets of parts may add up to a little more than `count`.
            *bucket = bucket.saturating_add(*more);
        }
        self.count += other.count;
    }

    /// The time, in microseconds, within which this share of all is (0.99 for p99); `None` without
    /// any.
    pub fn percentile_us(&self, share: f64) -> Option<u64> {
        Scale::percentile_us(&self.total, share)
    }

    /// The same for the times in the proxy.
    pub fn wait_percentile_us(&self, share: f64) -> Option<u64> {
        PartScale::percentile_us(&self.wait, share)
    }

    /// The same for the times at nodes.
    pub fn node_percentile_us(&self, share: f64) -> Option<u64> {
        PartScale::percentile_us(&self.node, share)
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
        (1..=1_000).for_each(|time_us| times.add(0, time_us * 1_000));
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
    fn parts_of_times_have_percentiles_of_their_own() {
        let mut times = Times::default();
        (1..=1_000).for_each(|time_us| times.add(time_us * 1_000, 50_000_000));
        let near = |shown: Option<u64>, expected: u64| {
            let shown = shown.expect("times");
            assert!(shown.abs_diff(expected) * 8 <= expected, "{shown}");
        };
        near(times.wait_percentile_us(0.5), 500);
        near(times.wait_percentile_us(0.99), 990);
        near(times.node_percentile_us(0.5), 50_000);
        near(times.percentile_us(0.5), 50_500);
        let mut all = Times::default();
        all.merge(&times);
        near(all.wait_percentile_us(0.5), 500);
    }

    #[test]
    fn old_times_fade_and_nothing_overflows() {
        let mut times = Times::default();
        (0..3 * HALVED_AT).for_each(|_| times.add(4_000, 6_000));
        assert!(times.count < HALVED_AT + 100, "{}", times.count);
        for part in [times.wait, times.node] {
            let sum: u32 = part.iter().sum();
            assert!(sum.abs_diff(times.count) < 200, "{sum} of {}", times.count);
        }
        (0..3 * HALVED_AT).for_each(|_| times.add(0, 1_000_000));
        let shown = times.percentile_us(0.5).expect("times");
        assert!(shown.abs_diff(1_000) < 64, "{shown}");
        let mut all = Times::default();
        (0..10_000).for_each(|_| all.merge(&times));
        assert_eq!(all.percentile_us(0.5), Some(shown));
    }
}
