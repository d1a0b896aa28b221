//! Records how far each of the engine's logs was synced, so that a missing, truncated or damaged
//! log is detected and named before the engine opens.
//!
//! RocksDB replays the logs that it finds and does not notice a missing one. It treats a log that
//! ends early, or in a record with an invalid length, as truncated by a crash. In both cases it
//! continues with the next log, so the writes of an older log can be lost without a trace. For a
//! damaged record in the middle it reports the damage but not the place.
//!
//! A mark is never ahead of the disk. Bytes behind it are not checked here, since no sync has
//! covered them. A log that is gone because its rows are in files is not a loss, and must never be
//! reported as one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A log as of its last sync: these bytes, which end with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogMark {
    /// Number in the log's name.
    pub number: u64,
    /// Length of the log.
    pub bytes: u64,
}

/// RocksDB writes records in blocks; no record begins where its head would not fit.
const BLOCK_BYTES: usize = 32 << 10;
/// A record's head consists of a checksum (4), its length (2) and its kind (1).
const HEAD_BYTES: usize = 7;

pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.log"))
}

/// Lists the logs in a directory with their lengths, oldest first.
pub(super) fn list(directory: &Path) -> io::Result<Vec<LogMark>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_suffix(".log"))
            .and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        match fs::metadata(path(directory, number)) {
            Ok(data) => logs.push(LogMark { number, bytes: data.len() }),
            // Deleted in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    logs.sort_by_key(|log| log.number);
    Ok(logs)
}

/// Returns the current logs; `known` is their earlier state. Lists the directory only if the newest
/// log has not grown, since there may be a newer one. No writer may run in the meantime, so that
/// each log ends with a record.
pub(super) fn advance(directory: &Path, known: &[LogMark]) -> io::Result<Vec<LogMark>> {
    if let Some((newest, older)) = known.split_last()
        && let Ok(data) = fs::metadata(path(directory, newest.number))
        && data.len() > newest.bytes
    {
        let grown = LogMark { number: newest.number, bytes: data.len() };
        return Ok(older.iter().copied().chain([grown]).collect());
    }
    list(directory)
}

impl LogMark {
    /// Describes later damage to the log, with its name. Must be called only for a log that is
    /// needed: see [`super::first_log_needed`].
    pub(crate) fn damage(&self, directory: &Path) -> io::Result<Option<String>> {
        let path = path(directory, self.number);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(format!(
                    "{}: it is gone, with {} synced bytes",
                    path.display(),
                    self.bytes
                )));
            }
            read => read?,
        };
        let synced = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let Some(synced) = bytes.get(..synced) else {
            return Ok(Some(format!(
                "{}: {} bytes long, it had {}",
                path.display(),
                bytes.len(),
                self.bytes
            )));
        };
        let mut pieces = Pieces { bytes: synced, at: 0 };
        pieces.by_ref().for_each(drop);
        let damaged = pieces.at < synced.len();
        Ok(damaged
            .then(|| format!("{}: the record at byte {} is damaged", path.display(), pieces.at)))
    }
}

/// Iterates over the pieces of records with their kinds; ends at an incomplete piece or at the end
/// of the log.
struct Pieces<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let left = BLOCK_BYTES - self.at % BLOCK_BYTES;
        let (at, left) =
            if left < HEAD_BYTES { (self.at + left, BLOCK_BYTES) } else { (self.at, left) };
        if at >= self.bytes.len() {
            self.at = at;
            return None;
        }
        let head: &[u8; HEAD_BYTES] = self.bytes.get(at..)?.first_chunk()?;
        let checksum = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let end = HEAD_BYTES + usize::from(u16::from_le_bytes([head[4], head[5]]));
        let checked = self.bytes.get(at + HEAD_BYTES - 1..at + end)?;
        if end > left || masked(crc32c(checked)) != checksum {
            return None;
        }
        self.at = at + end;
        Some((head[6], &checked[1..]))
    }
}

/// Complete records up to the first damage.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    const FULL: u8 = 1;
    const FIRST: u8 = 2;
    const LAST: u8 = 4;
    let mut record = Vec::new();
    Pieces { bytes, at: 0 }.filter_map(move |(kind, piece)| {
        if kind == FULL || kind == FIRST {
            record.clear();
        }
        record.extend_from_slice(piece);
        (kind == FULL || kind == LAST).then(|| std::mem::take(&mut record))
    })
}

/// Masks a checksum, so that a checksum of data containing checksums stays distinct.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C, eight bytes at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(8);
    let mut crc = !0u32;
    for word in words.by_ref() {
        let low = crc ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let at = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
        let [a, b, c, d] = low.to_le_bytes();
        crc = at(7, a) ^ at(6, b) ^ at(5, c) ^ at(4, d);
        crc ^= at(3, word[4]) ^ at(2, word[5]) ^ at(1, word[6]) ^ at(0, word[7]);
    }
    for byte in words.remainder() {
        crc = TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    }
    !crc
}

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
