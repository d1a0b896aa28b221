//! Bind values of one execution, with the time and the random numbers for its functions.

use shunt_language::functions::{Environment, timeuuid};
use shunt_language::terms::{Bindings, Value};
use shunt_language::values::literal;
use shunt_topology::token;
use shunt_wire::cql::message::{Value as WireValue, Values};

use super::annotations::Aside;
use crate::shared::Shared;
use crate::statement::{Marker, Statement};

/// Most markers and values of which each is looked for in the message, where it is found after as
/// many steps as values are before it.
const FEW: usize = 32;

/// Implements the bindings for evaluating terms.
pub(crate) struct Bound<'a> {
    statement: &'a Statement,
    values: &'a Values<'a>,
    /// The value of each marker, unless there are few.
    of_markers: Option<Vec<Option<WireValue<'a>>>>,
    shared: &'a Shared,
    /// Receives notes for the trace.
    pub(crate) aside: &'a Aside,
    /// Start of the statement, microseconds since 1970.
    pub(crate) now_us: i64,
}

impl<'a> Bound<'a> {
    pub(crate) fn new(
        statement: &'a Statement,
        values: &'a Values<'a>,
        shared: &'a Shared,
        aside: &'a Aside,
    ) -> Self {
        let are_many = statement.markers.len().max(values.len()) > FEW;
        let of_markers = are_many.then(|| values_of_markers(statement, values));
        Self { statement, values, of_markers, shared, aside, now_us: shared.now_us() }
    }

    /// The values as literals, named as in Cassandra's traces.
    pub(super) fn shown(&self) -> Vec<(String, String)> {
        let value = |(index, marker): (usize, &Marker)| {
            let value = match self.value(index as u16) {
                Value::Bytes(bytes) => literal(&marker.cql_type, &bytes),
                Value::Null => "null".to_owned(),
                Value::Unset => return None,
            };
            Some((format!("bound_var_{index}_{}", marker.name), value))
        };
        self.statement.markers.iter().enumerate().filter_map(value).collect()
    }

    /// Seconds since 1970.
    pub(crate) fn now_s(&self) -> i64 {
        self.now_us / 1_000_000
    }
}

/// The values of all markers, found in one walk.
fn values_of_markers<'a>(
    statement: &'a Statement,
    values: &Values<'a>,
) -> Vec<Option<WireValue<'a>>> {
    if !values.is_named() {
        return values.iter().map(|(_, value)| Some(value)).collect();
    }
    let names = || statement.markers.iter().map(|marker| marker.name.as_str());
    let known = values.with_names(names());
    names().map(|name| known.get(name).copied()).collect()
}

impl Environment for Bound<'_> {
    fn now_ms(&self) -> i64 {
        self.now_us / 1000
    }

    fn timeuuid(&self) -> [u8; 16] {
        timeuuid(self.shared.now_us() * 10, self.shared.random() as u64)
    }

    fn random(&self) -> u128 {
        self.shared.random()
    }

    fn token(&self, partition_key: &[u8]) -> i64 {
        token::token(partition_key).0
    }
}

impl Bindings for Bound<'_> {
    fn value(&self, index: u16) -> Value {
        let found = match &self.of_markers {
            Some(values) => values.get(usize::from(index)).copied().flatten(),
            None if self.values.is_named() => {
                self.statement.marker_name(index).and_then(|name| self.values.named(name))
            }
            None => self.values.get(usize::from(index)),
        };
        match found {
            Some(WireValue::Bytes(bytes)) => Value::Bytes(bytes.to_vec()),
            Some(WireValue::Null) => Value::Null,
            // A missing value is refused before evaluation.
            Some(WireValue::Unset) | None => Value::Unset,
        }
    }
}
