//! The memory tier of one shard: whole rows, bounded in bytes including all overhead.
//!
//! S3-FIFO: a new row enters a small queue (a tenth of the space) and must be read again before it
//! leaves that queue to move to the main queue. Rows that a scan reads once pass only through the
//! small queue. A row that comes back soon after it left (see `ghost`) enters the main queue
//! directly. A hit only raises a counter of the row, under a shared lock. The paper's rule that the
//! largest rows leave first is kept by requiring more reads of a row many times larger than the
//! mean.

use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::HashTable;

use super::ghost::Ghost;
use super::key::Probe;
use super::row::CachedRow;
use super::slab::{NIL, Slab};

/// Most reads that a row's counter remembers.
const FREQUENCY_MAX: u8 = 3;
/// Share of the small queue in the space, as a divisor.
const SMALL_SHARE: usize = 10;
/// A shard accepts no row larger than this fraction of it, as a divisor.
const ROW_SHARE_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueName {
    Small,
    Main,
}

/// A row and its place in a queue.
pub(super) struct Resident {
    pub(super) row: CachedRow,
    pub(super) hash: u64,
    pub(super) epoch: u32,
    pub(super) queue: QueueName,
    frequency: AtomicU8,
    pub(super) newer: u32,
    pub(super) older: u32,
}

struct Queue {
    newest: u32,
    oldest: u32,
    bytes: usize,
}

impl Queue {
    fn new() -> Self {
        Queue { newest: NIL, oldest: NIL, bytes: 0 }
    }
}

pub(super) struct MemoryTier {
    slots: HashTable<u32>,
    slab: Slab,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    capacity_bytes: usize,
}

impl MemoryTier {
    pub(super) fn new(capacity_bytes: usize, ghost_rows: usize) -> Self {
        MemoryTier {
            slots: HashTable::new(),
            slab: Slab::new(),
            small: Queue::new(),
            main: Queue::new(),
            ghost: Ghost::new(ghost_rows),
            capacity_bytes,
        }
    }

    /// Returns the row under a key and counts a read.
    pub(super) fn get(&self, probe: &Probe<'_>) -> Option<&CachedRow> {
        let resident = self.valid(probe)?;
        // A count lost to another reader costs nothing; skipping a store on the hottest rows keeps
        // their cache line shared.
        let frequency = resident.frequency.load(Ordering::Relaxed);
        if frequency < FREQUENCY_MAX {
            resident.frequency.store(frequency + 1, Ordering::Relaxed);
        }
        Some(&resident.row)
    }

    /// Returns the row under a key without counting a read, for writes.
    pub(super) fn peek(&self, probe: &Probe<'_>) -> Option<&CachedRow> {
        self.valid(probe).map(|resident| &resident.row)
    }

    /// A row of another epoch is void and leaves when its turn comes.
    fn valid(&self, probe: &Probe<'_>) -> Option<&Resident> {
        self.slab.get(self.find(probe)?).filter(|resident| resident.epoch == probe.epoch)
    }

    /// True if a valid or void row is stored under the key.
    pub(super) fn holds(&self, hash: u64, key: &[u8]) -> bool {
        self.slots.find(hash, |slot| self.matches(*slot, hash, key)).is_some()
    }

    /// Inserts a row, replacing the one under the same key; `warm` rows were read before. Returns
    /// false for a row that is too large. The caller removes the excess with
    /// [`Self::evict_excess`].
    pub(super) fn insert(&mut self, probe: &Probe<'_>, row: CachedRow, warm: bool) -> bool {
        if row.allocated_bytes() > self.row_bytes_max() {
            self.remove(probe);
            return false;
        }
        let (queue, frequency) = match self.remove(probe) {
            Some(old) => (old.queue, old.frequency.into_inner()),
            None if warm || self.ghost.recall(probe.hash) => (QueueName::Main, 0),
            None => (QueueName::Small, 0),
        };
        let resident = Resident {
            row,
            hash: probe.hash,
            epoch: probe.epoch,
            queue,
            frequency: AtomicU8::new(frequency),
            newer: NIL,
            older: NIL,
        };
        let slot = self.slab.add(resident);
        self.link(slot);
        let slab = &self.slab;
        self.slots.insert_unique(probe.hash, slot, |slot| {
            slab.get(*slot).map_or(0, |resident| resident.hash)
        });
        true
    }

