//! Writing back, sweeping, reclaiming, snapshots, counters, and reads from memory alone.

use super::watched::Watched;
use super::*;
use crate::row::{Expiry, RangeTombstone};
use std::ops::Bound;

/// Waits for the upkeep thread, which does nothing beyond its requests.
pub(super) fn until(mut what: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(180), "upkeep does not come");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub(super) fn fragments(store: &Store, partition: &[u8], target: Target<'_>) -> u32 {
    let record = store
        .read_record(TABLE, PartitionKey(partition), target, crate::engine::ReadTier::Disk)
        .unwrap();
    record.ready().flatten().map_or(0, |record| record.fragments)
}

#[test]
fn a_row_of_many_fragments_is_written_back() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        Store::open(directory.path(), StoreOptions { write_back_fragments: 3, ..options() })
            .unwrap();
    let key = partition(1);
    // A fourth file would trigger a compaction.
    for column in 0..3 {
        put(&store, &key, Target::Row(b"r"), insert(column, 1, b"v"));
        store.flush().unwrap();
    }
    let before =
        store.read_row(TABLE, PartitionKey(&key), Target::Row(b"r"), NOW).unwrap().unwrap();
    assert_eq!(before.cells.len(), 3);
    until(|| store.figures().written_back == 1);
    assert_eq!(fragments(&store, &key, Target::Row(b"r")), 1);
    assert_eq!(
        store.read_row(TABLE, PartitionKey(&key), Target::Row(b"r"), NOW).unwrap().unwrap(),
        before
    );
    let figures = store.figures();
    assert_eq!(figures.fragments, [2, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn counters_add_up_through_flushes_and_compactions() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        Store::open(directory.path(), StoreOptions { write_back_fragments: 2, ..options() })
            .unwrap();
    let key = partition(1);
    let add =
        |added| Row { cells: vec![cell(0, NOW, CellValue::CounterDelta(added))], ..Row::default() };
    for round in 0..40 {
        put(&store, &key, Target::Row(b"r"), add(round));
        match round % 10 {
            3 => store.flush().unwrap(),
            7 => store.compact(TABLE).unwrap(),
            _ => assert!(value(&store, &key, Target::Row(b"r")).is_some()),
        }
    }
    let sum = |value| match value {
        Some(CellValue::Counter(sum) | CellValue::CounterDelta(sum)) => sum,
        other => panic!("{other:?}"),
    };
    assert_eq!(sum(value(&store, &key, Target::Row(b"r"))), (0..40).sum::<i64>());
    put(
        &store,
        &key,
        Target::Row(b"r"),
        Row { deletion: Some(Deletion { timestamp: 1, local: NOW }), ..Row::default() },
    );
    assert_eq!(value(&store, &key, Target::Row(b"r")), None);
    put(&store, &key, Target::Row(b"r"), add(3));
    store.compact(TABLE).unwrap();
    assert_eq!(sum(value(&store, &key, Target::Row(b"r"))), 3);
}

#[test]
fn compaction_forgets_what_expired_before_the_grace() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    store.set_gc_grace(TABLE, 1);
    let expiry = Some(Expiry { ttl: 1, at: 3 });
    for number in 0..100 {
        let mut row = insert(0, 1, b"gone");
        row.liveness = Some(Liveness { timestamp: 1, expiry });
        row.cells[0].expiry = expiry;
        put(&store, &partition(number), Target::Row(b""), row);
        put(&store, &partition(number), Target::Static, insert(1, 1, b"stays"));
    }
    store.compact(TABLE).unwrap();
    store.compact(TABLE).unwrap();
    let records =
        (0..100).map(|number| fragments(&store, &partition(number), Target::Row(b""))).sum::<u32>();
    assert_eq!(records, 0);
    assert_eq!(text(&store, &partition(7), Target::Static).as_deref(), Some("stays"));
}

