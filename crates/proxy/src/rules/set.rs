//! Sets of rules, by their places in the configuration.

use crate::limits;

const WORDS: usize = limits::RULES_MAX.div_ceil(64);

/// Some of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSet([u64; WORDS]);

impl RuleSet {
    pub(crate) const EMPTY: RuleSet = RuleSet([0; WORDS]);

    pub(crate) fn insert(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    #[cfg(test)]
    pub(crate) fn has(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The rules of both sets.
    #[inline]
    pub(crate) fn both(mut self, other: RuleSet) -> RuleSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        self
    }

    /// The rules that are not in another set.
    #[inline]
    pub(crate) fn without(mut self, other: RuleSet) -> RuleSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        self
    }

    /// The rules of either set.
    #[inline]
    pub(crate) fn either(mut self, other: RuleSet) -> RuleSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        self
    }

    /// The places, in their order.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(index, word)| {
            let next = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
            let words = std::iter::successors(Some(word).filter(|word| *word != 0), next);
            words.map(move |word| index * 64 + word.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_in_order_and_sets_meet() {
        let of = |places: &[usize]| {
            let mut set = RuleSet::EMPTY;
            places.iter().for_each(|place| set.insert(*place));
            set
        };
        let set = of(&[255, 0, 64, 63, 7]);
        assert_eq!(set.places().collect::<Vec<_>>(), [0, 7, 63, 64, 255]);
        assert!(set.has(64) && !set.has(65) && !set.has(1_000));
        assert_eq!(set.both(of(&[7, 8, 255])), of(&[7, 255]));
        assert_eq!(set.without(of(&[7, 8, 255])), of(&[0, 63, 64]));
        assert_eq!(of(&[1]).either(of(&[200])), of(&[1, 200]));
        assert!(of(&[1]).both(of(&[2])).is_empty() && of(&[256]).is_empty());
    }
}
