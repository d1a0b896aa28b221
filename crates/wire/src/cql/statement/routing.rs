//! Builds the serialized partition key from a statement and a table's partition key.

use super::terms::Term;
use super::{Identifier, Statement};
use crate::cql::message::{Value, Values};
use crate::cql::types::{Column, build_key, literal};

/// A bind marker whose value is requested.
#[derive(Copy, Clone, Debug)]
pub struct Bind<'a> {
    /// Position among the statement's markers, from 0, in order of appearance.
    pub index: u16,
    /// Name of the value in a message with named values: the name in `:name`, or for `?` the column
    /// it is compared or assigned to.
    pub name: Identifier<'a>,
}

/// Most named values of a message that are searched.
const NAMED_VALUES_MAX: usize = 2_048;

impl Bind<'_> {
    /// The marker's value in a message. `None` if the message has more than 2,048 named values,
    /// which would take long to search.
    #[must_use]
    pub fn of<'v>(&self, values: &Values<'v>) -> Option<Value<'v>> {
        if values.is_named() {
            if values.len() > NAMED_VALUES_MAX {
                return None;
            }
            values
                .iter()
                .find(|(name, _)| name.is_some_and(|name| self.name.matches(name)))
                .map(|(_, value)| value)
        } else {
            values.get(usize::from(self.index))
        }
    }
}

/// Most key columns of a table whose text statements are routed by key.
const KEY_COLUMNS_MAX: usize = 32;

/// Builds the serialized partition key of a statement in `out` (cleared first) from literals of the
/// text and bind values. Reads the text once, whatever the number of key columns.
///
/// * `partition_key`: the table's key columns, in order.
/// * `value`: returns the bytes of a bind value, or `None` if it is absent, null or unset.
///
/// Returns false and leaves `out` empty if a key column is not fixed to one value with a certain
/// encoding, or the key has more than 32 columns; the statement then goes to any node.
pub fn routing_key<'v>(
    statement: &Statement<'_>,
    partition_key: &[Column],
    mut value: impl FnMut(Bind<'_>) -> Option<&'v [u8]>,
    out: &mut Vec<u8>,
) -> bool {
    let mut terms = [None; KEY_COLUMNS_MAX];
    let Some(found) = terms.get_mut(..partition_key.len()) else {
        out.clear();
        return false;
    };
    let mut missing = found.len();
    for term in statement.key_terms() {
        // The first of two terms for a column counts.
        let of = partition_key
            .iter()
            .zip(found.iter_mut())
            .find(|(column, _)| term.column.matches(&column.name));
        if let Some((_, place @ None)) = of {
            *place = Some(term);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    build_key(partition_key.len(), out, |position, out| {
        let Some(found) = terms[position] else { return false };
        let bind = match found.term {
            Term::Literal(text) => return literal(&partition_key[position].cql_type, text, out),
            Term::Marker(index) => Bind { index, name: found.column },
            Term::NamedMarker { name, index } => Bind { index, name },
        };
        value(bind).map(|bytes| out.extend_from_slice(bytes)).is_some()
    })
}
