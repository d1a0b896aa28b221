//! Conditions on columns (`ColumnCondition` of Cassandra): what they are compared with, and whether they hold.

use std::cmp::Ordering;

use shunt_language::ast::Comparison;
use shunt_language::terms::{Bindings, Prepared, Value};
use shunt_language::types::CqlType;
use shunt_language::values::{compare, split};
use shunt_storage::row::Row;

use super::bindings::Bound;
use super::rows;
use super::select::contains;
use crate::error::CqlError;
use crate::schema::{Column, Table};
use crate::statement::mutation::{Condition, ConditionPart, ConditionTest};

/// A condition with the values of an execution.
pub(super) struct BoundCondition<'a> {
    column: &'a Column,
    part: BoundPart,
    comparison: Comparison,
    /// Any of these will do; one but for `IN`.
    values: Vec<Option<Vec<u8>>>,
}

/// Which part of a column a condition is on.
enum BoundPart {
    Whole,
    Element(Option<Vec<u8>>),
    Field(usize),
}

impl<'a> BoundCondition<'a> {
    pub(super) fn new(table: &'a Table, condition: &Condition, bound: &Bound<'_>) -> Result<Self, CqlError> {
        let column = &table.columns[condition.column];
        let unset = || CqlError::Invalid(format!("Invalid 'unset' value in condition on {}", column.name));
        let given = |term: &Prepared| match term.evaluate(bound)? {
            Value::Unset => Err(unset()),
            value => Ok(value.into_bytes()),
        };
        let part = match &condition.part {
            ConditionPart::Whole => BoundPart::Whole,
            ConditionPart::Element(key) => BoundPart::Element(given(key)?),
            ConditionPart::Field(index) => BoundPart::Field(*index),
        };
        let (comparison, values) = match &condition.test {
            ConditionTest::Compare(comparison, term) => (*comparison, vec![given(term)?]),
            ConditionTest::In(terms) => (Comparison::Equal, alternatives(terms, bound)?),
            ConditionTest::InList(term) => {
                let bytes = given(term)?.ok_or_else(|| CqlError::invalid("Invalid null list in IN condition"))?;
                let values = split::collection("list", &bytes)?.into_iter().map(|value| Some(value.to_vec()));
                (Comparison::Equal, values.collect())
            }
        };
        Ok(Self { column, part, comparison, values })
    }

