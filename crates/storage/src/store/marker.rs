//! Records how far log and manifest were synced, so that a missing end is detected.
//!
//! The engine treats a log that stops in the middle of a write as truncated by a crash, and a
//! damaged length looks the same. After every sync the number of the last write in it is therefore
//! recorded in a separate file, which is not synced. After a power failure that number may be
//! behind, which misses a loss; it is never ahead, which would invent one. The same applies to the
//! manifest and to each log, see [`Noted`].

use super::directory::Layout;
use super::error::StoreError;
use crate::engine::{Engine, EngineError, LOGS, LogMark, Noted, first_log_needed};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The open file.
#[derive(Debug)]
pub(super) struct Marker {
    engine: PathBuf,
    file: File,
    noted: Mutex<Noted>,
}

impl Marker {
    /// Refuses a log that ends before the recorded position, unless the loss is accepted. `logs`
    /// names the logs present before the engine opened.
    pub(super) fn open(
        layout: &Layout,
        engine: &dyn Engine,
        logs: &str,
        accept_loss: bool,
    ) -> Result<Self, StoreError> {
        let path = layout.marker();
        if !accept_loss && let Some(what) = missing(&path, engine, logs)? {
            return Err(StoreError::LogLost { path, what });
        }
        let failed = |error| StoreError::io(&path, error);
        let file =
            File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let marker = Marker { engine: layout.engine(), file, noted: Mutex::default() };
        marker.note(engine.sequence(), &engine.synced_logs()).map_err(failed)?;
        marker.note_manifest().map_err(failed)?;
        Ok(marker)
    }

    /// Records the number of the last write that a sync made durable, and how far it covered the
    /// logs.
    pub(super) fn note(&self, sequence: u64, logs: &[LogMark]) -> io::Result<()> {
        let mut noted = self.lock();
        noted.sequence = sequence;
        noted.logs = [LogMark::default(); LOGS];
        noted.logs.iter_mut().zip(logs.iter().rev()).for_each(|(place, log)| *place = *log);
        self.write(&noted)
    }

    /// Records the state of the manifest if it has changed.
    pub(super) fn note_manifest(&self) -> io::Result<()> {
        let mut noted = self.lock();
        let manifest = noted.manifest.advance(&self.engine)?;
        if manifest == noted.manifest {
            return Ok(());
        }
        noted.manifest = manifest;
        self.write(&noted)
    }

    fn write(&self, noted: &Noted) -> io::Result<()> {
        self.file.write_all_at(&noted.encode(), 0)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes the missing part of the log. An absent or damaged marker shows nothing.
pub(super) fn missing(
    path: &Path,
    engine: &dyn Engine,
    logs: &str,
) -> Result<Option<String>, StoreError> {
    let found = engine.sequence();
    let synced = read(path)?.map_or(0, |noted| noted.sequence);
    Ok((found < synced)
        .then(|| format!("write {synced} was synced, the log ({logs}) ends at write {found}")))
}

/// Refuses a manifest that has lost content. Must be called before the engine opens, which deletes
/// unknown files.
pub(super) fn check_manifest(path: &Path, directory: &Path) -> Result<(), StoreError> {
    match read(path)?.and_then(|noted| noted.manifest.damage(directory)) {
        Some(what) => Err(StoreError::Engine(EngineError::Corrupt(what))),
        None => Ok(()),
    }
}

/// Refuses logs that have lost synced content, by name and with every fault. Must be called before
/// the engine opens, which replaces them.
pub(super) fn check_logs(path: &Path, directory: &Path) -> Result<(), StoreError> {
    let Some(noted) = read(path)? else { return Ok(()) };
    // A log that is gone because its rows are in files is not a loss.
    let Some(first) = first_log_needed(directory) else { return Ok(()) };
    let mut damages = Vec::new();
    for log in noted.logs.iter().rev().filter(|log| log.bytes > 0 && log.number >= first) {
        let damage = log.damage(directory);
        damages.extend(damage.map_err(|error| StoreError::io(directory, error))?);
    }
    match damages.is_empty() {
        true => Ok(()),
        false => Err(StoreError::LogLost { path: path.to_owned(), what: damages.join("; ") }),
    }
}

/// True if the file itself is damaged. Remains of a power failure, an empty file or zeros, do not
/// count.
pub(super) fn is_damaged(path: &Path) -> Result<bool, StoreError> {
    let bytes = read_bytes(path)?;
    Ok(bytes.iter().any(|byte| *byte != 0) && Noted::decode(&bytes).is_none())
}

fn read(path: &Path) -> Result<Option<Noted>, StoreError> {
    Ok(Noted::decode(&read_bytes(path)?))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, StoreError> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| StoreError::io(path, error)),
    }
}
