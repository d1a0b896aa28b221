//! Flipped bits: reported with the broken part, never served.

use super::*;
use std::path::PathBuf;

const ROWS: u8 = 200;

fn fill(directory: &Path, flush: bool) {
    let store = Store::open(directory, options()).unwrap();
    for number in 0..ROWS {
        put(
            &store,
            &partition(number),
            Target::Row(b"r"),
            insert(0, 1, format!("value {number}").as_bytes()),
        );
    }
    if flush {
        store.flush().unwrap();
    }
}

fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths = files_of(directory, ending);
    paths.retain(|path| path.metadata().unwrap().len() > 0);
    paths
}

/// Everything readable equals the written data; the rest is an error.
fn nothing_wrong_is_served(store: &Store) -> usize {
    let mut errors = 0;
    for number in 0..ROWS {
        match store.read_row(TABLE, PartitionKey(&partition(number)), Target::Row(b"r"), NOW) {
            Ok(row) => {
                let row = row.unwrap_or_else(|| panic!("row {number} is lost and nobody says so"));
                assert_eq!(
                    row.cells[0].value,
                    CellValue::Live(format!("value {number}").into_bytes())
                );
            }
            Err(_) => errors += 1,
        }
    }
    errors
}

fn every_flip_is_found(ending: &str, flush: bool) {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), flush);
    let path = files(directory.path(), ending).pop().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut found = 0;
    for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x04;
        std::fs::write(&path, &damaged).unwrap();
        let copy = tempfile::tempdir().unwrap();
        copy_all(directory.path(), copy.path());
        let problems = check(copy.path(), &options()).unwrap();
        found += usize::from(!problems.is_empty());
        match Store::open(copy.path(), options()) {
            Ok(store) => {
                let errors = nothing_wrong_is_served(&store);
                assert!(
                    errors == 0 || !problems.is_empty(),
                    "byte {at}: reads fail and check is content"
                );
            }
            Err(error) => assert!(!problems.is_empty(), "byte {at}: {error}"),
        }
        std::fs::write(&path, &whole).unwrap();
    }
    // Some bytes of a file are not needed to read it.
    assert!(found >= 20, "{found} of 40 flips found in {}", path.display());
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn flipped_bits_in_a_data_file_are_found() {
    every_flip_is_found(".sst", true);
}

#[test]
fn flipped_bits_in_the_log_are_found() {
    every_flip_is_found(".log", false);
}

#[test]
fn a_broken_fragment_is_kept_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), options()).unwrap();
    let (good, bad) = (partition(1), partition(2));
    for number in [&good, &bad] {
        put(&store, number, Target::Row(b"r"), insert(0, 1, b"v"));
    }
    let key = key::record(TABLE, PartitionKey(&bad), Target::Row(b"r")).unwrap();
    store
        .shared
        .engine
        .write(&[Write::Merge(key.clone(), b"\x10 not a fragment".to_vec())], Stall::Wait)
        .unwrap();
    put(&store, &bad, Target::Row(b"r"), insert(1, 1, b"v"));
    for _ in 0..3 {
        let error = store
            .read_row(TABLE, PartitionKey(&bad), Target::Row(b"r"), NOW)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(
                "corrupt record, table 5, token 0x8000000000000002, partition 0x02, row 0x72"
            ),
            "{error}"
        );
        assert_eq!(text(&store, &good, Target::Row(b"r")).as_deref(), Some("v"));
        store.compact(TABLE).unwrap();
    }
    // All three fragments are still there, in order.
    let crate::engine::Found::Value { bytes, .. } =
        store.shared.engine.get(&key, crate::engine::ReadTier::Disk).unwrap()
    else {
        panic!("the record is gone")
    };
    let parts = crate::catalogue::decode_unmerged(&bytes).unwrap();
    assert_eq!((parts.len(), parts[1]), (3, &b"\x10 not a fragment"[..]));
    drop(store);
    let problems = check(directory.path(), &options()).unwrap();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("partition 0x02, row 0x72"), "{}", problems[0]);
}

#[test]
fn a_catalogue_that_lost_schemas_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue");
    fill(directory.path(), false);
    let early = std::fs::read(&path).unwrap();
    {
        let store = Store::open(directory.path(), options()).unwrap();
        let known = store.catalogue().next_id();
        put(&store, &partition(1), Target::Row(b"r"), insert(77, 2, b"v"));
        while store.catalogue().counts().pending > 0 || store.catalogue().next_id() == known {
            std::thread::yield_now();
        }
    }
    std::fs::write(&path, &early).unwrap();
    let error = Store::open(directory.path(), options()).err().unwrap().to_string();
    assert!(error.contains("have been given out, it ends at"), "{error}");
    let problems = check(directory.path(), &options()).unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
    std::fs::remove_file(&path).unwrap();
    let error = Store::open(directory.path(), options()).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "catalogue: not a data directory that this version can read: the file is missing"
        ),
        "{error}"
    );
}

