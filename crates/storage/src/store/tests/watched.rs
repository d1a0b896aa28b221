//! An engine that reports calls to a test, and skips those that the test selects.

use super::*;
use crate::engine::{Cursor, DataFile, Found, Merger, Pace, ReadTier, Sizes, Span};
use std::sync::OnceLock;

/// Callback of a test at a read, with the key and whether the gate is closed at that moment.
type OnGet = Box<dyn Fn(&[u8], bool) + Send + Sync>;

/// Engine described above.
pub(super) struct Watched {
    inner: Box<dyn Engine>,
    store: OnceLock<Arc<Shared>>,
    on_get: OnGet,
    compacts: bool,
}

impl Watched {
    /// A store on such an engine, around one created by `make`.
    pub(super) fn store(
        options: StoreOptions,
        make: impl FnOnce(Arc<dyn Merger>) -> Box<dyn Engine>,
        on_get: impl Fn(&[u8], bool) + Send + Sync + 'static,
        compacts: bool,
    ) -> Store {
        let mut kept = None;
        let store = Store::on_engine(options, |merger| {
            let (inner, on_get) = (make(merger), Box::new(on_get));
            let engine = Arc::new(Watched { inner, store: OnceLock::new(), on_get, compacts });
            kept = Some(Arc::clone(&engine));
            Box::new(engine)
        })
        .unwrap();
        let _ = kept.unwrap().store.set(Arc::clone(&store.shared));
        store
    }
}

impl Engine for Watched {
    fn get(&self, key: &[u8], tier: ReadTier) -> Result<Found, EngineError> {
        if let Some(shared) = self.store.get() {
            let closed = shared.gate.try_read().is_err();
            (self.on_get)(key, closed);
        }
        self.inner.get(key, tier)
    }

    fn compact(&self, from: &[u8], to: &[u8]) {
        if self.compacts {
            self.inner.compact(from, to);
        }
    }

    fn write(&self, batch: &[Write], stall: Stall) -> Result<(), EngineError> {
        self.inner.write(batch, stall)
    }

    fn pace(&self) -> Pace {
        self.inner.pace()
    }

    fn cursor(&self, span: &Span) -> Box<dyn Cursor + '_> {
        self.inner.cursor(span)
    }

    fn sequence(&self) -> u64 {
        self.inner.sequence()
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.inner.flush()
    }

    fn drop_files(&self, from: &[u8], to: &[u8]) -> Result<(), EngineError> {
        self.inner.drop_files(from, to)
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), EngineError> {
        self.inner.checkpoint(directory)
    }

    fn sizes(&self) -> Sizes {
        self.inner.sizes()
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        self.inner.statistics()
    }

    fn files(&self) -> Result<Vec<DataFile>, EngineError> {
        self.inner.files()
    }
}
