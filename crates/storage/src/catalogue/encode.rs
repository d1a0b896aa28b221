//! Encodes rows and headers as records.

use super::bytes::{put_bytes, put_signed, put_varint};
use super::layout::*;
use super::registry::Catalogue;
use super::schema::Presence;
use crate::row::{Cell, CellValue, ColumnId, Cut, Deletion, Expiry, Header, Row, TableId};

/// Base of the cells' relative times.
#[derive(Clone, Copy)]
struct Base {
    timestamp: i64,
    expiry: Option<Expiry>,
}

/// Appends the record of a row in canonical form.
pub fn encode_row(row: &Row, table: TableId, catalogue: &Catalogue, out: &mut Vec<u8>) {
    let groups: Vec<&[Cell]> =
        row.cells.chunk_by(|left, right| left.column == right.column).collect();
    let columns: Vec<ColumnId> = groups.iter().map(|group| group[0].column).collect();
    let base = base_of(row);
    let presence =
        if columns.is_empty() { None } else { Some(catalogue.presence(table, &columns)) };
    let plain = groups.iter().all(|group| is_plain(group, base));
    let uniform = plain
        && groups.len() > 1
        && groups.iter().all(|group| plain_bytes(group) == plain_bytes(groups[0]));

    out.push(VERSION << 4 | KIND_ROW);
    let flags_at = out.len();
    out.push(0);
    put_signed(out, base.timestamp.wrapping_sub(EPOCH_US));
    let mut flags = 0;
    if let Some(expiry) = base.expiry {
        flags |= EXPIRY;
        put_expiry(out, expiry, base.timestamp);
    }
    flags |= put_liveness(out, row, base);
    if row.deletion.is_some() || !row.complex.is_empty() {
        flags |= DELETIONS;
        put_deletions(out, row, base);
    }
    flags |= put_presence(out, presence, &columns) << PRESENCE_SHIFT;
    if uniform {
        flags |= UNIFORM;
        put_varint(out, plain_bytes(groups[0]).unwrap_or_default() as u64);
    } else if !plain {
        flags |= METADATA;
    }
    out[flags_at] = flags;
    let mut values = Vec::new();
    for group in groups {
        match group {
            [cell] if cell.path.is_none() => {
                if !plain {
                    put_cell_metadata(out, cell, base);
                }
                if !uniform {
                    put_varint(out, value_bytes(cell) as u64);
                }
                put_value(&mut values, cell);
            }
            elements => {
                let start = values.len();
                put_elements(&mut values, elements, base);
                out.push(CELL_ELEMENTS);
                put_varint(out, (values.len() - start) as u64);
            }
        }
    }
    out.extend_from_slice(&values);
}

/// The row's own timestamp or the first cell's, which most cells share.
fn base_of(row: &Row) -> Base {
    if let Some(liveness) = row.liveness {
        return Base { timestamp: liveness.timestamp, expiry: liveness.expiry };
    }
    match (row.cells.first(), row.deletion, row.complex.first().copied()) {
        (Some(cell), _, _) => Base { timestamp: cell.timestamp, expiry: cell.expiry },
        (None, Some(deletion), _) | (None, None, Some((_, deletion))) => {
            Base { timestamp: deletion.timestamp, expiry: None }
        }
        (None, None, None) => Base { timestamp: EPOCH_US, expiry: None },
    }
}

/// Length of a value that needs no metadata.
fn plain_bytes(group: &[Cell]) -> Option<usize> {
    match group {
        [Cell { path: None, value: CellValue::Live(bytes), .. }] => Some(bytes.len()),
        _ => None,
    }
}

fn is_plain(group: &[Cell], base: Base) -> bool {
    plain_bytes(group).is_some()
        && group[0].timestamp == base.timestamp
        && group[0].expiry == base.expiry
}

fn put_expiry(out: &mut Vec<u8>, expiry: Expiry, timestamp: i64) {
    put_varint(out, u64::from(expiry.ttl));
    put_signed(out, expiry.at.wrapping_sub(seconds(timestamp)).wrapping_sub(i64::from(expiry.ttl)));
}

fn put_liveness(out: &mut Vec<u8>, row: &Row, base: Base) -> u8 {
    let Some(liveness) = row.liveness else { return 0 };
    if liveness.timestamp == base.timestamp && liveness.expiry == base.expiry {
        return LIVENESS_AT_BASE;
    }
    put_signed(out, liveness.timestamp.wrapping_sub(base.timestamp));
    out.push(u8::from(liveness.expiry.is_some()));
    if let Some(expiry) = liveness.expiry {
        put_expiry(out, expiry, liveness.timestamp);
    }
    LIVENESS_OWN
}

fn put_deletion(out: &mut Vec<u8>, deletion: Deletion, base: i64) {
    put_signed(out, deletion.timestamp.wrapping_sub(base));
    put_signed(out, deletion.local.wrapping_sub(seconds(deletion.timestamp)));
}

