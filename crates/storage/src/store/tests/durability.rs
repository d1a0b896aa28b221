//! Tickets, failing syncs, full disks, locks and formats.

use super::upkeep::until;
use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Instant;

/// An engine whose syncs succeed or fail at the test's command.
fn failing() -> (Store, Arc<MemoryEngine>) {
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let store = Store::on_engine(options(), move |merger| {
        let engine = Arc::new(MemoryEngine::new(merger));
        *keep.lock().unwrap() = Some(Arc::clone(&engine));
        Box::new(engine)
    });
    let engine = kept.lock().unwrap().take().unwrap();
    (store.unwrap(), engine)
}

fn batch(store: &Store, number: u8) -> Result<Ticket, StoreError> {
    let partition = partition(number);
    let fragment = Fragment::Row(insert(0, 1, b"x"));
    let (partition, target) = (PartitionKey(&partition), Target::Row(b""));
    store.apply(&[Mutation { table: TABLE, partition, target, fragment }], Durability::Batch)
}

#[test]
fn everyone_who_waits_is_told() {
    let (store, engine) = failing();
    let newest = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&newest);
    store.subscribe(Box::new(move |synced| {
        seen.fetch_max(synced.as_ref().map_or(0, |ticket| ticket.0), Ordering::SeqCst);
    }));
    let (tell, told) = mpsc::channel();
    let mut last = Ticket(0);
    // The first sync lasts until the others have written; otherwise one sync could follow each of
    // them.
    let met = Arc::new(Barrier::new(2));
    engine.during_sync({
        let met = Arc::clone(&met);
        move || {
            met.wait();
            met.wait();
        }
    });
    for number in 0..100 {
        last = batch(&store, number).unwrap();
        let tell = tell.clone();
        store.when_durable(
            last,
            Box::new(move |outcome| tell.send((number, outcome.is_ok())).unwrap()),
        );
        if number == 0 {
            met.wait();
        }
    }
    met.wait();
    store.wait_durable(last).unwrap();
    assert!(store.durable() >= last);
    let mut all: Vec<_> = told.iter().take(100).collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).map(|number| (number, true)).collect::<Vec<_>>());
    until(|| newest.load(Ordering::SeqCst) == last.0);
    let figures = store.figures();
    assert_eq!((figures.applies, figures.synced), (100, 100));
    assert_eq!(figures.syncs, 2, "one is for all who wrote during the first");
}

/// The disk may have passed a write's place in the log before the write was there.
#[test]
fn a_write_that_comes_during_a_sync_is_not_durable_after_it() {
    let (store, engine) = failing();
    let store = Arc::new(store);
    let late = Arc::new(AtomicU64::new(0));
    let (writer, ticket) = (Arc::downgrade(&store), Arc::clone(&late));
    let (tell, synced) = mpsc::channel();
    store.subscribe(Box::new(move |outcome| {
        let _ = tell.send(outcome.as_ref().map(|ticket| *ticket).ok());
    }));
    engine.during_sync(move || {
        let fragment = Fragment::Row(insert(0, 1, b"x"));
        let (partition, table) = (partition(2), TABLE);
        let partition = PartitionKey(&partition);
        let mutation =
            MutationRef { table, partition, target: Target::Static, fragment: &fragment };
        // The call requests no sync.
        let written = writer.upgrade().unwrap().append([[mutation]]).unwrap();
        ticket.store(written.ticket.0, Ordering::SeqCst);
    });
    let first = batch(&store, 1).unwrap();
    store.wait_durable(first).unwrap();
    let late = Ticket(late.load(Ordering::SeqCst));
    assert!(late > first);
    // The waiting thread may have requested another sync, which follows immediately.
    assert_eq!(synced.recv().unwrap(), Some(first), "the sync covered {first:?} alone");
    store.request_sync(Durability::Batch);
    store.wait_durable(late).unwrap();
}

#[test]
fn periodic_writes_are_synced_within_their_interval() {
    let store = in_memory(options());
    let row = Fragment::Row(insert(0, 1, b"x"));
    let partition = partition(1);
    let mutation = Mutation {
        table: TABLE,
        partition: PartitionKey(&partition),
        target: Target::Static,
        fragment: row,
    };
    let ticket = store
        .apply(&[mutation], Durability::Periodic { interval: Duration::from_millis(20) })
        .unwrap();
    let (tell, told) = mpsc::channel();
    store.when_durable(ticket, Box::new(move |outcome| tell.send(outcome.is_ok()).unwrap()));
    assert!(told.recv_timeout(Duration::from_secs(60)).unwrap());
}

