//! Data that the embedded node reads from its disk. The first byte selects the meaning of the rest:
//! a row's record, a header's, a record of fragments, a key, a file or a page. Checksums that would
//! refuse every mutation are corrected first, since a faulty disk may match them too.

use shunt_storage::catalogue::{
    Catalogue, Limits, RecordView, ValueView, covering, decode_header, decode_row, decode_unmerged,
    encode_header, encode_row, encode_unmerged, is_plain, is_worth_folding, needs_purge,
};
use shunt_storage::raw;
use shunt_storage::row::{Cell, CellValue, ColumnId, Cut, PartitionKey, Row, TableId};

use crate::written;

/// Most memory per byte of a record: an element without path and value takes three bytes.
const BYTES_EACH_MAX: usize = 600;
/// Table of the records.
pub const TABLE: TableId = TableId(7);
/// First bytes of inputs.
pub mod kind {
    /// A row's record.
    pub const ROW: u8 = 0;
    /// A header's record with one or several fragments.
    pub const HEADER: u8 = 1;
    /// A key.
    pub const KEY: u8 = 2;
    /// The file `catalogue`.
    pub const CATALOGUE: u8 = 3;
    /// The payload of an entry in that file.
    pub const CATALOGUE_ENTRY: u8 = 4;
    /// The file `synced`, with a corrected checksum.
    pub const SYNCED: u8 = 5;
    /// A log or manifest of RocksDB.
    pub const LOG: u8 = 6;
    /// An edit in such a manifest.
    pub const EDIT: u8 = 7;
    /// A page of the row cache on SSD.
    pub const PAGE: u8 = 8;
    /// Records of such a page, between bars.
    pub const PAGE_RECORDS: u8 = 9;
    /// Number of kinds.
    pub const COUNT: u8 = 10;
}
/// Life of the segment for reading pages.
pub const SEQUENCE: u64 = 5;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % kind::COUNT {
        kind::ROW => row(bytes),
        kind::HEADER => header(bytes),
        kind::KEY => key(bytes),
        kind::CATALOGUE => catalogue(bytes),
        kind::CATALOGUE_ENTRY => {
            catalogue(&[b"SHUNTCA\x01", &raw::catalogue_entry(bytes)[..]].concat())
        }
        kind::SYNCED => synced(bytes),
        kind::LOG => log(bytes),
        kind::EDIT => drop(crate::bounded(1, bytes.len(), || raw::log_number(bytes))),
        kind::PAGE => page(bytes),
        _ => page_records(bytes),
    }
}

/// A catalogue with an exact schema, number 0, and a base, number 1.
pub fn known_schemas() -> Catalogue {
    let catalogue = Catalogue::in_memory(Limits { exact: 1, bases: 1, ..Limits::default() });
    for columns in [&[1, 2, 3][..], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 300]] {
        let cell = |column: &u32| plain(*column, b"");
        let row = Row { cells: columns.iter().map(cell).collect(), ..Row::default() };
        encode_row(&row, TABLE, &catalogue, &mut Vec::new());
    }
    catalogue
}

/// A cell with only a value.
pub fn plain(column: u32, value: &[u8]) -> Cell {
    let value = CellValue::Live(value.to_vec());
    Cell {
        column: ColumnId(column),
        path: None,
        timestamp: 1_790_000_000_123_456,
        expiry: None,
        value,
    }
}

/// Reading whole and column by column agrees, and re-encoding preserves the row.
fn row(bytes: &[u8]) {
    let catalogue = known_schemas();
    let decoded = crate::bounded(BYTES_EACH_MAX, bytes.len(), || decode_row(bytes, &catalogue));
    let _ = (needs_purge(bytes), is_plain(bytes), is_worth_folding(bytes));
    unmerged(bytes);
    let view = RecordView::parse(bytes, &catalogue);
    let Ok(row) = decoded else { return };
    let view = view.expect("the record of a row that was read");
    assert!(view.value_bytes() <= bytes.len());
    let columns = view.columns();
    for column in &columns {
        let found = view
            .column(*column)
            .expect("a column of a row that was read")
            .expect("one of its columns");
        let mut cells = row.cells.iter().filter(|cell| cell.column == *column);
        match found.value {
            ValueView::Elements(body) => {
                assert_eq!(view.elements(body).map(|all| all.len()), Ok(cells.count()))
            }
            _ => assert_eq!(
                cells.next().map(|cell| (cell.timestamp, cell.expiry)),
                Some((found.timestamp, found.expiry))
            ),
        }
    }
    assert!(row.cells.iter().all(|cell| columns.contains(&cell.column)));
    let again = written(|out| encode_row(&row, TABLE, &catalogue, out));
    assert_eq!(decode_row(&again, &catalogue), Ok(row));
}

