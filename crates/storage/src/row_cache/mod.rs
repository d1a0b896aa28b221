//! The row cache: whole, merged rows in memory, and on SSD the rows that no longer fit there.
//!
//! ```text
//! lookup -> memory (S3-FIFO, bounded in bytes) -> index without keys -> write buffer -> ticket
//!        -> one read of the SSD
//! fill   -> memory -> evicted rows -> bounded queue -> one thread -> 16 KB buffer -> segment log
//! ```
//! Keys and records are bytes. The design follows CaSSanDra (Menon et al., ICDE 2014): the chain of
//! an in-memory cache and an append-only cache file with a memory-resident index, asynchronous
//! cascade, garbage-driven collection. This one differs in its policies (rows read once neither
//! displace rows read often nor reach the SSD) and in the memory of its index.
//!
//! **Consistent with writes.** The cache is correct if its users follow three rules:
//! 1. A read that misses calls [`RowCache::begin_fill`] *before* it reads the engine, and
//!    [`RowCache::fill`] after.
//! 2. A write is in the engine, visible to reads, *before* [`RowCache::invalidate`] or
//!    [`RowCache::update`] is called, and is acknowledged after. No later look-up sees the state
//!    before the write.
//! 3. Where no reader may see an unacknowledged write and a later reader the state before it, the
//!    write takes place inside [`RowCache::begin_write`]: during it all reads of its key go to the
//!    engine.
//!
//! The cache never holds a lock during I/O. `lookup` does no I/O; `read_ssd` does exactly one read
//! and may block.

mod counters;
mod ghost;
mod key;
mod locks;
mod memory;
#[cfg(all(test, feature = "loom"))]
mod models;
mod open;
mod options;
mod row;
mod shard;
mod shared;
mod slab;
mod ssd;
#[cfg(test)]
pub(crate) mod tests;
mod writes;

use std::sync::Arc;
use std::thread::JoinHandle;

pub use counters::RowCacheStatistics;
pub use options::{RowCacheError, RowCacheOptions, SsdAdmission, SsdOptions};
pub use row::CachedRow;
pub use ssd::SsdTicket;
pub(crate) use ssd::page;
pub use writes::{Update, WriteGuard};

use key::Probe;
use shard::Shard;
use shared::Shared;
use ssd::{Found, Place, SsdTier};

/// A row cache of one or two tiers. All calls take `&self` and may come from any number of threads.
pub struct RowCache {
    shared: Arc<Shared>,
    cascade: Option<JoinHandle<()>>,
}

impl RowCache {
    /// The thread that writes to the SSD, if any.
    pub(crate) fn thread(&self) -> Option<&JoinHandle<()>> {
        self.cascade.as_ref()
    }
}

/// Answer of the cache about a row without I/O.
#[derive(Debug)]
pub enum Lookup {
    /// The row, or its known absence.
    Hit(CachedRow),
    /// The row may be on SSD: call [`RowCache::read_ssd`].
    OnSsd(SsdTicket),
    /// The caller must read the engine and call [`RowCache::fill`].
    Miss,
}

/// Permission to insert the result of a later read of the engine; void once the row is written.
#[derive(Debug, Clone, Copy)]
pub struct FillToken {
    hash: u64,
    epoch: u32,
    generation: u32,
}

impl RowCache {
    /// Looks a row up without I/O, and without allocating for a row in memory.
    pub fn lookup(&self, key: &[u8]) -> Lookup {
        let probe = self.shared.probe(key);
        let shard = self.shared.shard(probe.hash);
        let state = shard.read();
        if state.is_being_written(probe.hash) {
            shard.counters.misses.increment();
            return Lookup::Miss;
        }
        if let Some(row) = state.memory.get(&probe) {
            let row = row.clone();
            drop(state);
            shard.counters.memory_hits.increment();
            return Lookup::Hit(row);
        }
        let location = state.index.as_ref().and_then(|index| index.reference(probe.hash));
        let (Some(location), Some(ssd)) = (location, &self.shared.ssd) else {
            drop(state);
            shard.counters.misses.increment();
            return Lookup::Miss;
        };
        // Under the same lock as the look-up: the segment is not reused while the index points
        // there.
        let place = Place { location, sequence: ssd.log.sequence(location.page) };
        let generation = state.generation(probe.hash);
        drop(state);
        match ssd.in_buffer(place, probe.key, probe.epoch) {
            None => Lookup::OnSsd(SsdTicket {
                key: probe.key.into(),
                epoch: probe.epoch,
                generation,
                place,
            }),
            Some(found) => match self.conclude(ssd, shard, &probe, generation, place, found) {
                Some(row) => {
                    ssd.counters.buffer_hits.increment();
                    Lookup::Hit(row)
                }
                None => Lookup::Miss,
            },
        }
    }

