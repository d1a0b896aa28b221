//! The most frequent keys of a stream in fixed memory: the Space-Saving algorithm (Metwally,
//! Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams, 2005,
//! section 3).

use crate::limits;

/// Keys in a sketch. A key with more than this share of the samples is always in it.
const KEYS: usize = 16;

/// A key and its count, which is too high by `error` at most.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Token of the key.
    pub token: i64,
    /// Samples counted for it.
    pub count: u32,
    /// Samples among them that may have been those of other keys.
    pub error: u32,
    /// Bytes of the whole key.
    pub key_bytes: u32,
    key: [u8; limits::HOT_KEY_BYTES_MAX],
}

impl Entry {
    const NONE: Entry =
        Entry { token: 0, count: 0, error: 0, key_bytes: 0, key: [0; limits::HOT_KEY_BYTES_MAX] };

    fn new(token: i64, bytes: &[u8]) -> Self {
        let mut entry = Entry { token, key_bytes: bytes.len() as u32, ..Entry::NONE };
        let length = bytes.len().min(entry.key.len());
        entry.key[..length].copy_from_slice(&bytes[..length]);
        entry
    }

    /// The first bytes of the key.
    pub fn key(&self) -> &[u8] {
        &self.key[..self.key.len().min(self.key_bytes as usize)]
    }

    /// The key, as far as its token, its length and its first bytes tell.
    pub fn identity(&self) -> (i64, u32, &[u8]) {
        (self.token, self.key_bytes, self.key())
    }
}

/// The most frequent keys.
#[derive(Clone, Debug)]
pub struct Sketch {
    entries: [Entry; KEYS],
    length: usize,
    samples: u32,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { entries: [Entry::NONE; KEYS], length: 0, samples: 0 }
    }
}

impl Sketch {
    /// Adds one sample of a key.
    pub(crate) fn add(&mut self, token: i64, key: &[u8]) {
        let new = Entry::new(token, key);
        self.samples = self.samples.saturating_add(1);
        let entries = &mut self.entries[..self.length];
        if let Some(found) = entries.iter_mut().find(|entry| entry.identity() == new.identity()) {
            found.count = found.count.saturating_add(1);
        } else if self.length < KEYS {
            self.entries[self.length] = Entry { count: 1, ..new };
            self.length += 1;
        } else if let Some(least) = entries.iter_mut().min_by_key(|entry| entry.count) {
            *least = Entry { count: least.count.saturating_add(1), error: least.count, ..new };
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.length, self.samples) = (0, 0);
    }

    /// The keys, in no order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.length]
    }

    /// Samples in all.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Samples that a key without entry has at most.
    pub fn missed_max(&self) -> u32 {
        if self.length < KEYS {
            0
        } else {
            self.entries().iter().map(|e| e.count).min().unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn hot_keys_are_found_among_a_million_others_within_the_error() {
        let mut sketch = Sketch::default();
        let mut seen = HashMap::<i64, u32>::new();
        for number in 0..1_000_000i64 {
            // Two of ten samples are of key 1, one is of key 2, and the others all differ.
            let token = match number % 10 {
                0 | 5 => 1,
                7 => 2,
                _ => 1_000 + number,
            };
            *seen.entry(token).or_default() += 1;
            sketch.add(token, &token.to_be_bytes());
        }
        assert_eq!((sketch.samples(), sketch.entries().len()), (1_000_000, KEYS));
        for token in [1, 2] {
            let found = sketch.entries().iter().find(|entry| entry.token == token).expect("hot");
            assert!(found.count >= seen[&token] && found.count - found.error <= seen[&token]);
            assert_eq!(found.key(), token.to_be_bytes());
        }
        let total: u32 = sketch.entries().iter().map(|entry| entry.count).sum();
        assert_eq!(total, 1_000_000, "the counts add up");
        assert!(sketch.missed_max() <= 1_000_000 / KEYS as u32);
    }

    #[test]
    fn long_keys_are_cut_and_told_apart_by_token_and_length() {
        let mut sketch = Sketch::default();
        let long = [7; 10_000];
        sketch.add(1, &long);
        sketch.add(2, &long);
        sketch.add(1, &long[..9_999]);
        sketch.add(1, &long);
        let counts: Vec<u32> = sketch.entries().iter().map(|entry| entry.count).collect();
        assert_eq!(counts, [2, 1, 1]);
        assert!(sketch.entries()[0].key().len() <= limits::HOT_KEY_BYTES_MAX);
        sketch.clear();
        assert_eq!((sketch.entries().len(), sketch.missed_max()), (0, 0));
    }
}
