//! Random rows and headers for property tests, from domains so small that fragments collide.

use super::{Cell, CellValue, ColumnId, Deletion, Expiry, Header, Liveness, RangeTombstone, Row};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::ops::Bound;

fn expiry() -> impl Strategy<Value = Option<Expiry>> {
    option::weighted(0.3, (1..4u32, 1..12i64).prop_map(|(ttl, at)| Expiry { ttl, at }))
}

fn deletion() -> impl Strategy<Value = Deletion> {
    (0..6i64, 0..6i64).prop_map(|(timestamp, local)| Deletion { timestamp, local })
}

fn cell(columns: u32) -> impl Strategy<Value = Cell> {
    let path = option::weighted(0.5, vec(0..3u8, 0..2));
    let value = prop_oneof![
        3 => vec(any::<u8>(), 0..3).prop_map(CellValue::Live),
        1 => (0..6i64).prop_map(|local| CellValue::Tombstone { local }),
    ];
    (0..columns, path, 0..8i64, expiry(), value).prop_map(
        |(column, path, timestamp, expiry, value)| {
            // Even columns are simple, odd ones have elements.
            let path = if column % 2 == 0 { None } else { Some(path.unwrap_or_default()) };
            let expiry = expiry.filter(|_| matches!(value, CellValue::Live(_)));
            Cell { column: ColumnId(column), path, timestamp, expiry, value }
        },
    )
}

/// Fragments in canonical form, without counters.
pub(crate) fn row(columns: u32) -> impl Strategy<Value = Row> {
    let liveness =
        (0..8i64, expiry()).prop_map(|(timestamp, expiry)| Liveness { timestamp, expiry });
    let complex = vec(((0..columns / 2).prop_map(|half| ColumnId(half * 2 + 1)), deletion()), 0..2);
    (
        option::weighted(0.4, liveness),
        option::weighted(0.2, deletion()),
        complex,
        vec(cell(columns), 0..6),
    )
        .prop_map(|(liveness, deletion, complex, cells)| {
            let mut row = Row { liveness, deletion, complex, cells };
            row.canonicalise();
            row
        })
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let bytes = || vec(0..3u8, 0..3);
    prop_oneof![
        bytes().prop_map(Bound::Included),
        bytes().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

/// Range tombstones as statements create them, some of them empty.
pub(crate) fn ranges() -> impl Strategy<Value = Vec<RangeTombstone>> {
    vec(
        (bound(), bound(), deletion())
            .prop_map(|(start, end, at)| RangeTombstone::new(start, end, at)),
        0..5,
    )
}

/// Header fragments in canonical form.
pub(crate) fn header() -> impl Strategy<Value = Header> {
    (option::weighted(0.3, deletion()), ranges()).prop_map(|(deletion, ranges)| {
        let mut header = Header { deletion, ranges };
        header.canonicalise();
        header
    })
}
