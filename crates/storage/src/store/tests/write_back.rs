//! Merging of fragments: by which thread, how often, and with which callers waiting.

use super::upkeep::{fragments, until};
use super::watched::Watched;
use super::*;
use crate::row::{Cut, RangeTombstone};
use std::sync::atomic::AtomicU32;

fn counter(added: i64) -> Row {
    Row { cells: vec![cell(0, NOW, CellValue::CounterDelta(added))], ..Row::default() }
}

fn sum(store: &Store, partition: &[u8]) -> i64 {
    match value(store, partition, Target::Row(b"r")) {
        Some(CellValue::Counter(sum) | CellValue::CounterDelta(sum)) => sum,
        other => panic!("{other:?}"),
    }
}

fn range(number: u32) -> Header {
    let at = |number: u32| Cut::Before(number.to_be_bytes().to_vec());
    let deletion = Deletion { timestamp: i64::from(number) + 1, local: NOW };
    let ranges = vec![RangeTombstone { start: at(number * 2), end: at(number * 2 + 1), deletion }];
    Header { deletion: None, ranges }
}

fn live(store: &Store, partition: &[u8], numbers: std::ops::Range<u32>) -> Vec<u32> {
    let is_live =
        |number: &u32| text(store, partition, Target::Row(&number.to_be_bytes())).is_some();
    numbers.filter(is_live).collect()
}

/// Every writer waits at the gate while it is closed: nothing may be merged there unless other
/// writers keep changing it.
#[test]
fn nothing_is_merged_while_writers_wait() {
    let behind_gate = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&behind_gate);
    // This thread's reads are excluded: they happen while a row is written back, for which the gate
    // is closed.
    let reader = std::thread::current().id();
    let on_get = move |_: &[u8], closed| {
        seen.fetch_add(
            u32::from(closed && std::thread::current().id() != reader),
            Ordering::SeqCst,
        );
    };
    let memory = |merger| Box::new(MemoryEngine::new(merger)) as Box<dyn Engine>;
    let store =
        Watched::store(StoreOptions { write_back_fragments: 3, ..options() }, memory, on_get, true);
    for number in 0..20 {
        for column in 0..4 {
            put(&store, &partition(number), Target::Row(b"r"), insert(column, 1, b"v"));
        }
        assert!(text(&store, &partition(number), Target::Row(b"r")).is_some());
    }
    until(|| store.figures().written_back == 20);
    assert_eq!(behind_gate.load(Ordering::SeqCst), 0, "merges with the gate closed");
    for number in 0..20 {
        assert_eq!(fragments(&store, &partition(number), Target::Row(b"r")), 1);
    }
}

/// However many reads request it.
#[test]
fn a_row_waits_once_to_be_written_back() {
    let asked = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&asked);
    let one = partition(1);
    let key = key::record(TABLE, PartitionKey(&one), Target::Row(b"r")).unwrap();
    let on_get = move |got: &[u8], _| {
        seen.fetch_add(u32::from(got == key), Ordering::SeqCst);
    };
    let memory = |merger| Box::new(MemoryEngine::new(merger)) as Box<dyn Engine>;
    let store =
        Watched::store(StoreOptions { write_back_fragments: 3, ..options() }, memory, on_get, true);
    let two = partition(2);
    for column in 0..4 {
        put(&store, &one, Target::Row(b"r"), insert(column, 1, b"v"));
        put(&store, &two, Target::Row(b"r"), insert(column, 1, b"v"));
    }
    {
        // The thread stops here while the gate is held.
        let _gate = store.shared.gate.read();
        for _ in 0..100 {
            assert!(text(&store, &one, Target::Row(b"r")).is_some());
        }
    }
    // Earlier requests finish earlier.
    assert!(text(&store, &two, Target::Row(b"r")).is_some());
    until(|| store.figures().written_back == 2);
    let asked = asked.load(Ordering::SeqCst) - 100;
    assert!(asked <= 3, "the row was read {asked} times to be written back once");
}

#[test]
fn counters_are_written_back_and_count_right() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        Store::open(directory.path(), StoreOptions { write_back_fragments: 3, ..options() })
            .unwrap();
    let quiet = partition(1);
    for _ in 0..50 {
        put(&store, &quiet, Target::Row(b"r"), counter(2));
    }
    assert_eq!(sum(&store, &quiet), 100);
    until(|| fragments(&store, &quiet, Target::Row(b"r")) == 1);
    assert_eq!(sum(&store, &quiet), 100);
    // While other threads add to them, read them, flush and compact.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for at in 0..1_500u32 {
                    put(store, &partition(2 + (at % 2) as u8), Target::Row(b"r"), counter(1));
                    match (thread, at % 300) {
                        (0, 299) => store.flush().unwrap(),
                        (1, 150) => store.compact(TABLE).unwrap(),
                        (_, at) if at % 5 == 0 => assert!(sum(store, &partition(2)) > 0),
                        _ => {}
                    }
                }
            });
        }
    });
    assert_eq!((sum(&store, &partition(2)), sum(&store, &partition(3))), (3_000, 3_000));
    drop(store);
    let store = Store::open(directory.path(), options()).unwrap();
    assert_eq!([1, 2, 3].map(|number| sum(&store, &partition(number))), [100, 3_000, 3_000]);
}

