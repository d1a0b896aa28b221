//! The laws of merging, and a naive model of it.

use super::strategies::{header, ranges, row};
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn merged(left: &Row, right: &Row) -> Row {
    let mut merged = left.clone();
    merged.merge(right.clone());
    merged
}

fn joined(left: &Header, right: &Header) -> Header {
    let mut joined = left.clone();
    joined.merge(right.clone());
    joined
}

/// Reconciliation spelt out case by case, as in `Cells.resolveRegular`.
fn model_wins(left: &Cell, right: &Cell) -> bool {
    if left.timestamp != right.timestamp {
        return left.timestamp > right.timestamp;
    }
    let ends = |cell: &Cell| match (&cell.value, cell.expiry) {
        (CellValue::Tombstone { local }, _) => Some(*local),
        (_, expiry) => expiry.map(|expiry| expiry.at),
    };
    let dead = |cell: &Cell| matches!(cell.value, CellValue::Tombstone { .. });
    match (ends(left), ends(right)) {
        (Some(_), None) => return true,
        (None, Some(_)) => return false,
        (Some(_), Some(_)) if dead(left) != dead(right) => return dead(left),
        (Some(mine), Some(other)) if mine != other => return mine > other,
        _ => {}
    }
    let bytes = |cell: &Cell| match &cell.value {
        CellValue::Live(bytes) => bytes.clone(),
        _ => Vec::new(),
    };
    let ttl = |cell: &Cell| cell.expiry.map(|expiry| expiry.ttl);
    (bytes(left), ttl(left)) >= (bytes(right), ttl(right))
}

/// Collects all content of one row, then decides what remains.
fn model(fragments: &[Row]) -> Row {
    let deletion = fragments.iter().filter_map(|row| row.deletion).max();
    let gone = |timestamp: i64| deletion.is_some_and(|deletion| timestamp <= deletion.timestamp);
    let mut complex: BTreeMap<ColumnId, Deletion> = BTreeMap::new();
    for (column, deletion) in fragments.iter().flat_map(|row| &row.complex) {
        let known = complex.entry(*column).or_insert(*deletion);
        *known = (*known).max(*deletion);
    }
    complex.retain(|_, own| deletion.is_none_or(|deletion| *own > deletion));
    let mut cells: BTreeMap<(ColumnId, Option<Vec<u8>>), Cell> = BTreeMap::new();
    for cell in fragments.iter().flat_map(|row| &row.cells) {
        let place = (cell.column, cell.path.clone());
        if cells.get(&place).is_none_or(|known| model_wins(cell, known)) {
            cells.insert(place, cell.clone());
        }
    }
    cells.retain(|_, cell| {
        !gone(cell.timestamp)
            && complex.get(&cell.column).is_none_or(|own| cell.timestamp > own.timestamp)
    });
    let liveness = fragments.iter().filter_map(|row| row.liveness).max_by_key(|liveness| {
        (
            liveness.timestamp,
            liveness.expiry.is_some(),
            liveness.expiry.map(|expiry| (expiry.at, expiry.ttl)),
        )
    });
    let liveness = liveness.filter(|liveness| !gone(liveness.timestamp));
    Row {
        liveness,
        deletion,
        complex: complex.into_iter().collect(),
        cells: cells.into_values().collect(),
    }
}

