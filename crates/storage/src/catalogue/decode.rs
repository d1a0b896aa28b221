//! Decodes records to whole rows.

use super::bytes::Reader;
use super::error::DecodeError;
use super::layout::{KIND_UNMERGED, VERSION};
use super::registry::Catalogue;
use super::view::{CellView, RecordView, ValueView};
use crate::row::{Cell, CellValue, ColumnId, Row};

/// Decodes the row of a record.
pub fn decode_row(bytes: &[u8], catalogue: &Catalogue) -> Result<Row, DecodeError> {
    let mut view = RecordView::parse(bytes, catalogue)?;
    let complex = std::mem::take(&mut view.complex);
    let mut row =
        Row { liveness: view.liveness, deletion: view.deletion, complex, cells: Vec::new() };
    view.each_column(|column, cell| match cell.value {
        ValueView::Elements(body) => {
            for (path, element) in view.elements(body)? {
                row.cells.push(owned(column, path, element));
            }
            Ok(())
        }
        _ => {
            row.cells.push(owned(column, None, cell));
            Ok(())
        }
    })?;
    if !row.cells.is_sorted_by(|left, right| left.place() < right.place()) {
        return Err(DecodeError::Malformed { what: "elements out of order", at: 0 });
    }
    Ok(row)
}

fn owned(column: ColumnId, path: Option<&[u8]>, cell: CellView<'_>) -> Cell {
    let value = match cell.value {
        ValueView::Live(bytes) | ValueView::Elements(bytes) => CellValue::Live(bytes.to_vec()),
        ValueView::Tombstone { local } => CellValue::Tombstone { local },
        ValueView::Counter(sum) => CellValue::Counter(sum),
        ValueView::CounterDelta(added) => CellValue::CounterDelta(added),
    };
    Cell {
        column,
        path: path.map(<[u8]>::to_vec),
        timestamp: cell.timestamp,
        expiry: cell.expiry,
        value,
    }
}

/// The fragments of a record of unmergeable fragments; `None` for another kind of record.
pub fn decode_unmerged(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    if *bytes.first()? != VERSION << 4 | KIND_UNMERGED {
        return None;
    }
    let mut reader = Reader::new(bytes);
    reader.byte("kind").ok()?;
    let count = reader.count("number of fragments").ok()?;
    let fragments =
        (0..count).map(|_| reader.bytes("fragment").ok()).collect::<Option<Vec<_>>>()?;
    reader.end("bytes after the last fragment").ok()?;
    Some(fragments)
}