    pub(super) fn remove(&mut self, probe: &Probe<'_>) -> Option<Resident> {
        let slot = self.find(probe)?;
        self.take(slot)
    }

    /// Removes the next row to evict while more bytes are used than allowed.
    pub(super) fn evict_excess(&mut self) -> Option<Resident> {
        while self.allocated_bytes() > self.capacity_bytes {
            let small_first =
                self.small.bytes > self.capacity_bytes / SMALL_SHARE || self.main.oldest == NIL;
            let slot = if small_first && self.small.oldest != NIL {
                self.small.oldest
            } else {
                self.main.oldest
            };
            let resident = self.slab.get(slot)?;
            let reads = resident.frequency.load(Ordering::Relaxed);
            if reads < self.reads_wanted(resident) {
                let from_small = resident.queue == QueueName::Small;
                let evicted = self.take(slot)?;
                if from_small {
                    self.ghost.remember(evicted.hash);
                }
                return Some(evicted);
            }
            self.keep(slot, reads);
        }
        None
    }

    pub(super) fn rows(&self) -> usize {
        self.slots.len()
    }

    /// Total memory of the tier: rows as rounded by the allocator, their slots, the hash table, the
    /// ghosts.
    pub(super) fn allocated_bytes(&self) -> usize {
        let rows = self.small.bytes + self.main.bytes;
        rows + self.slab.allocated_bytes()
            + self.slots.allocation_size()
            + self.ghost.allocated_bytes()
    }

    pub(super) fn row_bytes_max(&self) -> usize {
        self.capacity_bytes / ROW_SHARE_MAX
    }

    /// A row of the usual size stays if it was read once since its insertion or its last turn.
    fn reads_wanted(&self, resident: &Resident) -> u8 {
        let mean = (self.small.bytes + self.main.bytes) / self.slots.len().max(1);
        match resident.row.allocated_bytes() / mean.max(1) {
            0..=3 => 1,
            4..=15 => 2,
            _ => FREQUENCY_MAX,
        }
    }

    /// Gives the row another turn in the main queue.
    fn keep(&mut self, slot: u32, reads: u8) {
        self.unlink(slot);
        if let Some(resident) = self.slab.get_mut(slot) {
            let left = if resident.queue == QueueName::Main { reads - 1 } else { 0 };
            resident.frequency = AtomicU8::new(left);
            resident.queue = QueueName::Main;
        }
        self.link(slot);
    }

    fn find(&self, probe: &Probe<'_>) -> Option<u32> {
        let matches = |slot: &u32| self.matches(*slot, probe.hash, probe.key);
        self.slots.find(probe.hash, matches).copied()
    }

    fn matches(&self, slot: u32, hash: u64, key: &[u8]) -> bool {
        self.slab
            .get(slot)
            .is_some_and(|resident| resident.hash == hash && resident.row.key() == key)
    }

    fn take(&mut self, slot: u32) -> Option<Resident> {
        self.unlink(slot);
        let resident = self.slab.take(slot)?;
        if let Ok(entry) = self.slots.find_entry(resident.hash, |other| *other == slot) {
            entry.remove();
        }
        Some(resident)
    }

    fn queue(&mut self, name: QueueName) -> &mut Queue {
        match name {
            QueueName::Small => &mut self.small,
            QueueName::Main => &mut self.main,
        }
    }

    fn link(&mut self, slot: u32) {
        let Some((name, bytes)) =
            self.slab.get(slot).map(|it| (it.queue, it.row.allocated_bytes()))
        else {
            return;
        };
        let queue = self.queue(name);
        queue.bytes += bytes;
        let older = std::mem::replace(&mut queue.newest, slot);
        match self.slab.get_mut(older) {
            Some(resident) => resident.newer = slot,
            None => self.queue(name).oldest = slot,
        }
        if let Some(resident) = self.slab.get_mut(slot) {
            (resident.newer, resident.older) = (NIL, older);
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(resident) = self.slab.get(slot) else { return };
        let (name, bytes, newer, older) =
            (resident.queue, resident.row.allocated_bytes(), resident.newer, resident.older);
        self.queue(name).bytes -= bytes;
        match self.slab.get_mut(newer) {
            Some(resident) => resident.older = older,
            None => self.queue(name).newest = older,
        }
        match self.slab.get_mut(older) {
            Some(resident) => resident.newer = newer,
            None => self.queue(name).oldest = newer,
        }
    }
}
