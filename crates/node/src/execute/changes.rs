//! Changes of single columns: SET and DELETE with their values as parts of a fragment.
//!
//! Most are blind. Changes that name an element of a list by its index or value read the list
//! first; the caller then holds the partition's lock.

use shunt_language::functions::{self, Function};
use shunt_language::terms::{Prepared, Value};
use shunt_language::types::CqlType;
use shunt_language::values::split;
use shunt_storage::row::{Cell, CellValue, PartitionKey};

use super::bindings::Bound;
use super::fragment::FragmentMaker;
use super::keys::Partition;
use super::mutate::Place;
use super::rows;
use crate::error::CqlError;
use crate::schema::{Column, Table};
use crate::shared::Shared;
use crate::statement::mutation::{ColumnChange, MutationPlan};

/// Reads the cells needed by changes of list elements by index or value.
pub(super) struct CellReader<'a> {
    pub(super) shared: &'a Shared,
    pub(super) table: &'a Table,
    pub(super) partition: &'a Partition,
    pub(super) place: &'a Place,
    pub(super) now: i64,
}

/// Path and value of an element of a list.
type Element = (Vec<u8>, Vec<u8>);

/// The operation on two values of one type.
fn operation(name: &str, cql_type: &CqlType) -> Result<Function, CqlError> {
    Ok(functions::resolve(name, &[cql_type, cql_type], Some(cql_type), None)?)
}

impl CellReader<'_> {
    /// Current value of a column.
    fn value(&self, column: &Column) -> Result<Option<Vec<u8>>, CqlError> {
        let number = self
            .table
            .number
            .ok_or_else(|| CqlError::invalid("a system table is not written to"))?;
        let store = self.shared.store(self.partition.token);
        let row = store.read_row(
            number,
            PartitionKey(&self.partition.key),
            self.place.target(),
            self.now,
        )?;
        Ok(row.and_then(|mut row| {
            row.cells.retain(|cell| column.shows(cell));
            rows::value(&row, column, self.now)
        }))
    }

    /// Paths and values of the live elements of a list.
    fn elements(&self, column: &Column) -> Result<Vec<Element>, CqlError> {
        let number = self
            .table
            .number
            .ok_or_else(|| CqlError::invalid("a system table is not written to"))?;
        let store = self.shared.store(self.partition.token);
        let key = PartitionKey(&self.partition.key);
        let row = store.read_row(number, key, self.place.target(), self.now);
        let row = row?.unwrap_or_default();
        let live = row.cells.iter().filter(|cell| column.shows(cell) && cell.is_live(self.now));
        let element = |cell: &Cell| match (&cell.path, &cell.value) {
            (Some(path), CellValue::Live(value)) => Some((path.clone(), value.clone())),
            _ => None,
        };
        Ok(live.filter_map(element).collect())
    }
}

/// True if a plan reads before it writes, so that its partitions must be locked.
pub(super) fn reads_lists(plan: &MutationPlan) -> bool {
    plan.read_columns().next().is_some()
}

