//! A histogram with logarithmic buckets: four per power of two, so a quantile is off by at most a
//! quarter.
//!
//! Bucket `k` holds values up to and including its bound, as Prometheus' `le` wants it; every power
//! of two is a bound.

use serde_json::{Value as Json, json};

use crate::sync::{AtomicU64, Ordering};

/// Number of buckets. The last one also takes everything above its bound, 2^40 (18 minutes in
/// nanoseconds).
pub const BUCKETS: usize = 156;

/// Counts of values by size. One thread writes, any thread reads.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one value. Only the owning thread may call it.
    #[inline]
    pub fn record(&self, value: u64) {
        let bucket = &self.buckets[bucket_of(value)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.sum.store(self.sum.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }

    /// Adds this histogram's present counts to `snapshot`.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        for (total, bucket) in snapshot.buckets.iter_mut().zip(&self.buckets) {
            *total += bucket.load(Ordering::Relaxed);
        }
        snapshot.sum = snapshot.sum.wrapping_add(self.sum.load(Ordering::Relaxed));
    }

    /// The present counts.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.add_to(&mut snapshot);
        snapshot
    }
}

/// Counts of one or several histograms at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Snapshot {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of the values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The counts since an earlier moment.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut since = self.clone();
        for (count, before) in since.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.saturating_sub(*before);
        }
        since.sum = since.sum.wrapping_sub(earlier.sum);
        since
    }

    /// The same; `None` if a bucket has gone back, as after a start of its writer.
    pub fn checked_since(&self, earlier: &Snapshot) -> Option<Snapshot> {
        let mut buckets = self.buckets.iter().zip(&earlier.buckets);
        buckets.all(|(count, before)| count >= before).then(|| self.since(earlier))
    }

    /// For `/status`, of a histogram of nanoseconds: the count, and quantiles in microseconds.
    pub fn microseconds(&self) -> Json {
        let of = |quantile| self.quantile(quantile).map(|ns| ns as f64 / 1000.0);
        json!({ "count": self.count(), "p50": of(0.5), "p99": of(0.99) })
    }

    /// Number of values not above `2^exponent`.
    pub fn count_to_power(&self, exponent: u32) -> u64 {
        let last = bucket_of(1u64 << exponent.min(63));
        self.buckets[..=last].iter().sum()
    }

    /// Upper bound of the bucket in which the `quantile` (0 to 1) lies; `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return Some(bound_of(index));
            }
        }
        Some(bound_of(BUCKETS - 1))
    }
}

/// Bucket of a value. Works on `value - 1`, so that bounds belong to the bucket below.
#[inline]
fn bucket_of(value: u64) -> usize {
    let below = value.saturating_sub(1);
    if below < 4 {
        return below as usize;
    }
    let exponent = 63 - below.leading_zeros() as usize;
    let quarter = (below >> (exponent - 2)) as usize & 3;
    ((exponent - 1) * 4 + quarter).min(BUCKETS - 1)
}

/// Largest value of a bucket.
fn bound_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64 + 1;
    }
    let exponent = bucket / 4 + 1;
    (5 + bucket as u64 % 4) << (exponent - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_the_first_bucket_whose_bound_reaches_it() {
        for value in (0..5000).chain((12..39).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + 1])) {
            let bucket = bucket_of(value);
            assert!(value <= bound_of(bucket), "{value} above the bound of {bucket}");
            assert!(bucket == 0 || value > bound_of(bucket - 1), "{value} belongs below {bucket}");
        }
    }

    #[test]
    fn huge_values_stay_in_the_last_bucket() {
        assert_eq!(bound_of(BUCKETS - 1), 1 << 40);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn counts_sums_and_quantiles() {
        let histogram = Histogram::default();
        for value in 1..=100 {
            histogram.record(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum()), (100, 5050));
        assert_eq!(snapshot.count_to_power(5), 32);
        assert_eq!(snapshot.quantile(0.5), Some(56));
        assert_eq!(snapshot.quantile(1.0), Some(112));
        assert_eq!(Snapshot::default().quantile(0.5), None);
    }
}
