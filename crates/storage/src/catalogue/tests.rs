//! Round trips of records, damage, size bounds for variable tables, and the file.

use super::schema::Presence;
use super::*;
use crate::row::strategies::{header, row};
use crate::row::{Cell, CellValue, ColumnId, Deletion, Expiry, Liveness, Row, TableId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

const TABLE: TableId = TableId(7);

fn encoded(row: &Row, catalogue: &Catalogue) -> Vec<u8> {
    let mut out = Vec::new();
    encode_row(row, TABLE, catalogue, &mut out);
    out
}

fn insert(columns: impl IntoIterator<Item = u32>, value: &[u8]) -> Row {
    let timestamp = 1_790_000_000_123_456;
    let cell = |column| Cell {
        column: ColumnId(column),
        path: None,
        timestamp,
        expiry: None,
        value: CellValue::Live(value.to_vec()),
    };
    let cells = columns.into_iter().map(cell).collect();
    Row { liveness: Some(Liveness { timestamp, expiry: None }), cells, ..Row::default() }
}

fn limits(exact: usize, bases: usize) -> Limits {
    Limits { exact, bases, ..Limits::default() }
}

proptest! {
    #[test]
    fn rows_come_back(rows in vec(row(40), 1..20), exact in 0..4usize, bases in 0..3usize) {
        let catalogue = Catalogue::in_memory(limits(exact, bases));
        let records: Vec<_> = rows.iter().map(|row| encoded(row, &catalogue)).collect();
        for (row, record) in rows.iter().zip(&records) {
            prop_assert_eq!(&decode_row(record, &catalogue).unwrap(), row);
            let view = RecordView::parse(record, &catalogue).unwrap();
            for column in (0..40).map(ColumnId) {
                let mut cells = row.cells.iter().filter(|cell| cell.column == column);
                match view.column(column).unwrap() {
                    None => prop_assert!(cells.next().is_none()),
                    Some(CellView { value: ValueView::Elements(body), .. }) => {
                        let elements = view.elements(body).unwrap();
                        let paths = elements.iter().map(|(path, _)| path.map(<[u8]>::to_vec));
                        prop_assert!(paths.eq(cells.map(|cell| cell.path.clone())));
                    }
                    Some(found) => {
                        let cell = cells.next().unwrap();
                        prop_assert_eq!((found.timestamp, found.expiry), (cell.timestamp, cell.expiry));
                        let value = match &cell.value {
                            CellValue::Live(bytes) => ValueView::Live(bytes),
                            CellValue::Tombstone { local } => ValueView::Tombstone { local: *local },
                            other => panic!("{other:?}"),
                        };
                        prop_assert_eq!(found.value, value);
                    }
                }
            }
        }
    }

    #[test]
    fn headers_come_back(header in header()) {
        let mut record = Vec::new();
        encode_header(&header, &mut record);
        prop_assert_eq!(decode_header(&record).unwrap(), header);
        for cut in 0..record.len() {
            prop_assert!(decode_header(&record[..cut]).is_err());
        }
    }

    #[test]
    fn damaged_records_never_panic(row in row(40), flips in vec((any::<usize>(), any::<u8>()), 1..4), cut in any::<usize>()) {
        let catalogue = Catalogue::in_memory(limits(1, 1));
        encoded(&insert([1, 2, 3], b"x"), &catalogue);
        let mut record = encoded(&row, &catalogue);
        let whole = record.clone();
        prop_assert!(decode_row(&record[..cut % record.len()], &catalogue).is_err() || row.cells.is_empty());
        for (at, bits) in flips {
            let at = at % record.len();
            record[at] ^= bits;
        }
        // Either refused, or a row that can be encoded: the changed bytes may be valid.
        if let Ok(other) = decode_row(&record, &catalogue) {
            let again = decode_row(&encoded(&other, &catalogue), &catalogue).unwrap();
            prop_assert_eq!(again, other);
        }
        prop_assert_eq!(decode_row(&whole, &catalogue).unwrap(), row);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..60)) {
        let catalogue = Catalogue::in_memory(Limits::default());
        encoded(&insert([1, 2, 3], b"x"), &catalogue);
        let mut named = vec![layout::VERSION << 4];
        named.extend(&bytes);
        for bytes in [&bytes, &named] {
            if let Ok(view) = RecordView::parse(bytes, &catalogue) {
                let columns = view.columns();
                let read = columns.iter().filter(|column| view.column(**column).is_ok()).count();
                prop_assert!(read <= columns.len());
            }
            prop_assert!(decode_header(bytes).is_err() || bytes.first() == Some(&0x11));
        }
    }
}

#[test]
fn a_plain_insert_costs_eleven_bytes_beside_its_values() {
    let catalogue = Catalogue::in_memory(Limits::default());
    assert_eq!(encoded(&insert(0..10, b"0123456789"), &catalogue).len(), 100 + 11);
    // One length each if they differ.
    let mut row = insert(0..10, b"0123456789");
    row.cells[3].value = CellValue::Live(b"short".to_vec());
    assert_eq!(encoded(&row, &catalogue).len(), 95 + 10 + 10);
    // A common TTL costs only its own bytes, and nothing per column.
    let expiry = Expiry { ttl: 60, at: 1_790_000_060 };
    row.liveness = row.liveness.map(|liveness| Liveness { expiry: Some(expiry), ..liveness });
    row.cells.iter_mut().for_each(|cell| cell.expiry = Some(expiry));
    assert_eq!(encoded(&row, &catalogue).len(), 95 + 10 + 10 + 2);
}

