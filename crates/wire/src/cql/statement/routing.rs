//! From a statement and a table's partition key to the serialized key.

use super::terms::Term;
use super::{Identifier, Statement};
use crate::cql::message::{Value, Values};
use crate::cql::types::{Column, build_key, literal};

/// A bind marker whose value is asked for.
#[derive(Copy, Clone, Debug)]
pub struct Bind<'a> {
    /// Position among the statement's markers, from 0, in order of appearance.
    pub index: u16,
    /// Name a value would have in a message with named values: that of `:name`, or for `?` the column it is compared
    /// or assigned to.
    pub name: Identifier<'a>,
}

impl Bind<'_> {
    /// Its value among those of a message.
    #[must_use]
    pub fn of<'v>(&self, values: &Values<'v>) -> Option<Value<'v>> {
        if values.is_named() {
            values.iter().find(|(name, _)| name.is_some_and(|name| self.name.matches(name))).map(|(_, value)| value)
        } else {
            values.get(usize::from(self.index))
        }
    }
}

/// Builds the serialized partition key of a statement into `out` (cleared first), from literals of the text and bind
/// values.
///
/// * `partition_key`: the table's key columns, in order.
/// * `value`: gives the bytes of a bind value, or `None` if it is absent, null or unset.
///
/// False, with `out` empty, if some key column is not fixed to one value that can be encoded with certainty: then the
/// statement goes to any node.
pub fn routing_key<'v>(
    statement: &Statement<'_>,
    partition_key: &[Column],
    mut value: impl FnMut(Bind<'_>) -> Option<&'v [u8]>,
    out: &mut Vec<u8>,
) -> bool {
    build_key(partition_key.len(), out, |position, out| {
        let column = &partition_key[position];
        let Some(found) = statement.key_terms().find(|term| term.column.matches(&column.name)) else {
            return false;
        };
        let bind = match found.term {
            Term::Literal(text) => return literal(&column.cql_type, text, out),
            Term::Marker(index) => Bind { index, name: found.column },
            Term::NamedMarker { name, index } => Bind { index, name },
        };
        value(bind).map(|bytes| out.extend_from_slice(bytes)).is_some()
    })
}
