//! A failing disk turns the SSD tier off and never yields a wrong row.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const ROWS: u64 = 1_500;

/// A cache with most of its rows on SSD.
fn filled(disk: &Disk) -> RowCache {
    let cache = open_on(disk, 256 << 10, small_ssd(8));
    fill_rows(&cache);
    assert!(cache.statistics().index_entries > 500);
    cache
}

fn fill_rows(cache: &RowCache) {
    for row in 0..ROWS {
        fill(cache, &key_of(1, row), Some(&record_of(row, 400)));
        if row % 64 == 0 {
            cache.wait_for_cascade();
        }
    }
    cache.wait_for_cascade();
}

/// Reads every row; returns how many the cache had.
fn read_all(cache: &RowCache) -> usize {
    let had = |row: &u64| {
        // A row on its way to SSD is in neither tier, and each row read sends others there.
        if row.is_multiple_of(64) && cache.statistics().ssd_on {
            cache.wait_for_cascade();
        }
        let Some(found) = cache.get(&key_of(1, *row)) else { return false };
        assert_eq!(found.record(), Some(&record_of(*row, 400)[..]), "row {row}");
        true
    };
    (0..ROWS).filter(had).count()
}

fn with_fault(fault: &AtomicBool, act: impl FnOnce()) {
    fault.store(true, Ordering::SeqCst);
    act();
    fault.store(false, Ordering::SeqCst);
}

/// The tier is off and empty, and works again when switched on.
fn is_off_and_recovers(cache: &RowCache) {
    let statistics = cache.statistics();
    assert!(!statistics.ssd_on && statistics.index_entries == 0, "{statistics:?}");
    read_all(cache);
    cache.enable_ssd().unwrap();
    fill_rows(cache);
    let before = cache.statistics().ssd_hits;
    assert!(read_all(cache) > 500);
    assert!(cache.statistics().ssd_on && cache.statistics().ssd_hits > before + 200);
}

#[test]
fn a_failing_write_turns_the_tier_off() {
    let disk = Disk::default();
    for fault in [&disk.faults.failing_writes, &disk.faults.short_writes] {
        let cache = filled(&disk);
        with_fault(fault, || fill_rows(&cache));
        assert_eq!(cache.statistics().ssd_write_errors, 1, "after the first it is not tried again");
        is_off_and_recovers(&cache);
    }
}

#[test]
fn a_full_disk_turns_the_tier_off() {
    let disk = Disk::default();
    let cache = open_on(&disk, 256 << 10, small_ssd(8));
    with_fault(&disk.faults.full, || {
        fill_rows(&cache);
        assert!(cache.enable_ssd().is_err(), "still full");
        assert!(!cache.statistics().ssd_on);
    });
    is_off_and_recovers(&cache);
    disk.faults.full.store(true, Ordering::SeqCst);
    let opened =
        RowCache::open_with(options(256 << 10, Some(small_ssd(8))), Some(Box::new(disk.clone())));
    assert!(
        matches!(opened.err(), Some(RowCacheError::Ssd { .. })),
        "who starts with a full disk is told"
    );
}

#[test]
fn failing_reads_are_misses_and_too_many_turn_the_tier_off() {
    let disk = Disk::default();
    let cache = filled(&disk);
    disk.faults.failing_reads.store(true, Ordering::SeqCst);
    let mut row = 0;
    while cache.statistics().ssd_read_errors < 5 {
        cache.get(&key_of(1, row));
        row += 1;
    }
    disk.faults.failing_reads.store(false, Ordering::SeqCst);
    assert!(cache.statistics().ssd_on, "a few are borne");
    assert!(read_all(&cache) > 500);
    let cache = filled(&disk);
    with_fault(&disk.faults.failing_reads, || assert!(read_all(&cache) < 1_000));
    is_off_and_recovers(&cache);
}

#[test]
fn flipped_bits_never_reach_a_query() {
    let disk = Disk::default();
    let mut ssd = small_ssd(8);
    ssd.read_errors_max = u32::MAX;
    let cache = open_on(&disk, 256 << 10, ssd);
    for _ in 0..5 {
        fill_rows(&cache);
        with_fault(&disk.faults.flipped_bits, || {
            assert!(read_all(&cache) > 300, "most bits hit another record")
        });
    }
    let statistics = cache.statistics();
    assert!(statistics.ssd_read_errors > 20 && statistics.ssd_hits > 1_000, "{statistics:?}");
    assert!(statistics.ssd_on);
}

