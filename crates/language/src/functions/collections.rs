//! Functions of collections.

use super::aggregate::{Aggregate, AggregateKind};
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::split;

/// The keys of a map as a set, or its values as a list.
pub(super) fn half_of_map(map: &[u8], values: bool) -> Option<Vec<u8>> {
    let elements = split::collection("map", map).ok()?;
    let (entries, _) = elements.as_chunks::<2>();
    Some(split::join_collection(
        entries.len(),
        entries.iter().map(|entry| entry[usize::from(values)]),
    ))
}

/// The number of elements, as an `int`.
pub(super) fn count(collection: &[u8]) -> Option<Vec<u8>> {
    collection.first_chunk::<4>().map(|count| count.to_vec())
}

/// An aggregate of the elements of a list or set.
pub(super) fn aggregate(
    kind: AggregateKind,
    cql_type: Option<&CqlType>,
    bytes: &[u8],
) -> Result<Option<Vec<u8>>, InvalidRequest> {
    let (what, element) = match cql_type {
        Some(CqlType::List { element, .. }) => ("list", element),
        Some(CqlType::Set { element, .. }) => ("set", element),
        _ => return Ok(None),
    };
    let mut state = Aggregate::new(kind, element.as_ref().clone())?.start();
    split::collection(what, bytes)?.into_iter().try_for_each(|value| state.add(Some(value)))?;
    Ok(state.finish())
}
