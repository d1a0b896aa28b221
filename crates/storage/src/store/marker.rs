//! How far log and manifest were synced, so that an end of them that went missing is noticed.
//!
//! The engine takes a log that stops in the middle of a write for one that was cut off there by a crash, and a damaged
//! length looks like that too. So after every sync the number of the last write in it is noted in a file of its own, which
//! is not synced: after a power failure it may be behind, which misses a loss; it is never ahead, which would make one up.
//! The same goes for the manifest, see [`ManifestMark`].

use super::StoreError;
use super::directory::Layout;
use crate::engine::{Engine, EngineError, ManifestMark};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of the write, then number, length and checksum of the manifest, then a checksum of these.
const BYTES: usize = 32;
/// Before it had the manifest: the number of the write, and its checksum.
const BYTES_BEFORE: usize = 12;

/// The open file.
#[derive(Debug)]
pub(super) struct Marker {
    engine: PathBuf,
    file: File,
    noted: Mutex<Noted>,
}

/// What the file says.
#[derive(Debug, Clone, Copy, Default)]
struct Noted {
    sequence: u64,
    manifest: ManifestMark,
}

impl Marker {
    /// Refuses a log that ends before what the file says, unless that is accepted. `logs` names what was there before the
    /// engine opened.
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
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let marker = Marker { engine: layout.engine(), file, noted: Mutex::default() };
        marker.note(engine.sequence()).map_err(failed)?;
        marker.note_manifest().map_err(failed)?;
        Ok(marker)
    }

    /// Notes the number of the last write that a sync made durable.
    pub(super) fn note(&self, sequence: u64) -> io::Result<()> {
        let mut noted = self.lock();
        noted.sequence = sequence;
        self.write(&noted)
    }

    /// Notes what the manifest has come to, if it has changed.
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
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&noted.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&noted.manifest.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&noted.manifest.bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&noted.manifest.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all_at(&bytes, 0)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of the log is missing, in words. A marker that is absent or damaged itself says nothing.
pub(super) fn missing(path: &Path, engine: &dyn Engine, logs: &str) -> Result<Option<String>, StoreError> {
    let found = engine.sequence();
    let synced = read(path)?.map_or(0, |noted| noted.sequence);
    Ok((found < synced).then(|| format!("write {synced} was synced, the log ({logs}) ends at write {found}")))
}

/// Refuses a manifest that has lost something. To be asked before the engine opens, which deletes what it does not know.
pub(super) fn check_manifest(path: &Path, directory: &Path) -> Result<(), StoreError> {
    match read(path)?.and_then(|noted| noted.manifest.damage(directory)) {
        Some(what) => Err(StoreError::Engine(EngineError::Corrupt(what))),
        None => Ok(()),
    }
}

/// Whether the file itself is damaged. What a power failure leaves of it, nothing or zeros, is not.
pub(super) fn is_damaged(path: &Path) -> Result<bool, StoreError> {
    let bytes = read_bytes(path)?;
    Ok(bytes.iter().any(|byte| *byte != 0) && decode(&bytes).is_none())
}

fn read(path: &Path) -> Result<Option<Noted>, StoreError> {
    Ok(decode(&read_bytes(path)?))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, StoreError> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| StoreError::io(path, error)),
    }
}

fn decode(bytes: &[u8]) -> Option<Noted> {
    let long = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let short = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let checked = match bytes.len() {
        BYTES | BYTES_BEFORE => bytes.len() - 4,
        _ => return None,
    };
    (short(checked)? == crc32fast::hash(&bytes[..checked])).then_some(())?;
    let mut noted = Noted { sequence: long(0)?, manifest: ManifestMark::default() };
    if checked > 8 {
        noted.manifest = ManifestMark { number: long(8)?, bytes: long(16)?, checksum: short(24)? };
    }
    Some(noted)
}