/// RocksDB would start afresh without `CURRENT`, and continue with the files named by half a
/// manifest; either way it deletes the others.
#[test]
fn missing_or_truncated_files_are_refused_and_nothing_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path(), true);
    let tables = files(directory.path(), ".sst").len();
    let manifest = std::fs::read_to_string(directory.path().join("db/CURRENT")).unwrap();
    let manifest = format!("db/{}", manifest.trim_end());
    let gone = ["FORMAT", "catalogue", "db/CURRENT", &manifest].map(|name| (name, true));
    for (name, gone) in gone.into_iter().chain([(manifest.as_str(), false)]) {
        let (copy, shown) = (tempfile::tempdir().unwrap(), name.rsplit('/').next().unwrap());
        copy_all(directory.path(), copy.path());
        let path = copy.path().join(name);
        match gone {
            true => std::fs::remove_file(&path).unwrap(),
            false => std::fs::write(&path, &std::fs::read(&path).unwrap()[..100]).unwrap(),
        }
        for _ in 0..2 {
            let error = Store::open(copy.path(), options()).err().unwrap().to_string();
            assert!(error.contains(shown), "{error}");
        }
        let problems = check(copy.path(), &options()).unwrap();
        assert!(problems.iter().any(|problem| problem.to_string().contains(shown)), "{problems:?}");
        assert_eq!(files(copy.path(), ".sst").len(), tables, "{name}");
    }
}

/// A store that crashed while a memtable was being written to a file: its log and the next one,
/// with nothing in files.
fn crashed_with_two_logs(crashed: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let held = Arc::new(Mutex::new(()));
    let flush = Arc::clone(&held);
    // Called when a value is merged into a file.
    let clock = move || {
        let _turn = flush.lock().unwrap_or_else(PoisonError::into_inner);
        NOW
    };
    let options = StoreOptions { clock: Arc::new(clock), write_back_fragments: 3, ..options() };
    let store = Store::open(directory.path(), options).unwrap();
    let key = partition(250);
    for column in 0..3 {
        put(&store, &key, Target::Row(b"r"), insert(column, 1, b"v"));
    }
    assert!(value(&store, &key, Target::Row(b"r")).is_some());
    super::upkeep::until(|| store.figures().written_back == 1);
    put(&store, &key, Target::Row(b"r"), insert(3, 1, b"v"));
    let rows = |store: &Store, numbers: std::ops::Range<u8>| {
        for number in numbers {
            put(
                store,
                &partition(number),
                Target::Row(b"r"),
                insert(0, 1, format!("value {number}").as_bytes()),
            );
        }
        // Spans several blocks.
        put(store, &partition(251), Target::Row(b"r"), insert(0, 1, &[b'x'; 100_000]));
        store.wait_durable(store.settle()).unwrap();
    };
    rows(&store, 0..ROWS / 2);
    let held = held.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| store.flush().unwrap());
        super::upkeep::until(|| files_of(directory.path(), ".log").len() == 2);
        rows(&store, ROWS / 2..ROWS);
        // Some are recorded a sync later.
        rows(&store, ROWS / 2..ROWS);
        copy_all(directory.path(), crashed);
        drop(held);
    });
}

fn files_of(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(directory.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.to_string_lossy().ends_with(ending));
    paths.sort();
    paths
}

/// RocksDB continues with the next log, whatever happened to the one before.
#[test]
fn a_log_before_the_last_that_is_damaged_cut_off_or_gone_is_refused_by_name() {
    let crashed = tempfile::tempdir().unwrap();
    crashed_with_two_logs(crashed.path());
    let whole = tempfile::tempdir().unwrap();
    copy_all(crashed.path(), whole.path());
    assert_eq!(check(whole.path(), &options()).unwrap(), Vec::new());
    let store = Store::open(whole.path(), options()).unwrap();
    assert_eq!(nothing_wrong_is_served(&store), 0);
    drop(store);
    for which in 0..2 {
        let name = files_of(crashed.path(), ".log")[which].file_name().unwrap().to_owned();
        let bytes = std::fs::read(crashed.path().join("db").join(&name)).unwrap();
        let flipped = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            Some(bytes)
        };
        // Damages the length of the first record, a byte of a later one, half of the file, the last
        // record, the whole file.
        let cut = |at: usize| Some(bytes[..at].to_vec());
        let damages = [
            flipped(5),
            flipped(bytes.len() / 2),
            cut(bytes.len() / 2),
            cut(bytes.len() - 1),
            cut(0),
            None,
        ];
        for (number, damaged) in damages.into_iter().enumerate() {
            let copy = tempfile::tempdir().unwrap();
            copy_all(crashed.path(), copy.path());
            let path = copy.path().join("db").join(&name);
            match damaged {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let shown = format!("log {which}, damage {number}");
            for _ in 0..2 {
                let error = Store::open(copy.path(), options())
                    .err()
                    .unwrap_or_else(|| panic!("{shown}: opened"));
                assert!(
                    error.to_string().contains(&path.display().to_string()),
                    "{shown}: {error}"
                );
            }
            let problems = check(copy.path(), &options()).unwrap();
            assert!(
                problems.iter().any(|problem| problem.to_string().contains(name.to_str().unwrap())),
                "{problems:?}"
            );
            // Accepting the loss opens the store.
            let mut accepting = options();
            accepting.engine.accept_damaged_log = true;
            assert!(Store::open(copy.path(), accepting).is_ok(), "{shown}");
        }
    }
}
