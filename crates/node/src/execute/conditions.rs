//! Conditions on columns, with the values of an execution.

use shunt_language::conditions::BoundColumnCondition;
use shunt_language::work::Work;
use shunt_storage::row::Row;

use super::bindings::Bound;
use super::rows;
use crate::error::CqlError;
use crate::schema::{Column, Table};
use crate::statement::mutation::Condition;

/// A condition with the values of an execution.
pub(super) struct BoundCondition<'a> {
    column: &'a Column,
    bound: BoundColumnCondition<'a>,
}

impl<'a> BoundCondition<'a> {
    pub(super) fn new(
        table: &'a Table,
        condition: &'a Condition,
        bound: &Bound<'_>,
    ) -> Result<Self, CqlError> {
        Ok(Self { column: &table.columns[condition.column], bound: condition.test.bind(bound)? })
    }

    /// True if the condition holds for a row; an absent row has only null values.
    pub(super) fn holds(&self, row: Option<&Row>, now: i64, work: &Work) -> Result<bool, CqlError> {
        let value = row.and_then(|row| rows::value(row, self.column, now));
        Ok(self.bound.holds(value.as_deref(), work)?)
    }
}
