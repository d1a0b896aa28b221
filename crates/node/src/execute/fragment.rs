//! Changes of one row as a fragment for storage: cells with the statement's timestamp and time to
//! live, and tombstones for columns set to null.
//!
//! Writing a whole collection deletes its old elements first, with a deletion one microsecond older
//! than the new ones, as in Cassandra.

use shunt_language::InvalidRequest;
use shunt_language::types::CqlType;
use shunt_language::values::split;
use shunt_storage::row::{Cell, CellValue, Deletion, Expiry, Liveness, Row};

use super::keys::{self, Partition};
use super::rows::field_path;
use crate::schema::{Column, Table};

/// Most elements that one statement writes.
const ELEMENTS_MAX: usize = 65_536;

/// Times that a statement writes with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTime {
    /// Microseconds since 1970.
    pub(crate) timestamp: i64,
    pub(crate) expiry: Option<Expiry>,
    /// Seconds since 1970.
    pub(crate) now: i64,
}

/// Positions of list elements: 8 bytes of time and 8 that distinguish elements of the same time,
/// both in byte order. Elements put in front count down from a time before any clock. Statements of
/// a batch share one time, and each has its own numbers.
#[derive(Debug)]
pub(crate) struct ListPositions {
    last_behind: u64,
    last_in_front: u64,
}

/// Flips the sign bit, so that byte order is numeric order.
fn ordered(number: i64) -> [u8; 8] {
    (number as u64 ^ 1 << 63).to_be_bytes()
}

impl ListPositions {
    /// Positions for the statement at this index in its batch.
    pub(crate) fn of_statement(index: usize) -> ListPositions {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        ListPositions {
            last_behind: u64::from(index) << 32,
            last_in_front: u64::from(u32::MAX - index) << 32,
        }
    }

    /// A position behind all existing elements.
    pub(crate) fn behind(&mut self, now_us: i64) -> Vec<u8> {
        self.last_behind += 1;
        [ordered(now_us), self.last_behind.to_be_bytes()].concat()
    }

    /// A position in front of all existing elements; later statements are further in front.
    fn in_front(&mut self, now_us: i64) -> Vec<u8> {
        self.last_in_front += 1;
        [ordered(-now_us), self.last_in_front.to_be_bytes()].concat()
    }
}

/// A fragment under construction.
pub(crate) struct FragmentMaker<'p> {
    pub(crate) row: Row,
    time: WriteTime,
    positions: &'p mut ListPositions,
    now_us: i64,
}

impl<'p> FragmentMaker<'p> {
    pub(crate) fn new(time: WriteTime, positions: &'p mut ListPositions, now_us: i64) -> Self {
        Self { row: Row::default(), time, positions, now_us }
    }

    /// Marks the row as existing, even without values.
    pub(crate) fn insert(&mut self) {
        self.row.liveness =
            Some(Liveness { timestamp: self.time.timestamp, expiry: self.time.expiry });
    }

    fn deletion(&self, timestamp: i64) -> Deletion {
        Deletion { timestamp, local: self.time.now }
    }

    /// Adds a cell with a value, or its tombstone.
    pub(crate) fn cell(&mut self, column: &Column, path: Option<Vec<u8>>, value: Option<Vec<u8>>) {
        let (value, expiry) = match value {
            Some(bytes) => (CellValue::Live(bytes), self.time.expiry),
            None => (CellValue::Tombstone { local: self.time.now }, None),
        };
        // Another column of this name was dropped after this timestamp.
        if column.dropped_us.is_some_and(|dropped_us| self.time.timestamp <= dropped_us) {
            return;
        }
        self.row.cells.push(Cell {
            column: column.id,
            path,
            timestamp: self.time.timestamp,
            expiry,
            value,
        });
    }

    /// Adds to a counter.
    pub(crate) fn count(&mut self, column: &Column, added: i64) {
        let value = CellValue::CounterDelta(added);
        self.row.cells.push(Cell {
            column: column.id,
            path: None,
            timestamp: self.time.timestamp,
            expiry: None,
            value,
        });
    }

    /// Deletes the column's value with all its elements.
    pub(crate) fn delete(&mut self, column: &Column) {
        if column.is_multi_cell() {
            let deletion = self.deletion(self.time.timestamp);
            self.row.complex.push((column.id, deletion));
        } else {
            self.cell(column, None, None);
        }
    }

    /// `column = value`
    pub(crate) fn set(
        &mut self,
        column: &Column,
        value: Option<Vec<u8>>,
    ) -> Result<(), InvalidRequest> {
        if !column.is_multi_cell() {
            self.cell(column, None, value);
            return Ok(());
        }
        let deletion = self.deletion(self.time.timestamp - 1);
        self.row.complex.push((column.id, deletion));
        match value {
            Some(value) => self.add(column, &value),
            // Overwritten with nothing: elements with the same timestamp stay.
            None => Ok(()),
        }
    }

