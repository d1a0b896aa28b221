//! Literals as they stand in a statement to serialized values, as the server would serialize them.

use super::CqlType;

/// Appends the serialized value of a literal (one token, with its quotes) for a column of the given type.
///
/// False, with `out` as it was, if the text is no literal of that type or its bytes cannot be told with certainty.
pub fn literal(cql_type: &CqlType, text: &str, out: &mut Vec<u8>) -> bool {
    let _ = (cql_type, text, out);
    false
}
