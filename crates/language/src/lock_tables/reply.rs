//! Answers to the statements: RESULT bodies of kind rows (native protocol, section 4.2.5.2).

use shunt_wire::cql::message::{put, result_kind};

use super::{ColumnType, KEYSPACE, Selected, Table};

impl ColumnType {
    /// Name of the type in CQL.
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Boolean => "boolean",
            ColumnType::Text => "text",
            ColumnType::Int => "int",
            ColumnType::BigInt => "bigint",
        }
    }

    /// Number of the type in metadata: that of `varchar` for text.
    fn code(self) -> u16 {
        match self {
            ColumnType::BigInt => 0x02,
            ColumnType::Boolean => 0x04,
            ColumnType::Int => 0x09,
            ColumnType::Text => 0x0d,
        }
    }
}

/// Metadata flags: all columns are of one table; column names and types are omitted.
const GLOBAL_TABLE: i32 = 1;
const NO_METADATA: i32 = 4;

/// One lock or waiter, as shown in a row. Missing values are null.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Row<'a> {
    /// Name of the lock.
    pub name: Option<&'a [u8]>,
    /// The holder or waiter.
    pub owner: Option<&'a [u8]>,
    /// Role of the owner.
    pub role: Option<&'a [u8]>,
    /// True if the lock is kept in memory.
    pub fast: Option<bool>,
    /// Place in the queue, from 0.
    pub position: Option<i32>,
    /// True for a shared hold.
    pub shared: Option<bool>,
    /// True for a waiter.
    pub waits: Option<bool>,
    /// The fencing token.
    pub fence: Option<i64>,
    /// Duration of the hold in milliseconds.
    pub ttl_ms: Option<u32>,
    /// Number of waiters.
    pub waiters: Option<u32>,
}

impl Row<'_> {
    fn put(&self, out: &mut Vec<u8>, column: &str) {
        let int = |value: Option<u32>| {
            value.map(|value| i32::try_from(value).unwrap_or(i32::MAX).to_be_bytes())
        };
        let mode = |shared: bool| if shared { &b"S"[..] } else { b"X" };
        match column {
            "name" => put::bytes(out, self.name),
            "owner" => put::bytes(out, self.owner),
            "role" => put::bytes(out, self.role),
            "fast" => put::bytes(
                out,
                self.fast.map(|fast| [u8::from(fast)]).as_ref().map(|byte| &byte[..]),
            ),
            "position" => put::bytes(
                out,
                self.position.map(i32::to_be_bytes).as_ref().map(|bytes| &bytes[..]),
            ),
            "mode" => put::bytes(out, self.shared.map(mode)),
            "state" => put::bytes(
                out,
                self.waits.map(|waits| if waits { &b"waiting"[..] } else { b"held" }),
            ),
            "fence" => {
                put::bytes(out, self.fence.map(i64::to_be_bytes).as_ref().map(|bytes| &bytes[..]))
            }
            "ttl_ms" => put::bytes(out, int(self.ttl_ms).as_ref().map(|bytes| &bytes[..])),
            "waiters" => put::bytes(out, int(self.waiters).as_ref().map(|bytes| &bytes[..])),
            _ => put::bytes(out, None),
        }
    }
}

/// Columns of the answer to a conditional statement, behind `[applied]`: always the same ones, so
/// that the table determines the answer's form.
fn answered(table: Table) -> &'static [(&'static str, ColumnType)] {
    use ColumnType::{BigInt, Int, Text};
    match table.is_shared() {
        false => {
            &[("name", Text), ("owner", Text), ("fence", BigInt), ("ttl_ms", Int), ("waiters", Int)]
        }
        true => &[
            ("name", Text),
            ("owner", Text),
            ("mode", Text),
            ("fence", BigInt),
            ("ttl_ms", Int),
            ("waiters", Int),
        ],
    }
}

fn start(out: &mut Vec<u8>, table: Table, with_metadata: bool, columns: usize) {
    put::int(out, result_kind::ROWS);
    put::int(out, if with_metadata { GLOBAL_TABLE } else { NO_METADATA });
    put::int(out, columns as i32);
    if with_metadata {
        put::string(out, KEYSPACE);
        put::string(out, table.name());
    }
}

fn put_column(out: &mut Vec<u8>, name: &str, of_type: ColumnType) {
    put::string(out, name);
    put::short(out, of_type.code());
}

/// The answer to a conditional statement: applied or not, and the lock's current state, for each of
/// its statements.
pub fn conditional<'a>(
    out: &mut Vec<u8>,
    table: Table,
    rows: impl ExactSizeIterator<Item = (bool, Row<'a>)>,
) {
    let columns = answered(table);
    start(out, table, true, columns.len() + 1);
    put_column(out, "[applied]", ColumnType::Boolean);
    for (name, of_type) in columns {
        put_column(out, name, *of_type);
    }
    put::int(out, rows.len() as i32);
    for (applied, row) in rows {
        put::bytes(out, Some(&[u8::from(applied)]));
        for (name, _) in columns {
            row.put(out, name);
        }
    }
}

/// The answer to a SELECT. `skip_metadata`: the client knows the columns from PREPARE.
pub fn selected<'a>(
    out: &mut Vec<u8>,
    table: Table,
    columns: &[Selected],
    skip_metadata: bool,
    rows: impl ExactSizeIterator<Item = Row<'a>>,
) {
    let all = table.columns();
    start(out, table, !skip_metadata, columns.len());
    if !skip_metadata {
        for selected in columns {
            put_column(out, &selected.shown, all[selected.column].1);
        }
    }
    put::int(out, rows.len() as i32);
    for row in rows {
        for selected in columns {
            row.put(out, all[selected.column].0);
        }
    }
}
