//! A store: the node's interface for reads and writes.
//!
//! Writes are blind: `append` and `apply` put fragments into the log and the memtable and return a
//! [`Ticket`]. `wait_durable`, a callback or a listener reports when it is durable, so that an
//! event loop never waits for a disk. Reads merge fragments, apply the deletions of the partition
//! and leave out expired data.

mod cache;
mod changes;
mod check;
mod commit;
mod directory;
mod error;
mod figures;
mod marker;
mod newest;
mod options;
mod metadata;
mod partition;
mod read;
mod scan;
mod shared;
mod stamps;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

pub use check::{Problem, check};
pub use commit::{DurableCallback, SyncListener};
pub use error::StoreError;
pub use figures::{FRAGMENT_CLASSES, StoreFigures};
pub use options::{Durability, Mutation, MutationRef, StoreOptions, Ticket};
pub use partition::PartitionRows;
pub use read::{Reach, Read, Record, RowRef, Slice};
pub use scan::{Position, Scan, ScanItem, ScanRange};
pub use shared::Store;
pub use upkeep::Swept;
pub use write::Appended;

use crate::catalogue::Catalogue;
use crate::engine::{Engine, EngineError, EngineOptions, RocksEngine, Write};
use crate::merger::{GraceTimes, RowMerger};
use crate::row::TableId;
use crate::row_cache::RowCache;
use crate::{files, key};
use changes::Changes;
use commit::Commit;
use directory::{DirectoryLock, Layout};
use figures::Figures;
use marker::Marker;
use shared::Shared;
use stamps::Stamps;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

/// Most keys waiting to be written back.
const REWRITES_WAITING_MAX: usize = 1024;

impl Store {
    /// Opens the store in a directory, or creates one there.
    pub fn open(directory: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        if options.create {
            files::create_directory(directory).map_err(|error| StoreError::io(directory, error))?;
        }
        let layout = Layout::new(directory);
        layout.check_format(options.create)?;
        let lock = DirectoryLock::take(directory)?;
        let begun = layout.check_parts(options.create)?;
        layout.check_room()?;
        marker::check_manifest(&layout.marker(), &layout.engine())?;
        if !options.engine.accept_damaged_log {
            marker::check_logs(&layout.marker(), &layout.engine())?;
        }
        let catalogue = Arc::new(Catalogue::open(&layout.catalogue(), options.catalogue)?);
        let (engine_directory, logs) = (layout.engine(), layout.logs());
        let open = |options: &StoreOptions, merger| -> Result<Box<dyn Engine>, EngineError> {
            let engine = EngineOptions { create: !begun, ..options.engine.clone() };
            let engine = RocksEngine::open(&engine_directory, &engine, merger);
            Ok(Box::new(engine.map_err(|error| directory::name_logs(error, &logs))?))
        };
        let cache = cache::open(options.row_cache.as_ref())?;
        Store::assemble(options, catalogue, cache, Some((layout, lock)), open)
    }

    /// A store on the caller's engine, without a directory. For tests.
    pub fn on_engine(
        options: StoreOptions,
        engine: impl FnOnce(Arc<dyn crate::engine::Merger>) -> Box<dyn Engine>,
    ) -> Result<Store, StoreError> {
        let catalogue = Arc::new(Catalogue::in_memory(options.catalogue));
        let cache = cache::open(options.row_cache.as_ref())?;
        Store::assemble(options, catalogue, cache, None, |_, merger| Ok(engine(merger)))
    }

