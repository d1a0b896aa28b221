//! Writes of several requests as one batch, and writes that arrive faster than compaction.

use super::*;
use crate::engine::{EngineError, Pace, Stall};

/// A store with its engine controlled by the test.
fn controlled_store(options: StoreOptions) -> (Store, Arc<MemoryEngine>) {
    let mut kept = None;
    let store = Store::on_engine(options, |merger| {
        let engine = Arc::new(MemoryEngine::new(merger));
        kept = Some(Arc::clone(&engine));
        Box::new(engine)
    });
    (store.unwrap(), kept.unwrap())
}

fn row(text: &str) -> Fragment {
    Fragment::Row(insert(0, 1, text.as_bytes()))
}

/// A fragment of the partition's static row.
fn to<'a>(partition: &'a [u8], fragment: &'a Fragment) -> MutationRef<'a> {
    MutationRef {
        table: TABLE,
        partition: PartitionKey(partition),
        target: Target::Static,
        fragment,
    }
}

#[test]
fn requests_share_a_batch_and_one_that_is_refused_leaves_the_others_alone() {
    let store = in_memory(StoreOptions { batch_bytes_max: 1000, ..options() });
    let partitions = [partition(1), partition(2), partition(3)];
    let (fine, large, header) =
        (row("x"), row(&"x".repeat(1001)), Fragment::Header(Header::default()));
    let [first, second, third] = &partitions;
    let requests = [
        vec![to(first, &fine)],
        vec![to(second, &fine), to(second, &header)],
        vec![to(second, &large)],
        vec![to(third, &fine)],
    ];
    let written = store.append(requests).unwrap();
    let refused: Vec<_> =
        written.refused.iter().map(|(place, why)| (*place, why.to_string())).collect();
    let why = [
        "a row's fragment for a header, or the other way round",
        "a write of 1035 bytes, at most 1000",
    ];
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!((refused[0].0, refused[0].1.as_str()), (1, why[0]));
    assert!(refused[1].0 == 2 && refused[1].1.ends_with("at most 1000"), "{refused:?}");
    let seen = partitions.map(|partition| text(&store, &partition, Target::Static));
    assert_eq!(seen, [Some("x".to_owned()), None, Some("x".to_owned())]);
    let figures = store.figures();
    assert_eq!(
        (figures.applies, figures.mutations, figures.syncs),
        (2, 2, 0),
        "nobody asked for a sync"
    );
    store.request_sync(Durability::Batch);
    store.wait_durable(written.ticket).unwrap();
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the writer is to wait for a while")]
fn a_stall_is_told_to_who_may_not_wait_and_waited_for_by_who_may() {
    let (store, engine) =
        controlled_store(StoreOptions { stall_wait_max: Duration::from_secs(180), ..options() });
    let mut tries = 0;
    // A writer that was paused until it could write has not waited; another one follows.
    while tries < 100 && store.figures().stalled_us < 30_000 {
        tries += 1;
        engine.set_pace(Pace::Stopped);
        let (one, fragment) = (partition(tries), row("x"));
        let mutation = to(&one, &fragment);
        let refused = store.append([[mutation]]).unwrap_err();
        assert!(matches!(refused, StoreError::Engine(EngineError::Busy)), "{refused}");
        assert_eq!(value(&store, &one, Target::Static), None);
        std::thread::scope(|scope| {
            let patient = &store;
            let waits = scope.spawn(move || patient.apply([mutation], Durability::Batch));
            // Twice as long as required below: the wait counts from the first attempt.
            std::thread::sleep(Duration::from_millis(60));
            assert!(!waits.is_finished());
            // Reads and syncs continue in the meantime.
            assert_eq!(value(&store, &one, Target::Static), None);
            store.wait_durable(store.settle()).unwrap();
            engine.set_pace(Pace::Free);
            store.wait_durable(waits.join().unwrap().unwrap()).unwrap();
        });
        assert_eq!(text(&store, &one, Target::Static).as_deref(), Some("x"));
        store.append([[mutation]]).unwrap();
    }
    let figures = store.figures();
    assert!(figures.stalled <= u64::from(tries) && figures.stalled_us >= 30_000, "{figures:?}");
}

/// An engine that slows writes down keeps its rate only if they wait inside it.
#[test]
fn delayed_writes_wait_in_the_engine_and_loops_do_not() {
    let (store, engine) = controlled_store(options());
    engine.set_pace(Pace::Delayed);
    let (one, fragment) = (partition(1), row("x"));
    let mutation = to(&one, &fragment);
    let refused = store.append([[mutation]]).unwrap_err();
    assert!(matches!(refused, StoreError::Engine(EngineError::Busy)), "{refused}");
    let ticket = store.apply([mutation], Durability::Batch).unwrap();
    store.wait_durable(ticket).unwrap();
    assert_eq!(text(&store, &one, Target::Static).as_deref(), Some("x"));
    assert_eq!(store.figures().stalled, 1);
    assert_eq!(store.shared.delayed.load(Ordering::SeqCst), 0, "nobody waits any more");
}

#[test]
fn writes_that_waited_too_long_are_refused() {
    let (store, engine) =
        controlled_store(StoreOptions { stall_wait_max: Duration::from_millis(20), ..options() });
    engine.set_pace(Pace::Stopped);
    let (one, fragment) = (partition(1), row("x"));
    let mutation =
        Mutation { table: TABLE, partition: PartitionKey(&one), target: Target::Static, fragment };
    let refused = store.apply(&[mutation], Durability::Batch).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the write waited 0 s for compaction; write more slowly, or use a faster disk"
    );
    assert!(matches!(store.truncate(TABLE, Durability::Batch), Err(StoreError::Stalled(_))));
    store.health().unwrap();
    assert_eq!(value(&store, &one, Target::Static), None);
}

/// While a writer waits inside the engine, a loop does not even take the locks.
#[test]
fn a_loop_does_not_meet_who_waits_inside_of_the_engine() {
    let store = in_memory(options());
    let (one, fragment) = (partition(1), row("x"));
    let mutation = to(&one, &fragment);
    store.shared.delayed.store(1, Ordering::SeqCst);
    let _gate = store.shared.gate.write();
    let refused = store.append([[mutation]]).unwrap_err();
    assert!(matches!(refused, StoreError::Engine(EngineError::Busy)), "{refused}");
}

/// A writer's ticket comes after its write is visible; a reader in between must still wait for the
/// sync.
#[test]
fn a_reader_waits_for_visible_writes_without_a_ticket() {
    let store = in_memory(options());
    store.wait_durable(store.settle()).unwrap();
    let quiet = store.settle();
    assert_eq!(quiet, store.durable(), "nothing was written: nothing is waited for");
    let (one, fragment) = (partition(1), row("x"));
    let mut batch = Vec::new();
    store.shared.encode([to(&one, &fragment)], &mut batch).unwrap();
    store.shared.write_visibly(&batch, Stall::Refuse).unwrap();
    assert_eq!(text(&store, &one, Target::Static).as_deref(), Some("x"));
    let ticket = store.settle();
    assert!(ticket > quiet);
    store.wait_durable(ticket).unwrap();
    assert_eq!(store.settle(), store.durable());
}
