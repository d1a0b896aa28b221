//! A cached row: key and record in one shared allocation, so that a hit returns it without copying
//! or allocating.

use std::fmt;
use std::sync::Arc;

/// Reference counts in front of the bytes of an `Arc`.
const SHARED_HEADER_BYTES: usize = 16;
/// Bytes that the allocator adds to an allocation, and the multiple it rounds to (glibc; others
/// differ little).
const ALLOCATION_HEADER_BYTES: usize = 8;
const ALLOCATION_ROUND_BYTES: usize = 16;

/// A row from the cache: its record, or its known absence. Keeps its bytes alive independently of
/// the cache.
#[derive(Clone)]
pub struct CachedRow {
    entry: Arc<[u8]>,
    key_bytes: u16,
    absent: bool,
}

impl CachedRow {
    /// The encoded record; `None` if the row is known not to exist.
    pub fn record(&self) -> Option<&[u8]> {
        (!self.absent).then(|| self.payload())
    }

    /// `None` if the key is longer than 65,535 bytes; such rows are not cached.
    pub(super) fn new(key: &[u8], record: Option<&[u8]>) -> Option<Self> {
        let key_bytes = u16::try_from(key.len()).ok()?;
        let payload = record.unwrap_or_default();
        let mut entry: Arc<[u8]> = std::iter::repeat_n(0, key.len() + payload.len()).collect();
        let bytes = Arc::get_mut(&mut entry)?;
        bytes[..key.len()].copy_from_slice(key);
        bytes[key.len()..].copy_from_slice(payload);
        Some(CachedRow { entry, key_bytes, absent: record.is_none() })
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.entry[..usize::from(self.key_bytes)]
    }

    /// The record's bytes; empty for an absent row.
    pub(super) fn payload(&self) -> &[u8] {
        &self.entry[usize::from(self.key_bytes)..]
    }

    /// True if both are the same allocation, hence the same fill.
    pub(super) fn is_same(&self, other: &CachedRow) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let bytes = self.entry.len() + SHARED_HEADER_BYTES + ALLOCATION_HEADER_BYTES;
        bytes.next_multiple_of(ALLOCATION_ROUND_BYTES)
    }
}

impl fmt::Debug for CachedRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CachedRow").field("record", &self.record()).finish_non_exhaustive()
    }
}
