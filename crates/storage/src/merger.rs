//! Merging of rows and headers for the engine, and purging during compaction.
//!
//! Many fragments may pile up on one key before a merge. The cost must grow only linearly with them
//! (times a logarithm), so they are merged all together and never one after another into a growing
//! result.

use crate::catalogue::{
    Catalogue, DecodeError, decode_header, decode_row, decode_unmerged, encode_header, encode_row,
    encode_unmerged, needs_purge,
};
use crate::engine::{Merger, Verdict};
use crate::key::{self, OWN_TABLE, Target};
use crate::row::{Header, Row, TableId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError, RwLock};

/// Seconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Ten days, as in Cassandra.
pub const GC_GRACE_DEFAULT_S: i64 = 864_000;

/// Retention of each table's tombstones, in seconds.
#[derive(Debug, Default)]
pub(crate) struct GraceTimes {
    tables: RwLock<HashMap<TableId, i64>>,
}

impl GraceTimes {
    pub(crate) fn set(&self, table: TableId, seconds: i64) {
        self.tables.write().unwrap_or_else(PoisonError::into_inner).insert(table, seconds);
    }

    pub(crate) fn gc_before(&self, table: TableId, now: i64) -> i64 {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        now.saturating_sub(*tables.get(&table).unwrap_or(&GC_GRACE_DEFAULT_S))
    }
}

/// Merges records with the help of the catalogue.
pub(crate) struct RowMerger {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) grace: Arc<GraceTimes>,
    pub(crate) clock: Clock,
    /// Keys whose values have data to purge that compaction itself cannot rewrite.
    pub(crate) rewrites: Option<SyncSender<Vec<u8>>>,
    /// Number of merges that met a broken fragment.
    pub(crate) broken: AtomicU64,
    /// A search for schemas in use is in progress: merges for readers count too.
    pub(crate) looks_for_schemas: AtomicBool,
}

impl RowMerger {
    fn rows(&self, table: TableId, parts: &[&[u8]], purge: bool) -> Result<Vec<u8>, DecodeError> {
        let rows: Vec<Row> =
            parts.iter().map(|part| decode_row(part, &self.catalogue)).collect::<Result<_, _>>()?;
        let mut merged = Row::merge_all(rows);
        if purge {
            let now = (self.clock)();
            merged.purge(now, self.grace.gc_before(table, now));
        }
        let mut out = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        encode_row(&merged, table, &self.catalogue, &mut out);
        Ok(out)
    }

    fn merge_parts(
        &self,
        key: &[u8],
        parts: &[&[u8]],
        purge: bool,
    ) -> Result<Vec<u8>, DecodeError> {
        match key::split(key) {
            Some((table, _, Target::Row(_) | Target::Static)) => self.rows(table, parts, purge),
            // Only a sweep purges deletions of partitions and ranges: compaction does not know
            // which rows they still cover.
            Some((_, _, Target::Header)) => {
                let headers: Vec<Header> =
                    parts.iter().map(|part| decode_header(part)).collect::<Result<_, _>>()?;
                let merged = Header::merge_all(headers);
                let mut out = Vec::new();
                encode_header(&merged, &mut out);
                Ok(out)
            }
            None => Err(DecodeError::Malformed { what: "key", at: 0 }),
        }
    }
}

impl Merger for RowMerger {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, fragments: &[&[u8]], purge: bool) -> Vec<u8> {
        let kept_apart = base.and_then(decode_unmerged);
        let parts: Vec<&[u8]> = match kept_apart {
            Some(kept) => kept.into_iter().chain(fragments.iter().copied()).collect(),
            None => base.into_iter().chain(fragments.iter().copied()).collect(),
        };
        if !purge && self.looks_for_schemas.load(Ordering::Acquire) {
            // The fragments may stay unmerged for long: the schemas they name are in use, whatever
            // schema the merged row names.
            parts.iter().for_each(|part| self.catalogue.note_use(part));
        }
        if let ([part], false) = (&parts[..], purge) {
            return part.to_vec();
        }
        let apart = || {
            let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 5).sum());
            encode_unmerged(parts.iter().copied(), &mut out);
            out
        };
        // A reader looks for one place in a header, which is cheaper than merging the header.
        if !purge && matches!(key::split(key), Some((_, _, Target::Header))) {
            return apart();
        }
        self.merge_parts(key, &parts, purge).unwrap_or_else(|_| {
            self.broken.fetch_add(1, Ordering::Relaxed);
            apart()
        })
    }

    fn merge_fragments(&self, key: &[u8], fragments: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge_parts(key, fragments, false).ok()
    }

    fn verdict(&self, key: &[u8], value: &[u8]) -> Verdict {
        let table = match key::split(key) {
            Some((table, _, Target::Row(_) | Target::Static))
                if table != OWN_TABLE && needs_purge(value) =>
            {
                table
            }
            _ => return Verdict::Keep,
        };
        let Ok(row) = decode_row(value, &self.catalogue) else { return Verdict::Keep };
        let now = (self.clock)();
        let mut purged = row.clone();
        purged.purge(now, self.grace.gc_before(table, now));
        if purged.is_empty() {
            return Verdict::Remove;
        }
        if purged != row
            && let Some(rewrites) = &self.rewrites
        {
            // A full queue is fine as well: the next compaction of this key asks again.
            let _ = rewrites.try_send(key.to_vec());
        }
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests;
