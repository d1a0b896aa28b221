//! The state of an open store, which its threads share.

use super::changes::Changes;
use super::commit::Commit;
use super::directory::{DirectoryLock, Layout};
use super::figures::Figures;
use super::marker::Marker;
use super::options::StoreOptions;
use super::stamps::Stamps;
use crate::catalogue::Catalogue;
use crate::engine::Engine;
use crate::merger::{GraceTimes, RowMerger};
use crate::row::TableId;
use crate::row_cache::RowCache;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

/// State shared by the store's threads.
pub(crate) struct Shared {
    pub(super) options: StoreOptions,
    pub(super) engine: Box<dyn Engine>,
    pub(super) merger: Arc<RowMerger>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) grace: Arc<GraceTimes>,
    pub(super) commit: Commit,
    pub(super) figures: Figures,
    pub(super) cache: Option<RowCache>,
    /// Tells whether the records read from a partition are of one moment.
    pub(super) stamps: Stamps,
    pub(super) layout: Option<Layout>,
    pub(super) marker: Option<Marker>,
    /// Tables in which a read must look for deletions of partitions and ranges.
    pub(super) headers: RwLock<HashSet<TableId>>,
    /// Writers hold it shared; writing back a row and reclaiming schemas exclude writers. An
    /// exclusive holder must neither read a disk nor merge more than a reader that must not wait.
    pub(super) gate: RwLock<()>,
    pub(super) changes: Changes,
    /// Number of writers that the engine delays. While it is not 0, no event loop takes a lock that
    /// they hold.
    pub(super) delayed: AtomicUsize,
    pub(super) rewrites: SyncSender<Vec<u8>>,
    pub(super) stop_sweeping: AtomicBool,
    /// Allows one sweep, reclaim or snapshot at a time.
    pub(super) upkeep: Mutex<()>,
}

/// An open store. Threads share it by reference or in an `Arc`.
pub struct Store {
    pub(super) shared: Arc<Shared>,
    /// Running until the store is closed.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) stop_upkeep: SyncSender<Vec<u8>>,
    pub(super) _lock: Option<DirectoryLock>,
}

impl Shared {
    /// The maximum value if no directory is watched.
    pub(super) fn free_bytes(&self) -> u64 {
        let watched = self.layout.as_ref().filter(|_| self.options.reserve_bytes > 0);
        watched.map_or(u64::MAX, Layout::free_bytes)
    }

    pub(super) fn lock_upkeep(&self) -> MutexGuard<'_, ()> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