#[test]
fn a_sweep_removes_deleted_rows_and_then_the_deletions() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    store.set_gc_grace(TABLE, 2);
    let key = partition(1);
    for row in 0..10u8 {
        put(&store, &key, Target::Row(&[row]), insert(0, 1, b"v"));
    }
    let old = Deletion { timestamp: 2, local: 1 };
    let young = Deletion { timestamp: 3, local: 4 };
    let range = |from: u8, to: u8, deletion| {
        RangeTombstone::new(Bound::Included(vec![from]), Bound::Excluded(vec![to]), deletion)
    };
    delete(
        &store,
        &key,
        Header { deletion: None, ranges: vec![range(0, 4, old), range(6, 8, young)] },
    );
    let live = |store: &Store| {
        (0..10u8)
            .filter(|row| text(store, &key, Target::Row(&[*row])).is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(live(&store), [4, 5, 8, 9]);
    assert_eq!(store.sweep(TABLE).unwrap(), Swept { rows: 4, headers: 1 });
    assert_eq!(live(&store), [4, 5, 8, 9]);
    store.compact(TABLE).unwrap();
    store.compact(TABLE).unwrap();
    let kept = (0..10u8)
        .filter(|row| fragments(&store, &key, Target::Row(&[*row])) > 0)
        .collect::<Vec<_>>();
    assert_eq!(kept, [4, 5, 6, 7, 8, 9]);
    let header = store
        .read_header(TABLE, PartitionKey(&key), crate::engine::ReadTier::Disk)
        .unwrap()
        .ready()
        .unwrap();
    assert_eq!(header.ranges, [range(6, 8, young)]);
    assert_eq!(store.sweep(TABLE).unwrap(), Swept::default());
}

#[test]
fn unused_schemas_are_reclaimed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    // Twice: the first row of each set requests the schema, the second one uses it.
    for round in 0..2 {
        for number in 0..20 {
            put(
                &store,
                &partition(number),
                Target::Row(&[round]),
                insert(u32::from(number), 1, b"v"),
            );
        }
        store
            .wait_durable(put(&store, &partition(99), Target::Static, insert(0, 1, b"v")))
            .unwrap();
        until(|| store.catalogue().counts().pending == 0);
    }
    assert_eq!(store.catalogue().counts().schemas, 20);
    for number in 5..20 {
        for row in 0..2 {
            let gone =
                Row { deletion: Some(Deletion { timestamp: 2, local: 1 }), ..Row::default() };
            put(&store, &partition(number), Target::Row(&[row]), gone);
        }
    }
    assert_eq!(store.reclaim_schemas().unwrap(), 15);
    for number in 0..20 {
        assert_eq!(text(&store, &partition(number), Target::Row(&[1])).is_some(), number < 5);
    }
    drop(store);
    let store = Store::open(directory.path(), options()).unwrap();
    assert_eq!(store.catalogue().counts().schemas, 5);
    assert_eq!(text(&store, &partition(3), Target::Row(&[1])).as_deref(), Some("v"));
}

#[test]
fn a_snapshot_opens_elsewhere_while_the_store_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("data"), options()).unwrap();
    for number in 0..50 {
        put(&store, &partition(number), Target::Row(b"r"), insert(0, 1, b"before"));
    }
    let copy = directory.path().join("copy");
    store.snapshot(&copy).unwrap();
    for number in 0..50 {
        put(&store, &partition(number), Target::Row(b"r"), insert(0, 2, b"after"));
    }
    assert!(store.snapshot(&copy).is_err());
    assert_eq!(check(&copy, &options()).unwrap(), Vec::new());
    let restored = Store::open(&copy, options()).unwrap();
    for number in 0..50 {
        assert_eq!(
            text(&restored, &partition(number), Target::Row(b"r")).as_deref(),
            Some("before")
        );
        assert_eq!(text(&store, &partition(number), Target::Row(b"r")).as_deref(), Some("after"));
    }
}

