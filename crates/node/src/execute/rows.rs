//! Stored rows as values of columns, for selectors, filters and conditions.
//!
//! A single-cell column has that cell's value. A collection or user-defined type stored element by
//! element is assembled from its live cells, in the order of its type.

use std::cmp::Ordering;

use shunt_language::types::CqlType;
use shunt_language::values::{compare, split};
use shunt_storage::row::{Cell, CellValue, ColumnId, Row};

use crate::schema::Column;

/// Metadata of a cell besides its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CellInfo {
    /// Microseconds since 1970.
    pub(crate) timestamp: i64,
    /// Seconds left; `None` without a time to live.
    pub(crate) ttl: Option<i32>,
}

/// The cells of one column.
pub(crate) fn cells_of(row: &Row, column: ColumnId) -> &[Cell] {
    let first = row.cells.partition_point(|cell| cell.column < column);
    let count = row.cells[first..].partition_point(|cell| cell.column == column);
    &row.cells[first..first + count]
}

/// The bytes of a live cell.
fn live_value(cell: &Cell, now: i64) -> Option<Vec<u8>> {
    match &cell.value {
        _ if !cell.is_live(now) => None,
        CellValue::Live(bytes) => Some(bytes.to_vec()),
        CellValue::Counter(count) | CellValue::CounterDelta(count) => {
            Some(count.to_be_bytes().to_vec())
        }
        CellValue::Tombstone { .. } => None,
    }
}

/// The value of a column in a row at `now` (seconds since 1970); `None` is null.
pub(crate) fn value(row: &Row, column: &Column, now: i64) -> Option<Vec<u8>> {
    let cells = cells_of(row, column.id);
    if !column.is_multi_cell() {
        return cells.first().and_then(|cell| live_value(cell, now));
    }
    let live =
        cells.iter().filter_map(|cell| Some((cell.path.as_deref()?, live_value(cell, now)?)));
    assemble(&column.cql_type, live.collect())
}

/// A value from its elements: paths and values in the order of storage.
pub(crate) fn assemble(cql_type: &CqlType, mut elements: Vec<(&[u8], Vec<u8>)>) -> Option<Vec<u8>> {
    if elements.is_empty() {
        return None;
    }
    let count = elements.len();
    match cql_type {
        // List positions are stored in byte order.
        CqlType::List { .. } => {
            Some(split::join_collection(count, elements.iter().map(|(_, value)| value)))
        }
        CqlType::Set { element, .. } => {
            elements.sort_by(|one, other| in_order(element, one.0, other.0));
            Some(split::join_collection(count, elements.iter().map(|(path, _)| path)))
        }
        CqlType::Map { key, .. } => {
            elements.sort_by(|one, other| in_order(key, one.0, other.0));
            let parts = elements.iter().flat_map(|(path, value)| [*path, value.as_slice()]);
            Some(split::join_collection(count, parts))
        }
        CqlType::Udt { definition, .. } => {
            let field = |index: usize| {
                let found = elements.iter().find(|(path, _)| field_of(path) == Some(index));
                found.map(|(_, value)| value.as_slice())
            };
            Some(split::join_tuple((0..definition.fields.len()).map(field)))
        }
        _ => None,
    }
}

fn in_order(cql_type: &CqlType, one: &[u8], other: &[u8]) -> Ordering {
    compare(cql_type, one, other)
}

/// The path of a field of a user-defined type.
pub(crate) fn field_path(index: usize) -> Vec<u8> {
    (index as u16).to_be_bytes().to_vec()
}

/// The field that a path means.
pub(crate) fn field_of(path: &[u8]) -> Option<usize> {
    <[u8; 2]>::try_from(path).ok().map(|bytes| usize::from(u16::from_be_bytes(bytes)))
}

/// Write time and time to live of the live cells of a column, with their paths.
pub(crate) fn infos<'r>(
    row: &'r Row,
    column: &Column,
    now: i64,
) -> impl Iterator<Item = (Option<&'r [u8]>, CellInfo)> + use<'r> {
    cells_of(row, column.id).iter().filter(move |cell| cell.is_live(now)).map(move |cell| {
        let ttl = cell.expiry.map(|expiry| i32::try_from(expiry.at - now).unwrap_or(i32::MAX));
        (cell.path.as_deref(), CellInfo { timestamp: cell.timestamp, ttl })
    })
}