    fn assemble(
        options: StoreOptions,
        catalogue: Arc<Catalogue>,
        cache: Option<RowCache>,
        directory: Option<(Layout, DirectoryLock)>,
        open: impl FnOnce(
            &StoreOptions,
            Arc<dyn crate::engine::Merger>,
        ) -> Result<Box<dyn Engine>, EngineError>,
    ) -> Result<Store, StoreError> {
        let (rewrites, asked) = sync_channel(REWRITES_WAITING_MAX);
        let grace = Arc::new(GraceTimes::default());
        let merger = Arc::new(RowMerger {
            catalogue: Arc::clone(&catalogue),
            grace: Arc::clone(&grace),
            clock: Arc::clone(&options.clock),
            rewrites: Some(rewrites.clone()),
            broken: Default::default(),
            looks_for_schemas: Default::default(),
        });
        let next_id = catalogue.next_id();
        let (layout, lock) = directory.unzip();
        let logs = layout.as_ref().map(Layout::logs).unwrap_or_default();
        let engine = open(&options, Arc::clone(&merger) as _)?;
        if let Some(layout) = &layout {
            metadata::check_schemas(&*engine, next_id, &layout.catalogue())?;
            layout.make_durable()?;
        }
        let accept_loss = options.engine.accept_damaged_log;
        let marker = match &layout {
            Some(layout) => Some(Marker::open(layout, &*engine, &logs, accept_loss)?),
            None => None,
        };
        let headers = RwLock::new(metadata::tables_with_headers(&*engine)?);
        let shared = Arc::new(Shared {
            options,
            engine,
            merger,
            catalogue,
            grace,
            commit: Commit::default(),
            figures: Figures::default(),
            cache,
            stamps: Stamps::default(),
            layout,
            marker,
            headers,
            gate: RwLock::new(()),
            changes: Changes::default(),
            delayed: AtomicUsize::new(0),
            rewrites: rewrites.clone(),
            stop_sweeping: AtomicBool::new(false),
            upkeep: Mutex::new(()),
        });
        let threads = Mutex::new(start_threads(&shared, asked)?);
        Ok(Store { shared, threads, stop_upkeep: rewrites, _lock: lock })
    }

    /// Deletes all data of a table, which continues to exist. Works even where there is too little
    /// room for other writes.
    pub fn truncate(&self, table: TableId, durability: Durability) -> Result<Ticket, StoreError> {
        self.shared.commit.check_sound()?;
        let deletion = [Write::DeleteRange(key::token_start(table, None), key::table_end(table))];
        // Through the gate: a row being written back would otherwise come after the deletion.
        self.shared.write_patiently(|shared, stall| shared.write(&deletion, stall))?;
        self.shared.clear_cached(table);
        let ticket = self.shared.commit.ticket();
        self.shared.commit.ask(durability);
        Ok(ticket)
    }

    /// Deletes all data of a table whose number is never used again; its files are removed
    /// immediately.
    pub fn drop_table(&self, table: TableId, durability: Durability) -> Result<Ticket, StoreError> {
        let ticket = self.truncate(table, durability)?;
        self.shared.engine.drop_files(&key::token_start(table, None), &key::table_end(table))?;
        Ok(ticket)
    }

    /// The tables with at least one record, including dropped ones that could not be deleted.
    ///
    /// # Errors
    /// The engine cannot read.
    pub fn tables(&self) -> Result<Vec<TableId>, StoreError> {
        Ok(metadata::tables(&*self.shared.engine)?)
    }

    /// Sets the retention of a table's tombstones in seconds. Not persisted: the node sets it after
    /// every opening.
    pub fn set_gc_grace(&self, table: TableId, seconds: i64) {
        self.shared.grace.set(table, seconds);
    }

    /// The newest ticket that is durable together with all before it.
    pub fn durable(&self) -> Ticket {
        self.shared.commit.durable()
    }

    /// A ticket at or after every write seen by reads so far; requests a sync if it is not durable
    /// yet.
    pub fn settle(&self) -> Ticket {
        self.shared.commit.settle_all(self.shared.engine.sequence())
    }

    /// Returns the outcome of a ticket, if known.
    pub fn outcome(&self, ticket: Ticket) -> Option<Result<(), StoreError>> {
        self.shared.commit.known(ticket)
    }

    /// Blocks until a ticket is durable. Must not run on an event loop.
    pub fn wait_durable(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.shared.commit.wait(ticket)
    }

