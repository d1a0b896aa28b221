//! Buckets of times in microseconds: linear within powers of two.

/// A scale with `1 << LINEAR_BITS` buckets for each power of two. The last of all `BUCKETS` takes
/// the longer times, too.
pub(crate) struct TimeBuckets<const LINEAR_BITS: u32, const BUCKETS: usize>;

impl<const LINEAR_BITS: u32, const BUCKETS: usize> TimeBuckets<LINEAR_BITS, BUCKETS> {
    /// Buckets for each power of two.
    const LINEAR: usize = 1 << LINEAR_BITS;
    /// Times below it have a bucket for each microsecond.
    const EXACT_US: u64 = 2 * Self::LINEAR as u64;

    /// The bucket of a time.
    #[inline]
    pub(crate) fn bucket_of(time_us: u64) -> usize {
        if time_us < Self::EXACT_US {
            return time_us as usize;
        }
        let power = time_us.ilog2();
        let within = (time_us >> (power - LINEAR_BITS)) as usize & (Self::LINEAR - 1);
        ((power - LINEAR_BITS + 1) as usize * Self::LINEAR + within).min(BUCKETS - 1)
    }

    /// The time in the middle of a bucket.
    pub(crate) fn middle_us(bucket: usize) -> u64 {
        if bucket < Self::EXACT_US as usize {
            return bucket as u64;
        }
        let shift = bucket / Self::LINEAR - 1;
        let start = ((Self::LINEAR + bucket % Self::LINEAR) as u64) << shift;
        start + (1 << shift) / 2
    }

    /// The time within which this share of all is (0.99 for p99); `None` without any.
    pub(crate) fn percentile_us<T: Copy + Into<u64>>(
        counts: &[T; BUCKETS],
        share: f64,
    ) -> Option<u64> {
        let all: u64 = counts.iter().map(|count| (*count).into()).sum();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut passed = 0;
        let found = counts.iter().position(|count| {
            passed += (*count).into();
            passed >= rank
        });
        found.map(Self::middle_us)
    }
}
