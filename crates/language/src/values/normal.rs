//! Collections in Cassandra's stored form, whatever a client sent: sets and maps in the order of
//! their type, each element or key once, and numbers in them in their shortest form. Decodes a
//! bound collection and encodes it again; tuples and user-defined types stay unchanged.

use super::{compare, decode_varint, encode_varint, split};
use crate::ast::NativeType;
use crate::types::CqlType;

/// The stored form of a bound value. Values that are not collections stay unchanged.
#[must_use]
pub fn normal(cql_type: &CqlType, bytes: Vec<u8>) -> Vec<u8> {
    match collection(cql_type, &bytes) {
        Some(changed) => changed,
        None => bytes,
    }
}

/// The collection re-encoded; `None` if it is not a readable collection.
fn collection(cql_type: &CqlType, bytes: &[u8]) -> Option<Vec<u8>> {
    match cql_type {
        CqlType::List { element, .. } => {
            let elements = split::collection("list", bytes).ok()?;
            let count = elements.len();
            Some(split::join_collection(
                count,
                elements.into_iter().map(|value| normal_element(element, value)),
            ))
        }
        CqlType::Set { element, .. } => {
            let elements = split::collection("set", bytes).ok()?;
            let mut elements: Vec<_> =
                elements.into_iter().map(|value| normal_element(element, value)).collect();
            elements.sort_by(|left, right| compare(element, left, right));
            elements.dedup_by(|later, first| compare(element, later, first).is_eq());
            Some(split::join_collection(elements.len(), elements))
        }
        CqlType::Map { key, value, .. } => {
            let entries = split::collection("map", bytes).ok()?;
            let (pairs, _) = entries.as_chunks::<2>();
            let mut pairs: Vec<_> = pairs
                .iter()
                .map(|[own, of]| (normal_element(key, own), normal_element(value, of)))
                .collect();
            pairs.sort_by(|(left, _), (right, _)| compare(key, left, right));
            pairs.dedup_by(|(later, value), (first, kept)| {
                let same = compare(key, later, first).is_eq();
                if same {
                    std::mem::swap(kept, value);
                }
                same
            });
            Some(split::join_collection(
                pairs.len(),
                pairs.into_iter().flat_map(|(key, value)| [key, value]),
            ))
        }
        _ => None,
    }
}

/// An element, decoded and re-encoded.
fn normal_element(cql_type: &CqlType, value: &[u8]) -> Vec<u8> {
    let found = match cql_type {
        _ if value.is_empty() => None,
        CqlType::Native(NativeType::Varint) => Some(encode_varint(&decode_varint(value))),
        CqlType::Native(NativeType::Decimal) => value
            .split_at_checked(4)
            .map(|(scale, unscaled)| [scale, &encode_varint(&decode_varint(unscaled))].concat()),
        CqlType::Native(NativeType::Boolean) => Some(vec![u8::from(value[0] != 0)]),
        other => collection(other, value),
    };
    found.unwrap_or_else(|| value.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::tests::Types;

    fn checked(name: &str, given: &[&[u8]], kept: &[&[u8]]) {
        let cql_type = CqlType::parse(name, &Types).expect(name);
        let count = if name.starts_with("map") { given.len() / 2 } else { given.len() };
        let kept_count = if name.starts_with("map") { kept.len() / 2 } else { kept.len() };
        let bytes = split::join_collection(count, given);
        assert_eq!(
            normal(&cql_type, bytes),
            split::join_collection(kept_count, kept),
            "{name} {given:?}"
        );
    }

    #[test]
    fn collections_are_in_order_and_their_numbers_short() {
        checked("set<tinyint>", &[&[3], &[0xFF], &[3]], &[&[0xFF], &[3]]);
        checked(
            "map<tinyint, text>",
            &[&[2], b"a", &[1], b"b", &[2], b"c"],
            &[&[1], b"b", &[2], b"c"],
        );
        checked("list<varint>", &[&[0, 0, 5], &[]], &[&[5], &[]]);
        checked("list<decimal>", &[&[0, 0, 0, 1, 0, 10]], &[&[0, 0, 0, 1, 10]]);
        checked("list<boolean>", &[&[7], &[0]], &[&[1], &[0]]);
        let (unsorted, sorted) =
            (split::join_collection(2, [[2], [1]]), split::join_collection(2, [[1], [2]]));
        checked("list<frozen<set<tinyint>>>", &[&unsorted], &[&sorted]);
        // The content of a tuple stays unchanged.
        let tuple = split::join_tuple([Some(&unsorted)]);
        checked("list<frozen<tuple<set<tinyint>>>>", &[&tuple], &[&tuple]);
    }

    #[test]
    fn values_without_collections_stay() {
        for name in ["varint", "text", "tuple<int>"] {
            let cql_type = CqlType::parse(name, &Types).expect(name);
            assert_eq!(normal(&cql_type, vec![0, 0, 5]), [0, 0, 5], "{name}");
        }
    }
}
