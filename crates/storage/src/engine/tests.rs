//! RocksDB against its twin in memory: random writes, flushes and compactions, with a merger whose
//! values show the order.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values are texts and fragments append to them; fragments that begin with `!` never merge with
/// each other before a read.
struct Append;

impl Merger for Append {
    fn merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        fragments: &[&[u8]],
        _purge: bool,
    ) -> Vec<u8> {
        base.into_iter().chain(fragments.iter().copied()).flatten().copied().collect()
    }

    fn merge_fragments(&self, _key: &[u8], fragments: &[&[u8]]) -> Option<Vec<u8>> {
        let together = fragments.iter().all(|fragment| !fragment.starts_with(b"!"));
        together.then(|| fragments.concat())
    }

    fn verdict(&self, _key: &[u8], value: &[u8]) -> Verdict {
        if value == b"-" { Verdict::Remove } else { Verdict::Keep }
    }
}

fn small() -> EngineOptions {
    EngineOptions {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        ..EngineOptions::default()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<Write>),
    Flush,
    Compact,
    Reopen,
}

/// Keys of three partitions with three rows each.
fn key() -> impl Strategy<Value = Vec<u8>> {
    (0..3u8, 0..3u8).prop_map(|(partition, row)| {
        [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, partition, 1, 7], &[2, row][..]].concat()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let fragment = || prop_oneof![3 => vec(97..100u8, 1..3), 1 => Just(b"!".to_vec())];
    let write = prop_oneof![
        10 => (key(), fragment()).prop_map(|(key, fragment)| Write::Merge(key, fragment)),
        2 => (key(), fragment()).prop_map(|(key, value)| Write::Put(key, value)),
        1 => key().prop_map(Write::Delete),
        1 => (key(), key()).prop_map(|(a, b)| Write::DeleteRange(a.clone().min(b.clone()), a.max(b))),
    ];
    prop_oneof![
        10 => vec(write, 1..4).prop_map(Step::Write),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

fn forward(engine: &dyn Engine, span: &Span) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = engine.cursor(span);
    cursor.seek(&span.from);
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.entry().unwrap() {
        assert!(cursor.fragments() > 0);
        all.push((key.to_vec(), value.to_vec()));
        cursor.next();
    }
    all
}

fn backward(engine: &dyn Engine, span: &Span) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = engine.cursor(span);
    cursor.seek_before(&span.to);
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.entry().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
        cursor.previous();
    }
    all.reverse();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn both_engines_agree(steps in vec(step(), 1..40), probe in key()) {
        let directory = tempfile::tempdir().unwrap();
        let mut rocks = RocksEngine::open(directory.path(), &small(), Arc::new(Append)).unwrap();
        let memory = MemoryEngine::new(Arc::new(Append));
        for step in steps {
            match step {
                Step::Write(batch) => {
                    rocks.write(&batch, Stall::Wait).unwrap();
                    memory.write(&batch, Stall::Wait).unwrap();
                }
                Step::Flush => rocks.flush().unwrap(),
                Step::Compact => rocks.compact(&[0], &[1]),
                Step::Reopen => {
                    rocks.sync().unwrap();
                    drop(rocks);
                    rocks = RocksEngine::open(directory.path(), &small(), Arc::new(Append)).unwrap();
                }
            }
        }
        let whole = Span { from: vec![0], to: vec![1], one_partition: false, cache: false, tier: ReadTier::Disk };
        prop_assert_eq!(forward(&rocks, &whole), forward(&memory, &whole));
        prop_assert_eq!(backward(&rocks, &whole), forward(&memory, &whole));
        let prefix = &probe[..14];
        let one = Span { from: prefix.to_vec(), to: [prefix, &[3]].concat(), one_partition: true, cache: true, tier: ReadTier::Disk };
        prop_assert_eq!(forward(&rocks, &one), forward(&memory, &one));
        prop_assert_eq!(backward(&rocks, &one), forward(&memory, &one));
        for (key, value) in forward(&memory, &whole) {
            let Found::Value { bytes, .. } = rocks.get(&key, ReadTier::Disk).unwrap() else { panic!("{key:?}") };
            prop_assert_eq!(bytes, value);
        }
    }
}

#[test]
fn reads_say_how_many_fragments_they_met_and_whether_they_would_block() {
    let directory = tempfile::tempdir().unwrap();
    let key = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 7], &[2, 9][..]].concat();
    let merge = |text: &[u8]| vec![Write::Merge(key.clone(), text.to_vec())];
    {
        let engine = RocksEngine::open(directory.path(), &small(), Arc::new(Append)).unwrap();
        for at in 0..5 {
            engine.write(&merge(b"!"), Stall::Refuse).unwrap();
            let Found::Value { fragments, .. } = engine.get(&key, ReadTier::Memory).unwrap() else {
                panic!("absent")
            };
            assert_eq!(fragments, at + 1);
            let mut cursor = engine.cursor(&Span {
                from: vec![0],
                to: vec![1],
                one_partition: false,
                cache: true,
                tier: ReadTier::Disk,
            });
            cursor.seek(&key);
            assert_eq!(cursor.fragments(), at + 1);
        }
        engine.flush().unwrap();
        engine.compact(&[0], &[1]);
        engine.sync().unwrap();
    }
    let engine = RocksEngine::open(directory.path(), &small(), Arc::new(Append)).unwrap();
    let twice = [(); 2].map(|()| engine.get(&key, ReadTier::Memory).unwrap());
    assert_eq!(twice, [Found::WouldBlock, Found::WouldBlock]);
    let value = Found::Value { bytes: b"!!!!!".to_vec(), fragments: 1 };
    assert_eq!(engine.get(&key, ReadTier::Disk).unwrap(), value);
    assert_eq!(engine.get(&key, ReadTier::Memory).unwrap(), value);
    assert_eq!(engine.get(b"absent", ReadTier::Disk).unwrap(), Found::Absent);
    let statistics = engine.statistics();
    assert!(
        statistics.iter().any(|(name, count)| name == "rocksdb.block.cache.data.hit" && *count > 0)
    );
    assert!(engine.sizes().disk_bytes > 0);
}