#[test]
fn reads_from_memory_alone_say_when_they_would_block() {
    let directory = tempfile::tempdir().unwrap();
    let key = partition(1);
    // More than a block: opening reads the store's own records, and with them the rest of the
    // block.
    let long = [b'v'; 9_000];
    {
        let store = Store::open(directory.path(), options()).unwrap();
        put(&store, &key, Target::Row(b"r"), insert(0, 1, &long));
        store.flush().unwrap();
    }
    let read = |store: &Store| {
        store.read_row_nonblocking(TABLE, PartitionKey(&key), Target::Row(b"r"), NOW).unwrap()
    };
    // The engine's own threads may have read the row after an opening, but not after every one.
    let nothing_in_memory = || {
        let store = Store::open(directory.path(), options()).unwrap();
        (read(&store) == Read::WouldBlock).then_some(store)
    };
    let store = (0..50)
        .find_map(|_| nothing_in_memory())
        .expect("the row was in memory after every opening");
    let ask = || read(&store);
    assert_eq!(
        text(&store, &key, Target::Row(b"r")).as_deref().map(str::as_bytes),
        Some(&long[..])
    );
    assert!(matches!(ask(), Read::Ready(Some(_))));
    assert_eq!(store.figures().would_block, 1);
}

#[test]
fn slices_and_scans_look_as_far_as_they_may() {
    let directory = tempfile::tempdir().unwrap();
    let key = partition(1);
    // Several blocks: opening reads the store's own records, and with them the rest of the block.
    let long = [b'v'; 3_000];
    {
        let store = Store::open(directory.path(), options()).unwrap();
        for row in 0..20 {
            put(&store, &key, Target::Row(&[row]), insert(0, 1, &long));
        }
        delete(
            &store,
            &key,
            Header { deletion: Some(Deletion { timestamp: 1, local: NOW }), ranges: Vec::new() },
        );
        put(&store, &key, Target::Row(&[9]), insert(0, 2, &long));
        store.flush().unwrap();
    }
    let blocked = |error: Option<StoreError>| {
        matches!(error, Some(StoreError::Engine(EngineError::WouldBlock)))
    };
    // The engine's own threads may have read the rows after an opening, but not after every one.
    let nothing_in_memory = || {
        let store = Store::open(directory.path(), options()).unwrap();
        let slice = Slice {
            reach: Reach { tier: ReadTier::Memory, records: 100, until: None },
            ..Slice::default()
        };
        let all = |mut rows: PartitionRows<'_>| {
            while rows.next()?.is_some() {}
            Ok(())
        };
        let met = store.read_partition(TABLE, PartitionKey(&key), &slice, NOW).and_then(all).err();
        blocked(met).then_some(store)
    };
    let store =
        (0..50).find_map(|_| nothing_in_memory()).expect("rows were in memory after every opening");
    let slice = |tier, records| -> Result<usize, StoreError> {
        let slice = Slice { reach: Reach { tier, records, until: None }, ..Slice::default() };
        let mut rows = store.read_partition(TABLE, PartitionKey(&key), &slice, NOW)?;
        let mut count = 0;
        while rows.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    };
    let scan = |tier, records| -> Result<usize, StoreError> {
        let range =
            ScanRange { reach: Reach { tier, records, until: None }, ..ScanRange::default() };
        let mut scan = store.scan(TABLE, &range, NOW)?;
        let mut count = 0;
        while scan.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    };
    use ReadTier::{Disk, Memory};
    assert!(blocked(scan(Memory, 100).err()), "nothing is in memory yet");
    assert_eq!(slice(Disk, 100).unwrap(), 1);
    assert_eq!((slice(Memory, 100).unwrap(), scan(Memory, 100).unwrap()), (1, 1), "now it is");
    // Deleted rows count, because they take time too.
    assert!(blocked(slice(Memory, 5).err()) && blocked(scan(Disk, 5).err()));
}

