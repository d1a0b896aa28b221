//! Conditional statements: `IF [NOT] EXISTS` and conditions on columns. The partition is locked while it is read and
//! written, so nobody else's condition or write to it comes between.

use std::cmp::Ordering;

use shunt_cql::ast::Comparison;
use shunt_cql::terms::{Bindings, Prepared, Value};
use shunt_cql::types::CqlType;
use shunt_cql::values::{compare, split};
use shunt_storage::Target;
use shunt_storage::row::{PartitionKey, Row};

use super::bindings::Bound;
use super::keys;
use super::mutate::Mutator;
use super::rows;
use crate::error::CqlError;
use crate::schema::{Column, ColumnKind, Table};
use crate::shared::Shared;
use crate::statement::mutation::{Condition, ConditionPart, ConditionPlan, ConditionTest, MutationPlan};
use crate::statement::restrictions::OneOf;

/// The row a conditional statement is about, as it is.
pub(crate) struct Current {
    /// Values of the primary key's columns; without those of clustering columns if the static row is meant.
    pub(crate) key: Vec<Vec<u8>>,
    pub(crate) statics: Option<Row>,
    pub(crate) row: Option<Row>,
    pub(crate) now: i64,
}

impl Current {
    /// Reads it. The caller holds the partition's lock.
    pub(crate) fn read(mutator: &Mutator<'_>, shared: &Shared) -> Result<Current, CqlError> {
        let plan = mutator.plan;
        let partition =
            only(mutator.partitions()?, "IN on the partition key is not supported with conditional updates")?;
        let clustering = keys::clustering_values(&plan.table, &plan.restrictions.clustering, mutator.bound)?;
        let clustering =
            only(clustering, "IN on the clustering key columns is not supported with conditional updates")?;
        let number = plan.table.number.ok_or_else(|| CqlError::invalid("a system table is not written to"))?;
        let (store, now) = (shared.store(partition.token), mutator.time.now);
        let read = |target: Target<'_>| store.read_row(number, PartitionKey(&partition.key), target, now);
        let statics = if plan.table.has_static { read(Target::Static)? } else { None };
        let whole = clustering.len() == plan.table.clustering_len;
        let row = if whole { read(Target::Row(&keys::clustering(&plan.table, &clustering)?))? } else { None };
        let mut key = key_values(plan, mutator.bound)?;
        key.extend(clustering);
        Ok(Current { key, statics, row, now })
    }

    fn row_of(&self, column: &Column) -> Option<&Row> {
        if column.kind == ColumnKind::Static { self.statics.as_ref() } else { self.row.as_ref() }
    }

    /// The value of a column, null if there is none.
    pub(crate) fn value(&self, table: &Table, position: usize) -> Option<Vec<u8>> {
        let column = &table.columns[position];
        if column.is_primary_key() {
            return self.key.get(position).cloned();
        }
        rows::value(self.row_of(column)?, column, self.now)
    }

    /// Whether what the statement is about is there.
    pub(crate) fn exists(&self, plan: &MutationPlan) -> bool {
        let whole = self.key.len() == plan.table.partition_key_len + plan.table.clustering_len;
        if whole && !plan.is_static_only() { self.row.is_some() } else { self.statics.is_some() }
    }

