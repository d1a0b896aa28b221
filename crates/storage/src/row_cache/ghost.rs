//! Rows that recently left the cache, two bytes each: a row that soon comes back is worth keeping.
//!
//! Buckets of eight fingerprints, newest first. A new one evicts the oldest of its bucket, so
//! memory is fixed and the table forgets roughly in order of age. A false positive (one in eight
//! thousand) keeps one row too long.

const WAYS: usize = 8;

/// Bounded, forgetful set of hashes.
pub(super) struct Ghost {
    buckets: Box<[[u16; WAYS]]>,
}

impl Ghost {
    /// A set that remembers about `rows` rows.
    pub(super) fn new(rows: usize) -> Self {
        Ghost { buckets: vec![[0; WAYS]; rows.div_ceil(WAYS).max(1)].into_boxed_slice() }
    }

    pub(super) fn remember(&mut self, hash: u64) {
        let (bucket, fingerprint) = self.place(hash);
        bucket.copy_within(..WAYS - 1, 1);
        bucket[0] = fingerprint;
    }

    /// True if the row left recently; forgets it.
    pub(super) fn recall(&mut self, hash: u64) -> bool {
        let (bucket, fingerprint) = self.place(hash);
        let Some(at) = bucket.iter().position(|known| *known == fingerprint) else { return false };
        bucket.copy_within(at + 1.., at);
        bucket[WAYS - 1] = 0;
        true
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Zero marks an empty place, so no fingerprint is zero.
    fn place(&mut self, hash: u64) -> (&mut [u16; WAYS], u16) {
        let bucket = ((hash & u64::from(u32::MAX)) * self.buckets.len() as u64) >> 32;
        (&mut self.buckets[bucket as usize], (hash >> 44) as u16 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::mix;
    use super::*;

    #[test]
    fn the_newest_are_known_once_and_the_oldest_are_forgotten() {
        let mut ghost = Ghost::new(800);
        (0..10_000).for_each(|row| ghost.remember(mix(row)));
        let recalled = |ghost: &mut Ghost, rows: std::ops::Range<u64>| {
            rows.filter(|row| ghost.recall(mix(*row))).count()
        };
        assert!(recalled(&mut ghost, 9_800..10_000) >= 195, "the last 200 of 800 places are known");
        assert_eq!(recalled(&mut ghost, 9_800..10_000), 0, "each is told once");
        assert!(recalled(&mut ghost, 0..5_000) < 20, "what left long ago is forgotten");
        assert_eq!(ghost.allocated_bytes(), 1_600);
    }
}
