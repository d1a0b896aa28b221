//! Deadlines: at most one for each key.

use std::collections::{BTreeMap, BTreeSet};

/// Times in milliseconds of the caller's clock, by key and in order.
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
    /// Sets a key's deadline, replacing an earlier one.
    pub(crate) fn set(&mut self, key: K, at_ms: u64) {
        self.clear(key);
        self.of.insert(key, at_ms);
        self.order.insert((at_ms, key));
    }

    /// Removes a key's deadline.
    pub(crate) fn clear(&mut self, key: K) {
        if let Some(at_ms) = self.of.remove(&key) {
            self.order.remove(&(at_ms, key));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.order.first().map(|(at_ms, _)| *at_ms)
    }

    /// Removes a key whose deadline has passed, and returns it.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<K> {
        let (at_ms, key) = *self.order.first()?;
        if at_ms > now_ms {
            return None;
        }
        self.clear(key);
        Some(key)
    }

    /// True if no deadline is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
