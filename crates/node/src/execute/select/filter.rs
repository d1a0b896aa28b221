//! Conditions tested on rows after reading.

use shunt_language::ast::Comparison;
use shunt_language::error::InvalidRequest;
use shunt_language::terms::{Bindings, Value};
use shunt_language::types::CqlType;
use shunt_language::values::{compare, contains, split};

use super::super::keys;
use super::input::Input;
use crate::schema::{ColumnKind, Table};
use crate::statement::restrictions::{Filter, Restrictions, Test};

/// A filter with the values of an execution.
struct BoundFilter {
    column: usize,
    element: Option<Vec<u8>>,
    test: BoundTest,
}

enum BoundTest {
    Compare(Comparison, Vec<u8>),
    OneOf(Vec<Vec<u8>>),
}

/// Filters of a statement: those on whole partitions, and those on each row.
#[derive(Default)]
pub(super) struct Filters {
    partition: Vec<BoundFilter>,
    rows: Vec<BoundFilter>,
}

impl Filters {
    pub(super) fn new(
        table: &Table,
        restrictions: &Restrictions,
        bindings: &dyn Bindings,
    ) -> Result<Filters, InvalidRequest> {
        let mut filters = Filters::default();
        for filter in &restrictions.filters {
            let bound = bind(table, filter, bindings)?;
            match table.columns[filter.column].kind {
                ColumnKind::PartitionKey | ColumnKind::Static => filters.partition.push(bound),
                ColumnKind::Clustering | ColumnKind::Regular => filters.rows.push(bound),
            }
        }
        Ok(filters)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partition.is_empty() && self.rows.is_empty()
    }

    /// True if a partition can have rows of the result.
    pub(super) fn take_partition(&self, input: &Input<'_>) -> bool {
        self.partition.iter().all(|filter| filter.holds(input))
    }

    pub(super) fn take_row(&self, input: &Input<'_>) -> bool {
        self.rows.iter().all(|filter| filter.holds(input))
    }
}

fn bind(
    table: &Table,
    filter: &Filter,
    bindings: &dyn Bindings,
) -> Result<BoundFilter, InvalidRequest> {
    let column = &table.columns[filter.column];
    let required = |value: Value| match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Null => {
            Err(InvalidRequest::new(format!("Unsupported null value for column {}", column.name)))
        }
        Value::Unset => {
            Err(InvalidRequest::new(format!("Unsupported unset value for column {}", column.name)))
        }
    };
    let element = match &filter.element {
        Some(key) => Some(required(key.evaluate(bindings)?)?),
        None => None,
    };
    let test = match &filter.test {
        Test::Compare(comparison, operand) => {
            BoundTest::Compare(*comparison, required(keys::operand(operand, bindings)?)?)
        }
        Test::OneOf(one_of) => BoundTest::OneOf(keys::alternatives(one_of, column, bindings)?),
    };
    Ok(BoundFilter { column: filter.column, element, test })
}

impl BoundFilter {
    fn holds(&self, input: &Input<'_>) -> bool {
        let Some(value) = input.value(self.column) else { return false };
        let cql_type = &input.table.columns[self.column].cql_type;
        match (&self.element, cql_type) {
            (None, _) => self.test.holds(cql_type, &value),
            (Some(key), CqlType::Map { key: key_type, value: value_type, .. }) => {
                let found = map_value(key_type, &value, key);
                found.is_some_and(|found| self.test.holds(value_type, found))
            }
            (Some(_), _) => false,
        }
    }
}

/// Returns the value of a key in a map.
pub(super) fn map_value<'m>(key_type: &CqlType, map: &'m [u8], key: &[u8]) -> Option<&'m [u8]> {
    let elements = split::collection("map", map).ok()?;
    let (entries, _) = elements.as_chunks::<2>();
    entries.iter().find(|[own, _]| compare(key_type, own, key).is_eq()).map(|[_, value]| *value)
}

impl BoundTest {
    fn holds(&self, cql_type: &CqlType, value: &[u8]) -> bool {
        match self {
            BoundTest::OneOf(values) => {
                values.iter().any(|wanted| compare(cql_type, value, wanted).is_eq())
            }
            BoundTest::Compare(
                comparison @ (Comparison::Contains | Comparison::ContainsKey),
                wanted,
            ) => contains(cql_type, value, wanted, *comparison == Comparison::ContainsKey),
            BoundTest::Compare(comparison, wanted) => {
                comparison.of(compare(cql_type, value, wanted)).unwrap_or(false)
            }
        }
    }
}
