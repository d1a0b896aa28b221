//! A row as seen by expressions and filters: values of columns by position, wherever they are
//! stored.

use std::borrow::Cow;

use shunt_language::values::{ordered, split};
use shunt_storage::row::{CellValue, Row};

use super::super::rows::{self, cells_of};
use crate::schema::{Column, ColumnKind, Table};

/// Clustering columns of a row, decoded as far as needed into reused buffers.
#[derive(Clone, Debug, Default)]
pub(in crate::execute) struct Clustering {
    bytes: Vec<u8>,
    /// End of each value in `bytes`.
    ends: Vec<usize>,
    /// End of each column in the encoded key.
    encoded_ends: Vec<usize>,
}

impl Clustering {
    /// Decodes the first `count` columns of a key; `None` if they are missing.
    pub(in crate::execute) fn decode(
        &mut self,
        columns: &[Column],
        count: usize,
        key: &[u8],
    ) -> Option<()> {
        self.bytes.clear();
        self.ends.clear();
        self.encoded_ends.clear();
        let mut rest = key;
        for column in columns.iter().take(count) {
            ordered::decode(&column.cql_type, column.descending, &mut rest, &mut self.bytes)?;
            self.ends.push(self.bytes.len());
            self.encoded_ends.push(key.len() - rest.len());
        }
        Some(())
    }

    /// Replaces the values from the key by the written form, if the row has kept it.
    pub(in crate::execute) fn restore(&mut self, columns: usize, row: &Row) {
        let Some(CellValue::Live(written)) =
            row.cells.last().filter(|cell| cell.is_key()).map(|cell| &cell.value)
        else {
            return;
        };
        let Ok(values) = split::tuple(columns, written) else { return };
        let decoded = self.ends.len();
        self.bytes.clear();
        self.ends.clear();
        for value in values.into_iter().take(decoded) {
            self.bytes.extend_from_slice(value.unwrap_or_default());
            self.ends.push(self.bytes.len());
        }
    }

    fn value(&self, index: usize) -> Option<&[u8]> {
        let start =
            index.checked_sub(1).map_or(0, |before| self.ends.get(before).copied().unwrap_or(0));
        self.bytes.get(start..*self.ends.get(index)?)
    }

    /// Length of the first `count` columns in the key.
    pub(super) fn encoded_len(&self, count: usize) -> usize {
        count.checked_sub(1).and_then(|last| self.encoded_ends.get(last)).copied().unwrap_or(0)
    }
}

/// A row with its partition. In an empty group every field is `None`.
#[derive(Clone, Copy)]
pub(in crate::execute) struct Input<'r> {
    pub(in crate::execute) table: &'r Table,
    /// Key as stored, with the token; empty if there is none.
    pub(in crate::execute) partition: &'r [u8],
    pub(in crate::execute) static_row: Option<&'r Row>,
    pub(in crate::execute) clustering: Option<&'r Clustering>,
    pub(in crate::execute) row: Option<&'r Row>,
    /// Seconds since 1970.
    pub(in crate::execute) now: i64,
}

impl<'r> Input<'r> {
    /// The value of the column at a position; `None` is null.
    pub(in crate::execute) fn value(&self, position: usize) -> Option<Cow<'r, [u8]>> {
        let column = self.table.columns.get(position)?;
        match column.kind {
            ColumnKind::PartitionKey => {
                partition_value(self.partition, self.table.partition_key_len, column.position)
                    .map(Cow::Borrowed)
            }
            ColumnKind::Clustering => self.clustering?.value(column.position).map(Cow::Borrowed),
            ColumnKind::Static => stored(self.static_row?, column, self.now),
            ColumnKind::Regular => stored(self.row?, column, self.now),
        }
    }

    /// The stored row that contains a column.
    pub(super) fn row_of(&self, column: &Column) -> Option<&'r Row> {
        if column.kind == ColumnKind::Static { self.static_row } else { self.row }
    }
}

/// One column of a partition key (native protocol v5, section 6: each component follows its length
/// and ends with a zero).
fn partition_value(partition: &[u8], columns: usize, index: usize) -> Option<&[u8]> {
    let mut rest = partition.get(8..)?;
    if columns == 1 {
        return Some(rest);
    }
    for _ in 0..index {
        let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
        rest = rest.get(2 + length + 1..)?;
    }
    let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    rest.get(2..2 + length)
}

fn stored<'r>(row: &'r Row, column: &Column, now: i64) -> Option<Cow<'r, [u8]>> {
    if column.is_multi_cell() {
        return rows::value(row, column, now).map(Cow::Owned);
    }
    let cell = cells_of(row, column.id).first().filter(|cell| cell.is_live(now))?;
    match &cell.value {
        CellValue::Live(bytes) => Some(Cow::Borrowed(bytes)),
        CellValue::Counter(count) | CellValue::CounterDelta(count) => {
            Some(Cow::Owned(count.to_be_bytes().to_vec()))
        }
        CellValue::Tombstone { .. } => None,
    }
}
