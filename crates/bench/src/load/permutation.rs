//! A seeded permutation of `0..count` in constant memory, which maps ranks to keys.
//!
//! Each step is a bijection of the numbers with a fixed number of bits. The steps are repeated
//! until the number is below the count (cycle walking), fewer than two rounds on average. Unlike
//! hashed ranks, no two ranks share a key.

use crate::random::Random;

const STEPS: usize = 3;

/// A permutation of the numbers `0..count`.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    /// Odd factors and summands of the steps.
    steps: [(u64, u64); STEPS],
}

impl Permutation {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let count = count.max(1);
        let bits = (64 - (count - 1).leading_zeros()).max(1);
        let mut random = Random::new(seed);
        Self {
            count,
            mask: u64::MAX >> (64 - bits),
            shift: bits.div_ceil(2),
            steps: [(); STEPS].map(|()| (random.next_u64() | 1, random.next_u64())),
        }
    }

    /// Returns the number at `position`, which must be below the count.
    #[inline]
    pub(super) fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.count);
        let mut number = position;
        loop {
            for (factor, summand) in self.steps {
                number = number.wrapping_add(summand).wrapping_mul(factor) & self.mask;
                number ^= number >> self.shift;
            }
            // The cycle returns to its begin, which is below the count, so the walk ends.
            if number < self.count {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Permutation;

    #[test]
    fn every_number_comes_once() {
        for count in [1, 2, 3, 64, 65, 100, 1000, 4096, 4097] {
            for seed in 0..5 {
                let order = Permutation::new(count, seed);
                let mut found: Vec<u64> = (0..count).map(|position| order.at(position)).collect();
                found.sort_unstable();
                assert!(found.iter().copied().eq(0..count), "{count} {seed}");
            }
        }
    }

    #[test]
    fn seeds_give_other_orders_without_a_pattern() {
        let (one, other) = (Permutation::new(10_000, 1), Permutation::new(10_000, 2));
        let same = (0..10_000).filter(|&position| one.at(position) == other.at(position)).count();
        assert!(same < 20, "{same} of 10000 stand where they stood");
        let neighbours = (1..10_000)
            .filter(|&position| one.at(position).abs_diff(one.at(position - 1)) < 100)
            .count();
        assert!(
            (100..300).contains(&neighbours),
            "{neighbours} of about 200 neighbours are near each other"
        );
    }
}