#[test]
fn a_failed_sync_poisons_the_store() {
    let (store, engine) = failing();
    store.wait_durable(batch(&store, 1).unwrap()).unwrap();
    engine.fail_syncs(Some(EngineError::Failed("Input/output error".to_owned())));
    let lost = batch(&store, 2).unwrap();
    let error = store.wait_durable(lost).unwrap_err().to_string();
    assert_eq!(error, "the store is read-only until it is opened anew: Input/output error");
    // Even if the next sync would succeed: the effect of the first is unknown.
    engine.fail_syncs(None);
    assert!(matches!(batch(&store, 3), Err(StoreError::Poisoned(_))));
    assert!(matches!(store.wait_durable(lost), Err(StoreError::Poisoned(_))));
    assert!(matches!(store.truncate(TABLE, Durability::Batch), Err(StoreError::Poisoned(_))));
    assert_eq!(text(&store, &partition(1), Target::Row(b"")).as_deref(), Some("x"));
}

/// RocksDB reports "previous error" for a write between a failed sync and the store's knowledge of
/// it.
#[test]
fn a_write_that_fails_for_another_error_is_told_that_error() {
    // The writer waits a second for the original error, and takes its own as the first if the sync
    // takes longer.
    let is_told = || {
        let begun = Instant::now();
        let told = error_of_a_write_during_a_failed_sync();
        let expected = "the store is read-only until it is opened anew: Input/output error";
        assert!(told == expected || begun.elapsed() >= Duration::from_secs(1), "{told}");
        told == expected
    };
    assert!((0..20).any(|_| is_told()), "late each time");
}

fn error_of_a_write_during_a_failed_sync() -> String {
    let (store, engine) = failing();
    store.wait_durable(batch(&store, 1).unwrap()).unwrap();
    let store = Arc::new(store);
    let (writer, writers_engine) = (Arc::clone(&store), Arc::clone(&engine));
    let (tell, told) = mpsc::channel();
    engine.fail_syncs(Some(EngineError::Failed("Input/output error".to_owned())));
    engine.during_sync(move || {
        writers_engine
            .fail_writes(Some(EngineError::Failed("Writer has previous error.".to_owned())));
        std::thread::spawn(move || tell.send(batch(&writer, 3).unwrap_err().to_string()));
        // Not needed for correctness: the writer should arrive before the sync has ended.
        std::thread::park_timeout(Duration::from_millis(50));
    });
    let lost = batch(&store, 2).unwrap();
    store.wait_durable(lost).unwrap_err();
    told.recv().unwrap()
}

#[test]
fn a_full_disk_is_read_only_until_there_is_room() {
    let (store, engine) = failing();
    engine.fail_syncs(Some(EngineError::NoSpace("No space left on device".to_owned())));
    let ticket = batch(&store, 1).unwrap();
    assert!(matches!(store.wait_durable(ticket), Err(StoreError::Full(_))));
    assert!(matches!(batch(&store, 2), Err(StoreError::Full(_))));
    let error = batch(&store, 2).unwrap_err().to_string();
    assert_eq!(
        error,
        "the store is read-only until there is room on the disk: No space left on device"
    );
    assert_eq!(text(&store, &partition(1), Target::Row(b"")).as_deref(), Some("x"));
    engine.fail_syncs(None);
    let recovered = std::iter::repeat_with(|| batch(&store, 3)).find_map(Result::ok);
    store.wait_durable(recovered.unwrap()).unwrap();
    store.wait_durable(ticket).unwrap();
}

