//! Rows read in place, compared with the same rows decoded.

use super::*;
use crate::catalogue::ValueView;
use crate::engine::ReadTier;
use crate::row::strategies::{header, row};
use crate::row_cache::RowCacheOptions;
use proptest::collection::vec;
use proptest::prelude::*;

/// Cells of a row by column, with values; elements of collections separately.
fn cells_by_column(
    store: &Store,
    partition: &[u8],
    now: i64,
    in_place: &mut u32,
) -> Option<Vec<(ColumnId, Vec<u8>)>> {
    let place = (TABLE, PartitionKey(partition), Target::Row(b"r"));
    let found = store.with_row(place, now, ReadTier::Disk, |row| match row {
        None => None,
        Some(RowRef::InPlace(view)) => {
            *in_place += 1;
            let cell = |column| match view.column(column).unwrap().unwrap().value {
                ValueView::Live(bytes) => (column, bytes.to_vec()),
                other => panic!("not plain: {other:?}"),
            };
            Some(view.columns().into_iter().map(cell).collect())
        }
        Some(RowRef::Decoded(row)) => Some(live(row)),
    });
    found.unwrap().ready().flatten()
}

fn live(row: &Row) -> Vec<(ColumnId, Vec<u8>)> {
    let bytes = |cell: &Cell| match &cell.value {
        CellValue::Live(bytes) => bytes.clone(),
        other => panic!("readers see no {other:?}"),
    };
    row.cells.iter().map(|cell| (cell.column, bytes(cell))).collect()
}

/// Rows of one time and without elements, which nearly all rows are.
fn plain() -> impl Strategy<Value = Row> {
    let values = vec(proptest::option::of(vec(any::<u8>(), 0..4)), 0..5);
    (values, 0..8i64, any::<bool>()).prop_map(|(values, timestamp, inserted)| {
        let cells = values.into_iter().enumerate().filter_map(|(column, value)| {
            Some(cell(2 * column as u32, timestamp, CellValue::Live(value?)))
        });
        let liveness = inserted.then_some(Liveness { timestamp, expiry: None });
        Row { liveness, cells: cells.collect(), ..Row::default() }
    })
}

#[test]
fn both_ways_show_the_same() {
    let strategy = (
        vec(prop_oneof![2 => plain(), 1 => row(8)], 1..4),
        proptest::option::weighted(0.2, header()),
    );
    let in_place = std::cell::Cell::new(0);
    let cache = Some(RowCacheOptions { memory_bytes: 1 << 20, ..RowCacheOptions::default() });
    for row_cache in [None, cache] {
        let mut runner = proptest::test_runner::TestRunner::default();
        let outcome = runner.run(&strategy, |(rows, header)| {
            let store = in_memory(StoreOptions { row_cache: row_cache.clone(), ..options() });
            let one = partition(1);
            for row in rows {
                put(&store, &one, Target::Row(b"r"), row);
            }
            if let Some(header) = header {
                delete(&store, &one, header);
            }
            for now in [0, NOW, 20] {
                let row =
                    store.read_row(TABLE, PartitionKey(&one), Target::Row(b"r"), now).unwrap();
                let expected = row.as_ref().map(live);
                // The second time from the row cache, if there is one.
                for _ in 0..2 {
                    let mut count = 0;
                    prop_assert_eq!(
                        cells_by_column(&store, &one, now, &mut count),
                        expected.clone()
                    );
                    in_place.set(in_place.get() + count);
                }
            }
            Ok(())
        });
        outcome.unwrap();
    }
    assert!(in_place.get() > 100, "{} rows were seen in place", in_place.get());
}
