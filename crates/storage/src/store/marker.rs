//! How far the log was synced, so that an end of it that went missing is noticed.
//!
//! The engine takes a log that stops in the middle of a write for one that was cut off there by a crash, and a damaged
//! length looks like that too. So after every sync the number of the last write in it is noted in a file of its own, which
//! is not synced: after a power failure it may be behind, which misses a loss; it is never ahead, which would make one up.

use super::StoreError;
use crate::engine::Engine;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BYTES: usize = 12;

/// The open file.
#[derive(Debug)]
pub(super) struct Marker {
    path: PathBuf,
    file: File,
}

impl Marker {
    /// Refuses a log that ends before what the file says, unless that is accepted.
    pub(super) fn open(path: &Path, engine: &dyn Engine, accept_loss: bool) -> Result<Self, StoreError> {
        if !accept_loss && let Some(what) = missing(path, engine)? {
            return Err(StoreError::LogLost { path: path.to_owned(), what });
        }
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let marker = Marker { path: path.to_owned(), file: file.map_err(|error| StoreError::io(path, error))? };
        marker.note(engine.sequence()).map_err(|error| StoreError::io(&marker.path, error))?;
        Ok(marker)
    }

    /// Notes the number of the last write that a sync made durable.
    pub(super) fn note(&self, sequence: u64) -> io::Result<()> {
        let number = sequence.to_le_bytes();
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&crc32fast::hash(&number).to_le_bytes());
        self.file.write_all_at(&bytes, 0)
    }
}

/// What of the log is missing, in words. A marker that is absent or damaged itself says nothing.
pub(super) fn missing(path: &Path, engine: &dyn Engine) -> Result<Option<String>, StoreError> {
    let found = engine.sequence();
    Ok(match read(path)? {
        Noted::Write(synced) if found < synced => {
            Some(format!("write {synced} was synced, the log ends at write {found}"))
        }
        _ => None,
    })
}

/// Whether the file itself is damaged. What a power failure leaves of it, nothing or zeros, is not.
pub(super) fn is_damaged(path: &Path) -> Result<bool, StoreError> {
    Ok(matches!(read(path)?, Noted::Damaged))
}

/// What the file says.
enum Noted {
    Write(u64),
    Nothing,
    Damaged,
}

fn read(path: &Path) -> Result<Noted, StoreError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Noted::Nothing),
        Err(error) => return Err(StoreError::io(path, error)),
    };
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Noted::Nothing);
    }
    let parts = <&[u8; BYTES]>::try_from(&bytes[..]).ok().and_then(|bytes| bytes.split_first_chunk::<8>());
    let intact = parts.filter(|(number, checksum)| crc32fast::hash(&number[..]).to_le_bytes() == *checksum);
    Ok(intact.map_or(Noted::Damaged, |(number, _)| Noted::Write(u64::from_le_bytes(*number))))
}
