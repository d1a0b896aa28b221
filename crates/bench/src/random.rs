//! A small seeded generator (`SplitMix64`) for keys, arrival times and the order of measurements;
//! not for secrets.

/// A pseudo-random sequence, determined by its seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is uniform enough for benchmarks (bias below bound / 2^64).
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an exponentially distributed number with this mean: the time between two arrivals of
    /// a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// Puts `items` in random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Maps a number to another by a bijection that hides every pattern of the input.
pub fn scramble(number: u64) -> u64 {
    let mixed = (number ^ (number >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn same_seed_same_sequence() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| one.next_u64() == other.next_u64()));
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut random = Random::new(1);
        let mean = (0..100_000).map(|_| random.exponential(5.0)).sum::<f64>() / 100_000.0;
        assert!((4.9..5.1).contains(&mean), "{mean}");
    }

    #[test]
    fn shuffle_keeps_all() {
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(3).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
