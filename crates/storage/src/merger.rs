//! How the engine merges fragments of rows and headers, and what it forgets while compacting.
//!
//! Many fragments may be put on one key before anybody merges them: what it takes may not grow
//! faster than they do (but for a logarithm), so they are merged all together and never one after
//! another into what has grown already.

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

/// As in Cassandra: ten days.
pub const GC_GRACE_DEFAULT_S: i64 = 864_000;

/// How long tombstones of each table stay, in seconds.
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

/// Merges records with the catalogue's help.
pub(crate) struct RowMerger {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) grace: Arc<GraceTimes>,
    pub(crate) clock: Clock,
    /// Keys whose values have something to forget that compaction itself cannot rewrite.
    pub(crate) rewrites: Option<SyncSender<Vec<u8>>>,
    /// Merges that met a broken fragment.
    pub(crate) broken: AtomicU64,
    /// Somebody looks for the schemas in use: what is merged for a reader counts.
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
            // Deletions of partitions and ranges are forgotten by a sweep alone: compaction does
            // not know which rows they still cover.
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
            // The fragments may stay as they are for long: what they name is in use, whatever the
            // row that they make names.
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
        // A reader looks for one place in a header: that is less than it takes to put a header
        // together.
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
            // Full is as well: the next compaction of this key asks again.
            let _ = rewrites.try_send(key.to_vec());
        }
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests;
