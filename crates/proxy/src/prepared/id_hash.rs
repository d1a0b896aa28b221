//! Hashes of statement ids, under a secret of each table.
//!
//! An id is a hash already, but one of a text that a client chooses: without the secret, a client
//! could look for texts whose ids share a place in the tables.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret of one table.
#[derive(Clone)]
pub(super) struct IdHashes {
    keys: [u64; 2],
}

impl Default for IdHashes {
    fn default() -> Self {
        let random = RandomState::new();
        Self { keys: [1, 2].map(|number: u64| random.hash_one(number)) }
    }
}

impl BuildHasher for IdHashes {
    type Hasher = IdHasher;

    #[inline]
    fn build_hasher(&self) -> IdHasher {
        IdHasher { keys: self.keys, hash: 0 }
    }
}

/// The hash of one id.
pub(super) struct IdHasher {
    keys: [u64; 2],
    hash: u64,
}

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u128(u128::from(self.hash) << 64 | u128::from(*byte));
        }
    }

    /// Multiplies the halves and folds the product. The secret is in both factors: had it only been
    /// added to one hash of both, ids of one hash would still share a place.
    #[inline]
    fn write_u128(&mut self, id: u128) {
        let (low, high) = (id as u64 ^ self.keys[0], (id >> 64) as u64 ^ self.keys[1]);
        let product = u128::from(low) * u128::from(high);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Ids that differ, and whose halves differ in the same low bits.
    fn chosen() -> impl Iterator<Item = u128> {
        let noise = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number << 40;
        (1..=4_096_u64).map(move |number| {
            let (low, high) = (noise(number), noise(number.rotate_left(17)));
            let high = high & !0xF_FFFF | low & 0xF_FFFF ^ 0x5_A5A5;
            u128::from(high) << 64 | u128::from(low)
        })
    }

    #[test]
    fn ids_that_a_client_chose_spread_over_the_places() {
        let hashes = IdHashes::default();
        let all: Vec<u64> = chosen().map(|id| hashes.hash_one(id)).collect();
        let different =
            |part: fn(u64) -> u64| all.iter().map(|hash| part(*hash)).collect::<HashSet<_>>().len();
        // Of 4,096 places, as many random numbers find 2,589.
        let places = different(|hash| hash & 0xFFF);
        assert!((2_300..2_900).contains(&places), "{places}");
        assert_eq!(different(|hash| hash >> 57), 128);
        assert_eq!(different(|hash| hash), 4_096);
    }

    #[test]
    fn each_table_has_a_secret_of_its_own() {
        let (one, other) = (IdHashes::default(), IdHashes::default());
        let same = chosen().filter(|id| one.hash_one(id) == other.hash_one(id)).count();
        assert!(same < 4, "{same}");
    }
}