    /// Calls back when a ticket is durable or has failed; immediately, on this thread, if that is
    /// already known.
    pub fn when_durable(&self, ticket: Ticket, callback: DurableCallback) {
        self.shared.commit.when_durable(ticket, callback);
    }

    /// Reports every sync from now on.
    pub fn subscribe(&self, listener: SyncListener) {
        self.shared.commit.subscribe(listener);
    }

    /// The reason why writes are refused, if they are.
    pub fn health(&self) -> Result<(), StoreError> {
        self.shared.commit.check()
    }

    /// Writes memtables to files.
    pub fn flush(&self) -> Result<(), StoreError> {
        Ok(self.shared.engine.flush()?)
    }

    /// Copies the store into a new directory, which can be opened elsewhere while this store
    /// continues. A failed copy is removed.
    pub fn snapshot(&self, directory: &Path) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(directory, error);
        let Some(own) = &self.shared.layout else {
            return Err(failed(std::io::ErrorKind::Unsupported.into()));
        };
        let _one = self.shared.lock_upkeep();
        fs::create_dir(directory).map_err(failed)?;
        let written = self.write_snapshot(own, directory);
        if written.is_err() {
            // Links in the copy would keep room occupied.
            let _ = fs::remove_dir_all(directory);
        }
        written
    }

    fn write_snapshot(&self, own: &Layout, directory: &Path) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(directory, error);
        let copy = Layout::new(directory);
        self.shared.engine.checkpoint(&copy.engine())?;
        // After the rows: the file then contains every schema that one of them uses.
        let catalogue = fs::read(own.catalogue()).map_err(failed)?;
        files::replace(&copy.catalogue(), &catalogue).map_err(|error| failed(error.into()))?;
        // Last: without it the directory is not a store.
        copy.write_format()?;
        copy.make_durable()
    }

    /// Names of the store's threads that have ended. No thread ends before the store is closed, so
    /// these have panicked.
    pub fn dead_threads(&self) -> Vec<String> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let of_cache = self.shared.cache.as_ref().and_then(RowCache::thread);
        let dead = threads.iter().chain(of_cache).filter(|thread| thread.is_finished());
        dead.map(|thread| thread.thread().name().unwrap_or_default().to_owned()).collect()
    }

    /// Syncs, and ends the sync and upkeep threads; false if one of them had panicked. Later writes
    /// are refused or their tickets lost. Dropping the store does the same without reporting it.
    pub fn close(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() {
            return true;
        }
        // An empty key is not a valid key: it ends the thread.
        let _ = self.stop_upkeep.send(Vec::new());
        self.shared.commit.stop();
        threads.drain(..).filter_map(|thread| thread.join().err()).count() == 0
    }

    /// Figures for metrics.
    pub fn figures(&self) -> StoreFigures {
        let shared = &self.shared;
        let broken = shared.merger.broken.load(Ordering::Relaxed);
        let cache = shared.cache.as_ref().map(RowCache::statistics);
        shared.figures.reading(broken, shared.catalogue.counts(), shared.engine.sizes(), cache)
    }

    /// The engine's counters, under its own names.
    pub fn engine_statistics(&self) -> Vec<(String, u64)> {
        self.shared.engine.statistics()
    }

    /// The schemas that records refer to, for callers that read records in place.
    pub fn catalogue(&self) -> &Catalogue {
        &self.shared.catalogue
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

fn start_threads(
    shared: &Arc<Shared>,
    asked: Receiver<Vec<u8>>,
) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let failed = |error| StoreError::io(Path::new("thread"), error);
    let (syncs, keeps) = (Arc::clone(shared), Arc::clone(shared));
    let sync = std::thread::Builder::new()
        .name("store-sync".to_owned())
        .spawn(move || commit::run(&syncs));
    let sync = sync.map_err(failed)?;
    let upkeep = std::thread::Builder::new()
        .name("store-upkeep".to_owned())
        .spawn(move || upkeep::run(&keeps, &asked));
    Ok(vec![sync, upkeep.map_err(failed)?])
}
