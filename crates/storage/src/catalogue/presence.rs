//! Chooses the schema for a set of columns, and decides when a new one is worthwhile.

use super::file::Contents;
use super::schema::{Presence, Schema, inline_bytes};
use crate::row::{ColumnId, TableId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Limits on the number and size of schemas.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Exact sets of columns per table.
    pub exact: usize,
    /// Bases per table for writing rows; a base contained in another does not count.
    pub bases: usize,
    /// Columns of a base; each takes a bit in every record that refers to it.
    pub base_columns: usize,
    /// Columns of any schema; rows with more list their columns.
    pub schema_columns: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Tables written by a few statements have up to 64 sets; 256 columns need a bitmap of 32
        // bytes.
        Limits { exact: 64, bases: 32, base_columns: 256, schema_columns: 4096 }
    }
}

#[derive(Debug, Default)]
struct TableSchemas {
    exact: HashMap<Box<[ColumnId]>, Arc<Schema>>,
    /// Fewest columns first, so that the first match is the best.
    bases: Vec<Arc<Schema>>,
    /// Requested and not yet usable.
    exact_pending: usize,
    bases_pending: usize,
}

/// State of the catalogue.
#[derive(Debug)]
pub(super) struct State {
    limits: Limits,
    pub(super) schemas: HashMap<u32, Arc<Schema>>,
    /// Schemas that no new record and no record in the newest state of the data names; a read that
    /// began earlier may still need one.
    retired: HashMap<u32, Arc<Schema>>,
    tables: HashMap<TableId, TableSchemas>,
    pub(super) pending: Vec<Arc<Schema>>,
    pub(super) next_id: u32,
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        State {
            limits,
            schemas: HashMap::new(),
            retired: HashMap::new(),
            tables: HashMap::new(),
            pending: Vec::new(),
            next_id: 0,
        }
    }

    pub(super) fn restore(&mut self, contents: Contents) {
        self.next_id = contents.next_id;
        contents.schemas.into_iter().for_each(|schema| self.insert(schema));
    }

    pub(super) fn schema(&self, id: u32) -> Option<Arc<Schema>> {
        self.schemas.get(&id).or_else(|| self.retired.get(&id)).cloned()
    }

    /// `None` if a new schema should be requested.
    pub(super) fn lookup(&self, table: TableId, columns: &[ColumnId]) -> Option<Presence> {
        let schemas = self.tables.get(&table)?;
        if let Some(schema) = schemas.exact.get(columns) {
            schema.mark_used();
            return Some(Presence::Exact(schema.id));
        }
        if columns.len() > self.limits.schema_columns {
            return Some(Presence::Inline);
        }
        if schemas.exact.len() < self.limits.exact {
            return None;
        }
        let best = schemas.bases.iter().find(|schema| contains(&schema.columns, columns));
        if let Some(schema) = best {
            // A few columns out of very many are shorter as a list.
            if schema.bitmap_bytes() + 1 > inline_bytes(columns) {
                return Some(Presence::Inline);
            }
            schema.mark_used();
            return Some(Presence::Base(Arc::clone(schema)));
        }
        (schemas.bases.len() >= self.limits.bases).then_some(Presence::Inline)
    }

    /// Assigns an id to this set, or to a base with room for it; returns whether a schema must be
    /// persisted.
    pub(super) fn ask(&mut self, table: TableId, columns: &[ColumnId]) -> bool {
        if columns.len() > self.limits.schema_columns {
            return false;
        }
        let waits = |schema: &Arc<Schema>| {
            schema.table == table
                && if schema.base {
                    contains(&schema.columns, columns)
                } else {
                    *schema.columns == *columns
                }
        };
        if self.pending.iter().any(waits) {
            return true;
        }
        let Some(next_id) = self.next_id.checked_add(1) else { return false };
        let known = self.tables.entry(table).or_default();
        let schema = if known.exact.len() + known.exact_pending < self.limits.exact {
            known.exact_pending += 1;
            Schema::new(self.next_id, table, columns.into(), false)
        } else if known.bases.len() + known.bases_pending < self.limits.bases {
            known.bases_pending += 1;
            Schema::new(self.next_id, table, base_for(known, columns, &self.limits), true)
        } else {
            return !self.pending.is_empty();
        };
        self.next_id = next_id;
        self.pending.push(Arc::new(schema));
        true
    }

    /// Marks these schemas as present in the file.
    pub(super) fn publish(&mut self, schemas: &[Arc<Schema>]) {
        let ids: BTreeSet<u32> = schemas.iter().map(|schema| schema.id).collect();
        self.pending.retain(|schema| !ids.contains(&schema.id));
        for schema in schemas {
            let table = self.tables.entry(schema.table).or_default();
            if schema.base {
                table.bases_pending = table.bases_pending.saturating_sub(1);
            } else {
                table.exact_pending = table.exact_pending.saturating_sub(1);
            }
            self.insert(Arc::clone(schema));
        }
    }

    /// Retires all schemas except those `in_use` and those named by an encoder since `forget_uses`,
    /// and drops the previously retired ones. Pending schemas stay. Returns the retired ones.
    pub(super) fn retire(&mut self, in_use: &BTreeSet<u32>) -> Vec<Arc<Schema>> {
        let all = std::mem::take(&mut self.schemas);
        for table in self.tables.values_mut() {
            table.exact.clear();
            table.bases.clear();
        }
        self.retired.clear();
        for schema in all.into_values() {
            if in_use.contains(&schema.id) || schema.is_used() {
                self.insert(schema);
            } else {
                self.retired.insert(schema.id, schema);
            }
        }
        self.retired.values().cloned().collect()
    }

    fn insert(&mut self, schema: Arc<Schema>) {
        let table = self.tables.entry(schema.table).or_default();
        if schema.base {
            // A grown base replaces its predecessor, which is still read but no longer written.
            table.bases.retain(|base| !contains(&schema.columns, &base.columns));
            if !table.bases.iter().any(|base| contains(&base.columns, &schema.columns)) {
                let at =
                    table.bases.partition_point(|base| base.columns.len() <= schema.columns.len());
                table.bases.insert(at, Arc::clone(&schema));
            }
        } else {
            table.exact.insert(schema.columns.clone(), Arc::clone(&schema));
        }
        self.schemas.insert(schema.id, schema);
    }
}

