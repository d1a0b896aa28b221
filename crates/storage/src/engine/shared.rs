//! An engine with several owners.

use super::{
    Cursor, DataFile, Engine, EngineError, Found, LogMark, Pace, ReadTier, Sizes, Span, Stall,
    Write,
};
use std::path::Path;
use std::sync::Arc;

impl<E: Engine> Engine for Arc<E> {
    fn get(&self, key: &[u8], tier: ReadTier) -> Result<Found, EngineError> {
        (**self).get(key, tier)
    }

    fn write(&self, batch: &[Write], stall: Stall) -> Result<(), EngineError> {
        (**self).write(batch, stall)
    }

    fn pace(&self) -> Pace {
        (**self).pace()
    }

    fn cursor(&self, span: &Span) -> Box<dyn Cursor + '_> {
        (**self).cursor(span)
    }

    fn sequence(&self) -> u64 {
        (**self).sequence()
    }

    fn sync(&self) -> Result<(), EngineError> {
        (**self).sync()
    }

    fn synced_logs(&self) -> Vec<LogMark> {
        (**self).synced_logs()
    }

    fn flush(&self) -> Result<(), EngineError> {
        (**self).flush()
    }

    fn compact(&self, from: &[u8], to: &[u8]) {
        (**self).compact(from, to);
    }

    fn drop_files(&self, from: &[u8], to: &[u8]) -> Result<(), EngineError> {
        (**self).drop_files(from, to)
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), EngineError> {
        (**self).checkpoint(directory)
    }

    fn sizes(&self) -> Sizes {
        (**self).sizes()
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        (**self).statistics()
    }

    fn files(&self) -> Result<Vec<DataFile>, EngineError> {
        (**self).files()
    }
}
