//! What is due when: at most one time for each thing.

use std::collections::{BTreeMap, BTreeSet};

/// Times, in milliseconds of the caller's clock, by what is due then.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Deadlines<K> {
    of: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    /// It is due then, and not when it was before.
    pub(crate) fn set(&mut self, key: K, at_ms: u64) {
        self.clear(key);
        self.of.insert(key, at_ms);
        self.order.insert((at_ms, key));
    }

    /// It is not due any more.
    pub(crate) fn clear(&mut self, key: K) {
        if let Some(at_ms) = self.of.remove(&key) {
            self.order.remove(&(at_ms, key));
        }
    }

    /// The time of what is due first.
    pub(crate) fn next(&self) -> Option<u64> {
        self.order.first().map(|(at_ms, _)| *at_ms)
    }

    /// Takes out something that is due.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<K> {
        let (at_ms, key) = *self.order.first()?;
        if at_ms > now_ms {
            return None;
        }
        self.clear(key);
        Some(key)
    }

    /// True if nothing will ever be due.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
