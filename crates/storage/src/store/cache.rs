//! Puts the row cache into the path of reads and writes. It holds records as the engine merges
//! them, under the engine's own keys.
//!
//! A record is cached before anything is left out of it: what its partition's deletions cover and
//! what has expired is decided by each reader ([`Shared::resolve`]). That is why a deletion of a
//! partition or of a range leaves the cached rows alone: it is a write to the partition's header, a
//! record like any other, cached and dropped by itself. Only a sweep, which moves old deletions
//! from the header into the rows, writes to both, and drops both.
//!
//! The engine's own work changes no reader's answer, so it drops no cached record: merging
//! fragments is associative, and no reader sees what compaction or a write-back forgets (values
//! that expired, tombstones past their grace). A write with a time before such a tombstone is
//! visible once the engine has forgotten the tombstone; that write drops the cached record, and
//! with it the tombstone.
//!
//! Writes go through [`WriteGuard`]s: as long as a write is between the engine and its ticket,
//! reads of its row go to the engine. So no reader sees a write and another one later the state
//! before it, acknowledged or not. Scans and slices pass by the cache and never fill it.

use super::read::Read;
use super::{Shared, StoreError};
use crate::catalogue::{decode_row, encode_row, is_plain};
use crate::engine::{ReadTier, Stall, Write};
use crate::key;
use crate::row::{Bytes, TableId};
use crate::row_cache::{
    CachedRow, Lookup, RowCache, RowCacheError, RowCacheOptions, Update, WriteGuard,
};

/// Leading bytes of a key that name its table.
const TABLE_PREFIX_BYTES: usize = key::TABLE_BYTES;

/// Larger records are dropped by a write: merging them costs more than the read that brings them
/// back.
const WRITE_THROUGH_BYTES_MAX: usize = 4 << 10;

/// A record, wherever it was.
pub(super) enum Stored {
    Cached(CachedRow),
    Read(Option<Bytes>),
}

impl Stored {
    pub(super) fn record(&self) -> Option<&[u8]> {
        match self {
            Stored::Cached(row) => row.record(),
            Stored::Read(record) => record.as_deref(),
        }
    }
}

/// Opens the cache of a store. Its second tier begins empty at every opening, and is left out if
/// its disk is full or fails.
pub(super) fn open(options: Option<&RowCacheOptions>) -> Result<Option<RowCache>, RowCacheError> {
    let Some(options) = options else { return Ok(None) };
    let options = RowCacheOptions { table_prefix_bytes: TABLE_PREFIX_BYTES, ..options.clone() };
    match RowCache::open(options.clone()) {
        Err(error @ RowCacheError::Ssd { .. }) => {
            tracing::warn!(%error, "the row cache is opened without its SSD tier");
            RowCache::open(RowCacheOptions { ssd: None, ..options }).map(Some)
        }
        opened => opened.map(Some),
    }
}

impl Shared {
    /// A record out of the cache, else out of the engine and then into the cache.
    pub(super) fn fetch(&self, key: &[u8], tier: ReadTier) -> Result<Read<Stored>, StoreError> {
        let Some(cache) = &self.cache else { return self.fetch_from_engine(key, tier) };
        let cached = match cache.lookup(key) {
            Lookup::Hit(row) => Some(row),
            Lookup::OnSsd(_) if tier == ReadTier::Memory => {
                self.figures.blocked();
                return Ok(Read::WouldBlock);
            }
            Lookup::OnSsd(ticket) => cache.read_ssd(ticket),
            Lookup::Miss => None,
        };
        if let Some(row) = cached {
            return Ok(Read::Ready(Stored::Cached(row)));
        }
        let token = cache.begin_fill(key);
        let found = self.fetch_from_engine(key, tier)?;
        if let Read::Ready(stored) = &found {
            cache.fill(token, key, stored.record());
        }
        Ok(found)
    }

    fn fetch_from_engine(&self, key: &[u8], tier: ReadTier) -> Result<Read<Stored>, StoreError> {
        Ok(match self.read_record(key, tier)? {
            Read::WouldBlock => Read::WouldBlock,
            Read::Ready(record) => Read::Ready(Stored::Read(record.map(|record| record.bytes))),
        })
    }

    /// Writes a batch that changes what readers see: until it is visible to all of them, none is
    /// answered by the cache.
    pub(super) fn write_visibly(&self, batch: &[Write], stall: Stall) -> Result<(), StoreError> {
        // The last to be dropped: the row cache has it by then.
        let _under_way = self.stamps.begin(batch);
        let Some(cache) = &self.cache else { return self.write(batch, stall) };
        let guarded = batch.iter().filter_map(|write| match write {
            Write::Merge(key, record) => Some((key, Some(record))),
            Write::Put(key, _) | Write::Delete(key) if !Shared::is_own(key) => Some((key, None)),
            _ => None,
        });
        let guards: Vec<(WriteGuard<'_, '_>, _)> = guarded
            .map(|(key, fragment)| (cache.begin_write(key), fragment.map(|record| (key, record))))
            .collect();
        // Should it fail, the guards drop what they guard: nobody knows then what the engine has.
        self.write(batch, stall)?;
        for (guard, merged) in guards {
            match merged {
                Some((key, fragment)) if writes_through(fragment) => {
                    guard.update(|cached| self.merged(key, cached, fragment));
                }
                _ => drop(guard),
            }
        }
        Ok(())
    }

    /// Merges a plain fragment into a cached record, if it is plain itself. Counters are not, as
    /// they must not be added twice; nor is what compaction forgets one day, for the engine may
    /// have forgotten it already.
    fn merged(&self, key: &[u8], cached: Option<&[u8]>, fragment: &[u8]) -> Update {
        let Some(cached) = cached else { return Update::Record(fragment.to_vec()) };
        let decoded =
            (cached.len() <= WRITE_THROUGH_BYTES_MAX).then(|| decode_row(cached, &self.catalogue));
        let (Some(Ok(mut row)), Some(table)) = (decoded, key::table_of(key)) else {
            return Update::Forget;
        };
        let Ok(written) = decode_row(fragment, &self.catalogue) else { return Update::Forget };
        if !row.is_plain() {
            return Update::Forget;
        }
        row.merge(written);
        let mut record = Vec::with_capacity(cached.len() + fragment.len());
        encode_row(&row, table, &self.catalogue, &mut record);
        Update::Record(record)
    }

    /// Drops what is cached of a table, after it is gone from the engine.
    pub(super) fn clear_cached(&self, table: TableId) {
        if let Some(cache) = &self.cache {
            cache.clear_table(&key::token_start(table, None));
        }
    }
}

/// A statement's values have one time, so most fragments are told to be plain by their flags;
/// counters and headers never.
fn writes_through(fragment: &[u8]) -> bool {
    fragment.len() <= WRITE_THROUGH_BYTES_MAX && is_plain(fragment)
}
