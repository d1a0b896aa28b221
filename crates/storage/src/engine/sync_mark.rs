//! Contents of the file `synced`: how far log and manifest were synced. A separate file, readable
//! without an engine.
//!
//! ```text
//! number of the last write (8)  manifest: number (8)  length (8)  checksum (4)
//! logs, newest first: number (8)  length (8)
//! checksum of everything before (4)
//! ```
//! Little endian. The oldest stores have only the number and its checksum, later ones also the
//! manifest, current ones also the logs: the length tells the version.

use super::logs::LogMark;
use super::manifest::ManifestMark;

/// Number of recorded logs, the newest ones. There are as many as memtables, and briefly one more.
/// Unused entries are zero.
pub(crate) const LOGS: usize = 8;
const BYTES: usize = MANIFEST_END + LOGS * 16 + 4;
const MANIFEST_END: usize = 28;
/// Length before logs were added.
const BYTES_WITHOUT_LOGS: usize = MANIFEST_END + 4;
/// Length before the manifest was added.
const BYTES_BEFORE: usize = 12;

/// The contents of the file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noted {
    pub(crate) sequence: u64,
    pub(crate) manifest: ManifestMark,
    pub(crate) logs: [LogMark; LOGS],
}

impl Noted {
    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.manifest.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.manifest.bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.manifest.checksum.to_le_bytes());
        for (place, log) in bytes[MANIFEST_END..].chunks_exact_mut(16).zip(&self.logs) {
            place[..8].copy_from_slice(&log.number.to_le_bytes());
            place[8..].copy_from_slice(&log.bytes.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are damaged or have an unknown length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Noted> {
        let long =
            |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let short =
            |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let checked = match bytes.len() {
            BYTES | BYTES_WITHOUT_LOGS | BYTES_BEFORE => bytes.len() - 4,
            _ => return None,
        };
        (short(checked)? == crc32fast::hash(&bytes[..checked])).then_some(())?;
        let mut noted = Noted { sequence: long(0)?, ..Noted::default() };
        if checked > 8 {
            noted.manifest =
                ManifestMark { number: long(8)?, bytes: long(16)?, checksum: short(24)? };
        }
        if checked > MANIFEST_END {
            for (at, log) in noted.logs.iter_mut().enumerate() {
                let at = MANIFEST_END + at * 16;
                *log = LogMark { number: long(at)?, bytes: long(at + 8)? };
            }
        }
        Some(noted)
    }
}