proptest! {
    #[test]
    fn rows_merge_in_any_order_and_any_number_of_times(a in row(6), b in row(6), c in row(6)) {
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        let ab = merged(&a, &b);
        prop_assert_eq!(&merged(&ab, &b), &ab);
        prop_assert_eq!(&merged(&ab, &ab), &ab);
        prop_assert_eq!(&merged(&Row::default(), &a), &a);
    }

    #[test]
    fn rows_merge_as_the_model_says(fragments in vec(row(6), 0..6)) {
        let folded = fragments.iter().fold(Row::default(), |all, fragment| merged(&all, fragment));
        prop_assert_eq!(folded, model(&fragments));
    }

    #[test]
    fn purging_changes_nothing_that_a_reader_sees(a in row(6), b in row(6), now in 0..14i64, gc_before in 0..14i64) {
        let gc_before = gc_before.min(now);
        let live = |row: &Row| row.cells.iter().filter(|cell| cell.is_live(now)).cloned().collect::<Vec<_>>();
        let whole = merged(&a, &b);
        let mut purged = whole.clone();
        purged.purge(now, gc_before);
        prop_assert_eq!(live(&purged), live(&whole));
        prop_assert_eq!(purged.is_live(now), whole.is_live(now));
        let mut again = purged.clone();
        again.purge(now, gc_before);
        prop_assert_eq!(again, purged);
        // Expired cells keep covering older ones as long as nothing is collected.
        let mut early = a.clone();
        early.purge(now, i64::MIN);
        let early = merged(&early, &b);
        prop_assert_eq!(live(&early), live(&whole));
    }

    #[test]
    fn headers_merge_in_any_order_and_any_number_of_times(a in header(), b in header(), c in header()) {
        prop_assert_eq!(joined(&joined(&a, &b), &c), joined(&a, &joined(&b, &c)));
        prop_assert_eq!(joined(&a, &b), joined(&b, &a));
        let ab = joined(&a, &b);
        prop_assert_eq!(&joined(&ab, &b), &ab);
    }

    #[test]
    fn a_header_covers_what_its_ranges_say(raw in ranges(), place in vec(0..3u8, 0..3)) {
        let mut header = Header { deletion: None, ranges: raw.clone() };
        header.canonicalise();
        let at = Cut::Before(place.clone());
        let expected = raw.iter().filter(|range| range.start <= at && at < range.end).map(|range| range.deletion).max();
        prop_assert_eq!(header.covering(&place), expected);
        for pair in header.ranges.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
    }
}

fn counter(value: CellValue) -> Row {
    let cell = Cell { column: ColumnId(1), path: None, timestamp: 5, expiry: None, value };
    Row { cells: vec![cell], ..Row::default() }
}

#[test]
fn counters_add_up_and_forget_what_a_deletion_came_after() {
    let add = |added| counter(CellValue::CounterDelta(added));
    let row_deletion =
        Row { deletion: Some(Deletion { timestamp: 9, local: 9 }), ..Row::default() };
    let cell_deletion = counter(CellValue::Tombstone { local: 9 });
    let value = |row: &Row| row.cells.first().map(|cell| cell.value.clone());
    for deletion in [row_deletion, cell_deletion] {
        let parts = [add(3), add(4), deletion, add(10), add(20)];
        // Splits at every place: the store may have merged either side separately.
        for split in 0..=parts.len() {
            let fold =
                |parts: &[Row]| parts.iter().fold(Row::default(), |all, part| merged(&all, part));
            let whole = merged(&fold(&parts[..split]), &fold(&parts[split..]));
            let sum = match value(&whole) {
                Some(CellValue::Counter(sum) | CellValue::CounterDelta(sum)) => sum,
                other => panic!("split at {split}: {other:?}"),
            };
            assert_eq!(sum, 30, "split at {split}");
        }
    }
    assert_eq!(value(&merged(&add(3), &add(4))), Some(CellValue::CounterDelta(7)));
}

#[test]
fn a_deletion_covers_its_own_timestamp() {
    let cell = |timestamp| Cell {
        column: ColumnId(0),
        path: None,
        timestamp,
        expiry: None,
        value: CellValue::Live(b"x".to_vec()),
    };
    let mut row = Row { cells: vec![cell(5)], ..Row::default() };
    row.cover(Deletion { timestamp: 5, local: 0 });
    assert!(row.is_empty());
    let mut row = Row { cells: vec![cell(6)], ..Row::default() };
    row.cover(Deletion { timestamp: 5, local: 0 });
    assert!(row.is_live(0));
}
