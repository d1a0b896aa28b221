//! One shard: the rows, the index entries and the generations of the keys that hash to it, under
//! one lock that is never held during I/O. All decisions about a key are made here, so the order of
//! taking the lock decides races.
//!
//! A *generation* counts the writes to a stripe of keys. Code that brings a row in from outside (a
//! fill after a miss, a read of the SSD, a row on its way there) notes the generation first, and is
//! refused if it has changed.

use super::counters::ShardCounters;
use super::key::{Keys, Probe};
use super::locks::{read, write};
use super::memory::{MemoryTier, QueueName, Resident};
use super::row::CachedRow;
use super::ssd::{Location, Log, Spill, SsdIndex};
use crate::sync::{AtomicU32, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Aligned so that shards do not share cache lines.
#[repr(align(128))]
pub(super) struct Shard {
    state: RwLock<ShardState>,
    pub(super) counters: ShardCounters,
}

impl Shard {
    pub(super) fn new(state: ShardState) -> Self {
        Shard { state: RwLock::new(state), counters: ShardCounters::default() }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, ShardState> {
        read(&self.state)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, ShardState> {
        write(&self.state)
    }
}

/// Keys that share a generation.
#[derive(Default)]
struct Stripe {
    generation: AtomicU32,
    /// Writes in progress, during which the cache gives no answer about these keys.
    open_writes: u32,
}

pub(super) struct ShardState {
    pub(super) memory: MemoryTier,
    pub(super) index: Option<SsdIndex>,
    stripes: Box<[Stripe]>,
    /// Writes in progress in all stripes.
    open_writes: u32,
}

impl ShardState {
    pub(super) fn new(memory: MemoryTier, index: Option<SsdIndex>, stripes: usize) -> Self {
        let stripes = (0..stripes.max(1)).map(|_| Stripe::default()).collect();
        ShardState { memory, index, stripes, open_writes: 0 }
    }

    pub(super) fn generation(&self, hash: u64) -> u32 {
        self.stripe(hash).generation.load(Ordering::Acquire)
    }

    /// Refuses all rows read before this call. Readers may share the lock, so the lock does not
    /// order this with their accesses: a reader that notes the new generation before it reads the
    /// engine must find there the write that came first.
    pub(super) fn advance(&self, hash: u64) {
        self.stripe(hash).generation.fetch_add(1, Ordering::Release);
    }

    pub(super) fn is_being_written(&self, hash: u64) -> bool {
        self.open_writes > 0 && self.stripe(hash).open_writes > 0
    }

    /// True if no write to the key began or ended since its generation was noted.
    pub(super) fn agrees(&self, hash: u64, generation: u32) -> bool {
        self.generation(hash) == generation && !self.is_being_written(hash)
    }

    pub(super) fn begin_write(&mut self, hash: u64) {
        self.advance(hash);
        self.stripe_mut(hash).open_writes += 1;
        self.open_writes += 1;
    }

    pub(super) fn end_write(&mut self, hash: u64) {
        self.advance(hash);
        self.stripe_mut(hash).open_writes -= 1;
        self.open_writes -= 1;
    }

    /// True if any tier may have the row.
    pub(super) fn may_hold(&self, probe: &Probe<'_>) -> bool {
        self.memory.holds(probe.hash, probe.key) || self.is_on_ssd(probe.hash)
    }

    pub(super) fn is_on_ssd(&self, hash: u64) -> bool {
        self.index.as_ref().is_some_and(|index| index.contains(hash))
    }

    /// Drops the row from both tiers.
    pub(super) fn forget(&mut self, probe: &Probe<'_>, log: Option<&Log>) {
        self.memory.remove(probe);
        self.forget_on_ssd(probe.hash, log);
    }

    pub(super) fn forget_on_ssd(&mut self, hash: u64, log: Option<&Log>) {
        if let (Some(index), Some(log)) = (&mut self.index, log)
            && let Some(location) = index.remove(hash)
        {
            log.release(location);
        }
    }

    /// Drops the index entry of a row if it still points to this place.
    pub(super) fn forget_at(&mut self, hash: u64, location: Location, log: &Log) -> bool {
        let removed = self.index.as_mut().is_some_and(|index| index.remove_at(hash, location));
        if removed {
            log.release(location);
        }
        removed
    }

    /// Points the index to the row's new place. Returns whether another row was evicted for it.
    pub(super) fn point_to(&mut self, hash: u64, location: Location, log: &Log) -> bool {
        let Some(index) = &mut self.index else { return false };
        let known = index.contains(hash);
        let displaced = index.put(hash, location);
        log.acquire(location);
        if let Some(displaced) = displaced {
            log.release(displaced);
        }
        displaced.is_some() && !known
    }

    /// Drops the index entries of these pages.
    pub(super) fn forget_pages(&mut self, pages: std::ops::Range<u32>, log: &Log) -> u32 {
        self.index
            .as_mut()
            .map_or(0, |index| index.remove_pages(pages, |location| log.release(location)))
    }

    fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[hash as usize % self.stripes.len()]
    }

    fn stripe_mut(&mut self, hash: u64) -> &mut Stripe {
        let stripes = self.stripes.len();
        &mut self.stripes[hash as usize % stripes]
    }

    /// Memory in bytes, without the index.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.memory.allocated_bytes() + Self::stripe_bytes(self.stripes.len())
    }

    /// Memory for `stripes` stripes in bytes.
    pub(super) fn stripe_bytes(stripes: usize) -> usize {
        stripes * size_of::<Stripe>()
    }
}

/// Rows that left memory when a row was inserted.
#[derive(Default)]
pub(super) struct Evicted {
    pub(super) rows: u64,
    /// Rows to move to SSD.
    pub(super) spills: Vec<Spill>,
}

impl ShardState {
    /// Inserts a row into memory. `all_to_ssd`: rows that were not read again move to SSD as well.
    pub(super) fn admit(
        &mut self,
        probe: &Probe<'_>,
        row: CachedRow,
        warm: bool,
        keys: &Keys,
        all_to_ssd: bool,
    ) -> (bool, Evicted) {
        let admitted = self.memory.insert(probe, row, warm);
        let mut evicted = Evicted::default();
        while let Some(resident) = self.memory.evict_excess() {
            evicted.rows += 1;
            if self.index.is_some() && (all_to_ssd || resident.queue == QueueName::Main) {
                evicted.spills.extend(self.spill(resident, keys));
            }
        }
        (admitted, evicted)
    }

    /// A row already on SSD need not be written again, and a void one must not.
    fn spill(&self, resident: Resident, keys: &Keys) -> Option<Spill> {
        let Resident { row, hash, epoch, .. } = resident;
        if self.is_on_ssd(hash) || row.key().is_empty() || keys.probe(row.key()).epoch != epoch {
            return None;
        }
        Some(Spill { row, hash, epoch, generation: self.generation(hash) })
    }
}