fn unmerged(bytes: &[u8]) {
    let Some(fragments) = crate::bounded(BYTES_EACH_MAX, bytes.len(), || decode_unmerged(bytes))
    else {
        return;
    };
    let again = written(|out| encode_unmerged(fragments.iter().copied(), out));
    assert_eq!(decode_unmerged(&again), Some(fragments));
}

/// Merging a header and looking it up in place agree.
fn header(bytes: &[u8]) {
    unmerged(bytes);
    let decoded = crate::bounded(BYTES_EACH_MAX, bytes.len(), || decode_header(bytes));
    let everywhere = covering(bytes, None);
    let _ = is_worth_folding(bytes);
    let Ok(header) = decoded else { return };
    assert_eq!(everywhere, Ok(header.deletion));
    let again = written(|out| encode_header(&header, out));
    assert_eq!(decode_header(&again).as_ref(), Ok(&header));
    let mut places = vec![Vec::new()];
    for range in header.ranges.iter().take(20) {
        for cut in [&range.start, &range.end] {
            if let Cut::Before(place) | Cut::After(place) = cut {
                places.extend([place.clone(), [&place[..], b"\0"].concat()]);
            }
        }
    }
    for place in places {
        assert_eq!(covering(bytes, Some(&place)), Ok(header.covering(&place)), "at {place:?}");
    }
}

fn key(bytes: &[u8]) {
    assert!(raw::prefix_bytes(bytes) <= bytes.len());
    let Some((table, partition, target)) = raw::split_key(bytes) else { return };
    let Ok(again) = raw::key(table, PartitionKey(&partition), target) else {
        return assert!(table == TableId(u32::MAX) || bytes.len() > shunt_storage::KEY_BYTES_MAX);
    };
    assert_eq!(raw::split_key(&again), Some((table, partition.clone(), target)));
    let prefix = raw::prefix_bytes(&again);
    assert!(prefix < again.len() && again.len() <= bytes.len());
}

fn catalogue(bytes: &[u8]) {
    let Ok((schemas, next_id, end)) =
        crate::bounded(BYTES_EACH_MAX, bytes.len(), || raw::decode_catalogue(bytes))
    else {
        return;
    };
    assert!(end as usize <= bytes.len());
    for (id, _, columns, _) in schemas {
        assert!(id < next_id || id == u32::MAX);
        assert!(columns.is_sorted_by(|left, right| left < right));
    }
}

fn synced(bytes: &[u8]) {
    let _ = raw::decode_synced(bytes);
    let checked = &bytes[..bytes.len().saturating_sub(4)];
    let forged = [checked, &crc32fast::hash(checked).to_le_bytes()].concat();
    let Some(said) = raw::decode_synced(&forged) else { return };
    let again = raw::encode_synced(said);
    assert!(again.starts_with(checked));
    assert_eq!(raw::decode_synced(&again), Some(said));
}

fn log(bytes: &[u8]) {
    let records = crate::bounded(BYTES_EACH_MAX, bytes.len(), || raw::log_records(bytes));
    assert!(records.iter().map(Vec::len).sum::<usize>() <= bytes.len());
    for edit in records {
        let _ = raw::log_number(&edit);
    }
}

fn page(bytes: &[u8]) {
    let records =
        crate::bounded(BYTES_EACH_MAX, bytes.len(), || raw::cache_records(bytes, SEQUENCE));
    for (slot, record) in &records {
        assert_eq!(raw::cache_record(bytes, SEQUENCE, *slot), Ok(*record));
    }
    assert!(raw::cache_records(bytes, SEQUENCE + 1).is_empty());
}

/// Records are packed, found, and no longer found after a byte changes.
fn page_records(bytes: &[u8]) {
    let pieces: Vec<&[u8]> =
        bytes.split(|byte| *byte == b'|').filter(|piece| !piece.is_empty()).take(100).collect();
    let given: Vec<raw::CacheRecord<'_>> = pieces
        .iter()
        .enumerate()
        .map(|(at, piece)| {
            let (key, payload) = piece.split_at(piece.len().div_ceil(2));
            (key, (at % 3 > 0).then_some(payload), at as u32)
        })
        .collect();
    let Some(mut page) = raw::cache_page(&given, SEQUENCE) else { return };
    let found: Vec<_> =
        raw::cache_records(&page, SEQUENCE).into_iter().map(|(_, record)| record).collect();
    assert_eq!(found, given);
    let flipped = bytes.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte))
        % page.len();
    page[flipped] ^= 0x10;
    for (slot, record) in raw::cache_records(&page, SEQUENCE) {
        assert_eq!(record, given[usize::from(slot)]);
    }
}
