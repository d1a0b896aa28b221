//! Records the checked extent of the engine's manifest, so that damage to it is detected before the
//! engine opens.
//!
//! RocksDB treats a manifest that ends in the middle of a record as one whose last record was being
//! written, even if the file was truncated or a length in it is damaged. It then opens without the
//! files that the rest would have named, and deletes them. Length and checksum of the earlier
//! content are therefore stored outside the manifest.

use super::logs;
use crate::catalogue::Reader;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Durable state of a manifest at the last check; 0 bytes mean that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ManifestMark {
    /// Number in the manifest's name.
    pub(crate) number: u64,
    /// Length of the manifest.
    pub(crate) bytes: u64,
    /// CRC-32 of these bytes.
    pub(crate) checksum: u32,
}

/// Number of the manifest that `CURRENT` names.
fn current(directory: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(directory.join("CURRENT"))?;
    let number = text.trim_end().strip_prefix("MANIFEST-").and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "CURRENT names no manifest"))
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("MANIFEST-{number:06}"))
}

impl ManifestMark {
    /// Returns the current state. Reads only new bytes, and syncs them: a mark is never ahead of
    /// the disk.
    pub(crate) fn advance(self, directory: &Path) -> io::Result<ManifestMark> {
        let number = current(directory)?;
        let seen = if number == self.number {
            self
        } else {
            ManifestMark { number, ..ManifestMark::default() }
        };
        let mut file = File::open(path(directory, number))?;
        let bytes = file.metadata()?.len();
        if bytes <= seen.bytes {
            return Ok(seen);
        }
        file.sync_data()?;
        file.seek(SeekFrom::Start(seen.bytes))?;
        let mut hasher = crc32fast::Hasher::new_with_initial(seen.checksum);
        let mut new = Vec::new();
        file.take(bytes - seen.bytes).read_to_end(&mut new)?;
        hasher.update(&new);
        Ok(ManifestMark { number, bytes, checksum: hasher.finalize() })
    }

    /// Describes later damage to the manifest, with its name; `None` if it has only grown or a
    /// newer one replaced it. Unreadable files are left for the engine to report.
    pub(crate) fn damage(&self, directory: &Path) -> Option<String> {
        let number = current(directory).ok()?;
        let shown = path(directory, number);
        if number < self.number {
            let newer = path(directory, self.number);
            return Some(format!(
                "{}: CURRENT names it, but {} came after it",
                shown.display(),
                newer.display()
            ));
        }
        if number > self.number {
            return None;
        }
        let mut seen = Vec::new();
        File::open(&shown).ok()?.take(self.bytes).read_to_end(&mut seen).ok()?;
        if (seen.len() as u64) < self.bytes {
            return Some(format!(
                "{}: {} bytes long, it had {}",
                shown.display(),
                seen.len(),
                self.bytes
            ));
        }
        let same = crc32fast::hash(&seen) == self.checksum;
        (!same).then(|| format!("{}: its first {} bytes have changed", shown.display(), self.bytes))
    }
}

/// Number of the first log whose rows are not all in files, according to the current manifest;
/// `None` if the manifest cannot be interpreted.
pub(crate) fn first_log_needed(directory: &Path) -> Option<u64> {
    let bytes = fs::read(path(directory, current(directory).ok()?)).ok()?;
    let mut first = 0;
    for edit in logs::records(&bytes) {
        first = first.max(log_number(&edit)?.unwrap_or(0));
    }
    Some(first)
}

/// Tags of RocksDB's version edits, and the fields after each.
const LOG_NUMBER: u64 = 2;
const IGNORABLE: u64 = 1 << 13;

/// The log number that an edit sets, if any. There is one column family.
#[allow(
    clippy::option_option,
    reason = "an edit that is not understood is not one without a log number"
)]
pub(crate) fn log_number(edit: &[u8]) -> Option<Option<u64>> {
    let mut reader = Reader::new(edit);
    let mut found = None;
    while reader.remaining() > 0 {
        let tag = reader.varint("tag").ok()?;
        let (numbers, texts) = match tag {
            LOG_NUMBER => {
                found = Some(reader.varint("log").ok()?);
                (0, 0)
            }
            // Next file, last sequence, previous log, first log to keep, column family, maximum
            // column family, atomic group.
            3 | 4 | 9 | 10 | 200 | 203 | 300 => (1, 0),
            // Comparator, name of a column family.
            1 | 201 => (0, 1),
            202 => (0, 0),
            // Compaction pointer; deleted file; new file, in three formats.
            5 => (1, 1),
            6 => (2, 0),
            7 => (3, 2),
            100 | 103 => (3, 2),
            tag if tag & IGNORABLE != 0 => (0, 1),
            _ => return None,
        };
        for _ in 0..numbers {
            reader.varint("number").ok()?;
        }
        for _ in 0..texts {
            reader.bytes("text").ok()?;
        }
        if tag == 100 || tag == 103 {
            // First and last sequence.
            reader.varint("number").ok()?;
            reader.varint("number").ok()?;
        }
        // Tagged fields up to the terminator.
        while tag == 103 && reader.varint("field").ok()? != 1 {
            reader.bytes("field").ok()?;
        }
    }
    Some(found)
}