/// A partition whose ranges are deleted one by one.
#[test]
fn deleted_ranges_are_folded_and_what_is_too_long_for_a_loop_is_left_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    let one = partition(1);
    let ask = |number: u32| {
        let target = number.to_be_bytes();
        store.read_row_nonblocking(TABLE, PartitionKey(&one), Target::Row(&target), NOW).unwrap()
    };
    for number in 0..6 {
        put(&store, &one, Target::Row(&u32::to_be_bytes(number)), insert(0, 1, b"v"));
    }
    // The header is merged even though no caller reads it.
    for number in 0..2_000 {
        delete(&store, &one, range(number));
    }
    let mut quiet = Duration::from_millis(1);
    until(|| {
        let is_put_together = fragments(&store, &one, Target::Header) < 200;
        if !is_put_together {
            // A late pile on a long record stays for now: rewriting the record is not worthwhile.
            // Repeating the ranges makes it so, but a record under constant writes is not merged
            // either.
            (0..64).for_each(|number| {
                delete(&store, &one, range(number));
            });
            std::thread::park_timeout(quiet);
            quiet *= 2;
        }
        is_put_together
    });
    assert_eq!(live(&store, &one, 0..6), [1, 3, 5]);
    assert_eq!((ask(4).ready().unwrap(), ask(5).ready().unwrap().is_some()), (None, true));
    for number in 2_000..6_000 {
        delete(&store, &one, range(number));
    }
    assert_eq!(ask(5), Read::WouldBlock, "thousands of ranges are no business of an event loop");
    let slice = Slice {
        reach: Reach { tier: ReadTier::Memory, records: 100, until: None },
        ..Slice::default()
    };
    let sliced = store.read_partition(TABLE, PartitionKey(&one), &slice, NOW).err();
    assert_eq!(sliced.unwrap().to_string(), EngineError::WouldBlock.to_string());
    assert_eq!(live(&store, &one, 0..6), [1, 3, 5]);
    let header =
        store.read_header(TABLE, PartitionKey(&one), ReadTier::Disk).unwrap().ready().unwrap();
    assert_eq!(header.ranges.len(), 6_000);
}

/// The same without a merging thread: the loop does not merge the pile.
#[test]
fn a_loop_does_not_merge_what_has_piled_up() {
    for count in [300, 2_000] {
        let store = in_memory(StoreOptions { write_back_fragments: u32::MAX, ..options() });
        let (one, two) = (partition(1), partition(2));
        put(&store, &one, Target::Row(b"r"), insert(0, 1, b"v"));
        for number in 0..count {
            delete(&store, &one, range(number));
            let mut element = insert(1, 1, b"v");
            element.cells[0].path = Some(number.to_be_bytes().to_vec());
            put(&store, &two, Target::Row(b"r"), element);
        }
        for partition in [&one, &two] {
            let ask = store
                .read_row_nonblocking(TABLE, PartitionKey(partition), Target::Row(b"r"), NOW)
                .unwrap();
            assert_eq!(ask, Read::WouldBlock);
            assert!(
                store
                    .read_row(TABLE, PartitionKey(partition), Target::Row(b"r"), NOW)
                    .unwrap()
                    .is_some()
            );
        }
    }
}

/// The loop does not decode thousands of elements from a merged record either.
#[test]
fn a_loop_does_not_take_a_large_collection_apart() {
    let store = in_memory(options());
    let (one, two) = (partition(1), partition(2));
    let mut row = insert(1, 1, b"");
    row.cells = (0..10_000u32)
        .map(|number| Cell {
            path: Some(number.to_be_bytes().to_vec()),
            ..cell(1, 1, CellValue::Live(b"v".to_vec()))
        })
        .collect();
    put(&store, &one, Target::Row(b"r"), row);
    let value = vec![b'v'; 200_000];
    put(&store, &two, Target::Row(b"r"), insert(1, 1, &value));
    let ask = |partition: &[u8]| {
        let row = store
            .read_row_nonblocking(TABLE, PartitionKey(partition), Target::Row(b"r"), NOW)
            .unwrap();
        let slice = Slice {
            reach: Reach { tier: ReadTier::Memory, records: 9, until: None },
            ..Slice::default()
        };
        let rows = store.read_partition(TABLE, PartitionKey(partition), &slice, NOW);
        (row != Read::WouldBlock, rows.and_then(|mut rows| rows.next()).is_ok())
    };
    assert_eq!((ask(&one), ask(&two)), ((false, false), (true, true)));
}

#[test]
fn a_thread_that_dies_at_it_is_named() {
    let on_get = |_: &[u8], _| {
        assert!(std::thread::current().name() != Some("store-upkeep"), "as the test wants it");
    };
    let memory = |merger| Box::new(MemoryEngine::new(merger)) as Box<dyn Engine>;
    let store =
        Watched::store(StoreOptions { write_back_fragments: 2, ..options() }, memory, on_get, true);
    for column in 0..2 {
        put(&store, &partition(1), Target::Row(b"r"), insert(column, 1, b"v"));
    }
    assert!(store.dead_threads().is_empty());
    assert!(text(&store, &partition(1), Target::Row(b"r")).is_some());
    until(|| !store.dead_threads().is_empty());
    assert_eq!(store.dead_threads(), ["store-upkeep"]);
    // Reads and writes continue until the process ends.
    put(&store, &partition(1), Target::Row(b"r"), insert(0, 2, b"w"));
    assert_eq!(text(&store, &partition(1), Target::Row(b"r")).as_deref(), Some("w"));
    assert!(!store.close());
}
