//! All schemas of a store, and how new ones become usable.

use super::file::{CatalogueError, File};
use super::presence::{Limits, State};
use super::schema::{Presence, Schema};
use super::view::RecordView;
use crate::row::{ColumnId, TableId};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Figures for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CatalogueCounts {
    /// Schemas that records may name.
    pub schemas: usize,
    /// Schemas with a bitmap in each record.
    pub bases: usize,
    /// Schemas that wait for the file.
    pub pending: usize,
}

/// Schemas of a store.
#[derive(Debug)]
pub struct Catalogue {
    state: RwLock<State>,
    file: Mutex<Option<File>>,
    /// Set without a file: ids are usable immediately.
    immediate: bool,
    pending: AtomicBool,
}

impl Catalogue {
    /// A catalogue without a file, for tests and tools: ids are usable immediately.
    pub fn in_memory(limits: Limits) -> Self {
        Catalogue::new(State::new(limits), None)
    }

    fn new(state: State, file: Option<File>) -> Self {
        let immediate = file.is_none();
        Catalogue {
            state: RwLock::new(state),
            file: Mutex::new(file),
            immediate,
            pending: AtomicBool::new(false),
        }
    }

    /// Opens the catalogue's file, or creates it.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, CatalogueError> {
        let (file, contents) = File::open(path)?;
        let mut state = State::new(limits);
        state.restore(contents);
        Ok(Catalogue::new(state, Some(file)))
    }

    /// Opens the file without changing it; even a torn end stays.
    pub fn open_read_only(path: &Path, limits: Limits) -> Result<Self, CatalogueError> {
        let mut state = State::new(limits);
        state.restore(File::read(path)?.0);
        Ok(Catalogue::new(state, None))
    }

    /// The schema with this id.
    pub fn schema(&self, id: u32) -> Option<Arc<Schema>> {
        self.read().schema(id)
    }

    /// The first unassigned id.
    pub fn next_id(&self) -> u32 {
        self.read().next_id
    }

    /// True if schemas wait for [`Catalogue::persist`].
    pub fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Writes the pending schemas and syncs, and only then lets records use them. Blocks; must not
    /// run on an event loop.
    pub fn persist(&self) -> Result<(), CatalogueError> {
        self.persist_and(|_| true)
    }

    /// Like [`Catalogue::persist`], with a callback in between: `note` gets the first unassigned
    /// id, and unless it returns true the new ids stay unused for now.
    pub(crate) fn persist_and(&self, note: impl FnOnce(u32) -> bool) -> Result<(), CatalogueError> {
        // Held throughout, so that two callers cannot interleave; readers and encoders do not take
        // it.
        let mut file = self.lock_file();
        let waiting = {
            self.pending.store(false, Ordering::Release);
            self.read().pending.clone()
        };
        if waiting.is_empty() {
            return Ok(());
        }
        if let Some(file) = file.as_mut()
            && let Err(error) = file.append(&waiting)
        {
            self.pending.store(true, Ordering::Release);
            return Err(error);
        }
        let given_out = waiting.iter().map(|schema| schema.id.saturating_add(1)).max();
        if note(given_out.unwrap_or_default()) {
            self.write().publish(&waiting);
        } else {
            self.pending.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Chooses how a record names these columns; requests a new schema if that pays.
    pub(crate) fn presence(&self, table: TableId, columns: &[ColumnId]) -> Presence {
        let known = self.read().lookup(table, columns);
        if let Some(presence) = known {
            return presence;
        }
        // Must not take the file's lock: it is held during a sync and a write to the engine, which
        // may wait for a compaction that calls this function.
        let mut state = self.write();
        if !state.ask(table, columns) {
            return Presence::Inline;
        }
        if self.immediate {
            let waiting = state.pending.clone();
            state.publish(&waiting);
            return state.lookup(table, columns).unwrap_or(Presence::Inline);
        }
        self.pending.store(true, Ordering::Release);
        Presence::Inline
    }

    /// Begins a search for unused schemas: every schema that an encoder names from now on counts as
    /// used.
    pub fn forget_uses(&self) {
        self.read().schemas.values().for_each(|schema| schema.forget_use());
    }

    /// Marks the schema named by a row's record as used. An unreadable record names none.
    pub(crate) fn note_use(&self, record: &[u8]) {
        if let Some(schema) = RecordView::parse(record, self).ok().and_then(|view| view.schema_id())
        {
            self.read().schemas.get(&schema).inspect(|schema| schema.mark_used());
        }
    }

    /// Retires all schemas except those `in_use` and those named by an encoder since `forget_uses`,
    /// and rewrites the file. Their ids are never assigned again. Returns the retired schemas even
    /// if the file could not be written: no encoder names them any more, and they stay readable
    /// until the next call for the sake of ongoing reads.
    pub fn reclaim(
        &self,
        in_use: &BTreeSet<u32>,
    ) -> (Vec<Arc<Schema>>, Result<(), CatalogueError>) {
        let mut file = self.lock_file();
        // Encoders look schemas up under the same lock: each has either named its schema before, or
        // no longer finds it.
        let (retired, kept, next_id) = {
            let mut state = self.write();
            let retired = state.retire(in_use);
            (retired, state.schemas.values().cloned().collect::<Vec<_>>(), state.next_id)
        };
        // Without the lock, because readers must not wait for the disk. Superfluous entries in the
        // file do no harm.
        let written = match file.as_mut() {
            Some(file) if !retired.is_empty() => file.rewrite(next_id, &kept),
            _ => Ok(()),
        };
        (retired, written)
    }

    /// Figures for metrics.
    pub fn counts(&self) -> CatalogueCounts {
        let state = self.read();
        let bases = state.schemas.values().filter(|schema| schema.base).count();
        CatalogueCounts { schemas: state.schemas.len(), bases, pending: state.pending.len() }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
