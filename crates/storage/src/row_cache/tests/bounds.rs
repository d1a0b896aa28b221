//! Tests of the cache's memory limit and of its use of memory.

use super::*;

#[test]
fn no_tier_grows_beyond_its_bytes() {
    let disk = Disk::default();
    let mut ssd = small_ssd(5);
    ssd.queue_bytes = 100_000;
    let memory_bytes = 3 << 20;
    let cache = open_on(&disk, memory_bytes, ssd);
    let mut random = Random::new(1);
    for round in 0..60_000 {
        let bytes = match random.below(100) {
            0 => random.below(200_000),
            1..10 => random.below(10_000),
            _ => random.below(300),
        };
        let row = random.below(20_000);
        fill(&cache, &key_of(1, row), Some(&vec![1; bytes as usize]));
        assert!(cache.statistics().ssd_queue_bytes <= 100_000);
        if random.one_in(10) {
            cache.invalidate(&key_of(1, random.below(20_000)));
        }
        if round % 500 == 0 {
            cache.wait_for_cascade();
            let statistics = cache.statistics();
            assert!(statistics.memory_bytes <= memory_bytes as u64, "{statistics:?}");
            assert!(
                disk.bytes() as u64 == statistics.ssd_bytes
                    && statistics.ssd_bytes <= 5 * (256 << 10)
            );
        }
    }
    let statistics = cache.statistics();
    assert!(
        statistics.memory_bytes > 9 * (memory_bytes as u64) / 10,
        "it is used, too: {statistics:?}"
    );
    assert!(
        statistics.ssd_segments_collected > 0 && statistics.memory_evictions > 1_000,
        "{statistics:?}"
    );
}

#[test]
fn the_index_needs_ten_bytes_a_row_when_the_ssd_is_full() {
    let row_bytes = 430;
    let mut ssd = small_ssd(80);
    ssd.expected_row_bytes = row_bytes + 20;
    let cache = open_on(&Disk::default(), 256 << 10, ssd);
    let rows = 60_000;
    for row in 0..rows {
        fill(&cache, &key_of(1, row), Some(&record_of(row, row_bytes - 24)));
        if row % 200 == 0 {
            cache.wait_for_cascade();
        }
    }
    cache.wait_for_cascade();
    let statistics = cache.statistics();
    assert!(statistics.ssd_segments_collected > 0, "it is full: {statistics:?}");
    let bytes_per_row = statistics.index_bytes as f64 / statistics.index_entries as f64;
    assert!(bytes_per_row <= 10.5, "{bytes_per_row} bytes a row");
    let space_per_row = statistics.ssd_bytes as f64 / statistics.index_entries as f64;
    assert!(space_per_row < 1.15 * row_bytes as f64, "{space_per_row} bytes on SSD a row");
}

#[test]
fn the_largest_and_the_oldest_leave_first() {
    let cache = RowCache::open(options(1 << 20, None)).unwrap();
    let large = |row: u64| row.is_multiple_of(50);
    let read_once_each =
        |rows: std::ops::Range<u64>| rows.for_each(|row| _ = cache.get(&key_of(1, row)));
    for row in 0..1_000 {
        fill(&cache, &key_of(1, row), Some(&vec![1; if large(row) { 12_000 } else { 200 }]));
    }
    read_once_each(0..1_000);
    for row in 1_000..6_000 {
        fill(&cache, &key_of(1, row), Some(&[1; 200]));
    }
    let left = |wanted: bool| {
        (0..1_000)
            .filter(|row| large(*row) == wanted && cache.get(&key_of(1, *row)).is_some())
            .count()
    };
    assert!(left(false) > 800, "small rows that were read stay while others pass");
    assert_eq!(left(true), 0, "large ones have to be read more often");
}

#[test]
fn a_scan_passes_by() {
    let disk = Disk::default();
    let mut ssd = small_ssd(20);
    ssd.admission = SsdAdmission::ReadAgain;
    let cache = open_on(&disk, 1 << 20, ssd);
    for round in 0..3 {
        for row in 0..1_000 {
            if cache.get(&key_of(1, row)).is_none() {
                assert!(round < 2 || row > 0, "the first row stays");
                fill(&cache, &key_of(1, row), Some(&[1; 300]));
            }
        }
    }
    cache.wait_for_cascade();
    let (writes, hits) = (disk.writes(), cache.statistics().memory_hits);
    for row in 0..30_000 {
        fill(&cache, &key_of(2, row), Some(&[2; 300]));
    }
    cache.wait_for_cascade();
    (0..1_000).for_each(|row| _ = cache.get(&key_of(1, row)));
    assert!(cache.statistics().memory_hits - hits > 950, "what was read again is still there");
    assert!(disk.writes() - writes < 20, "what was read once does not wear the SSD");
}

#[test]
fn options_that_cannot_be_are_named() {
    let refused = |change: fn(&mut RowCacheOptions)| {
        let mut options = options(1 << 20, Some(small_ssd(3)));
        change(&mut options);
        RowCache::open_with(options, None).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(|_| {}), "");
    assert!(refused(|options| options.memory_bytes = 1000).contains("memory_bytes is 1000"));
    assert!(refused(|options| options.table_prefix_bytes = 9).contains("table_prefix_bytes is 9"));
    let ssd = |change: fn(&mut SsdOptions)| {
        let mut options = options(1 << 20, Some(small_ssd(3)));
        options.ssd.iter_mut().for_each(change);
        RowCache::open_with(options, None).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(ssd(|ssd| ssd.segment_bytes += 1).contains("ssd.segment_bytes is 262145"));
    assert!(ssd(|ssd| ssd.bytes = 600_000).contains("is 2 segments"));
    assert!(ssd(|ssd| ssd.bytes = 1 << 40).contains("not 3 to 4096"));
    assert!(ssd(|ssd| ssd.expected_row_bytes = 1).contains("expected_row_bytes is 1"));
}