    /// Whether the conditions of a plan hold.
    pub(crate) fn satisfies(&self, plan: &MutationPlan, bound: &Bound<'_>) -> Result<bool, CqlError> {
        match &plan.conditions {
            ConditionPlan::None => Ok(true),
            ConditionPlan::NotExists => Ok(!self.exists(plan)),
            ConditionPlan::Exists => Ok(self.exists(plan)),
            ConditionPlan::Columns(all) => {
                for condition in all {
                    if !self.holds(&plan.table, condition, bound)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn holds(&self, table: &Table, condition: &Condition, bound: &Bound<'_>) -> Result<bool, CqlError> {
        let column = &table.columns[condition.column];
        let whole = self.value(table, condition.column);
        let (value, cql_type) = part(whole, column, &condition.part, bound)?;
        let candidates = |terms: &[Prepared]| -> Result<Vec<Option<Vec<u8>>>, CqlError> {
            terms.iter().map(|term| given(term, bound, &column.name)).collect()
        };
        match &condition.test {
            ConditionTest::Compare(comparison, term) => {
                let wanted = given(term, bound, &column.name)?;
                matches(&cql_type, *comparison, value.as_deref(), wanted.as_deref())
            }
            ConditionTest::In(terms) => Ok(one_of(&cql_type, value.as_deref(), &candidates(terms)?)),
            ConditionTest::InList(term) => {
                let bytes = given(term, bound, &column.name)?;
                let bytes = bytes.ok_or_else(|| {
                    CqlError::Invalid(format!("Invalid null list in IN condition on {}", column.name))
                })?;
                let list: Vec<_> =
                    split::collection("list", &bytes)?.into_iter().map(|value| Some(value.to_vec())).collect();
                Ok(one_of(&cql_type, value.as_deref(), &list))
            }
        }
    }
}

fn only<T>(mut all: Vec<T>, message: &str) -> Result<T, CqlError> {
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(CqlError::invalid(message)),
    }
}

/// Values of the partition key's columns.
fn key_values(plan: &MutationPlan, bound: &Bound<'_>) -> Result<Vec<Vec<u8>>, CqlError> {
    use crate::statement::restrictions::PartitionRestriction::Keys;
    let Keys(keys) = &plan.restrictions.partition else { return Ok(Vec::new()) };
    let value = |(one_of, column): (&OneOf, &Column)| {
        only(
            keys::alternatives(one_of, column, bound)?,
            "IN on the partition key is not supported with conditional updates",
        )
    };
    keys.iter().zip(plan.table.partition_key()).map(value).collect()
}

fn given(term: &Prepared, bound: &dyn Bindings, name: &str) -> Result<Option<Vec<u8>>, CqlError> {
    match term.evaluate(bound)? {
        Value::Unset => Err(CqlError::Invalid(format!("Invalid 'unset' value in condition on {name}"))),
        value => Ok(value.into_bytes()),
    }
}

/// The part of a column's value that a condition is on, and its type.
fn part(
    whole: Option<Vec<u8>>,
    column: &Column,
    part: &ConditionPart,
    bound: &Bound<'_>,
) -> Result<(Option<Vec<u8>>, CqlType), CqlError> {
    let name = &column.name;
    match (part, &column.cql_type) {
        (ConditionPart::Element(key), CqlType::Map { key: key_type, value, .. }) => {
            let key = given(key, bound, name)?;
            let key = key.ok_or_else(|| CqlError::Invalid(format!("Invalid null value for map key of {name}")))?;
            let elements =
                whole.as_deref().map(|whole| split::collection("map", whole)).transpose()?.unwrap_or_default();
            let found = elements.chunks_exact(2).find(|pair| compare(key_type, pair[0], &key).is_eq());
            Ok((found.map(|pair| pair[1].to_vec()), CqlType::clone(value)))
        }
        (ConditionPart::Element(index), CqlType::List { element, .. }) => {
            let index = given(index, bound, name)?.and_then(|bytes| <[u8; 4]>::try_from(bytes.as_slice()).ok());
            let index = index.map(i32::from_be_bytes);
            let index =
                index.ok_or_else(|| CqlError::Invalid(format!("Invalid null value for list index of {name}")))?;
            let elements =
                whole.as_deref().map(|whole| split::collection("list", whole)).transpose()?.unwrap_or_default();
            let found = usize::try_from(index).ok().and_then(|index| elements.get(index));
            Ok((found.map(|value| value.to_vec()), CqlType::clone(element)))
        }
        (ConditionPart::Field(index), CqlType::Udt { definition, .. }) => {
            let fields = whole.as_deref().map(|whole| split::tuple(definition.fields.len(), whole)).transpose();
            let fields =
                fields.map_err(|_| CqlError::Server(format!("the value of {name} is broken")))?.unwrap_or_default();
            let found = fields.get(*index).copied().flatten().map(<[u8]>::to_vec);
            Ok((found, definition.fields[*index].1.clone()))
        }
        _ => Ok((whole, column.cql_type.clone())),
    }
}

/// An empty collection that is stored element by element is no different from none.
fn is_null(cql_type: &CqlType, value: Option<&[u8]>) -> bool {
    value.is_none_or(|bytes| cql_type.is_multi_cell() && cql_type.is_collection() && bytes == [0; 4])
}

fn same(cql_type: &CqlType, value: Option<&[u8]>, wanted: Option<&[u8]>) -> bool {
    match (is_null(cql_type, value), is_null(cql_type, wanted)) {
        (true, true) => true,
        (false, false) => match (value, wanted) {
            (Some(value), Some(wanted)) if cql_type.references_duration() => value == wanted,
            (Some(value), Some(wanted)) => compare(cql_type, value, wanted).is_eq(),
            _ => false,
        },
        _ => false,
    }
}

fn one_of(cql_type: &CqlType, value: Option<&[u8]>, candidates: &[Option<Vec<u8>>]) -> bool {
    candidates.iter().any(|candidate| same(cql_type, value, candidate.as_deref()))
}

fn matches(
    cql_type: &CqlType,
    comparison: Comparison,
    value: Option<&[u8]>,
    wanted: Option<&[u8]>,
) -> Result<bool, CqlError> {
    let order = |holds: fn(Ordering) -> bool| match (value, wanted) {
        (_, None) => Err(CqlError::invalid("Invalid comparison with null for a condition that orders")),
        (None, _) => Ok(false),
        (Some(value), Some(wanted)) => Ok(holds(compare(cql_type, value, wanted))),
    };
    match comparison {
        Comparison::Equal => Ok(same(cql_type, value, wanted)),
        Comparison::NotEqual => Ok(!same(cql_type, value, wanted)),
        Comparison::Less => order(Ordering::is_lt),
        Comparison::LessOrEqual => order(Ordering::is_le),
        Comparison::Greater => order(Ordering::is_gt),
        Comparison::GreaterOrEqual => order(Ordering::is_ge),
        Comparison::Like | Comparison::Contains | Comparison::ContainsKey => {
            Err(CqlError::invalid("this comparison is not supported in conditions"))
        }
    }
}
