//! The row cache: whole, merged rows in memory, and on SSD those that no longer fit there.
//!
//! ```text
//! lookup -> memory (S3-FIFO, bounded in bytes) -> index without keys -> write buffer -> ticket -> one read of the SSD
//! fill   -> memory -> what leaves it -> bounded queue -> one thread -> 16 KB buffer -> segment log
//! ```
//! Keys and records are bytes. After CaSSanDra (Menon et al., ICDE 2014): the chain of an in-memory
//! cache and an append-only cache file with a memory-resident index, asynchronous cascade,
//! garbage-driven collection. Ours differs in the policies (rows read once do not displace those
//! read often, nor reach the SSD) and in what the index needs.
//!
//! **Consistent with writes.** The cache is right if its users keep three rules:
//! 1. A read that misses calls [`RowCache::begin_fill`] *before* it reads the engine, and
//!    [`RowCache::fill`] after.
//! 2. A write is in the engine, visible to reads, *before* [`RowCache::invalidate`] or
//!    [`RowCache::update`] is called, and is acknowledged after. No look-up that begins later sees
//!    what was before the write.
//! 3. Where no reader may see an unacknowledged write and another one later the state before it,
//!    the write takes place inside [`RowCache::begin_write`]: meanwhile all reads of its key go to
//!    the engine.
//!
//! Nothing here holds a lock over I/O. `lookup` does no I/O at all; `read_ssd` does exactly one
//! read and may block.

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
    /// The thread that writes to the SSD, if there is one.
    pub(crate) fn thread(&self) -> Option<&JoinHandle<()>> {
        self.cascade.as_ref()
    }
}

/// The answer that the cache has about a row without I/O.
#[derive(Debug)]
pub enum Lookup {
    /// The row, or that there is none.
    Hit(CachedRow),
    /// The row may be on SSD: [`RowCache::read_ssd`] tells.
    OnSsd(SsdTicket),
    /// Read the engine, and [`RowCache::fill`].
    Miss,
}

/// The right to put in what is read from the engine from now on; void once the row is written to.
#[derive(Debug, Clone, Copy)]
pub struct FillToken {
    hash: u64,
    epoch: u32,
    generation: u32,
}

impl RowCache {
    /// Looks a row up. No I/O, and no allocation for a row in memory.
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
        // Under the same lock as the look-up: as long as the index points there, the segment is not
        // used again.
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

    /// Reads the row a ticket stands for, with one read of the SSD; blocks meanwhile. `None` is a
    /// miss: the row was written to, its place was used again, or the disk failed.
    pub fn read_ssd(&self, ticket: SsdTicket) -> Option<CachedRow> {
        let ssd = self.shared.ssd.as_ref()?;
        let probe = self.shared.probe(ticket.key());
        let shard = self.shared.shard(probe.hash);
        // What was looked up before its table was cleared was a hit then; it is not worth the read
        // now.
        let found = if ssd.is_on() && probe.epoch == ticket.epoch {
            ssd.read(ticket.place, &ticket.key, ticket.epoch)
        } else {
            Found::Recycled
        };
        // Again, as the table may have been cleared during the read.
        let probe = self.shared.probe(ticket.key());
        let found = if probe.epoch == ticket.epoch { found } else { Found::Recycled };
        self.conclude(ssd, shard, &probe, ticket.generation, ticket.place, found)
    }

    /// Looks a row up in both tiers, reading the SSD if need be.
    pub fn get(&self, key: &[u8]) -> Option<CachedRow> {
        match self.lookup(key) {
            Lookup::Hit(row) => Some(row),
            Lookup::OnSsd(ticket) => self.read_ssd(ticket),
            Lookup::Miss => None,
        }
    }

    /// To be called after a miss and before the engine is read.
    pub fn begin_fill(&self, key: &[u8]) -> FillToken {
        let probe = self.shared.probe(key);
        let generation = self.shared.shard(probe.hash).read().generation(probe.hash);
        FillToken { hash: probe.hash, epoch: probe.epoch, generation }
    }

    /// Puts in what the engine said: the record, or that there is no row. Dropped if the row (or
    /// another of its stripe) was written to since the token was given out, if its table was
    /// cleared, or if it is too large; returns whether it was put in.
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

    /// Drops every row of a table: to be called after its rows are gone from the engine. `prefix`
    /// is what the keys of the table begin with, `table_prefix_bytes` long. Costs the same for any
    /// number of rows; their space is taken back as their turn comes.
    pub fn clear_table(&self, prefix: &[u8]) {
        self.shared.keys.clear_table(prefix);
    }

    /// Concludes a lookup from what was found at a place on SSD and from the row's right to be
    /// there.
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
                // Written to meanwhile? Then this is the row as it was.
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
