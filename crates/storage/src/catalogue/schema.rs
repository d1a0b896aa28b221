//! Sets of columns with an id, and the ways in which a record names its columns.

use super::bytes::varint_bytes;
use crate::row::{ColumnId, TableId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A set of columns with an id.
#[derive(Debug)]
pub struct Schema {
    /// Number by which records name the schema.
    pub id: u32,
    /// Table of the columns.
    pub table: TableId,
    /// Sorted, not empty.
    pub columns: Box<[ColumnId]>,
    /// True if each record says which of the columns it has.
    pub(crate) base: bool,
    /// Named by a record since `forget_uses`.
    used: AtomicBool,
}

impl Schema {
    pub(super) fn new(id: u32, table: TableId, columns: Box<[ColumnId]>, base: bool) -> Self {
        Schema { id, table, columns, base, used: AtomicBool::new(false) }
    }

    pub(crate) fn bitmap_bytes(&self) -> usize {
        self.columns.len().div_ceil(8)
    }

    pub(super) fn mark_used(&self) {
        // Reads first, so that the cache line of a busy schema stays shared among the cores.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Release);
        }
    }

    pub(super) fn forget_use(&self) {
        self.used.store(false, Ordering::Release);
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }
}

/// The way in which a record names its columns.
#[derive(Debug, Clone)]
pub(crate) enum Presence {
    Exact(u32),
    Base(Arc<Schema>),
    Inline,
}

/// Number of bytes for naming these columns in the record.
pub(super) fn inline_bytes(columns: &[ColumnId]) -> usize {
    let mut last = 0;
    let mut total = varint_bytes(columns.len() as u64);
    for column in columns {
        total += varint_bytes(u64::from(column.0.wrapping_sub(last)));
        last = column.0;
    }
    total
}
