//! The only source of chance of a simulated world: xoshiro256++ seeded through splitmix64.
//!
//! The generator is written out here instead of taken from a crate so that a seed that failed once
//! replays the same run for ever: no release of a dependency can change the sequence, and only
//! integer and IEEE arithmetic is used, so it is the same on every platform.

use std::ops::Range;

/// A small, fast, seeded generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator of a seed; every seed, also 0, gives a usable state.
    pub fn new(seed: u64) -> Random {
        let mut mixed = seed;
        Random { state: std::array::from_fn(|_| splitmix(&mut mixed)) }
    }

    /// A separate generator for one part of a run, so that the draws of that part do not shift the
    /// others.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift: the bias is below 2^-32 for the bounds a simulation uses.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in the range; its start if the range is empty.
    pub fn range(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// An index into a sequence of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True with the given probability. Draws nothing for a probability of 0.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0
            && ((self.next() >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < probability
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Fills the buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The sequence is fixed for ever: a change would make every recorded seed replay another run.
    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(0);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [0x5317_5d61_490b_23df, 0x61da_6f3d_c380_d507, 0x5c0f_df91_ec9a_7bfc]);
    }

    #[test]
    fn draws_stay_inside_their_bounds() {
        let mut random = Random::new(7);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.index(10)] = true;
            assert!((5..9).contains(&random.range(&(5..9))));
        }
        assert!(seen.iter().all(|&hit| hit));
        assert!(!random.chance(0.0) && random.chance(1.0));
        let mut items: Vec<u32> = (0..50).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