#[test]
fn variable_tables_share_a_base() {
    let catalogue = Catalogue::in_memory(limits(8, 4));
    let sets = |seed: u32| {
        (0..20u32).filter(move |column| seed >> (column % 12) & 1 == 1 || *column == 19)
    };
    let records: Vec<_> =
        (0..4096).map(|seed| encoded(&insert(sets(seed), b"v"), &catalogue)).collect();
    let counts = catalogue.counts();
    // The base grew with the columns that appeared, and no further.
    assert!(counts.schemas <= 8 + 12 && counts.bases >= 1, "{counts:?}");
    for (seed, record) in (0..).zip(&records) {
        assert_eq!(decode_row(record, &catalogue).unwrap(), insert(sets(seed), b"v"));
    }
    // Once the base has all columns: its id and three bytes of bitmap, where an exact set would
    // cost only its id.
    let widest = records.last().unwrap();
    assert!(widest.len() <= 10 + 1 + 3 + 20, "{}", widest.len());
}

#[test]
fn very_wide_tables_have_several_bases() {
    let bounds = Limits { exact: 2, bases: 8, base_columns: 64, ..Limits::default() };
    let catalogue = Catalogue::in_memory(bounds);
    let row = |group: u32, seed: u32| {
        insert(
            (0..50).filter(move |at| seed >> (at % 8) & 1 == 0).map(move |at| group * 1000 + at),
            b"v",
        )
    };
    for group in 0..5 {
        for seed in 0..40 {
            let record = encoded(&row(group, seed), &catalogue);
            assert_eq!(decode_row(&record, &catalogue).unwrap(), row(group, seed));
        }
    }
    let counts = catalogue.counts();
    assert!((4..=8).contains(&counts.bases), "{counts:?}");
}

#[test]
fn ids_are_used_only_once_they_are_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    let row = insert([1, 2, 5], b"value");
    let (before, after) = {
        let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
        let before = encoded(&row, &catalogue);
        assert_eq!(RecordView::parse(&before, &catalogue).unwrap().schema_id(), None);
        assert!(catalogue.has_pending());
        catalogue.persist().unwrap();
        let after = encoded(&row, &catalogue);
        assert_eq!(RecordView::parse(&after, &catalogue).unwrap().schema_id(), Some(0));
        (before, after)
    };
    let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
    assert_eq!(decode_row(&before, &catalogue).unwrap(), row);
    assert_eq!(decode_row(&after, &catalogue).unwrap(), row);
    assert_eq!(encoded(&row, &catalogue), after);
}

#[test]
fn reclaimed_ids_are_not_given_out_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
    for column in 0..10 {
        encoded(&insert([column], b"v"), &catalogue);
    }
    catalogue.persist().unwrap();
    let old = encoded(&insert([7], b"v"), &catalogue);
    catalogue.forget_uses();
    let kept = encoded(&insert([3], b"v"), &catalogue);
    assert_eq!(catalogue.reclaim(&BTreeSet::from([4])).0.len(), 8);
    assert_eq!(
        decode_row(&old, &catalogue).unwrap(),
        insert([7], b"v"),
        "a read that goes on finds what it met"
    );
    assert_eq!(catalogue.reclaim(&BTreeSet::from([3, 4])).0.len(), 0);
    assert_eq!(decode_row(&old, &catalogue), Err(DecodeError::UnknownSchema { id: 7 }));
    drop(catalogue);
    let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
    assert_eq!(catalogue.counts().schemas, 2);
    assert_eq!(decode_row(&kept, &catalogue).unwrap(), insert([3], b"v"));
    encoded(&insert([9], b"v"), &catalogue);
    catalogue.persist().unwrap();
    let record = encoded(&insert([9], b"v"), &catalogue);
    assert_eq!(RecordView::parse(&record, &catalogue).unwrap().schema_id(), Some(10));
}

#[test]
fn a_torn_end_is_dropped_and_other_damage_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    {
        let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
        for column in 0..3 {
            encoded(&insert([column], b"v"), &catalogue);
            catalogue.persist().unwrap();
        }
    }
    let whole = std::fs::read(&path).unwrap();
    for cut in MAGIC_BYTES..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let schemas = Catalogue::open(&path, Limits::default()).unwrap().counts().schemas;
        assert!(schemas < 3, "{cut}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        let error = Catalogue::open(&path, Limits::default()).unwrap_err().to_string();
        assert!(error.contains("is corrupt at byte"), "byte {at}: {error}");
    }
}

const MAGIC_BYTES: usize = 8;