/// All known columns of the table, if they fit a base; otherwise the set joined with the nearest
/// base that has room; otherwise the set alone.
fn base_for(known: &TableSchemas, columns: &[ColumnId], limits: &Limits) -> Box<[ColumnId]> {
    let joined = |other: &mut dyn Iterator<Item = ColumnId>| {
        let all: BTreeSet<ColumnId> = other.chain(columns.iter().copied()).collect();
        (all.len() <= limits.base_columns).then(|| all.into_iter().collect::<Box<[ColumnId]>>())
    };
    let sets = known.exact.keys().chain(known.bases.iter().map(|base| &base.columns));
    if let Some(all) = joined(&mut sets.flat_map(|set| set.iter().copied())) {
        return all;
    }
    let shared =
        |base: &&Arc<Schema>| columns.iter().filter(|column| base.columns.contains(column)).count();
    let mut near: Vec<&Arc<Schema>> = known.bases.iter().collect();
    near.sort_by_key(shared);
    let nearest = near.into_iter().rev().find_map(|base| joined(&mut base.columns.iter().copied()));
    nearest.unwrap_or_else(|| columns.into())
}

/// True if the sorted `set` contains all of the sorted `columns`.
fn contains(set: &[ColumnId], columns: &[ColumnId]) -> bool {
    let mut rest = set.iter();
    columns.len() <= set.len()
        && columns.iter().all(|column| rest.by_ref().any(|other| other == column))
}
