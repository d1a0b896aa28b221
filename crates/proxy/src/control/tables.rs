//! Reads whole system tables, page by page, into rows with columns by name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{
    Consistency, QueryParams, Reader, ResultMessage, Row as WireRow, Rows as WireRows, encode,
    query_flag,
};
use shunt_wire::error::DecodeError;
use tokio::time::timeout;

use super::connection::Connection;
use super::error::ControlError;

/// Rows per page.
const PAGE_ROWS: i32 = 1000;
/// Pages of one read. Cassandra may send some that are empty, but not without end.
const PAGES_MAX: usize = 10_000;
/// Bytes that the rows of one read take: enough for 800,000 rows about columns.
pub(super) const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Time of one read, in deadlines of one page.
const PAGE_LIMITS: u32 = 10;

/// One row, with its own copy of the values.
#[derive(Clone, Debug)]
pub(super) struct Row {
    names: Arc<[String]>,
    values: Vec<Option<Vec<u8>>>,
}

impl Row {
    fn copy(names: &Arc<[String]>, row: &WireRow<'_>) -> Self {
        let values = row.values().map(|value| value.map(<[u8]>::to_vec)).collect();
        Self { names: Arc::clone(names), values }
    }

    /// A row with these columns.
    #[cfg(test)]
    pub(super) fn of(columns: &[(&str, &[u8])]) -> Self {
        let names = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { names, values: columns.iter().map(|(_, value)| Some(value.to_vec())).collect() }
    }

    /// Bytes that the row takes.
    fn size(&self) -> usize {
        let values = self.values.iter().flatten().map(Vec::len).sum::<usize>();
        size_of::<Row>() + self.values.len() * size_of::<Option<Vec<u8>>>() + values
    }

    /// Values of the row, in the order of the columns.
    pub(super) fn values(&self) -> &[Option<Vec<u8>>] {
        &self.values
    }

    /// The value as bytes; `None` if it is null or there is no such column.
    pub(super) fn bytes(&self, column: &str) -> Option<&[u8]> {
        let index = self.names.iter().position(|name| name == column)?;
        self.values.get(index)?.as_deref()
    }

    /// A text or ascii column.
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(column)?).ok()
    }

    /// An int column.
    pub(super) fn int(&self, column: &str) -> Option<i32> {
        Some(i32::from_be_bytes(self.bytes(column)?.try_into().ok()?))
    }

    /// A uuid column.
    pub(super) fn uuid(&self, column: &str) -> Option<u128> {
        Some(u128::from_be_bytes(self.bytes(column)?.try_into().ok()?))
    }

    /// An inet column.
    pub(super) fn address(&self, column: &str) -> Option<IpAddr> {
        let bytes = self.bytes(column)?;
        if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
            return Some(IpAddr::from(v4));
        }
        <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
    }

    /// A port in an int column; 0 counts as none.
    pub(super) fn port(&self, column: &str) -> Option<u16> {
        u16::try_from(self.int(column)?).ok().filter(|port| *port > 0)
    }

    /// A list or set of text; empty when null or not readable.
    pub(super) fn texts(&self, column: &str) -> Vec<&str> {
        let read = |bytes| {
            let mut reader = Reader::new(bytes);
            (0..reader.count("count").ok()?).map(|_| element(&mut reader)).collect()
        };
        self.bytes(column).and_then(read).unwrap_or_default()
    }

    /// Number of elements that a list or set says it has; 0 when null or not readable.
    pub(super) fn count(&self, column: &str) -> usize {
        self.bytes(column).and_then(|bytes| Reader::new(bytes).count("count").ok()).unwrap_or(0)
    }

    /// A map of text to text; empty when null or not readable.
    pub(super) fn text_map(&self, column: &str) -> Vec<(&str, &str)> {
        let read = |bytes| {
            let mut reader = Reader::new(bytes);
            (0..reader.count("count").ok()?)
                .map(|_| Some((element(&mut reader)?, element(&mut reader)?)))
                .collect()
        };
        self.bytes(column).and_then(read).unwrap_or_default()
    }
}

/// An element of a collection: `[bytes]` since v3 (v3, section 6).
fn element<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    std::str::from_utf8(reader.bytes("element").ok()??).ok()
}

/// Rows of a table.
pub(super) struct Reading {
    pub(super) rows: Vec<Row>,
    /// True if rows beyond the bound were left out.
    pub(super) is_cut: bool,
}

/// Runs a query and reads its pages up to so many bytes of rows. `limit` holds as in [`read`].
pub(super) async fn read_some(
    connection: &mut Connection,
    query: &str,
    bytes_max: usize,
    limit: Duration,
) -> Result<Reading, ControlError> {
    let pages = read_pages(connection, query, Consistency::ONE, bytes_max, limit);
    let in_time = timeout(limit.saturating_mul(PAGE_LIMITS), pages).await;
    in_time.map_err(|_| ControlError::TimedOut("all queries for one system table"))?
}

