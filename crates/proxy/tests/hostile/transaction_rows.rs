//! Rows of clients' tables, as nodes show them to a proxy that reads them.

use shunt_testing::bytes;
use shunt_wire::cql::message::encode_result::{Column, RowsWriter, native};

/// Columns of a row that the proxy reads to decide a statement: each value, its time to live, and
/// its write time.
const VALUED: [Column<'static>; 6] = [
    ("v", native::INT),
    ("ttl(v)", native::INT),
    ("writetime(v)", native::BIGINT),
    ("w", native::INT),
    ("ttl(w)", native::INT),
    ("writetime(w)", native::BIGINT),
];

/// Columns of the answer to a SELECT. `has_w`: the table has a column `w`.
pub fn columns(text: &str, has_w: bool) -> &'static [Column<'static>] {
    match (text.contains("WRITETIME(v)"), has_w) {
        (false, _) => &VALUED[..1],
        (true, false) => &VALUED[..3],
        (true, true) => &VALUED,
    }
}

/// The answer to a SELECT. `value`: the write time of the value 1 in each column, in microseconds,
/// and its remaining time to live, in seconds; it is not shown without those.
pub fn rows(text: &str, has_w: bool, value: Option<(i64, Option<i32>)>) -> Vec<u8> {
    let columns = columns(text, has_w);
    bytes::body(|out| {
        let mut writer = RowsWriter::new(out, "bank", "t", columns);
        if let Some((written_us, ttl)) = value.filter(|_| columns.len() > 1) {
            let ttl = ttl.map(i32::to_be_bytes);
            for _ in columns.chunks(3) {
                writer.value(Some(&1i32.to_be_bytes())).value(ttl.as_ref().map(|ttl| &ttl[..]));
                writer.value(Some(&written_us.to_be_bytes()));
            }
        }
        writer.finish();
    })
}
