//! A read-only table of a stub node, and its RESULT bodies.

use shunt_wire::cql::message::encode_result::RowsWriter;

use crate::stub::value::Cell;

/// A column: its name, and its type as an `[option]` of the protocol.
pub type Column = (&'static str, &'static [u8]);

/// A table with all rows in memory.
#[derive(Clone, Debug)]
pub struct Table {
    /// Keyspace name.
    pub keyspace: &'static str,
    /// Table name.
    pub name: &'static str,
    /// Columns in the order of `SELECT *`; the primary key first.
    pub columns: &'static [Column],
    /// Rows, each with a cell per column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Returns the specifications of the columns at these positions.
    pub fn specifications(&self, columns: &[usize]) -> Vec<Column> {
        columns.iter().filter_map(|&index| self.columns.get(index).copied()).collect()
    }

    /// Appends the body of a RESULT with `columns` (positions) of the rows for which `wanted`
    /// holds.
    pub fn put_rows(
        &self,
        out: &mut Vec<u8>,
        columns: &[usize],
        skip_metadata: bool,
        wanted: impl Fn(&[Cell]) -> bool,
    ) {
        let mut writer = if skip_metadata {
            RowsWriter::without_metadata(out, columns.len())
        } else {
            RowsWriter::new(out, self.keyspace, self.name, &self.specifications(columns))
        };
        for row in self.rows.iter().filter(|row| wanted(row)) {
            for &index in columns {
                writer.value(row.get(index).and_then(Option::as_deref));
            }
        }
        writer.finish();
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::{ResultMessage, encode_result::native};

    use super::Table;

    #[test]
    fn rows_that_are_wanted_with_the_columns_asked_for() {
        let row = |name: &str, number: u8| {
            vec![Some(name.as_bytes().to_vec()), Some(vec![0, 0, 0, number])]
        };
        let columns = &[("name", native::TEXT), ("number", native::INT)];
        let table = Table {
            keyspace: "a",
            name: "b",
            columns,
            rows: vec![row("x", 1), row("y", 2), vec![None, None]],
        };
        let mut body = Vec::new();
        table.put_rows(&mut body, &[1, 0], false, |row| row[0].as_deref() == Some(b"y"));
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(4, &body) else {
            panic!("not rows: {body:?}")
        };
        let names: Vec<_> =
            rows.metadata.columns().map(|column| (column.table, column.name)).collect();
        assert_eq!(names, [("b", "number"), ("b", "name")]);
        let row = rows.rows().next().expect("a row").expect("valid");
        assert_eq!(
            (rows.row_count, row.get(0), row.get(1)),
            (1, Some(&[0, 0, 0, 2][..]), Some(&b"y"[..]))
        );
    }
}
