//! The engine's twin in memory: the meaning of the trait in minimal code. For tests of the layers
//! above.

use super::{
    Cursor, DataFile, Engine, EngineError, Entry, Found, Merger, Pace, ReadTier, Sizes, Span,
    Stall, Verdict, Write, is_quick,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A value and the fragments written since.
#[derive(Debug, Clone, Default)]
struct Kept {
    base: Option<Vec<u8>>,
    fragments: Vec<Vec<u8>>,
}

impl Kept {
    fn count(&self) -> u32 {
        self.fragments.len() as u32 + u32::from(self.base.is_some())
    }
}

/// Work to run during one sync.
type DuringSync = Box<dyn FnOnce() + Send>;

/// Keys and fragments in a map.
pub struct MemoryEngine {
    merger: Arc<dyn Merger>,
    entries: RwLock<BTreeMap<Vec<u8>, Kept>>,
    sync_error: Mutex<Option<EngineError>>,
    write_error: Mutex<Option<EngineError>>,
    during_sync: Mutex<Option<DuringSync>>,
    writes: AtomicU64,
    pace: Mutex<Pace>,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new(merger: Arc<dyn Merger>) -> Self {
        MemoryEngine {
            merger,
            entries: RwLock::default(),
            sync_error: Mutex::new(None),
            write_error: Mutex::new(None),
            during_sync: Mutex::new(None),
            writes: AtomicU64::new(0),
            pace: Mutex::new(Pace::Free),
        }
    }

    /// Sets the pace of writes from now on, as if compaction fell behind. Delayed writes are
    /// accepted from callers that wait.
    pub fn set_pace(&self, pace: Pace) {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    /// Sets the result of every sync from now on; `None` for success.
    pub fn fail_syncs(&self, error: Option<EngineError>) {
        *self.sync_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Sets the result of every write from now on; `None` for success.
    pub fn fail_writes(&self, error: Option<EngineError>) {
        *self.write_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Runs `work` during the next sync, which does not cover writes made by `work`.
    pub fn during_sync(&self, work: impl FnOnce() + Send + 'static) {
        *self.during_sync.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(work));
    }

    fn is_quick(entry: &Kept) -> bool {
        let fragments: Vec<&[u8]> = entry.fragments.iter().map(Vec::as_slice).collect();
        is_quick(entry.base.as_deref(), &fragments)
    }

    fn merged(&self, key: &[u8], entry: &Kept, purge: bool) -> Vec<u8> {
        let fragments: Vec<&[u8]> = entry.fragments.iter().map(Vec::as_slice).collect();
        match &entry.base {
            Some(base) if fragments.is_empty() => base.clone(),
            base => self.merger.merge(key, base.as_deref(), &fragments, purge),
        }
    }
}

impl Engine for MemoryEngine {
    fn get(&self, key: &[u8], tier: ReadTier) -> Result<Found, EngineError> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get(key) else { return Ok(Found::Absent) };
        if tier == ReadTier::Memory && !MemoryEngine::is_quick(entry) {
            return Ok(Found::WouldBlock);
        }
        Ok(Found::Value { bytes: self.merged(key, entry, false), fragments: entry.count() })
    }

    fn write(&self, batch: &[Write], stall: Stall) -> Result<(), EngineError> {
        if let Some(error) = &*self.write_error.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.clone());
        }
        loop {
            match (self.pace(), stall) {
                (Pace::Free, _) | (Pace::Delayed, Stall::Wait) => break,
                (_, Stall::Refuse) => return Err(EngineError::Busy),
                (Pace::Stopped, Stall::Wait) => std::thread::yield_now(),
            }
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        self.writes.fetch_add(batch.len() as u64, Ordering::AcqRel);
        for write in batch {
            match write {
                Write::Merge(key, fragment) => {
                    entries.entry(key.clone()).or_default().fragments.push(fragment.clone());
                }
                Write::Put(key, value) => {
                    entries.insert(
                        key.clone(),
                        Kept { base: Some(value.clone()), fragments: Vec::new() },
                    );
                }
                Write::Delete(key) => {
                    entries.remove(key);
                }
                Write::DeleteRange(from, to) => {
                    entries.retain(|key, _| key < from || key >= to);
                }
            }
        }
        Ok(())
    }

    fn pace(&self) -> Pace {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cursor(&self, span: &Span) -> Box<dyn Cursor + '_> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let range = entries.range(span.from.clone()..span.to.clone());
        let entry = |(key, kept): (&Vec<u8>, &Kept)| {
            let may = span.tier == ReadTier::Disk || MemoryEngine::is_quick(kept);
            (key.clone(), may.then(|| self.merged(key, kept, false)), kept.count())
        };
        let entries = range.map(entry).collect();
        Box::new(MemoryCursor { entries, at: None })
    }

    fn sequence(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    fn sync(&self) -> Result<(), EngineError> {
        let work = self.during_sync.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            work();
        }
        match &*self.sync_error.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn compact(&self, from: &[u8], to: &[u8]) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<_> =
            entries.range(from.to_vec()..to.to_vec()).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let Some(entry) = entries.get(&key) else { continue };
            let merged = self.merged(&key, entry, true);
            match self.merger.verdict(&key, &merged) {
                Verdict::Keep => {
                    entries.insert(key, Kept { base: Some(merged), fragments: Vec::new() })
                }
                Verdict::Remove => entries.remove(&key),
            };
        }
    }

    fn drop_files(&self, _from: &[u8], _to: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn checkpoint(&self, _directory: &Path) -> Result<(), EngineError> {
        Err(EngineError::Failed("an engine in memory has no files to copy".to_owned()))
    }

    fn sizes(&self) -> Sizes {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let bytes =
            |entry: &Kept| entry.base.iter().chain(&entry.fragments).map(Vec::len).sum::<usize>();
        let total: usize = entries.iter().map(|(key, entry)| key.len() + bytes(entry)).sum();
        Sizes { memtable_bytes: total as u64, keys: entries.len() as u64, ..Sizes::default() }
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn files(&self) -> Result<Vec<DataFile>, EngineError> {
        Ok(Vec::new())
    }
}

/// Iterates over a copy, which makes it a view of one moment.
struct MemoryCursor {
    /// No value if merging would take too long.
    entries: Vec<(Vec<u8>, Option<Vec<u8>>, u32)>,
    at: Option<usize>,
}

impl Cursor for MemoryCursor {
    fn seek(&mut self, key: &[u8]) {
        self.at = Some(self.entries.partition_point(|entry| entry.0.as_slice() < key));
    }

    fn seek_before(&mut self, key: &[u8]) {
        self.at = self.entries.partition_point(|entry| entry.0.as_slice() < key).checked_sub(1);
    }

    fn next(&mut self) {
        self.at = self.at.map(|at| at + 1);
    }

    fn previous(&mut self) {
        self.at = self.at.and_then(|at| at.checked_sub(1));
    }

    fn fragments(&self) -> u32 {
        self.at.and_then(|at| self.entries.get(at)).map_or(0, |entry| entry.2)
    }

    fn entry(&self) -> Result<Option<Entry<'_>>, EngineError> {
        match self.at.and_then(|at| self.entries.get(at)) {
            None => Ok(None),
            Some((_, None, _)) => Err(EngineError::WouldBlock),
            Some((key, Some(value), _)) => Ok(Some((key, value))),
        }
    }
}
