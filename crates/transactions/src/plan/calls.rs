//! Values of functions such as `now()`, which differ with each call: the proxy that decides
//! computes them once, and writes them like bind values. A repeated write then writes the same.

use std::sync::Arc;

use shunt_language::InvalidRequest;
use shunt_language::ast::{Mutation, Operation, Term};
use shunt_language::terms::{self, Prepared, Scope};
use shunt_language::transaction::{Inner, is_pure};

use super::draft::Drafting;
use super::parts::Source;
use super::repeatable::unrepeatable;
use crate::plan::schema::Table;

/// A value that contains such a function.
#[derive(Debug)]
pub(super) struct CallValue {
    pub(super) statement: usize,
    pub(super) value: Prepared,
}

impl Drafting<'_> {
    /// Prepares such values of a write. They come last in its `sources`, in order.
    pub(super) fn calls(
        &mut self,
        (statement, inner): (usize, &Inner),
        mutation: &Mutation,
        table: &Arc<Table>,
        sources: &mut Vec<Source>,
    ) -> Result<(), InvalidRequest> {
        let wanted = inner.calls.iter().filter(|call| !call.is_pure()).count();
        let values = values_of(mutation).filter(|(_, value)| !is_pure(value));
        for (column, value) in values {
            let cql_type = table
                .column(column)
                .ok_or_else(|| InvalidRequest::new(format!("Undefined column name {column}")))?;
            let mut scope = Scope::new(&table.types, None, self.now_ms, inner.markers.len());
            let value = terms::prepare(value, column, cql_type, &mut scope)?;
            self.note(inner, &scope);
            sources.push(Source::Called(self.called.len()));
            self.called.push(CallValue { statement, value });
        }
        // Calls such as `m['k'] = now()` remain.
        if sources.len() != inner.markers.len() + wanted { Err(unrepeatable()) } else { Ok(()) }
    }
}

/// The place of such a value of the key in a statement's sources.
pub(super) fn place_in_key(mutation: &Mutation, column: &str, inner: &Inner) -> Option<usize> {
    let Mutation::Insert(insert) = mutation else { return None };
    let place = insert.columns.iter().position(|name| name == column)?;
    let before = insert.values.iter().take(place).filter(|value| !is_pure(value)).count();
    Some(inner.markers.len() + before)
}

/// Whole values that columns are set to, in order.
fn values_of(mutation: &Mutation) -> impl Iterator<Item = (&str, &Term)> {
    let (columns, assignments): (&[String], &[_]) = match mutation {
        Mutation::Insert(insert) => (&insert.columns, &[]),
        Mutation::Update(update) => (&[], &update.assignments),
        Mutation::InsertJson(_) | Mutation::Delete(_) => (&[], &[]),
    };
    let values: &[Term] =
        if let Mutation::Insert(insert) = mutation { &insert.values } else { &[] };
    let set = assignments.iter().filter_map(|assignment| match &assignment.operation {
        Operation::Set(value) => Some((assignment.column.as_str(), value)),
        _ => None,
    });
    columns.iter().map(String::as_str).zip(values).chain(set)
}
