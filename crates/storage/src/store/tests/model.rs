//! Random fragments, flushes, compactions and reopenings; every kind of read is compared with a
//! map.

use super::*;
use crate::row::strategies::{header, row};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Debug, Clone)]
enum Step {
    Row(u8, Option<Vec<u8>>, Row),
    Header(u8, Header),
    Flush,
    Compact,
    Reopen,
    Truncate,
    Sweep,
}

/// Merged writes so far, by partition.
#[derive(Debug, Default)]
struct Model {
    headers: BTreeMap<u8, Header>,
    rows: BTreeMap<(u8, Option<Vec<u8>>), Row>,
}

impl Model {
    fn live(&self, number: u8, clustering: &Option<Vec<u8>>) -> Option<Row> {
        let mut row = self.rows.get(&(number, clustering.clone()))?.clone();
        let header = self.headers.get(&number);
        let deletion = header.and_then(|header| match clustering {
            Some(clustering) => header.covering(clustering),
            None => header.deletion,
        });
        deletion.into_iter().for_each(|deletion| row.cover(deletion));
        row.purge(NOW, i64::MAX);
        row.is_live(NOW).then_some(row)
    }

    /// In scan order.
    fn all(&self) -> Vec<(u8, Option<Vec<u8>>, Row)> {
        let keys = self.rows.keys();
        keys.filter_map(|key| Some((key.0, key.1.clone(), self.live(key.0, &key.1)?))).collect()
    }
}