    /// Adds the elements of a value: to the end of a list, into a set or map, or over the fields of
    /// a type.
    pub(crate) fn add(&mut self, column: &Column, value: &[u8]) -> Result<(), InvalidRequest> {
        match &column.cql_type {
            CqlType::List { .. } => {
                for element in elements("list", value)? {
                    let position = self.positions.behind(self.now_us);
                    self.cell(column, Some(position), Some(element.to_vec()));
                }
            }
            CqlType::Set { .. } => {
                for element in elements("set", value)? {
                    self.cell(column, Some(element.to_vec()), Some(Vec::new()));
                }
            }
            CqlType::Map { .. } => {
                for pair in elements("map", value)?.chunks_exact(2) {
                    self.cell(column, Some(pair[0].to_vec()), Some(pair[1].to_vec()));
                }
            }
            CqlType::Udt { definition, .. } => {
                let count = definition.fields.len();
                let fields = split::tuple(count, value).map_err(|_| {
                    InvalidRequest::new(format!("Invalid value for {}", column.name))
                })?;
                // A null leaves the field alone; the value as a whole has been overwritten.
                for (index, field) in fields
                    .into_iter()
                    .enumerate()
                    .filter_map(|(index, field)| Some((index, field?)))
                {
                    self.cell(column, Some(field_path(index)), Some(field.to_vec()));
                }
            }
            _ => return Err(InvalidRequest::new(format!("{} is not a collection", column.name))),
        }
        Ok(())
    }

    /// Puts the elements of a list value in front, in order.
    pub(crate) fn prepend(&mut self, column: &Column, value: &[u8]) -> Result<(), InvalidRequest> {
        let elements = elements("list", value)?;
        let positions: Vec<Vec<u8>> =
            elements.iter().map(|_| self.positions.in_front(self.now_us)).collect();
        for (element, position) in elements.into_iter().zip(positions) {
            self.cell(column, Some(position), Some(element.to_vec()));
        }
        Ok(())
    }

    /// Removes the elements of a set value from a set, or the keys it names from a map.
    pub(crate) fn remove(&mut self, column: &Column, value: &[u8]) -> Result<(), InvalidRequest> {
        for element in elements("set", value)? {
            self.cell(column, Some(element.to_vec()), None);
        }
        Ok(())
    }
}

/// A row with all values given, in the order of the table's columns, and its place.
pub(crate) fn whole_row(
    table: &Table,
    values: &[Option<Vec<u8>>],
    time: WriteTime,
) -> Result<(Partition, Vec<u8>, Row), InvalidRequest> {
    let key_len = table.partition_key_len + table.clustering_len;
    let missing = || {
        InvalidRequest::new(format!("a row of {}.{} without its key", table.keyspace, table.name))
    };
    let key: Vec<&[u8]> = values
        .iter()
        .take(key_len)
        .map(Option::as_deref)
        .collect::<Option<_>>()
        .ok_or_else(missing)?;
    let (partition, clustering) =
        key.split_at_checked(table.partition_key_len).ok_or_else(missing)?;
    let mut positions = ListPositions::of_statement(0);
    let mut maker = FragmentMaker::new(time, &mut positions, time.timestamp);
    maker.insert();
    for (column, value) in table.values().iter().zip(&values[key_len..]) {
        if let Some(value) = value {
            maker.set(column, Some(value.clone()))?;
        }
    }
    let mut row = maker.row;
    row.canonicalise();
    Ok((Partition::new(partition)?, keys::clustering(table, clustering)?, row))
}

fn elements<'v>(what: &str, value: &'v [u8]) -> Result<Vec<&'v [u8]>, InvalidRequest> {
    let found = split::collection(what, value)?;
    if found.len() > ELEMENTS_MAX {
        return Err(InvalidRequest::new(format!(
            "a {what} of more than {ELEMENTS_MAX} elements in one statement"
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_in_the_order_that_elements_are_to_have() {
        let mut positions = ListPositions::of_statement(0);
        let mut second = ListPositions::of_statement(1);
        let first_behind = positions.behind(1_000);
        let front = positions.in_front(2_000);
        let front_again = positions.in_front(3_000);
        let front_of_second = second.in_front(3_000);
        let behind = positions.behind(3_000);
        let behind_again = positions.behind(3_000);
        let behind_of_second = second.behind(3_000);
        let expected = [
            &front_of_second,
            &front_again,
            &front,
            &first_behind,
            &behind,
            &behind_again,
            &behind_of_second,
        ];
        assert!(expected.is_sorted());
    }
}
