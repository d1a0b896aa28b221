//! Encoders for results with columns: rows and prepared statements (v5, sections 4.2.5.2 and
//! 4.2.5.4).

use super::metadata::metadata_flag;
use super::put;
use super::result::result_kind;

/// A column for the encoders: its name and its type `[option]`, such as [`native::INT`].
pub type Column<'a> = (&'a str, &'a [u8]);

/// Encoded type options of the native types (section 4.2.5.2), and of collections of text.
pub mod native {
    /// `ascii`.
    pub const ASCII: &[u8] = &[0, 0x01];
    /// `bigint`.
    pub const BIGINT: &[u8] = &[0, 0x02];
    /// `blob`.
    pub const BLOB: &[u8] = &[0, 0x03];
    /// `boolean`.
    pub const BOOLEAN: &[u8] = &[0, 0x04];
    /// `counter`.
    pub const COUNTER: &[u8] = &[0, 0x05];
    /// `double`.
    pub const DOUBLE: &[u8] = &[0, 0x07];
    /// `float`.
    pub const FLOAT: &[u8] = &[0, 0x08];
    /// `int`.
    pub const INT: &[u8] = &[0, 0x09];
    /// `timestamp`.
    pub const TIMESTAMP: &[u8] = &[0, 0x0B];
    /// `uuid`.
    pub const UUID: &[u8] = &[0, 0x0C];
    /// `text`, also called `varchar`.
    pub const TEXT: &[u8] = &[0, 0x0D];
    /// `timeuuid`.
    pub const TIMEUUID: &[u8] = &[0, 0x0F];
    /// `inet`.
    pub const INET: &[u8] = &[0, 0x10];
    /// `set<text>`.
    pub const SET_OF_TEXT: &[u8] = &[0, 0x22, 0, 0x0D];
    /// `list<text>`.
    pub const LIST_OF_TEXT: &[u8] = &[0, 0x20, 0, 0x0D];
    /// `map<text, text>`.
    pub const MAP_OF_TEXT: &[u8] = &[0, 0x21, 0, 0x0D, 0, 0x0D];
    /// `map<text, blob>`.
    pub const MAP_OF_TEXT_TO_BLOB: &[u8] = &[0, 0x21, 0, 0x0D, 0, 0x03];
}

/// Writes a RESULT with rows: metadata, then value after value, then [`RowsWriter::finish`].
///
/// ```
/// use shunt_wire::cql::message::encode_result::{RowsWriter, native};
/// let mut body = Vec::new();
/// let mut rows = RowsWriter::new(&mut body, "system", "local", &[("key", native::TEXT)]);
/// rows.value(Some(b"local"));
/// rows.finish();
/// ```
#[derive(Debug)]
pub struct RowsWriter<'o> {
    out: &'o mut Vec<u8>,
    count_at: usize,
    column_count: usize,
    values: usize,
}

impl<'o> RowsWriter<'o> {
    /// Appends the metadata of columns that all belong to one table.
    pub fn new(
        out: &'o mut Vec<u8>,
        keyspace: &str,
        table: &str,
        columns: &[Column<'_>],
    ) -> RowsWriter<'o> {
        put::int(out, result_kind::ROWS);
        put_metadata(out, keyspace, table, columns);
        RowsWriter::after_metadata(out, columns.len())
    }

    /// Appends metadata without column specifications, for a client that set the skip flag.
    pub fn without_metadata(out: &'o mut Vec<u8>, column_count: usize) -> RowsWriter<'o> {
        put::int(out, result_kind::ROWS);
        put::int(out, metadata_flag::NO_METADATA);
        put::int(out, length(column_count));
        RowsWriter::after_metadata(out, column_count)
    }

    fn after_metadata(out: &'o mut Vec<u8>, column_count: usize) -> RowsWriter<'o> {
        let count_at = out.len();
        put::int(out, 0);
        RowsWriter { out, count_at, column_count, values: 0 }
    }

    /// Appends the next value; `None` is null. The number of columns determines where rows end.
    pub fn value(&mut self, value: Option<&[u8]>) -> &mut RowsWriter<'o> {
        put::bytes(self.out, value);
        self.values += 1;
        self
    }

    /// Fills the last row with nulls and sets the row count.
    pub fn finish(mut self) {
        while self.column_count != 0 && !self.values.is_multiple_of(self.column_count) {
            self.value(None);
        }
        let rows = self.values.checked_div(self.column_count).unwrap_or(0);
        patch(self.out, self.count_at, length(rows));
    }
}

/// The contents of a RESULT of kind prepared, all of one table.
#[derive(Clone, Copy, Debug)]
pub struct PreparedSpec<'a> {
    /// Id of the statement.
    pub id: &'a [u8],
    /// Id of the result's metadata; written in v5 only.
    pub result_metadata_id: &'a [u8],
    /// Keyspace of the table.
    pub keyspace: &'a str,
    /// The table.
    pub table: &'a str,
    /// The bind markers.
    pub bind: &'a [Column<'a>],
    /// Index of the bind marker for each column of the partition key; written from v4.
    pub partition_key: &'a [u16],
    /// Columns of the result; empty for a statement that returns no rows.
    pub result: &'a [Column<'a>],
}

/// RESULT of kind prepared.
pub fn prepared(out: &mut Vec<u8>, version: u8, spec: &PreparedSpec<'_>) {
    put::int(out, result_kind::PREPARED);
    put::short_bytes(out, spec.id);
    if version >= 5 {
        put::short_bytes(out, spec.result_metadata_id);
    }
    let global = if spec.bind.is_empty() { 0 } else { metadata_flag::GLOBAL_TABLE };
    put::int(out, global);
    put::int(out, length(spec.bind.len()));
    if version >= 4 {
        put::int(out, length(spec.partition_key.len()));
        for index in spec.partition_key {
            put::short(out, *index);
        }
    }
    put_columns(out, spec.keyspace, spec.table, spec.bind);
    match spec.result {
        [] => {
            put::int(out, metadata_flag::NO_METADATA);
            put::int(out, 0);
        }
        columns => put_metadata(out, spec.keyspace, spec.table, columns),
    }
}

fn put_metadata(out: &mut Vec<u8>, keyspace: &str, table: &str, columns: &[Column<'_>]) {
    let flags = if columns.is_empty() { 0 } else { metadata_flag::GLOBAL_TABLE };
    put::int(out, flags);
    put::int(out, length(columns.len()));
    put_columns(out, keyspace, table, columns);
}

/// Appends the table once for all columns, then the columns; nothing if there are no columns.
fn put_columns(out: &mut Vec<u8>, keyspace: &str, table: &str, columns: &[Column<'_>]) {
    if columns.is_empty() {
        return;
    }
    put::string(out, keyspace);
    put::string(out, table);
    for (name, type_option) in columns {
        put::string(out, name);
        out.extend_from_slice(type_option);
    }
}

fn length(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn patch(out: &mut [u8], at: usize, value: i32) {
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