#[test]
fn compaction_removes_what_the_merger_gives_up() {
    let directory = tempfile::tempdir().unwrap();
    let engine = RocksEngine::open(directory.path(), &small(), Arc::new(Append)).unwrap();
    let key = |last| vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 7, 2, last];
    engine
        .write(
            &[Write::Merge(key(1), b"-".to_vec()), Write::Merge(key(2), b"a".to_vec())],
            Stall::Wait,
        )
        .unwrap();
    engine.flush().unwrap();
    engine.compact(&[0], &[1]);
    // The first compaction merges fragments into values; the next one filters values.
    engine.compact(&[0], &[1]);
    assert_eq!(engine.get(&key(1), ReadTier::Disk).unwrap(), Found::Absent);
    assert_eq!(
        engine.get(&key(2), ReadTier::Disk).unwrap(),
        Found::Value { bytes: b"a".to_vec(), fragments: 1 }
    );
}

/// Merges when the test permits, and reports when it starts.
struct Held(Arc<Mutex<()>>, Arc<AtomicBool>);

impl Held {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.1.store(true, Ordering::SeqCst);
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Merger for Held {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, fragments: &[&[u8]], purge: bool) -> Vec<u8> {
        let _turn = self.turn();
        Append.merge(key, base, fragments, purge)
    }

    fn merge_fragments(&self, key: &[u8], fragments: &[&[u8]]) -> Option<Vec<u8>> {
        let _turn = self.turn();
        Append.merge_fragments(key, fragments)
    }

    fn verdict(&self, key: &[u8], value: &[u8]) -> Verdict {
        Append.verdict(key, value)
    }
}

#[test]
fn writes_that_come_faster_than_compaction_are_refused_if_they_may_not_wait() {
    let (directory, lock, begun) =
        (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(())), Arc::<AtomicBool>::default());
    let held = Held(Arc::clone(&lock), Arc::clone(&begun));
    let engine = RocksEngine::open(directory.path(), &small(), Arc::new(held)).unwrap();
    let write =
        |stall| engine.write(&[Write::Merge(b"key of a row".to_vec(), b"x".to_vec())], stall);
    engine.set_options(&[
        ("level0_file_num_compaction_trigger", "2"),
        ("level0_slowdown_writes_trigger", "2"),
    ]);
    engine.set_options(&[("level0_stop_writes_trigger", "2")]);
    let compaction = lock.lock().unwrap();
    // The first fragments are being compacted and do not count once that has begun.
    while !begun.load(Ordering::SeqCst) {
        if write(Stall::Refuse).is_ok() {
            engine.flush().unwrap();
        }
        std::thread::yield_now();
    }
    for _ in 0..8 {
        if write(Stall::Refuse).is_ok() {
            engine.flush().unwrap();
        }
    }
    assert_eq!((write(Stall::Refuse), engine.pace()), (Err(EngineError::Busy), Pace::Stopped));
    drop(compaction);
    while engine.pace() != Pace::Free {
        std::thread::yield_now();
    }
    write(Stall::Refuse).unwrap();
}

/// Records the nice value of the threads that purge values.
struct Nice(Arc<Mutex<Vec<i32>>>);

impl Merger for Nice {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, fragments: &[&[u8]], purge: bool) -> Vec<u8> {
        Append.merge(key, base, fragments, purge)
    }

    fn merge_fragments(&self, key: &[u8], fragments: &[&[u8]]) -> Option<Vec<u8>> {
        Append.merge_fragments(key, fragments)
    }

    fn verdict(&self, _key: &[u8], _value: &[u8]) -> Verdict {
        self.0.lock().unwrap().extend(rustix::process::getpriority_process(None));
        Verdict::Keep
    }
}

#[test]
fn compaction_comes_after_who_is_waited_for() {
    let (directory, seen) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let engine =
        RocksEngine::open(directory.path(), &small(), Arc::new(Nice(Arc::clone(&seen)))).unwrap();
    engine.write(&[Write::Put(b"key of a row".to_vec(), b"x".to_vec())], Stall::Wait).unwrap();
    engine.flush().unwrap();
    engine.compact(b"a", b"z");
    let own = rustix::process::getpriority_process(None).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(own + 5).min(19)]);
}

/// An obsolete log may be missing.
#[test]
fn the_manifest_says_which_logs_are_needed() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..4u8 {
        let engine = RocksEngine::open(directory.path(), &small(), Arc::new(Append)).unwrap();
        for at in 0..6 {
            let key = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, at, 1, 7, 2][..], &[round; 300]].concat();
            engine.write(&[Write::Merge(key, vec![b'a'; 5_000])], Stall::Wait).unwrap();
            engine.sync().unwrap();
            let newest = engine.synced_logs().iter().map(|log| log.number).max().unwrap();
            let needed = || first_log_needed(directory.path()).unwrap();
            assert!(needed() <= newest, "{} and not yet {newest}", needed());
            engine.flush().unwrap();
            assert!(needed() > newest, "{} and still {newest}", needed());
            if at == 4 {
                engine.compact(&[0], &[1]);
            }
        }
    }
}