#[test]
fn a_segment_that_cannot_be_understood_is_collected_all_the_same() {
    let disk = Disk::default();
    let mut ssd = small_ssd(3);
    ssd.read_errors_max = u32::MAX;
    let cache = open_on(&disk, 256 << 10, ssd);
    with_fault(&disk.faults.flipped_bits, || {
        for _ in 0..6 {
            fill_rows(&cache);
            (0..ROWS).step_by(2).for_each(|row| cache.invalidate(&key_of(1, row)));
        }
    });
    let statistics = cache.statistics();
    assert!(statistics.ssd_on && statistics.ssd_segments_collected > 3, "{statistics:?}");
    fill_rows(&cache);
    assert!(read_all(&cache) > 500);
}

#[test]
fn a_row_with_the_tag_of_another_is_a_miss() {
    let cache = filled(&Disk::default());
    let on_ssd = |row: u64| match cache.lookup(&key_of(1, row)) {
        Lookup::OnSsd(ticket) => Some(ticket),
        _ => None,
    };
    let mut tickets = (0..ROWS).filter_map(on_ssd);
    let (mut one, other) = (tickets.next().unwrap(), tickets.next().unwrap());
    // Simulates an index that answers for one key with the place of the other.
    one.place = other.place;
    assert!(cache.read_ssd(one).is_none());
    assert!(cache.read_ssd(other).is_some(), "the other keeps its place");
    assert_eq!(cache.statistics().ssd_key_mismatches, 1);
}

#[test]
fn a_write_the_disk_lost_is_noticed() {
    let disk = Disk::default();
    let cache = filled(&disk);
    // Segments are now reused and keep their old content: the same rows at the same places, in
    // another version.
    for row in 0..ROWS {
        cache.invalidate(&key_of(1, row));
    }
    with_fault(&disk.faults.lost_writes, || {
        for round in 1..6 {
            for row in 0..ROWS {
                cache.invalidate(&key_of(1, row));
                fill(&cache, &key_of(1, row), Some(&record_of(round * ROWS + row, 400)));
            }
            cache.wait_for_cascade();
            for row in 0..ROWS {
                if let Some(found) = cache.get(&key_of(1, row)) {
                    assert_eq!(
                        found.record(),
                        Some(&record_of(round * ROWS + row, 400)[..]),
                        "row {row}"
                    );
                }
            }
        }
    });
    (0..ROWS).for_each(|row| cache.invalidate(&key_of(1, row)));
    assert!(disk.writes() > 0 && cache.statistics().ssd_read_errors > 0);
    is_off_and_recovers(&cache);
}

#[test]
fn a_thread_that_panics_is_noticed_and_the_cache_goes_on_in_memory() {
    let disk = Disk::default();
    let cache = filled(&disk);
    assert!(cache.thread().is_some_and(|thread| !thread.is_finished()));
    with_fault(&disk.faults.panicking_writes, || {
        for row in ROWS..3 * ROWS {
            fill(&cache, &key_of(1, row), Some(&record_of(row, 400)));
        }
        while cache.thread().is_some_and(|thread| !thread.is_finished()) {
            std::thread::yield_now();
        }
    });
    assert!(!cache.statistics().ssd_on);
    assert!(read_all(&cache) < ROWS as usize);
}

#[test]
fn segments_cut_off_are_misses() {
    let disk = Disk::default();
    let cache = filled(&disk);
    disk.truncate(40 << 10);
    assert!(read_all(&cache) < ROWS as usize);
    assert!(!cache.statistics().ssd_on);
    is_off_and_recovers(&cache);
}

#[test]
fn real_files_and_what_a_crash_leaves_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut ssd = small_ssd(6);
    ssd.dir = directory.path().join("cache");
    let open = || RowCache::open(options(256 << 10, Some(ssd.clone()))).unwrap();
    let cache = open();
    fill_rows(&cache);
    assert!(read_all(&cache) > 1_000);
    assert!(cache.statistics().ssd_reads > 300);
    assert_eq!(
        RowCache::open(options(256 << 10, Some(ssd.clone())))
            .err()
            .map(|error| error.to_string().contains("in use")),
        Some(true)
    );
    for entry in std::fs::read_dir(&ssd.dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "segment") {
            OpenOptions::new().write(true).open(path).unwrap().set_len(10_000).unwrap();
        }
    }
    fill_rows(&cache);
    read_all(&cache);
    drop(cache);
    let cache = open();
    assert_eq!(read_all(&cache), 0, "cold after a restart");
    fill_rows(&cache);
    assert!(read_all(&cache) > 1_000);
}