/// Runs a query and reads all its pages. `limit` holds for each page, and [`PAGE_LIMITS`] times as
/// long for all of them.
pub(super) async fn read(
    connection: &mut Connection,
    query: &str,
    limit: Duration,
) -> Result<Vec<Row>, ControlError> {
    read_at(connection, query, Consistency::ONE, limit).await
}

/// Reads at another level, for a table that is not the node's own.
pub(super) async fn read_at(
    connection: &mut Connection,
    query: &str,
    consistency: Consistency,
    limit: Duration,
) -> Result<Vec<Row>, ControlError> {
    let pages = read_pages(connection, query, consistency, BYTES_MAX, limit);
    let in_time = timeout(limit.saturating_mul(PAGE_LIMITS), pages).await;
    let Reading { rows, is_cut } =
        in_time.map_err(|_| ControlError::TimedOut("all queries for one system table"))??;
    if is_cut {
        let what = format!("more than {BYTES_MAX} bytes of rows for `{query}`");
        return Err(ControlError::Garbage(what));
    }
    Ok(rows)
}

async fn read_pages(
    connection: &mut Connection,
    query: &str,
    consistency: Consistency,
    bytes_max: usize,
    limit: Duration,
) -> Result<Reading, ControlError> {
    let mut rows = Rows::new(bytes_max);
    let mut paging_state: Option<Vec<u8>> = None;
    for _ in 0..PAGES_MAX {
        let mut params = QueryParams::simple(consistency);
        params.flags |= query_flag::PAGE_SIZE;
        params.page_size = Some(PAGE_ROWS);
        if let Some(state) = &paging_state {
            params.flags |= query_flag::PAGING_STATE;
            params.paging_state = Some(state);
        }
        let mut body = Vec::new();
        encode::query(&mut body, connection.version, query, &params);
        let answer =
            connection.request(opcode::QUERY, &body, "a query of the system tables", limit).await?;
        if answer.opcode != opcode::RESULT {
            return Err(answer.refusal("QUERY"));
        }
        let ResultMessage::Rows(page) = ResultMessage::decode(answer.version, &answer.body)? else {
            return Err(ControlError::Garbage("a result without rows".to_owned()));
        };
        if !rows.add(&page)? {
            return Ok(Reading { rows: rows.rows, is_cut: true });
        }
        paging_state = page.metadata.paging_state.map(<[u8]>::to_vec);
        if paging_state.is_none() {
            return Ok(Reading { rows: rows.rows, is_cut: false });
        }
    }
    Err(ControlError::Garbage(format!("more than {PAGES_MAX} pages for `{query}`")))
}

/// The rows of all pages so far.
struct Rows {
    rows: Vec<Row>,
    /// Names of the last page's columns, which the rows of equal pages share.
    names: Arc<[String]>,
    bytes: usize,
    bytes_max: usize,
}

impl Rows {
    fn new(bytes_max: usize) -> Self {
        Self { rows: Vec::new(), names: Arc::default(), bytes: 0, bytes_max }
    }

    /// Adds the rows of a page; `false`: there are too many bytes.
    fn add(&mut self, page: &WireRows<'_>) -> Result<bool, DecodeError> {
        let names = || page.metadata.columns().map(|column| column.name);
        if !names().eq(self.names.iter().map(String::as_str)) {
            self.bytes += names().map(|name| size_of::<String>() + name.len()).sum::<usize>();
            if self.bytes > self.bytes_max {
                return Ok(false);
            }
            self.names = names().map(str::to_owned).collect();
        }
        for row in page.rows() {
            let row = Row::copy(&self.names, &row?);
            self.bytes += row.size();
            // A row without columns takes no bytes in the answer, which may claim any number.
            if self.bytes > self.bytes_max {
                return Ok(false);
            }
            self.rows.push(row);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::encode_result::{RowsWriter, native};

    use super::*;

    /// Number of pages of one row, with a column of this name and value each, that rows with a
    /// bound of 10,000 bytes take.
    fn taken(name: impl Fn(usize) -> String, value: &[u8]) -> usize {
        let mut rows = Rows::new(10_000);
        let mut is_taken = |number: &usize| {
            let (name, mut body) = (name(*number), Vec::new());
            let columns = [(name.as_str(), native::TEXT)];
            let mut writer = RowsWriter::new(&mut body, "system", "table", &columns);
            writer.value(Some(value));
            writer.finish();
            let ResultMessage::Rows(page) = ResultMessage::decode(5, &body).expect("a result")
            else {
                panic!("no rows");
            };
            rows.add(&page).expect("a row")
        };
        (0..10_000).take_while(|number| is_taken(number)).count()
    }

    #[test]
    fn values_rows_and_names_of_columns_count() {
        let same = |_| "a".repeat(1_000);
        let different = |number| format!("{number:01000}");
        assert!((100..250).contains(&taken(same, b"")), "equal names count once");
        assert!((5..10).contains(&taken(different, b"")));
        assert!((5..10).contains(&taken(same, &[7; 1_000])));
    }
}
