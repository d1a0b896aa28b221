//! Membership of an element or key in a collection.

use super::{compare, split};
use crate::types::CqlType;

/// True if a collection contains this element; for a map, this value, or this key if `keys` is set.
/// A value that is not a collection contains nothing.
#[must_use]
pub fn contains(cql_type: &CqlType, value: &[u8], wanted: &[u8], keys: bool) -> bool {
    let (what, element_type, step) = match cql_type {
        CqlType::List { element, .. } => ("list", element, 1),
        CqlType::Set { element, .. } => ("set", element, 1),
        CqlType::Map { key, .. } if keys => ("map", key, 2),
        CqlType::Map { value, .. } => ("map", value, 2),
        _ => return false,
    };
    let Ok(elements) = split::collection(what, value) else { return false };
    let first = usize::from(step == 2 && !keys);
    elements
        .iter()
        .skip(first)
        .step_by(step)
        .any(|element| compare(element_type, element, wanted).is_eq())
}
