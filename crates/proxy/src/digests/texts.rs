//! The digests of the texts that a core saw last, by a hash of their bytes.
//!
//! The hash has a secret key, so that no client can make a text that takes the place of another, or
//! counts as another. When a text loses its place, the core reads it once more at its next answer.

use std::hash::{BuildHasher, RandomState};

use super::Digest;
use crate::limits;
use crate::metrics::QueryKind;

/// Texts with the same place.
const WAYS: usize = 4;
/// Sets of places; a power of two.
const SETS: usize = limits::DIGEST_TEXTS_MAX / WAYS;

/// Texts of one set, by their hashes.
type Set = [Option<(u64, Digest)>; WAYS];

/// A core's table of texts.
pub(crate) struct TextTable {
    /// False: no text is hashed.
    pub(crate) is_on: bool,
    keys: [u64; 4],
    /// Empty until the first text comes.
    sets: Box<[Set]>,
    /// Place, in its set, of the next text to be replaced.
    next: usize,
}

impl Default for TextTable {
    fn default() -> Self {
        let random = RandomState::new();
        let keys = [1, 2, 3, 4].map(|number: u64| random.hash_one(number) | 1);
        Self { is_on: true, keys, sets: Box::default(), next: 0 }
    }
}

impl TextTable {
    /// The hash of a text; `session`: the keyspace of unqualified names.
    #[inline]
    pub(crate) fn hash(&self, kind: QueryKind, session: Option<&str>, text: &str) -> u64 {
        let start = self.keys[0] ^ kind as u64;
        let start = session.map_or(start, |session| self.hash_bytes(start, session.as_bytes()));
        self.hash_bytes(start, text.as_bytes())
    }

    /// Multiplies 16 bytes at a time and folds the halves of the product.
    #[inline]
    fn hash_bytes(&self, mut state: u64, bytes: &[u8]) -> u64 {
        let [_, first, second, third] = self.keys;
        let (chunks, rest) = bytes.as_chunks::<16>();
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        for chunk in chunks.iter().chain([&last]) {
            let both = u128::from_le_bytes(*chunk);
            state = fold(both as u64 ^ first, (both >> 64) as u64 ^ second ^ state);
        }
        fold(state ^ third, bytes.len() as u64 ^ second)
    }

    /// The digest of a text, if the table has it; none while digests are switched off.
    #[inline]
    pub(crate) fn digest_of(&self, kind: QueryKind, session: Option<&str>, text: &str) -> Digest {
        if !self.is_on || text.len() > limits::DIGEST_QUERY_BYTES_MAX {
            return Digest::NONE;
        }
        self.find(self.hash(kind, session, text))
    }

    /// The digest of the text with this hash; [`Digest::UNKNOWN`] if it is not in the table.
    #[inline]
    fn find(&self, hash: u64) -> Digest {
        let Some(set) = self.sets.get(hash as usize & (SETS - 1)) else { return Digest::UNKNOWN };
        let found = set.iter().flatten().find(|(known, _)| *known == hash);
        found.map_or(Digest::UNKNOWN, |(_, digest)| *digest)
    }

    /// Remembers the digest of a text.
    pub(crate) fn insert(&mut self, hash: u64, digest: Digest) {
        if self.sets.is_empty() {
            self.sets = vec![[None; WAYS]; SETS].into();
        }
        let Some(set) = self.sets.get_mut(hash as usize & (SETS - 1)) else { return };
        let same = |place: &Option<(u64, Digest)>| place.is_some_and(|(known, _)| known == hash);
        let place = set.iter().position(same).or_else(|| set.iter().position(Option::is_none));
        let place = place.unwrap_or_else(|| {
            self.next = (self.next + 1) % WAYS;
            self.next
        });
        set[place] = Some((hash, digest));
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_kinds_and_keyspaces_differ() {
        let table = TextTable::default();
        let mut seen = HashSet::new();
        for text in ["", "a", "SELECT v FROM t", "SELECT v FROM t WHERE k = 1", "a\0", "a\0\0"] {
            for session in [None, Some(""), Some("a"), Some("shop")] {
                for kind in [QueryKind::Query, QueryKind::Batch] {
                    assert!(seen.insert(table.hash(kind, session, text)), "{text} {session:?}");
                }
            }
        }
        let numbered = (0..100_000).map(|number| format!("SELECT v FROM t WHERE k = {number}"));
        let hashes = numbered.map(|text| table.hash(QueryKind::Query, None, &text));
        assert_eq!(hashes.collect::<HashSet<_>>().len(), 100_000);
    }

    #[test]
    fn a_million_texts_take_the_memory_of_a_few_thousand() {
        let mut table = TextTable::default();
        assert_eq!(table.find(7), Digest::UNKNOWN);
        let hash = |number: u32| table.hash(QueryKind::Query, None, &number.to_string());
        let hashes: Vec<u64> = (0..1_000_000).map(hash).collect();
        for (number, hash) in hashes.iter().enumerate() {
            table.insert(*hash, Digest::new(number % 512, 0));
            assert_eq!(table.find(*hash), Digest::new(number % 512, 0));
        }
        let places = table.sets.iter().flatten().flatten().count();
        assert!(places <= limits::DIGEST_TEXTS_MAX, "{places}");
        let last = &hashes[hashes.len() - 500..];
        let there = last.iter().filter(|hash| table.find(**hash) != Digest::UNKNOWN).count();
        assert!(there > 450, "{there}");
    }

    #[test]
    fn no_text_has_a_digest_while_digests_are_off() {
        let mut table = TextTable::default();
        let text = "SELECT v FROM t";
        table.insert(table.hash(QueryKind::Query, None, text), Digest::new(1, 0));
        assert_eq!(table.digest_of(QueryKind::Query, None, text), Digest::new(1, 0));
        table.is_on = false;
        assert_eq!(table.digest_of(QueryKind::Query, None, text), Digest::NONE);
    }
}
