//! Values that functions give anew each time, as `now()` does: they are computed once, by the proxy
//! that decides, and are written like values that a client has bound. So a write that is made again
//! writes the same.

use std::cell::Cell;
use std::sync::Arc;

use shunt_language::InvalidRequest;
use shunt_language::ast::{Mutation, Operation, Term};
use shunt_language::functions::{Environment, timeuuid};
use shunt_language::terms::{self, Bindings, Prepared, Scope, Value};
use shunt_language::transaction::{Inner, is_pure};

use super::bind::{Bound, InnerBindings};
use super::draft::Drafting;
use super::repeatable::unrepeatable;
use super::{Plan, Source};
use crate::plan::schema::Table;

/// A value with such a function in it.
#[derive(Debug)]
pub(super) struct Called {
    statement: usize,
    value: Prepared,
}

/// What functions need to give something: when a transaction was taken on, and numbers that nobody
/// has seen.
pub struct Moment {
    wall_us: i64,
    numbers: Cell<u64>,
}

impl Moment {
    pub fn new(wall_us: i64, number: u64) -> Moment {
        Moment { wall_us, numbers: Cell::new(number) }
    }

    /// SplitMix64, whose numbers differ for as long as anybody asks.
    fn number(&self) -> u64 {
        let next = self.numbers.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.numbers.set(next);
        let mixed = (next ^ next >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

/// The values of a statement's markers, at a moment.
struct At<'b> {
    inner: InnerBindings<'b>,
    moment: &'b Moment,
}

impl Environment for At<'_> {
    fn now_ms(&self) -> i64 {
        self.moment.wall_us / 1_000
    }

    fn timeuuid(&self) -> [u8; 16] {
        timeuuid(self.moment.wall_us.saturating_mul(10), self.moment.number())
    }

    fn random(&self) -> u128 {
        // The time is in it: another proxy may have begun with the same number.
        let halves =
            [self.moment.number(), self.moment.number() ^ self.moment.wall_us.cast_unsigned()];
        u128::from(halves[0]) << 64 | u128::from(halves[1])
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for At<'_> {
    fn value(&self, index: u16) -> Value {
        self.inner.value(index)
    }
}

impl Drafting<'_> {
    /// Prepares such values of a statement that writes. They are at the end of its `sources`, in
    /// order.
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
            self.called.push(Called { statement, value });
        }
        // Those of `m['k'] = now()` and the like.
        if sources.len() != inner.markers.len() + wanted { Err(unrepeatable()) } else { Ok(()) }
    }
}

/// The place in a statement's sources of such a value of its key.
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

impl Plan {
    /// True if something in it is another each time.
    pub fn has_calls(&self) -> bool {
        !self.draft.called.is_empty()
    }

    /// Computes what functions give, at this moment; it is kept behind the client's values, which
    /// these are.
    pub fn call(&self, values: &mut Vec<Value>, moment: &Moment) -> Result<(), InvalidRequest> {
        let mut given = Vec::with_capacity(self.draft.called.len());
        for Called { statement, value } in &self.draft.called {
            let bound: Bound<'_> = self.with(values);
            let at =
                At { inner: InnerBindings { bound, statement: *statement, rows: &[] }, moment };
            given.push(value.evaluate(&at).map_err(|error| bound.at(*statement, error))?);
        }
        values.extend(given);
        Ok(())
    }
}
