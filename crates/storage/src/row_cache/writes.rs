//! Effects of a write on the cache.

use super::key::Probe;
use super::row::CachedRow;
use super::{RowCache, Shared};

/// Attempts of an update interrupted by others; after that the row is dropped.
const UPDATE_ATTEMPTS: usize = 4;

/// New state of a cached row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// The row has this record now.
    Record(Vec<u8>),
    /// The row does not exist now.
    Absent,
    /// Unknown: the cache forgets the row.
    Forget,
}

impl RowCache {
    /// Drops a row from both tiers, and refuses rows read before. Must be called after the write is
    /// visible in the engine. Cheap for an absent row.
    pub fn invalidate(&self, key: &[u8]) {
        let probe = self.shared.probe(key);
        if self.keep_out(&probe) {
            self.take_out(&probe);
        }
    }

    /// The half of an invalidation that readers may share: refuses rows read before. Returns
    /// whether the row is held.
    pub(super) fn keep_out(&self, probe: &Probe<'_>) -> bool {
        let state = self.shared.shard(probe.hash).read();
        state.advance(probe.hash);
        state.may_hold(probe)
    }

    /// The other half. Since the first one, a reader may have found the row on SSD, or an eviction
    /// may have sent it there; neither may enter again.
    pub(super) fn take_out(&self, probe: &Probe<'_>) {
        let mut state = self.shared.shard(probe.hash).write();
        state.advance(probe.hash);
        state.forget(probe, self.shared.log());
    }

    /// Updates a row in memory instead of dropping it, after the write is visible in the engine:
    /// `merge` gets the record (`None`: the row does not exist). It may be called again if another
    /// update intervenes, or not at all. A row that is only on SSD is dropped.
    ///
    /// Only for writes that can be merged twice with the same result: a fill between the engine's
    /// write and this call already contains the write. Counters must be invalidated.
    pub fn update(&self, key: &[u8], merge: impl FnMut(Option<&[u8]>) -> Update) {
        let probe = self.shared.probe(key);
        finish(&self.shared, &probe, merge, false);
    }

    /// Begins a write: until the guard is dropped, look-ups of the key miss and fills are dropped,
    /// so that all reads agree with the engine. Begin before the engine's write, end when it is
    /// visible.
    pub fn begin_write<'k>(&self, key: &'k [u8]) -> WriteGuard<'_, 'k> {
        let hash = self.shared.keys.hash(key);
        self.shared.shard(hash).write().begin_write(hash);
        WriteGuard { cache: self, key, open: true }
    }
}

/// A write in progress. Dropping it invalidates the row, which is correct whether the write
/// succeeded or not.
#[must_use = "reads of the key go to the engine until this is dropped"]
pub struct WriteGuard<'c, 'k> {
    cache: &'c RowCache,
    key: &'k [u8],
    open: bool,
}

impl WriteGuard<'_, '_> {
    /// Ends the write and updates the row in memory; see [`RowCache::update`].
    pub fn update(mut self, merge: impl FnMut(Option<&[u8]>) -> Update) {
        self.open = false;
        let shared = &self.cache.shared;
        finish(shared, &shared.probe(self.key), merge, true);
    }
}

impl Drop for WriteGuard<'_, '_> {
    fn drop(&mut self) {
        if self.open {
            let shared = &self.cache.shared;
            finish(shared, &shared.probe(self.key), |_| Update::Forget, true);
        }
    }
}

/// Merges outside the lock; the result is inserted if the row is unchanged, otherwise the merge is
/// repeated.
fn finish(
    shared: &Shared,
    probe: &Probe<'_>,
    mut merge: impl FnMut(Option<&[u8]>) -> Update,
    end_write: bool,
) {
    let shard = shared.shard(probe.hash);
    for attempt in 0..=UPDATE_ATTEMPTS {
        let before = shard.read().memory.peek(probe).cloned();
        let merged = match &before {
            Some(row) if attempt < UPDATE_ATTEMPTS => merge(row.record()),
            _ => Update::Forget,
        };
        let merged = match &merged {
            Update::Record(record) => CachedRow::new(probe.key, Some(record)),
            Update::Absent => CachedRow::new(probe.key, None),
            Update::Forget => None,
        };
        let mut state = shard.write();
        let now = state.memory.peek(probe);
        let same = match (&before, now) {
            (Some(before), Some(now)) => before.is_same(now),
            (None, None) => true,
            _ => false,
        };
        if !same && attempt < UPDATE_ATTEMPTS {
            continue;
        }
        if end_write {
            state.end_write(probe.hash);
        } else {
            state.advance(probe.hash);
        }
        match merged {
            Some(row) => {
                state.forget_on_ssd(probe.hash, shared.log());
                shared.admit(shard, state, probe, row, false);
            }
            None => state.forget(probe, shared.log()),
        }
        return;
    }
}
