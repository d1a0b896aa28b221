//! The store's own records, in a separate table: written in one batch with their subject, or before
//! it.

use super::error::StoreError;
use super::shared::Shared;
use crate::catalogue::CatalogueError;
use crate::engine::{Engine, EngineError, Found, ReadTier, Span, Stall, Write};
use crate::key::{self, OWN_TABLE, Target};
use crate::row::TableId;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// Followed by a table that has partition headers.
const HEADERS_OF: &[u8] = b"headers/";
/// Written when the disk was full, to test whether it still is.
const PROBE: &[u8] = b"probe";
/// The first unassigned schema id.
const SCHEMAS: &[u8] = b"schemas";

/// The tables in which readers must look for headers.
pub(super) fn tables_with_headers(engine: &dyn Engine) -> Result<HashSet<TableId>, EngineError> {
    let from = key::own(HEADERS_OF);
    let to = vec![u8::MAX; from.len()];
    let mut cursor = engine.cursor(&Span {
        from: from.clone(),
        to,
        one_partition: false,
        cache: false,
        tier: ReadTier::Disk,
    });
    cursor.seek(&from);
    let mut tables = HashSet::new();
    while let Some((key, _)) = cursor.entry()? {
        if let Some(table) = key.strip_prefix(&*from).and_then(|rest| rest.try_into().ok()) {
            tables.insert(TableId(u32::from_be_bytes(table)));
        }
        cursor.next();
    }
    Ok(tables)
}

/// Lists the tables with at least one record, without the store's own.
pub(super) fn tables(engine: &dyn Engine) -> Result<Vec<TableId>, EngineError> {
    let (from, to) = (key::token_start(TableId(0), None), key::token_start(OWN_TABLE, None));
    let mut cursor = engine.cursor(&Span {
        from: from.clone(),
        to,
        one_partition: false,
        cache: false,
        tier: ReadTier::Disk,
    });
    cursor.seek(&from);
    let mut tables = Vec::new();
    while let Some((key, _)) = cursor.entry()? {
        match key::table_of(key) {
            Some(table) => {
                tables.push(table);
                cursor.seek(&key::table_end(table));
            }
            // Not a valid key; a check reports it.
            None => cursor.next(),
        }
    }
    Ok(tables)
}

/// Refuses a catalogue that has lost assigned ids: it would assign them again, and records with
/// them would be misread. `next_id` is the catalogue's before the engine was opened: recovery
/// merges rows, which may request schemas.
pub(super) fn check_schemas(
    engine: &dyn Engine,
    next_id: u32,
    path: &Path,
) -> Result<(), StoreError> {
    let Found::Value { bytes, .. } = engine.get(&key::own(SCHEMAS), ReadTier::Disk)? else {
        return Ok(());
    };
    let given_out = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    if given_out <= next_id {
        return Ok(());
    }
    let what = format!("schemas up to {given_out} have been given out, it ends at {next_id}");
    let at = usize::try_from(path.metadata().map_or(0, |data| data.len())).unwrap_or_default();
    Err(StoreError::Catalogue(Arc::new(CatalogueError::Corrupt {
        path: path.to_owned(),
        at,
        what,
    })))
}

impl Shared {
    /// Before a record uses one of these ids: the log keeps the order.
    pub(super) fn note_schemas(&self, next_id: u32) -> bool {
        let note = Write::Put(key::own(SCHEMAS), next_id.to_be_bytes().to_vec());
        self.commit.check().and_then(|()| self.write(&[note], Stall::Refuse)).is_ok()
    }

    /// Called periodically: a manifest changes with flushes and compactions.
    pub(super) fn note_manifest(&self) {
        if let Some(marker) = &self.marker {
            // A failure only means that damage could go unnoticed.
            let _ = marker.note_manifest();
        }
    }

    /// A write without effect, to test whether writes are possible.
    pub(super) fn probe(&self) -> Result<(), EngineError> {
        self.engine.write(&[Write::Put(key::own(PROBE), Vec::new())], Stall::Refuse)
    }

    /// Readers look for headers only in tables that have had one: recorded in memory first, then in
    /// the same batch.
    pub(super) fn note_header(&self, table: TableId, batch: &mut Vec<Write>) {
        let known = self.has_headers(table);
        if !known {
            self.headers.write().unwrap_or_else(PoisonError::into_inner).insert(table);
        }
        // Every time, because the batch that recorded it first may have failed.
        batch.push(Write::Put(key::own(&[HEADERS_OF, &table.0.to_be_bytes()].concat()), vec![1]));
    }

    pub(super) fn has_headers(&self, table: TableId) -> bool {
        self.headers.read().unwrap_or_else(PoisonError::into_inner).contains(&table)
    }

    pub(super) fn is_header(key: &[u8]) -> bool {
        matches!(key::split(key), Some((_, _, Target::Header)))
    }

    pub(super) fn is_own(key: &[u8]) -> bool {
        key::table_of(key) == Some(OWN_TABLE)
    }
}