/// Applies a change to a fragment.
pub(super) fn apply(
    maker: &mut FragmentMaker<'_>,
    column: &Column,
    change: &ColumnChange,
    bound: &Bound<'_>,
    reader: &CellReader<'_>,
) -> Result<(), CqlError> {
    let name = &column.name;
    match change {
        ColumnChange::Set(term) => match term.evaluate(bound)? {
            Value::Unset => {}
            value => maker.set(column, value.into_bytes())?,
        },
        ColumnChange::Add(term) | ColumnChange::Subtract(term) if column.cql_type.is_counter() => {
            let is_subtracted = matches!(change, ColumnChange::Subtract(_));
            count(maker, column, term.evaluate(bound)?, is_subtracted)?;
        }
        ColumnChange::Add(term) => match term.evaluate(bound)? {
            Value::Bytes(value) => maker.add(column, &value)?,
            // An unset value elsewhere changes nothing; Cassandra fails only here.
            Value::Unset if matches!(column.cql_type, CqlType::List { .. }) => {
                return Err(CqlError::Invalid(format!("Invalid unset value for column {name}")));
            }
            Value::Null | Value::Unset => {}
        },
        ColumnChange::AddToValue(term) => {
            let added = match term.evaluate(bound)? {
                Value::Bytes(added) => added,
                _ => {
                    return Err(CqlError::Invalid(format!(
                        "Invalid null or unset value to be added to {name}"
                    )));
                }
            };
            let sum = operation("_+", &column.cql_type)?;
            if let Some(value) = reader.value(column)? {
                maker.set(column, sum.evaluate(&[Some(&value), Some(&added)], bound)?)?;
            }
        }
        ColumnChange::Prepend(term) => {
            if let Some(value) = term.evaluate(bound)?.into_bytes() {
                maker.prepend(column, &value)?;
            }
        }
        ColumnChange::Subtract(term) => subtract(maker, column, term, bound, reader)?,
        ColumnChange::SetElement(key, value) => {
            let key = present(key, bound, name)?;
            let value = value.evaluate(bound)?;
            let path = match &column.cql_type {
                CqlType::List { .. } => list_position(&key, column, reader)?,
                _ => key,
            };
            if value != Value::Unset {
                maker.cell(column, Some(path), value.into_bytes());
            }
        }
        ColumnChange::SetField(index, term) => match term.evaluate(bound)? {
            Value::Unset => {}
            value => maker.cell(column, Some(rows::field_path(*index)), value.into_bytes()),
        },
        ColumnChange::Delete => maker.delete(column),
        ColumnChange::DeleteElement(key) => {
            let key = present(key, bound, name)?;
            let path = match &column.cql_type {
                CqlType::List { .. } => list_position(&key, column, reader)?,
                _ => key,
            };
            maker.cell(column, Some(path), None);
        }
        ColumnChange::DeleteField(index) => {
            maker.cell(column, Some(rows::field_path(*index)), None)
        }
    }
    Ok(())
}

fn count(
    maker: &mut FragmentMaker<'_>,
    column: &Column,
    value: Value,
    is_subtracted: bool,
) -> Result<(), CqlError> {
    let name = &column.name;
    match value {
        Value::Unset => Ok(()),
        Value::Null => {
            Err(CqlError::Invalid(format!("Invalid null value for counter increment of {name}")))
        }
        Value::Bytes(bytes) => {
            let added = counter(&bytes, name)?;
            maker.count(column, if is_subtracted { added.wrapping_neg() } else { added });
            Ok(())
        }
    }
}

fn subtract(
    maker: &mut FragmentMaker<'_>,
    column: &Column,
    term: &Prepared,
    bound: &Bound<'_>,
    reader: &CellReader<'_>,
) -> Result<(), CqlError> {
    let Some(value) = term.evaluate(bound)?.into_bytes() else { return Ok(()) };
    if !matches!(column.cql_type, CqlType::List { .. }) {
        return Ok(maker.remove(column, &value)?);
    }
    // Sorted: both lists may have many elements.
    let mut gone = split::collection("list", &value)?;
    gone.sort_unstable();
    for (path, element) in reader.elements(column)? {
        if gone.binary_search(&element.as_slice()).is_ok() {
            maker.cell(column, Some(path), None);
        }
    }
    Ok(())
}

fn present(term: &Prepared, bound: &Bound<'_>, name: &str) -> Result<Vec<u8>, CqlError> {
    match term.evaluate(bound)? {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Null => Err(CqlError::Invalid(format!(
            "Invalid null value for the key of an element of {name}"
        ))),
        Value::Unset => Err(CqlError::Invalid(format!(
            "Invalid unset value for the key of an element of {name}"
        ))),
    }
}

/// The path of the element with this index.
fn list_position(
    index: &[u8],
    column: &Column,
    reader: &CellReader<'_>,
) -> Result<Vec<u8>, CqlError> {
    let index = <[u8; 4]>::try_from(index).map(i32::from_be_bytes);
    let index =
        index.map_err(|_| CqlError::Invalid(format!("Invalid list index for {}", column.name)))?;
    let elements = reader.elements(column)?;
    if elements.is_empty() {
        return Err(CqlError::invalid("Attempted to set an element on a list which is null"));
    }
    let found = usize::try_from(index).ok().and_then(|index| elements.get(index));
    found.map(|(path, _)| path.clone()).ok_or_else(|| {
        CqlError::Invalid(format!(
            "List index {index} out of bound, list has size {}",
            elements.len()
        ))
    })
}

fn counter(bytes: &[u8], name: &str) -> Result<i64, CqlError> {
    let number = <[u8; 8]>::try_from(bytes).map(i64::from_be_bytes);
    number.map_err(|_| CqlError::Invalid(format!("Invalid value for counter {name}")))
}