#[test]
fn dropped_and_truncated_tables_are_empty() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    put(&store, &partition(1), Target::Row(b"r"), insert(0, 1, b"v"));
    store.flush().unwrap();
    store.truncate(TABLE, periodic()).unwrap();
    assert_eq!(value(&store, &partition(1), Target::Row(b"r")), None);
    put(&store, &partition(1), Target::Row(b"r"), insert(0, 1, b"again"));
    assert_eq!(text(&store, &partition(1), Target::Row(b"r")).as_deref(), Some("again"));
    store.drop_table(TABLE, periodic()).unwrap();
    assert_eq!(value(&store, &partition(1), Target::Row(b"r")), None);
}

/// A compaction may fail or leave fragments separate without reporting it. The schemas they name
/// are in use.
#[test]
fn schemas_of_fragments_that_no_compaction_merged_are_not_reclaimed() {
    let directory = tempfile::tempdir().unwrap();
    let rocks = |merger| -> Box<dyn Engine> {
        Box::new(RocksEngine::open(directory.path(), &options().engine, merger).unwrap())
    };
    let never = StoreOptions { write_back_fragments: u32::MAX, ..options() };
    let store = Watched::store(never, rocks, |_, _| (), false);
    let key = partition(1);
    // Sets of single columns, and never all three together.
    for column in 0..3 {
        put(&store, &key, Target::Row(b"r"), insert(column, 1, b"v"));
        store.flush().unwrap();
    }
    assert_eq!(store.catalogue().counts().schemas, 3);
    // The second call drops the schemas that the first retired.
    for _ in 0..2 {
        assert_eq!(store.reclaim_schemas().unwrap(), 0, "schemas of live fragments are retired");
        let row =
            store.read_row(TABLE, PartitionKey(&key), Target::Row(b"r"), NOW).unwrap().unwrap();
        assert_eq!(row.cells.len(), 3);
    }
}

/// A record that hides older ones may be lost in a crash, and the schemas of the older ones are in
/// use again.
#[test]
fn schemas_are_reclaimed_after_what_hides_their_last_records_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    put(&store, &partition(1), Target::Row(b"r"), insert(0, 1, b"v"));
    // A new schema triggers a sync.
    until(|| store.catalogue().counts().pending == 0);
    store.wait_durable(store.settle()).unwrap();
    let ticket = put(&store, &partition(1), Target::Row(b"r"), insert(0, 1, b"v"));
    assert!(store.outcome(ticket).is_none());
    store.reclaim_schemas().unwrap();
    assert!(matches!(store.outcome(ticket), Some(Ok(()))));
}

/// A counter has no client timestamp, but a sweep applies deletions to rows that are older than
/// later deltas.
#[test]
fn a_sweep_keeps_what_was_added_to_counters_after_the_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    store.set_gc_grace(TABLE, 2);
    let key = partition(1);
    let add = |added, timestamp| Row {
        cells: vec![cell(0, timestamp, CellValue::CounterDelta(added))],
        ..Row::default()
    };
    let old = Deletion { timestamp: 2, local: 1 };
    let targets = [Target::Static, Target::Row(b"a"), Target::Row(b"b")];
    put(&store, &key, targets[0], add(1, 1));
    put(&store, &key, targets[1], add(1, 1));
    // A node deletes a partition of counters this way: each existing row, and the partition.
    put(&store, &key, targets[0], Row { deletion: Some(old), ..Row::default() });
    put(&store, &key, targets[1], Row { deletion: Some(old), ..Row::default() });
    delete(&store, &key, Header { deletion: Some(old), ranges: Vec::new() });
    for target in targets {
        put(&store, &key, target, add(5, 3));
    }
    let sums = || targets.map(|target| value(&store, &key, target));
    let expected = sums();
    assert!(
        expected
            .iter()
            .all(|sum| matches!(sum, Some(CellValue::CounterDelta(5) | CellValue::Counter(5)))),
        "{expected:?}"
    );
    store.sweep(TABLE).unwrap();
    assert_eq!(sums(), expected);
    store.compact(TABLE).unwrap();
    assert_eq!(sums(), expected);
}
