//! Keys that the load inserts beyond the initial ones: their numbers, and the number below which
//! all inserts are acknowledged.
//!
//! Inserts are answered in any order. A key counts as present only when it and all keys before it
//! are acknowledged, so `latest` never asks for a missing key. The number of a failed insert is
//! used again.

use std::collections::VecDeque;

/// Number of later inserts after which an insert without an answer counts as lost.
const LAG_MAX: usize = 1 << 24;

/// Numbers of new keys.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    /// Every key below this number is present.
    there: u64,
    /// One entry per number given out from `there` on; true if the key is present.
    beyond: VecDeque<bool>,
    failed: Vec<u64>,
}

impl Growth {
    /// Starts with keys `0..there` present; `in_flight` inserts may be under way at once.
    pub(super) fn new(there: u64, in_flight: usize) -> Self {
        Self {
            there,
            beyond: VecDeque::with_capacity(in_flight.min(1 << 16) * 2),
            failed: Vec::new(),
        }
    }

    /// Returns the number of a key to insert; `None` if an insert has been without an answer for
    /// far too long.
    pub(super) fn next(&mut self) -> Option<u64> {
        if let Some(key) = self.failed.pop() {
            return Some(key);
        }
        if self.beyond.len() >= LAG_MAX {
            return None;
        }
        self.beyond.push_back(false);
        Some(self.there + self.beyond.len() as u64 - 1)
    }

    /// Records that the insert of this key was acknowledged. All keys below the returned number are
    /// present.
    pub(super) fn inserted(&mut self, key: u64) -> u64 {
        let position =
            key.checked_sub(self.there).and_then(|position| usize::try_from(position).ok());
        if let Some(there) = position.and_then(|position| self.beyond.get_mut(position)) {
            *there = true;
        }
        while self.beyond.front() == Some(&true) {
            self.beyond.pop_front();
            self.there += 1;
        }
        self.there
    }

    /// Records that the insert of this key failed or has an unknown outcome; the key is inserted
    /// again.
    pub(super) fn failed(&mut self, key: u64) {
        self.failed.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Growth, LAG_MAX};

    #[test]
    fn a_key_is_there_when_all_before_it_are() {
        let mut growth = Growth::new(100, 4);
        let keys: Vec<_> = (0..4).map(|_| growth.next()).collect();
        assert_eq!(keys, [Some(100), Some(101), Some(102), Some(103)]);
        assert_eq!((growth.inserted(102), growth.inserted(101)), (100, 100));
        assert_eq!(growth.inserted(100), 103);
        assert_eq!((growth.next(), growth.inserted(103)), (Some(104), 104));
    }

    #[test]
    fn a_failed_key_is_inserted_again() {
        let mut growth = Growth::new(0, 4);
        assert_eq!((growth.next(), growth.next()), (Some(0), Some(1)));
        growth.failed(0);
        assert_eq!((growth.inserted(1), growth.next(), growth.next()), (0, Some(0), Some(2)));
        assert_eq!(growth.inserted(0), 2);
    }

    #[test]
    fn an_insert_that_is_never_answered_ends_it() {
        let mut growth = Growth::new(0, 1);
        assert!((0..LAG_MAX).all(|_| growth.next().is_some()));
        assert_eq!(growth.next(), None);
    }
}