    /// Reads the row of a ticket with one blocking read of the SSD. `None` is a miss: the row was
    /// written, its place was reused, or the disk failed.
    pub fn read_ssd(&self, ticket: SsdTicket) -> Option<CachedRow> {
        let ssd = self.shared.ssd.as_ref()?;
        let probe = self.shared.probe(ticket.key());
        let shard = self.shared.shard(probe.hash);
        // A hit from before its table was cleared is not worth the read now.
        let found = if ssd.is_on() && probe.epoch == ticket.epoch {
            ssd.read(ticket.place, &ticket.key, ticket.epoch)
        } else {
            Found::Recycled
        };
        // Probes again, as the table may have been cleared during the read.
        let probe = self.shared.probe(ticket.key());
        let found = if probe.epoch == ticket.epoch { found } else { Found::Recycled };
        self.conclude(ssd, shard, &probe, ticket.generation, ticket.place, found)
    }

    /// Looks a row up in both tiers, reading the SSD if needed.
    pub fn get(&self, key: &[u8]) -> Option<CachedRow> {
        match self.lookup(key) {
            Lookup::Hit(row) => Some(row),
            Lookup::OnSsd(ticket) => self.read_ssd(ticket),
            Lookup::Miss => None,
        }
    }

    /// Begins a fill; must be called after a miss and before the engine is read.
    pub fn begin_fill(&self, key: &[u8]) -> FillToken {
        let probe = self.shared.probe(key);
        let generation = self.shared.shard(probe.hash).read().generation(probe.hash);
        FillToken { hash: probe.hash, epoch: probe.epoch, generation }
    }

    /// Inserts the engine's answer: the record, or the absence of the row. Drops it if the row (or
    /// another of its stripe) was written since the token was issued, if its table was cleared, or
    /// if it is too large; returns whether it was inserted.
    pub fn fill(&self, token: FillToken, key: &[u8], record: Option<&[u8]>) -> bool {
        let probe = self.shared.probe(key);
        debug_assert_eq!(probe.hash, token.hash, "the token of another key");
        let shard = self.shared.shard(probe.hash);
        let row = (probe.hash == token.hash && probe.epoch == token.epoch)
            .then(|| CachedRow::new(probe.key, record));
        let filled = row.flatten().is_some_and(|row| {
            let state = shard.write();
            state.agrees(probe.hash, token.generation)
                && self.shared.admit(shard, state, &probe, row, false)
        });
        if filled {
            shard.counters.fills.increment();
        } else {
            shard.counters.fills_dropped.increment();
        }
        filled
    }

    /// Drops every row of a table; must be called after its rows are gone from the engine. `prefix`
    /// is the common start of the table's keys, `table_prefix_bytes` long. Costs the same for any
    /// number of rows; their space is reclaimed when their turn comes.
    pub fn clear_table(&self, prefix: &[u8]) {
        self.shared.keys.clear_table(prefix);
    }

    /// Concludes a look-up from the record found on SSD and from the row's validity.
    fn conclude(
        &self,
        ssd: &SsdTier,
        shard: &Shard,
        probe: &Probe<'_>,
        generation: u32,
        place: Place,
        found: Found,
    ) -> Option<CachedRow> {
        let row = match found {
            Found::Row(row) => {
                let state = shard.write();
                // If the row was written in the meantime, this is its old state.
                let valid = state.agrees(probe.hash, generation);
                if valid {
                    self.shared.admit(shard, state, probe, row.clone(), true);
                }
                valid.then_some(row)
            }
            Found::Other { key_matches } => {
                if key_matches {
                    shard.write().forget_at(probe.hash, place.location, &ssd.log);
                } else {
                    ssd.counters.key_mismatches.increment();
                }
                None
            }
            Found::Recycled => None,
            Found::Broken(why) => {
                shard.write().forget_at(probe.hash, place.location, &ssd.log);
                if ssd.count_read_error() {
                    self.shared.turn_ssd_off(&format!("reading failed too often, last: {why}"));
                }
                None
            }
        };
        let counter = if row.is_some() { &shard.counters.ssd_hits } else { &shard.counters.misses };
        counter.increment();
        row
    }
}
