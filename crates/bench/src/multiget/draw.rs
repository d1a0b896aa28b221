//! Draws the number and the keys of multigets, and encodes keys and values.

use std::str::FromStr;

use crate::{
    load::{Distribution, keys::Keys},
    random::Random,
};

/// Mean number of keys of a heavy-tailed multiget.
const HEAVY_MEAN: f64 = 8.6;
const HEAVY_MAX: usize = 128;
/// Largest fixed number of keys.
const SIZE_MAX: usize = 10_000;
/// Keys contain no brace: braces affect the choice of a key's server.
const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// Bits of a number in one byte of a key.
const DIGIT_BITS: u32 = 6;

/// Number of keys of a multiget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    /// A fixed number.
    Fixed(usize),
    /// A number of at least n with the probability n^-`exponent`, at most [`HEAVY_MAX`].
    Heavy {
        /// Chosen so that the mean is [`HEAVY_MEAN`].
        exponent: f64,
    },
}

impl Size {
    fn heavy() -> Self {
        let mean =
            |exponent: f64| (1..=HEAVY_MAX).map(|keys| (keys as f64).powf(-exponent)).sum::<f64>();
        let (mut low, mut high) = (0.0, 4.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if mean(middle) > HEAVY_MEAN { low = middle } else { high = middle }
        }
        Self::Heavy { exponent: low }
    }

    pub(super) fn keys_max(self) -> usize {
        match self {
            Self::Fixed(keys) => keys,
            Self::Heavy { .. } => HEAVY_MAX,
        }
    }

    fn draw(self, random: &mut Random) -> usize {
        match self {
            Self::Fixed(keys) => keys,
            Self::Heavy { exponent } => {
                ((1.0 - random.unit()).powf(-1.0 / exponent) as usize).clamp(1, HEAVY_MAX)
            }
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(keys) if (1..=SIZE_MAX).contains(&keys) => Ok(Self::Fixed(keys)),
            _ if text == "heavy" => Ok(Self::heavy()),
            _ => {
                Err(format!("'{text}' is neither a number of keys from 1 to {SIZE_MAX} nor heavy"))
            }
        }
    }
}

/// Draws the keys of multigets.
#[derive(Debug)]
pub(super) struct Draw {
    size: Size,
    keys: Keys,
    random: Random,
    /// By key, the last multiget that contains it.
    seen: Vec<u32>,
    turn: u32,
}

impl Draw {
    pub(super) fn new(size: Size, keys: u32, distribution: Distribution, seed: u64) -> Self {
        let count = u64::from(keys);
        Self {
            size,
            keys: Keys::new(count, distribution),
            random: Random::new(seed),
            seen: vec![0; keys as usize],
            turn: 0,
        }
    }

    /// Draws whether the next operation is a write.
    pub(super) fn is_write(&mut self, share: f64) -> bool {
        self.random.unit() < share
    }

    /// Draws a key.
    pub(super) fn key(&mut self) -> u32 {
        self.keys.draw(&mut self.random) as u32
    }

    /// Draws the keys of a multiget into `keys`, each once.
    pub(super) fn multiget(&mut self, keys: &mut Vec<u32>) {
        keys.clear();
        self.turn = self.turn.wrapping_add(1);
        let count = self.size.draw(&mut self.random).min(self.seen.len());
        while keys.len() < count {
            let mut key = self.key();
            // A repeated key is replaced by the next one: with few hot keys, a new draw would take
            // long.
            while self.seen[key as usize] == self.turn {
                key = (key + 1) % self.seen.len() as u32;
            }
            self.seen[key as usize] = self.turn;
            keys.push(key);
        }
    }
}

/// Returns the bytes that `keys` distinct keys need.
pub(super) fn key_bytes_min(keys: u32) -> usize {
    (u32::BITS - keys.saturating_sub(1).leading_zeros()).div_ceil(DIGIT_BITS).max(1) as usize
}

/// Appends a key of `bytes` bytes.
pub(super) fn push_key(key: u32, bytes: usize, out: &mut Vec<u8>) {
    out.extend((0..bytes).map(|place| {
        let rest = key.checked_shr(place as u32 * DIGIT_BITS).unwrap_or(0);
        DIGITS[rest as usize % DIGITS.len()]
    }));
}

/// Writes the value of a key: its number at both ends.
pub(super) fn write_value(key: u32, value: &mut [u8]) {
    let number = key.to_le_bytes();
    let count = number.len().min(value.len());
    value[..count].copy_from_slice(&number[..count]);
    let end = value.len();
    value[end - count..].copy_from_slice(&number[..count]);
}

/// True if this is the value of the key.
pub(super) fn is_value(key: u32, bytes: usize, value: &[u8]) -> bool {
    let number = key.to_le_bytes();
    let count = number.len().min(value.len());
    // In a value shorter than twice the number, the number at the end overwrites the other.
    let begins = value.len() < 2 * count || value[..count] == number[..count];
    value.len() == bytes && begins && value[value.len() - count..] == number[..count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_mean_and_their_tail() {
        let Ok(size @ Size::Heavy { exponent }) = "heavy".parse::<Size>() else { panic!("heavy") };
        assert!((0.7..0.9).contains(&exponent), "{exponent}");
        let mut random = Random::new(5);
        let drawn: Vec<usize> = (0..200_000).map(|_| size.draw(&mut random)).collect();
        let mean = drawn.iter().sum::<usize>() as f64 / drawn.len() as f64;
        assert!((8.4..8.8).contains(&mean), "{mean}");
        let share = |wanted: fn(usize) -> bool| {
            drawn.iter().filter(|size| wanted(**size)).count() as f64 / drawn.len() as f64
        };
        assert!(
            (0.35..0.50).contains(&share(|size| size == 1))
                && (0.01..0.04).contains(&share(|size| size == 128))
        );
    }

    #[test]
    fn the_keys_of_a_multiget_differ_however_few_are_hot() {
        for (size, keys, distribution) in
            [(100, 100, "zipf"), (16, 1000, "uniform"), (100, 5000, "zipf:3")]
        {
            let distribution = distribution.parse().expect("a distribution");
            let mut draw = Draw::new(Size::Fixed(size), keys, distribution, 1);
            let mut found = Vec::new();
            for _ in 0..50 {
                draw.multiget(&mut found);
                let mut sorted = found.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!((sorted.len(), found.len()), (size, size));
                assert!(found.iter().all(|key| *key < keys));
            }
        }
    }

    #[test]
    fn keys_differ_and_values_are_told_apart() {
        assert_eq!(
            (key_bytes_min(1), key_bytes_min(64), key_bytes_min(65), key_bytes_min(100_000)),
            (1, 1, 2, 3)
        );
        let mut all = std::collections::HashSet::new();
        for key in 0..5000 {
            let mut out = Vec::new();
            push_key(key, 4, &mut out);
            assert!(out.len() == 4 && all.insert(out));
            for bytes in [1, 3, 4, 7, 8, 256] {
                let mut value = vec![0; bytes];
                write_value(key, &mut value);
                assert!(is_value(key, bytes, &value) && !is_value(key, bytes + 1, &value));
                assert!(bytes < 4 || !is_value(key + 1, bytes, &value));
            }
        }
        let mut long = Vec::new();
        push_key(5, 20, &mut long);
        assert_eq!(long.len(), 20);
    }
}