fn put_deletions(out: &mut Vec<u8>, row: &Row, base: Base) {
    put_varint(out, (row.complex.len() as u64) << 1 | u64::from(row.deletion.is_some()));
    if let Some(deletion) = row.deletion {
        put_deletion(out, deletion, base.timestamp);
    }
    let mut last = 0;
    for (column, deletion) in &row.complex {
        put_varint(out, u64::from(column.0.wrapping_sub(last)));
        last = column.0;
        put_deletion(out, *deletion, base.timestamp);
    }
}

fn put_presence(out: &mut Vec<u8>, presence: Option<Presence>, columns: &[ColumnId]) -> u8 {
    match presence {
        None => PRESENCE_NONE,
        Some(Presence::Exact(id)) => {
            put_varint(out, u64::from(id));
            PRESENCE_EXACT
        }
        Some(Presence::Base(schema)) => {
            put_varint(out, u64::from(schema.id));
            let start = out.len();
            out.resize(start + schema.bitmap_bytes(), 0);
            let mut next = columns.iter().peekable();
            for (at, column) in schema.columns.iter().enumerate() {
                if next.next_if_eq(&column).is_some() {
                    out[start + at / 8] |= 1 << (at % 8);
                }
            }
            PRESENCE_BASE
        }
        Some(Presence::Inline) => {
            put_varint(out, columns.len() as u64);
            let mut last = 0;
            for column in columns {
                put_varint(out, u64::from(column.0.wrapping_sub(last)));
                last = column.0;
            }
            PRESENCE_INLINE
        }
    }
}

fn put_cell_metadata(out: &mut Vec<u8>, cell: &Cell, base: Base) {
    let mut flags = match cell.value {
        CellValue::Live(_) => CELL_LIVE,
        CellValue::Tombstone { .. } => CELL_TOMBSTONE,
        CellValue::Counter(_) => CELL_COUNTER,
        CellValue::CounterDelta(_) => CELL_DELTA,
    };
    if cell.timestamp != base.timestamp {
        flags |= CELL_TIMESTAMP;
    }
    match cell.expiry {
        None if base.expiry.is_some() => flags |= CELL_STAYS,
        own if own != base.expiry => flags |= CELL_EXPIRY,
        _ => {}
    }
    out.push(flags);
    if flags & CELL_TIMESTAMP != 0 {
        put_signed(out, cell.timestamp.wrapping_sub(base.timestamp));
    }
    if let Some(expiry) = cell.expiry.filter(|_| flags & CELL_EXPIRY != 0) {
        put_expiry(out, expiry, cell.timestamp);
    }
    if let CellValue::Tombstone { local } = cell.value {
        put_signed(out, local.wrapping_sub(seconds(cell.timestamp)));
    }
}

fn value_bytes(cell: &Cell) -> usize {
    match &cell.value {
        CellValue::Live(bytes) => bytes.len(),
        CellValue::Tombstone { .. } => 0,
        CellValue::Counter(_) | CellValue::CounterDelta(_) => 8,
    }
}

fn put_value(out: &mut Vec<u8>, cell: &Cell) {
    match &cell.value {
        CellValue::Live(bytes) => out.extend_from_slice(bytes),
        CellValue::Tombstone { .. } => {}
        CellValue::Counter(sum) | CellValue::CounterDelta(sum) => {
            out.extend_from_slice(&sum.to_be_bytes())
        }
    }
}

fn put_elements(out: &mut Vec<u8>, elements: &[Cell], base: Base) {
    put_varint(out, elements.len() as u64);
    for cell in elements {
        // The path's length plus one; 0 for no path.
        put_varint(out, cell.path.as_ref().map_or(0, |path| path.len() as u64 + 1));
        out.extend_from_slice(cell.path.as_deref().unwrap_or_default());
        put_cell_metadata(out, cell, base);
        put_varint(out, value_bytes(cell) as u64);
        put_value(out, cell);
    }
}

/// Appends the record of a header in canonical form.
pub fn encode_header(header: &Header, out: &mut Vec<u8>) {
    out.push(VERSION << 4 | KIND_HEADER);
    put_varint(out, (header.ranges.len() as u64) << 1 | u64::from(header.deletion.is_some()));
    if let Some(deletion) = header.deletion {
        put_deletion(out, deletion, EPOCH_US);
    }
    for range in &header.ranges {
        put_cut(out, &range.start);
        put_cut(out, &range.end);
        put_deletion(out, range.deletion, EPOCH_US);
    }
}

fn put_cut(out: &mut Vec<u8>, cut: &Cut) {
    match cut {
        Cut::Start => out.push(0),
        Cut::Before(bytes) => {
            out.push(1);
            put_bytes(out, bytes);
        }
        Cut::After(bytes) => {
            out.push(2);
            put_bytes(out, bytes);
        }
        Cut::End => out.push(3),
    }
}

/// Appends a record that preserves unmergeable fragments unchanged, oldest first.
pub fn encode_unmerged<'a>(fragments: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.push(VERSION << 4 | KIND_UNMERGED);
    put_varint(out, fragments.len() as u64);
    for fragment in fragments {
        put_bytes(out, fragment);
    }
}
