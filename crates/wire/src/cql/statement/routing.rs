//! Builds the serialized partition key from a statement and a table's partition key.

use super::classification::Statement;
use super::terms::{Bind, Term};
use crate::cql::types::{Column, build_key, literal};

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