    /// True if it holds for a row; where there is none, all its values are null.
    pub(super) fn holds(&self, row: Option<&Row>, now: i64) -> Result<bool, CqlError> {
        let whole = row.and_then(|row| rows::value(row, self.column, now));
        let (value, cql_type) = self.part(whole)?;
        let many_cells = matches!(self.part, BoundPart::Whole) && cql_type.is_multi_cell() && cql_type.is_collection();
        for wanted in &self.values {
            let holds = if many_cells {
                self.holds_for_cells(&cql_type, value.as_deref(), wanted.as_deref())?
            } else {
                matches(&cql_type, self.comparison, value.as_deref(), wanted.as_deref())?
            };
            if holds {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A collection that is stored element by element and is empty is no different from none.
    fn holds_for_cells(
        &self,
        cql_type: &CqlType,
        value: Option<&[u8]>,
        wanted: Option<&[u8]>,
    ) -> Result<bool, CqlError> {
        let of_elements = matches!(self.comparison, Comparison::Contains | Comparison::ContainsKey);
        if wanted.is_none_or(|wanted| !of_elements && wanted == [0; 4]) {
            return match self.comparison {
                Comparison::Equal => Ok(value.is_none()),
                Comparison::NotEqual => Ok(value.is_some()),
                _ if wanted.is_none() => Err(with_null(self.comparison)),
                _ => Err(CqlError::invalid("Invalid comparison with an empty collection for an operator that orders")),
            };
        }
        if value.is_none() {
            return Ok(self.comparison == Comparison::NotEqual);
        }
        matches(cql_type, self.comparison, value, wanted)
    }

    /// The part of a column's value that the condition is on, and its type.
    fn part(&self, whole: Option<Vec<u8>>) -> Result<(Option<Vec<u8>>, CqlType), CqlError> {
        let name = &self.column.name;
        let broken = |_| CqlError::Server(format!("the value of {name} is broken"));
        match (&self.part, &self.column.cql_type) {
            (BoundPart::Element(key), CqlType::Map { key: key_type, value, .. }) => {
                let key = key.as_ref().ok_or_else(|| CqlError::invalid("Invalid null value for map element access"))?;
                let elements = whole.as_deref().map(|whole| split::collection("map", whole)).transpose()?;
                let elements = elements.unwrap_or_default();
                let found = elements.chunks_exact(2).find(|pair| compare(key_type, pair[0], key).is_eq());
                Ok((found.map(|pair| pair[1].to_vec()), CqlType::clone(value)))
            }
            (BoundPart::Element(index), CqlType::List { element, .. }) => {
                let index =
                    index.as_ref().ok_or_else(|| CqlError::invalid("Invalid null value for list element access"))?;
                let index = <[u8; 4]>::try_from(index.as_slice()).map(i32::from_be_bytes);
                let index = index.map_err(|_| CqlError::Invalid(format!("Invalid list index for {name}")))?;
                let index = usize::try_from(index)
                    .map_err(|_| CqlError::Invalid(format!("Invalid negative list index {index}")))?;
                let elements = whole.as_deref().map(|whole| split::collection("list", whole)).transpose()?;
                let found = elements.unwrap_or_default().get(index).map(|value| value.to_vec());
                Ok((found, CqlType::clone(element)))
            }
            (BoundPart::Field(index), CqlType::Udt { definition, .. }) => {
                let fields = whole.as_deref().map(|whole| split::tuple(definition.fields.len(), whole)).transpose();
                let fields = fields.map_err(broken)?.unwrap_or_default();
                let found = fields.get(*index).copied().flatten().map(<[u8]>::to_vec);
                Ok((found, definition.fields[*index].1.clone()))
            }
            (_, cql_type) => Ok((whole, cql_type.clone())),
        }
    }
}

/// The values of `IN (..)`; those that are not set are left out.
fn alternatives(terms: &[Prepared], bound: &dyn Bindings) -> Result<Vec<Option<Vec<u8>>>, CqlError> {
    let mut values = Vec::with_capacity(terms.len());
    for term in terms {
        match term.evaluate(bound)? {
            Value::Unset => {}
            value => values.push(value.into_bytes()),
        }
    }
    Ok(values)
}

fn with_null(comparison: Comparison) -> CqlError {
    CqlError::Invalid(format!("Invalid comparison with null for operator \"{}\"", symbol(comparison)))
}

/// True if a value compares with the wanted one as it should; null equals null alone.
fn matches(
    cql_type: &CqlType,
    comparison: Comparison,
    value: Option<&[u8]>,
    wanted: Option<&[u8]>,
) -> Result<bool, CqlError> {
    let (value, wanted) = match (value, wanted) {
        (value, None) => {
            return match comparison {
                Comparison::Equal => Ok(value.is_none()),
                Comparison::NotEqual => Ok(value.is_some()),
                _ => Err(with_null(comparison)),
            };
        }
        (None, Some(_)) => return Ok(comparison == Comparison::NotEqual),
        (Some(value), Some(wanted)) => (value, wanted),
    };
    let order = if cql_type.references_duration() && value == wanted {
        Ordering::Equal
    } else {
        compare(cql_type, value, wanted)
    };
    match comparison {
        Comparison::Contains | Comparison::ContainsKey => {
            Ok(contains(cql_type, value, wanted, comparison == Comparison::ContainsKey))
        }
        _ => comparison.of(order).ok_or_else(|| CqlError::invalid("LIKE is not supported in conditions")),
    }
}

fn symbol(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "!=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Like => "LIKE",
        Comparison::Contains => "CONTAINS",
        Comparison::ContainsKey => "CONTAINS KEY",
    }
}