fn clustering() -> impl Strategy<Value = Vec<u8>> {
    vec(0..3u8, 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    let place = proptest::option::weighted(0.8, clustering());
    prop_oneof![
        20 => (0..3u8, place, row(12)).prop_map(|(number, place, row)| Step::Row(number, place, row)),
        3 => (0..3u8, header()).prop_map(|(number, header)| Step::Header(number, header)),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => Just(Step::Sweep),
        1 => prop_oneof![4 => Just(Step::Flush), 1 => Just(Step::Truncate)],
    ]
}

fn run(store: &mut Option<Store>, model: &mut Model, step: Step, reopen: impl Fn() -> Store) {
    let open = store.as_ref().unwrap();
    match step {
        Step::Row(number, clustering, row) => {
            let target = clustering.as_deref().map_or(Target::Static, Target::Row);
            put(open, &partition(number), target, row.clone());
            model.rows.entry((number, clustering)).or_default().merge(row);
        }
        Step::Header(number, header) => {
            delete(open, &partition(number), header.clone());
            model.headers.entry(number).or_default().merge(header);
        }
        Step::Flush => open.flush().unwrap(),
        Step::Compact => open.compact(TABLE).unwrap(),
        Step::Sweep => {
            open.sweep(TABLE).unwrap();
        }
        Step::Truncate => {
            open.truncate(TABLE, periodic()).unwrap();
            *model = Model::default();
        }
        Step::Reopen => {
            *store = None;
            *store = Some(reopen());
        }
    }
}

fn compare(store: &Store, model: &Model) {
    for number in 0..3 {
        let key = partition(number);
        let mut rows =
            store.read_partition(TABLE, PartitionKey(&key), &Slice::default(), NOW).unwrap();
        assert_eq!(rows.static_row().cloned(), model.live(number, &None));
        let expected: Vec<_> =
            model.all().into_iter().filter(|item| item.0 == number && item.1.is_some()).collect();
        for (_, clustering, row) in &expected {
            let clustering = clustering.clone().unwrap();
            let point =
                store.read_row(TABLE, PartitionKey(&key), Target::Row(&clustering), NOW).unwrap();
            assert_eq!(point.as_ref(), Some(row));
            assert_eq!(rows.next().unwrap(), Some((clustering, row.clone())));
        }
        assert_eq!(rows.next().unwrap(), None);
    }
    compare_scans(store, model);
}

fn compare_scans(store: &Store, model: &Model) {
    let expected: Vec<_> = model
        .all()
        .into_iter()
        .map(|(number, place, row)| (partition(number).to_vec(), place, row))
        .collect();
    let mut range = ScanRange::default();
    let mut scanned = Vec::new();
    // Restarts after every row, as paging does with a page of one row.
    while let Some(item) = next_after(store, &range) {
        range.after = Some(item.position());
        scanned.push((item.partition.to_vec(), item.clustering, item.row));
    }
    assert_eq!(scanned, expected);
    let mut whole = store.scan(TABLE, &ScanRange::default(), NOW).unwrap();
    let mut count = 0;
    while let Some(item) = whole.next().unwrap() {
        assert_eq!((item.partition.to_vec(), item.clustering, item.row), expected[count]);
        count += 1;
    }
    assert_eq!(count, expected.len());
    let token = |number: u8| *partition(number).first_chunk::<8>().unwrap();
    let middle = ScanRange { from: Some(token(1)), to: Some(token(1)), ..ScanRange::default() };
    let mut middle = store.scan(TABLE, &middle, NOW).unwrap();
    for item in expected.iter().filter(|item| item.0 == partition(1)) {
        assert_eq!(middle.next().unwrap().map(|found| found.row), Some(item.2.clone()));
    }
    assert_eq!(middle.next().unwrap(), None);
}

/// The first row after a position; skips a repeated static row.
fn next_after(store: &Store, range: &ScanRange) -> Option<ScanItem> {
    let mut scan = store.scan(TABLE, range, NOW).unwrap();
    let first = scan.next().unwrap()?;
    let again = range.after.as_ref().is_some_and(|after| {
        after.clustering.is_some()
            && first.clustering.is_none()
            && *first.partition == after.partition[..]
    });
    if again { scan.next().unwrap() } else { Some(first) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn reads_are_what_was_written(steps in vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let store = Store::open(directory.path(), StoreOptions { write_back_fragments: 2, ..options() }).unwrap();
            // Small timestamps: no write here is older than this grace.
            store.set_gc_grace(TABLE, 1000);
            store
        };
        let mut store = Some(open());
        let mut model = Model::default();
        for step in steps {
            run(&mut store, &mut model, step, open);
        }
        compare(store.as_ref().unwrap(), &model);
        drop(store);
        prop_assert_eq!(check(directory.path(), &options()).unwrap(), Vec::new());
    }

    #[test]
    fn the_store_is_the_same_on_an_engine_in_memory(steps in vec(step(), 1..60)) {
        let mut store = Some(in_memory(options()));
        store.as_ref().unwrap().set_gc_grace(TABLE, 1000);
        let mut model = Model::default();
        for step in steps.into_iter().filter(|step| !matches!(step, Step::Reopen)) {
            run(&mut store, &mut model, step, || unreachable!("nothing reopens"));
        }
        compare(store.as_ref().unwrap(), &model);
    }

    #[test]
    fn slices_have_the_rows_between_their_bounds(
        steps in vec((0..2u8, clustering(), row(6)), 1..20),
        from in clustering(), to in clustering(), kinds in (0..3u8, 0..3u8), reversed: bool, limit in 0..6usize,
    ) {
        let store = in_memory(options());
        let mut model = Model::default();
        for (number, clustering, row) in steps {
            put(&store, &partition(number), Target::Row(&clustering), row.clone());
            model.rows.entry((number, Some(clustering))).or_default().merge(row);
        }
        let bound = |kind, bytes: Vec<u8>| match kind {
            0 => Bound::Included(bytes),
            1 => Bound::Excluded(bytes),
            _ => Bound::Unbounded,
        };
        let (from, to) = (bound(kinds.0, from), bound(kinds.1, to));
        let inside = |bytes: &Vec<u8>| {
            (match &from { Bound::Included(from) => bytes >= from, Bound::Excluded(from) => bytes > from, _ => true })
                && (match &to { Bound::Included(to) => bytes <= to, Bound::Excluded(to) => bytes < to, _ => true })
        };
        let mut expected: Vec<_> = model.all().into_iter().filter(|item| item.0 == 1 && item.1.as_ref().is_some_and(inside)).collect();
        if reversed {
            expected.reverse();
        }
        let slice = Slice { from: from.clone(), to: to.clone(), reversed, limit, ..Slice::default() };
        let mut rows = store.read_partition(TABLE, PartitionKey(&partition(1)), &slice, NOW).unwrap();
        for (_, clustering, row) in expected.into_iter().take(limit) {
            prop_assert_eq!(rows.next().unwrap(), Some((clustering.unwrap(), row)));
        }
        prop_assert_eq!(rows.next().unwrap(), None);
    }
}
