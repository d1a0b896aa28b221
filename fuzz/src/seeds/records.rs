//! Seeds of the embedded node's records: rows and headers of every kind, keys, and small files.

use shunt_storage::Target;
use shunt_storage::catalogue::{encode_header, encode_row, encode_unmerged};
use shunt_storage::engine::LogMark;
use shunt_storage::raw;
use shunt_storage::row::{
    Cell, CellValue, ColumnId, Cut, Deletion, Expiry, Header, Liveness, PartitionKey,
    RangeTombstone, Row, TableId,
};

use super::Add;
use crate::records::{SEQUENCE, TABLE, kind, known_schemas, plain};
use crate::written;

const TIMESTAMP: i64 = 1_790_000_000_123_456;
const DELETION: Deletion = Deletion { timestamp: TIMESTAMP + 5, local: 1_790_000_001 };
/// An edit of RocksDB's: a comparator, numbers and a file of format 4.
const EDIT: &[u8] = &[
    1, 4, b'n', b'a', b'm', b'e', 2, 12, 9, 0, 3, 14, 4, 0x90, 1, 103, 0, 13, 80, 1, b'a', 1, b'z',
    1, 2, 1,
];

/// Records, keys and files, each behind the byte of its kind.
pub(super) fn records(add: Add<'_>) {
    rows(add);
    headers(add);
    for (name, target) in [
        ("header", Target::Header),
        ("static", Target::Static),
        ("row", Target::Row(b"clustering")),
    ] {
        let partition = PartitionKey(b"\x80token..key");
        put(
            add,
            kind::KEY,
            &format!("key_{name}"),
            &raw::key(TABLE, partition, target).expect("a key"),
        );
    }
    let long = [7; 300];
    put(
        add,
        kind::KEY,
        "key_long",
        &raw::key(TABLE, PartitionKey(&long), Target::Row(b"")).expect("a key"),
    );
    let (next_id, exact) = (&[3, 9][..], &[1, 8, 7, 3, 1, 1, 5][..]);
    put(add, kind::CATALOGUE_ENTRY, "entry_next_id", next_id);
    put(add, kind::CATALOGUE_ENTRY, "entry_exact", exact);
    put(add, kind::CATALOGUE_ENTRY, "entry_base", &[2, 0x80, 1, 7, 4, 0, 1, 0xFF, 3, 2]);
    let file =
        [b"SHUNTCA\x01", &raw::catalogue_entry(next_id)[..], &raw::catalogue_entry(exact)].concat();
    put(add, kind::CATALOGUE, "catalogue", &file);
    let mut logs = [LogMark::default(); 8];
    logs[0] = LogMark { number: 12, bytes: 4096 };
    let synced = raw::encode_synced((77, (5, 300, 0xCAFE_F00D), logs));
    put(add, kind::SYNCED, "synced", &synced);
    put(add, kind::SYNCED, "synced_without_logs", &synced[..32]);
    put(add, kind::SYNCED, "synced_sequence_alone", &synced[..12]);
    put(add, kind::EDIT, "edit", EDIT);
    put(add, kind::LOG, "log", &log_of(EDIT));
    let page = raw::cache_page(&[(b"key", Some(b"payload"), 1), (b"absent", None, 2)], SEQUENCE)
        .expect("a page");
    put(add, kind::PAGE, "page", page.trim_ascii_end());
    put(add, kind::PAGE_RECORDS, "page_records", b"one|two|three and more|four");
}

fn put(add: Add<'_>, which: u8, name: &str, bytes: &[u8]) {
    add("records", name, [&[which], bytes].concat());
}

fn row(add: Add<'_>, name: &str, row: &Row) {
    let record = written(|out| encode_row(row, TABLE, &known_schemas(), out));
    put(add, kind::ROW, &format!("row_{name}"), &record);
}

fn rows(add: Add<'_>) {
    let liveness = Some(Liveness { timestamp: TIMESTAMP, expiry: None });
    let exact: Vec<Cell> = (1..=3).map(|column| plain(column, b"same")).collect();
    row(add, "exact", &Row { liveness, cells: exact.clone(), ..Row::default() });
    row(
        add,
        "base",
        &Row {
            liveness,
            cells: vec![plain(2, b"two"), plain(300, b"three hundred")],
            ..Row::default()
        },
    );
    // Of another table, and therefore listed one by one.
    let record = written(|out| {
        encode_row(&Row { cells: exact, ..Row::default() }, TableId(8), &known_schemas(), out);
    });
    put(add, kind::ROW, "row_of_another_table", &record);
    let expiry = Some(Expiry { ttl: 60, at: 1_790_000_060 });
    let mut cells: Vec<Cell> =
        (1..=6).map(|column| Cell { expiry, ..plain(column, b"value") }).collect();
    cells[1].timestamp += 7;
    cells[2].expiry = None;
    cells[3] = Cell {
        value: CellValue::Tombstone { local: 1_790_000_002 },
        expiry: None,
        ..plain(4, b"")
    };
    cells[4] = Cell { value: CellValue::Counter(-5), expiry: None, ..plain(5, b"") };
    cells[5] = Cell { value: CellValue::CounterDelta(6), expiry: None, ..plain(6, b"") };
    let own = Some(Liveness {
        timestamp: TIMESTAMP - 9,
        expiry: Some(Expiry { ttl: 1, at: 1_790_000_000 }),
    });
    row(add, "of_every_cell", &Row { liveness: own, cells, ..Row::default() });
    let element = |path: &[u8], value| Cell { path: Some(path.to_vec()), value, ..plain(1, b"") };
    let elements = vec![
        element(b"", CellValue::Live(b"first".to_vec())),
        element(b"a", CellValue::Tombstone { local: 1 }),
        element(b"b", CellValue::Live(Vec::new())),
    ];
    let complex = vec![(ColumnId(1), DELETION)];
    row(
        add,
        "with_elements",
        &Row { liveness, deletion: Some(DELETION), complex, cells: elements },
    );
    row(add, "deleted", &Row { deletion: Some(DELETION), ..Row::default() });
    row(add, "empty", &Row::default());
}

fn headers(add: Add<'_>) {
    let range = |start, end| RangeTombstone { start, end, deletion: DELETION };
    let ranges = vec![
        range(Cut::Start, Cut::Before(b"a".to_vec())),
        range(Cut::After(b"b".to_vec()), Cut::After(b"c".to_vec())),
        range(Cut::Before(b"d".to_vec()), Cut::End),
    ];
    let partition = Deletion { timestamp: TIMESTAMP, local: 1_790_000_000 };
    let whole = written(|out| encode_header(&Header { deletion: Some(partition), ranges }, out));
    let small =
        written(|out| encode_header(&Header { deletion: Some(DELETION), ranges: Vec::new() }, out));
    put(add, kind::HEADER, "header", &whole);
    put(add, kind::HEADER, "header_empty", &written(|out| encode_header(&Header::default(), out)));
    let apart = written(|out| encode_unmerged([&whole[..], &small].into_iter(), out));
    put(add, kind::HEADER, "header_unmerged", &apart);
}

/// A log of RocksDB's with one record and its checksum.
fn log_of(record: &[u8]) -> Vec<u8> {
    let checked = [&[1], record].concat();
    let mut crc = !0_u32;
    for byte in &checked {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    let masked = (!crc).rotate_right(15).wrapping_add(0xA282_EAD8);
    [&masked.to_le_bytes()[..], &(record.len() as u16).to_le_bytes(), &checked].concat()
}
