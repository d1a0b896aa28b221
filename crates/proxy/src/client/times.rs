//! The times of one client's last queries in 300 bytes, and those of a group of clients.

use crate::time_buckets::{TimeBuckets, is_sampled, sample_weight};

/// Buckets: two for each power of two of microseconds. The last one takes all times from 12 s on.
const BUCKETS: usize = 48;
type Scale = TimeBuckets<1, BUCKETS>;
/// Number of queries after which all counts are halved.
const HALVED_AT: u16 = 1 << 15;

/// Times of a client's last queries, with their parts in the proxy and at nodes; older ones count
/// less. After the first few times, parts are those of a sample: most queries change only the
/// fields in front.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RecentTimes {
    /// Sum of the buckets of `total`.
    count: u16,
    total: [u16; BUCKETS],
    wait: [u16; BUCKETS],
    node: [u16; BUCKETS],
}

impl RecentTimes {
    /// Bytes of the fields that each query changes.
    pub(super) const HOT_BYTES: usize = std::mem::offset_of!(RecentTimes, wait);
}

// Each client has one.
const _: () = assert!(size_of::<RecentTimes>() <= 300);

impl Default for RecentTimes {
    fn default() -> Self {
        let none = [0; BUCKETS];
        Self { count: 0, total: none, wait: none, node: none }
    }
}

impl RecentTimes {
    /// Adds the time of a query: nanoseconds in the proxy, and at the node.
    #[inline]
    pub(crate) fn add(&mut self, wait_ns: u64, node_ns: u64) {
        self.total[Scale::bucket_of((wait_ns + node_ns) / 1_000)] += 1;
        self.count += 1;
        if is_sampled(self.count.into()) {
            self.add_parts(wait_ns, node_ns);
        }
    }

    #[cold]
    fn add_parts(&mut self, wait_ns: u64, node_ns: u64) {
        // The weight is 16 at most, and `halve` keeps each bucket far below the largest number.
        let weight = sample_weight(self.count.into()) as u16;
        self.wait[Scale::bucket_of(wait_ns / 1_000)] += weight;
        self.node[Scale::bucket_of(node_ns / 1_000)] += weight;
        if self.count >= HALVED_AT {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        let parts = self.wait.iter_mut().chain(&mut self.node);
        self.total.iter_mut().chain(parts).for_each(|bucket| *bucket /= 2);
        self.count = self.total.iter().sum();
    }
}

/// Times of the last queries of several clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    total: [u32; BUCKETS],
    wait: [u32; BUCKETS],
    node: [u32; BUCKETS],
}

impl Default for GroupTimes {
    fn default() -> Self {
        let none = [0; BUCKETS];
        Self { total: none, wait: none, node: none }
    }
}

impl From<RecentTimes> for GroupTimes {
    fn from(times: RecentTimes) -> Self {
        Self {
            total: times.total.map(u32::from),
            wait: times.wait.map(u32::from),
            node: times.node.map(u32::from),
        }
    }
}

impl GroupTimes {
    /// Adds the times of other clients.
    pub fn add(&mut self, other: &GroupTimes) {
        let parts = self.wait.iter_mut().chain(&mut self.node);
        let others = other.total.iter().chain(&other.wait).chain(&other.node);
        for (bucket, more) in self.total.iter_mut().chain(parts).zip(others) {
            // A hundred thousand clients fill no bucket.
            *bucket = bucket.saturating_add(*more);
        }
    }

    /// The time, in microseconds, within which this share of the queries ended (0.99 for p99), with
    /// an error of a quarter at most; `None` without any.
    pub fn percentile_us(&self, share: f64) -> Option<u64> {
        Scale::percentile_us(&self.total, share)
    }

    /// The same for the times in the proxy.
    pub fn wait_percentile_us(&self, share: f64) -> Option<u64> {
        Scale::percentile_us(&self.wait, share)
    }

    /// The same for the times at nodes.
    pub fn node_percentile_us(&self, share: f64) -> Option<u64> {
        Scale::percentile_us(&self.node, share)
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
        (0..200_000).for_each(|_| times.add(0, 10_000));
        (0..200_000).for_each(|_| times.add(30_000, 970_000));
        let mut group = GroupTimes::from(times);
        (0..1_000).for_each(|_| group.add(&GroupTimes::from(times)));
        let shown = group.percentile_us(0.5).expect("times");
        assert!(shown.abs_diff(1_000) <= 250, "{shown}");
        let (wait, node) = (group.wait_percentile_us(0.5), group.node_percentile_us(0.5));
        assert!(wait.is_some_and(|shown| shown.abs_diff(30) <= 8), "{wait:?}");
        assert!(node.is_some_and(|shown| shown.abs_diff(970) <= 243), "{node:?}");
        assert_eq!(GroupTimes::default().percentile_us(0.99), None);
    }
}
