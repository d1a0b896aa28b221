//! The shape of a prepared statement, as clients know it: its bind markers and the columns of its
//! result.
//!
//! Nodes forget a statement when its table changes, and the same text, prepared again, may have
//! other columns. Clients of version 5 learn it with the rows, because their result metadata has an
//! id. Older ones decode rows by the answer to PREPARE; they must prepare such a statement again
//! themselves, as they do when a node answers UNPREPARED.

use std::hash::{DefaultHasher, Hash, Hasher};

use shunt_wire::cql::message::Prepared;

/// Number of protocol versions, which write the same columns differently.
const VERSIONS: usize = 3;

/// Fingerprints of a statement's metadata.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Shape {
    /// Fingerprint by protocol version, from 3 on; 0: not seen in this one.
    seen: [u64; VERSIONS],
    changed: bool,
}

impl Shape {
    /// The shape in a node's answer to PREPARE.
    pub(crate) fn of(version: u8, prepared: &Prepared<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        prepared.bind.raw.hash(&mut hasher);
        if version < 5 {
            prepared.result.raw.hash(&mut hasher);
        }
        let mut shape = Self::default();
        if let Some(seen) = shape.seen.get_mut(usize::from(version).wrapping_sub(3)) {
            *seen = hasher.finish() | 1;
        }
        shape
    }

    /// Adds an earlier shape to this one.
    pub(crate) fn after(mut self, before: Self) -> Self {
        self.changed |= before.changed;
        for (now, before) in self.seen.iter_mut().zip(before.seen) {
            self.changed |= *now != 0 && before != 0 && *now != before;
            *now = if *now == 0 { before } else { *now };
        }
        self
    }

    /// True if some clients may know a former shape. The proxy cannot tell which, so it spares none
    /// of them.
    pub(crate) fn has_changed(self) -> bool {
        self.changed
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::ResultMessage;
    use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};

    use super::*;

    fn shape(version: u8, result: &[(&str, &[u8])]) -> Shape {
        let mut body = Vec::new();
        let (bind, partition_key) = (&[("k", native::TEXT)][..], &[0][..]);
        let (id, result_metadata_id) = (&b"id"[..], &b"meta"[..]);
        let spec = PreparedSpec {
            id,
            result_metadata_id,
            keyspace: "ks",
            table: "t",
            bind,
            partition_key,
            result,
        };
        encode_result::prepared(&mut body, version, &spec);
        match ResultMessage::decode(version, &body) {
            Ok(ResultMessage::Prepared(prepared)) => Shape::of(version, &prepared),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_columns_are_a_change_for_good_and_other_versions_are_none() {
        let (one, two) = ([("v", native::TEXT)], [("a", native::INT), ("v", native::TEXT)]);
        let mut known = Shape::default();
        for version in [3, 4, 5, 4, 3] {
            known = shape(version, &one).after(known);
            assert!(!known.has_changed(), "version {version}");
        }
        assert!(!shape(5, &two).after(known).has_changed(), "version 5 is told with the rows");
        for version in [3, 4] {
            let changed = shape(version, &two).after(known);
            assert!(
                changed.has_changed() && shape(version, &two).after(changed).has_changed(),
                "version {version}"
            );
        }
        assert_eq!(Shape::default().after(known), known);
    }
}