#[test]
fn a_reserve_on_the_disk_is_kept_free() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    store.wait_durable(batch(&store, 1).unwrap()).unwrap();
    drop(store);
    let store =
        Store::open(directory.path(), StoreOptions { reserve_bytes: u64::MAX, ..options() })
            .unwrap();
    // The watch runs on its own schedule; writes are accepted until it does, which may be before
    // the first.
    let refused = std::iter::from_fn(|| {
        let ticket = batch(&store, 1).map(|ticket| store.wait_durable(ticket));
        Some(ticket.err())
    });
    let error = refused.flatten().next().unwrap().to_string();
    assert!(error.contains("read-only until there is room on the disk"), "{error}");
    assert_eq!(text(&store, &partition(1), Target::Row(b"")).as_deref(), Some("x"));
}

#[test]
fn a_directory_has_one_owner_and_one_format() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    let error = Store::open(directory.path(), options()).err().unwrap().to_string();
    assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
    assert!(matches!(check(directory.path(), &options()), Err(StoreError::Locked { .. })));
    drop(store);
    std::fs::write(directory.path().join("FORMAT"), "shunt storage 2\n").unwrap();
    let error = Store::open(directory.path(), options()).err().unwrap().to_string();
    assert!(error.contains("it says \"shunt storage 2\", expected \"shunt storage 1\""), "{error}");
    std::fs::remove_file(directory.path().join("FORMAT")).unwrap();
    assert!(matches!(Store::open(directory.path(), options()), Err(StoreError::Format { .. })));
}

#[test]
fn writes_that_cannot_be_are_refused_whole() {
    let store = in_memory(StoreOptions { batch_bytes_max: 1000, ..options() });
    let (good, bad) = (partition(1), partition(2));
    let one = |partition, target, fragment| Mutation { table: TABLE, partition, target, fragment };
    let fine = one(PartitionKey(&good), Target::Static, Fragment::Row(insert(0, 1, b"x")));
    let misplaced = one(PartitionKey(&bad), Target::Static, Fragment::Header(Header::default()));
    let large = one(PartitionKey(&bad), Target::Static, Fragment::Row(insert(0, 1, &[0; 1001])));
    let short = one(PartitionKey(b"short"), Target::Static, Fragment::Row(insert(0, 1, b"x")));
    assert!(matches!(
        store.apply(&[fine.clone(), misplaced], periodic()),
        Err(StoreError::Misplaced)
    ));
    assert!(matches!(
        store.apply(&[fine.clone(), large], periodic()),
        Err(StoreError::TooLarge { most: 1000, .. })
    ));
    let large = Fragment::Row(insert(0, 1, &[0; 1001]));
    let large =
        crate::store::MutationRef { fragment: &large, ..crate::store::MutationRef::from(&fine) };
    assert!(matches!(store.check_request([large]), Err(StoreError::TooLarge { most: 1000, .. })));
    assert!(store.check_request([crate::store::MutationRef::from(&fine)]).is_ok());
    assert!(matches!(store.apply(&[fine, short], periodic()), Err(StoreError::Key(_))));
    assert_eq!(value(&store, &good, Target::Static), None);
}

/// No thread would sync for the waiters.
#[test]
fn waiters_for_a_dead_thread_get_an_error() {
    let store = in_memory(options());
    assert!(store.dead_threads().is_empty());
    let first = batch(&store, 1).unwrap();
    store.wait_durable(first).unwrap();
    store.subscribe(Box::new(|synced| assert!(synced.is_err(), "as the test wants it")));
    // The thread dies after the next sync, or after the first one if it has not reported that yet.
    let error = loop {
        if let Err(error) = batch(&store, 2).and_then(|ticket| store.wait_durable(ticket)) {
            break error;
        }
    };
    assert!(matches!(error, StoreError::Poisoned(_)));
    // The thread reports its end before it has ended.
    while store.dead_threads().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(store.dead_threads(), ["store-sync"]);
    assert!(matches!(store.health(), Err(StoreError::Poisoned(_))));
    assert!(matches!(batch(&store, 3), Err(StoreError::Poisoned(_))));
    assert!(!store.close(), "it has not ended well");
    assert!(store.close(), "that was told");
}

#[test]
fn a_closed_store_is_synced_and_accepts_no_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    let ticket = put(&store, &partition(1), Target::Static, insert(0, 1, b"x"));
    assert!(store.close() && store.durable() >= ticket);
    let later = put(&store, &partition(2), Target::Static, insert(0, 1, b"x"));
    assert!(matches!(store.wait_durable(later), Err(StoreError::Poisoned(_))));
}
