//! The highest fence of each lock, as the core that owns the keyspace's shard knows it without
//! reading it.
//!
//! A transaction whose fence equals the row's neither reads nor writes the row, so all such
//! transactions lock the row together. Only the owner of the shard has the row written; the cached
//! fence therefore stays true for as long as the core owns the shard.
//!
//! This must never: keep a fence beyond the shard's ownership; report a fence while a transaction
//! is under way that may write another, even if nobody learns how that transaction ends.

use std::collections::HashMap;

use crate::{Claim, Partition};

/// Fences that are kept; the least recently used go first.
const FENCES_MAX: usize = 16_384;

/// Fences that a core knows, in two halves: a fence moves to the younger half when it is used, and
/// the older half is dropped when the younger is full.
#[derive(Debug, Default)]
pub struct Fences {
    young: HashMap<Partition, (Claim, i64)>,
    old: HashMap<Partition, (Claim, i64)>,
}

impl Fences {
    /// Returns a row's fence, if it became known under this ownership.
    pub fn get(&mut self, row: Partition, claim: Claim) -> Option<i64> {
        if let Some((of, fence)) = self.old.remove(&row) {
            self.put(row, of, fence);
        }
        self.young.get(&row).filter(|(of, _)| *of == claim).map(|(_, fence)| *fence)
    }

    /// Records a row's fence, until a transaction is about to write it.
    pub fn put(&mut self, row: Partition, claim: Claim, fence: i64) {
        if self.young.len() >= FENCES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&row);
        self.young.insert(row, (claim, fence));
    }

    /// Forgets a row that a transaction may write.
    pub fn forget(&mut self, row: Partition) {
        self.young.remove(&row);
        self.old.remove(&row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_known_for_as_long_as_its_shard_is_owned() {
        let mut fences = Fences::default();
        let (row, claim) = (Partition(1), Claim(1));
        assert_eq!(fences.get(row, claim), None);
        fences.put(row, claim, 7);
        assert_eq!(
            (fences.get(row, claim), fences.get(row, Claim(2)), fences.get(Partition(2), claim)),
            (Some(7), None, None)
        );
        fences.forget(row);
        assert_eq!(fences.get(row, claim), None);
        fences.put(row, claim, 7);
        fences.put(row, Claim(2), 8);
        assert_eq!((fences.get(row, claim), fences.get(row, Claim(2))), (None, Some(8)));
    }

    #[test]
    fn used_fences_stay_and_their_number_is_bounded() {
        let mut fences = Fences::default();
        let (used, claim) = (Partition(u128::MAX), Claim(1));
        fences.put(used, claim, 7);
        for number in 0..100_000 {
            fences.put(Partition(number), claim, 1);
            assert_eq!(fences.get(used, claim), Some(7));
            assert!(fences.young.len() + fences.old.len() <= FENCES_MAX);
        }
        assert_eq!(fences.get(Partition(0), claim), None);
        // One that is in the older half is not there twice.
        let old = *fences.old.keys().next().expect("an older half");
        fences.forget(old);
        assert_eq!(fences.get(old, claim), None);
    }
}
