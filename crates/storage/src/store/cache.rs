//! Places the row cache in the path of reads and writes. It holds records as the engine merges
//! them, under the engine's keys.
//!
//! A record is cached before any data is left out: each reader decides which data its partition's
//! deletions cover and which has expired ([`Shared::resolve`]). A deletion of a partition or of a
//! range therefore leaves the cached rows alone: it is a write to the partition's header, which is
//! a record like any other, cached and dropped separately. Only a sweep, which moves old deletions
//! from the header into the rows, writes to both, and drops both.
//!
//! The engine's own work changes no reader's answer, so it drops no cached record: merging
//! fragments is associative, and no reader sees the data that compaction or a write-back purges
//! (expired values, tombstones past their grace). A write with a timestamp before such a tombstone
//! is visible once the engine has purged the tombstone; that write drops the cached record, and
//! with it the tombstone.
//!
//! Writes use [`WriteGuard`]s: while a write is between the engine and its ticket, reads of its row
//! go to the engine. No reader thus sees a write and a later reader the state before it,
//! acknowledged or not. Scans and slices bypass the cache and never fill it.

use super::error::StoreError;
use super::read::Read;
use super::shared::Shared;
use crate::catalogue::{decode_row, encode_row, is_plain};
use crate::engine::{ReadTier, Stall, Write};
use crate::key;
use crate::row::{Bytes, TableId};
use crate::row_cache::{
    CachedRow, Lookup, RowCache, RowCacheError, RowCacheOptions, Update, WriteGuard,
};

/// Leading bytes of a key that name its table.
const TABLE_PREFIX_BYTES: usize = key::TABLE_BYTES;

/// A write drops larger records: merging them costs more than reading them again.
const WRITE_THROUGH_BYTES_MAX: usize = 4 << 10;

/// A record from the cache or the engine.
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

/// Opens the cache of a store. Its second tier starts empty at every opening, and is omitted if its
/// disk is full or fails.
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
    /// Fetches a record from the cache, or from the engine into the cache.
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

    /// Writes a batch that changes the view of readers: until all of them see it, the cache answers
    /// none of them.
    pub(super) fn write_visibly(&self, batch: &[Write], stall: Stall) -> Result<(), StoreError> {
        // Dropped last, after the row cache is updated.
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
        // On failure the guards drop their rows: the engine's state is unknown then.
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

    /// Merges a plain fragment into a plain cached record. Counters are not plain, as they must not
    /// be added twice; nor is purgeable data, as the engine may have purged it already.
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

    /// Drops the cached rows of a table, after it is gone from the engine.
    pub(super) fn clear_cached(&self, table: TableId) {
        if let Some(cache) = &self.cache {
            cache.clear_table(&key::token_start(table, None));
        }
    }
}

/// A statement's values have one time, so flags identify most fragments as plain; counters and
/// headers never are.
fn writes_through(fragment: &[u8]) -> bool {
    fragment.len() <= WRITE_THROUGH_BYTES_MAX && is_plain(fragment)
}