/// A record written in version 1 of the format stays readable. A change here needs a new version,
/// and this test stays.
#[test]
fn the_bytes_of_version_one() {
    let catalogue = Catalogue::in_memory(limits(1, 1));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let exact = insert([1, 2], b"v");
    let (timestamp, expiry) = (1_790_000_000_123_456, Some(Expiry { ttl: 60, at: 1_790_000_060 }));
    let based = Row {
        liveness: Some(Liveness { timestamp, expiry }),
        deletion: Some(Deletion { timestamp: timestamp - 5, local: 1_790_000_000 }),
        complex: vec![(ColumnId(3), Deletion { timestamp: timestamp - 1, local: 1_790_000_001 })],
        cells: vec![
            Cell {
                column: ColumnId(1),
                path: None,
                timestamp,
                expiry,
                value: CellValue::Live(b"one".to_vec()),
            },
            Cell {
                column: ColumnId(2),
                path: None,
                timestamp: timestamp + 1,
                expiry: None,
                value: CellValue::Tombstone { local: 1_790_000_002 },
            },
            Cell {
                column: ColumnId(3),
                path: Some(b"key".to_vec()),
                timestamp,
                expiry: None,
                value: CellValue::Live(b"element".to_vec()),
            },
            Cell {
                column: ColumnId(4),
                path: None,
                timestamp,
                expiry: None,
                value: CellValue::CounterDelta(-2),
            },
        ],
    };
    let rows = [exact, based];
    let written = rows.each_ref().map(|row| hex(&encoded(row, &catalogue)));
    assert_eq!(written, VERSION_ONE);
    for (row, text) in rows.iter().zip(VERSION_ONE) {
        let bytes: Vec<u8> = (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(&decode_row(&bytes, &catalogue).unwrap(), row);
    }
}

const VERSION_ONE: [&str; 2] = [
    "10218089ec82c3bd6000017676",
    "105d8089ec82c3bd603c00030900030102010f000315020400200e13086f6e6501046b65791007656c656d656e74fffffffffffffffe",
];

/// An event loop that writes new columns does not wait for the sync of earlier requests; neither
/// does a compaction, for which the callback in between may wait in turn.
#[test]
fn nobody_who_encodes_waits_for_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue =
        Catalogue::open(&directory.path().join("catalogue"), Limits::default()).unwrap();
    encoded(&insert([1], b"v"), &catalogue);
    let noted = catalogue.persist_and(|_| {
        std::thread::scope(|scope| {
            let (told, encoded_meanwhile) = std::sync::mpsc::channel();
            let catalogue = &catalogue;
            scope.spawn(move || {
                encoded(&insert([2], b"v"), catalogue);
                let _ = told.send(());
            });
            let waited = encoded_meanwhile.recv_timeout(std::time::Duration::from_secs(180));
            assert!(waited.is_ok(), "an encoder waits for the catalogue's file");
        });
        true
    });
    noted.unwrap();
    assert_eq!(catalogue.counts().pending, 1);
}

/// While the engine refuses writes, the callback in between fails and is retried every second.
#[test]
fn schemas_that_cannot_be_used_yet_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
    encoded(&insert([1], b"v"), &catalogue);
    let sizes = [(); 3].map(|()| {
        catalogue.persist_and(|_| false).unwrap();
        std::fs::metadata(&path).unwrap().len()
    });
    assert!(sizes[0] > 0 && sizes == [sizes[0]; 3], "{sizes:?}");
    encoded(&insert([2], b"v"), &catalogue);
    catalogue.persist().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > sizes[0]);
    let again = Catalogue::open(&path, Limits::default()).unwrap();
    assert_eq!(again.counts().schemas, catalogue.counts().schemas);
}

/// The path then names the new file. Schemas appended to the old one would be lost with it.
#[test]
fn schemas_are_in_the_file_after_its_directory_could_not_be_synced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    let columns = |number: u32| [ColumnId(number)];
    let catalogue = Catalogue::open(&path, Limits::default()).unwrap();
    let ask = |number| {
        catalogue.presence(TABLE, &columns(number));
        catalogue.persist()
    };
    (0..3).for_each(|number| ask(number).unwrap());
    catalogue.forget_uses();
    crate::files::fail_next_directory_sync();
    let (retired, written) = catalogue.reclaim(&BTreeSet::from([2]));
    assert_eq!(retired.len(), 2);
    let error = written.unwrap_err().to_string();
    assert!(error.contains("may be as before"), "{error}");
    // The catalogue appends nothing before the directory sync succeeds.
    crate::files::fail_next_directory_sync();
    assert!(ask(3).is_err() && catalogue.has_pending());
    assert!(matches!(catalogue.presence(TABLE, &columns(3)), Presence::Inline));
    catalogue.persist().unwrap();
    ask(4).unwrap();
    assert!(matches!(catalogue.presence(TABLE, &columns(3)), Presence::Exact(3)));
    let next = catalogue.next_id();
    drop(catalogue);
    let again = Catalogue::open(&path, Limits::default()).unwrap();
    assert_eq!(again.next_id(), next);
    for number in 2..5 {
        assert!(
            matches!(again.presence(TABLE, &columns(number)), Presence::Exact(id) if id == number),
            "{number}"
        );
    }
}
