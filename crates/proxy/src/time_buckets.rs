//! Buckets of times in microseconds: linear within powers of two; and the sampling of times.

/// The first times of a histogram, whose parts all count.
const SAMPLED_FROM: u32 = 64;
/// After those the parts of one time in so many count, and stand for as many.
pub(crate) const PARTS_SAMPLE: u32 = 16;

/// True if the parts of a histogram's time with this number count, beside the time itself.
///
/// The multiples of the golden ratio, modulo 1, spread evenly over any repeated pattern of times
/// (Knuth, The Art of Computer Programming, volume 3, section 6.4, theorem S): no number of
/// requests that a client sends together has the same one of them sampled each time.
#[inline]
pub(crate) fn is_sampled(number: u32) -> bool {
    const GOLDEN_RATIO: u32 = 0x9E37_79B9;
    number.wrapping_mul(GOLDEN_RATIO) < u32::MAX / PARTS_SAMPLE || number <= SAMPLED_FROM
}

/// The number of times for which a sampled one stands.
pub(crate) fn sample_weight(number: u32) -> u32 {
    if number <= SAMPLED_FROM { 1 } else { PARTS_SAMPLE }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The weights of the sampled times among so many, of those at one place of a period.
    fn weight(times: u32, period: u32, place: u32) -> u32 {
        let sampled = (1..=times).filter(|number| number % period == place && is_sampled(*number));
        sampled.map(sample_weight).sum()
    }

    #[test]
    fn sampled_times_stand_for_all_times_whatever_their_period() {
        let times = 1 << 20;
        for period in (1..=64).chain([128, 256]) {
            for place in [0, period / 2, period - 1] {
                let (weight, expected) = (weight(times, period, place), times / period);
                assert!(weight.abs_diff(expected) * 5 < expected, "{period}: {weight} {expected}");
            }
        }
    }

    #[test]
    fn few_times_all_count_and_weights_never_run_away() {
        assert_eq!(weight(SAMPLED_FROM, 1, 0), SAMPLED_FROM);
        let mut all = 0;
        for number in 1..=1 << 20 {
            all += if is_sampled(number) { sample_weight(number) } else { 0 };
            assert!(all.abs_diff(number) < 4 * PARTS_SAMPLE, "{all} for {number}");
        }
    }
}
