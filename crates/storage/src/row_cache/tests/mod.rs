//! The cache as a whole: against a model, under many threads, with a failing disk, and within its
//! limits.

mod bounds;
pub(crate) mod disk;
mod faults;
mod measure;
mod model;
mod stress;

use super::*;
use disk::Disk;

/// A small generator of repeatable numbers (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(key::mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

impl RowCache {
    /// Switches the SSD tier off, as a failing disk does.
    fn disable_ssd(&self) {
        self.shared.turn_ssd_off("switched off");
    }

    /// Switches the SSD tier on again, empty, with new files.
    fn enable_ssd(&self) -> std::io::Result<()> {
        self.shared.turn_ssd_on(self.shared.ssd.as_ref().expect("a cache with an SSD tier"))
    }

    /// Waits until all rows that left memory so far are on SSD or dropped.
    fn wait_for_cascade(&self) {
        if let Some(ssd) = &self.shared.ssd {
            while ssd.queue.bytes() > 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// A key of 24 bytes: 4 of the table, 8 of the partition, 12 of the row.
fn key_of(table: u32, row: u64) -> Vec<u8> {
    [&table.to_be_bytes()[..], &(row / 10).to_be_bytes(), &[0; 4], &row.to_be_bytes()].concat()
}

fn options(memory_bytes: usize, ssd: Option<SsdOptions>) -> RowCacheOptions {
    RowCacheOptions { memory_bytes, ssd, ..RowCacheOptions::default() }
}

/// Three or more small segments, everything admitted, so that collection is busy.
pub(crate) fn small_ssd(segments: u64) -> SsdOptions {
    let mut ssd = SsdOptions::new("", segments * (256 << 10));
    ssd.segment_bytes = 256 << 10;
    ssd.expected_row_bytes = 256;
    ssd.admission = SsdAdmission::All;
    ssd
}

pub(crate) fn open_on(disk: &Disk, memory_bytes: usize, ssd: SsdOptions) -> RowCache {
    RowCache::open_with(options(memory_bytes, Some(ssd)), Some(Box::new(disk.clone())))
        .expect("a cache on a sound disk")
}

/// Fills like a reader after a miss.
fn fill(cache: &RowCache, key: &[u8], record: Option<&[u8]>) -> bool {
    let token = cache.begin_fill(key);
    cache.fill(token, key, record)
}

/// Record of a row, with its own size and content.
fn record_of(row: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(row);
    let mut record: Vec<_> = (0..bytes / 8 + 1).flat_map(|_| random.next().to_le_bytes()).collect();
    record.truncate(bytes);
    record
}

/// 2,000 rows of 400 bytes; a cache with 256 KB of memory has sent the first ones to SSD.
fn fill_beyond_memory(cache: &RowCache) {
    for row in 0..2_000 {
        assert!(fill(cache, &key_of(1, row), Some(&record_of(row, 400))));
        if row % 100 == 0 {
            cache.wait_for_cascade();
        }
    }
    cache.wait_for_cascade();
}

#[test]
fn a_row_goes_from_memory_to_ssd_and_back() {
    let disk = Disk::default();
    let cache = open_on(&disk, 256 << 10, small_ssd(16));
    fill_beyond_memory(&cache);
    let key = key_of(1, 0);
    let Lookup::OnSsd(ticket) = cache.lookup(&key) else { panic!("the first row is on SSD") };
    let reads = disk.reads();
    assert_eq!(cache.read_ssd(ticket).unwrap().record(), Some(&record_of(0, 400)[..]));
    assert_eq!(disk.reads(), reads + 1, "one read");
    assert!(matches!(cache.lookup(&key), Lookup::Hit(_)), "it is in memory again");
    let found = (0..2_000).filter(|row| {
        // A row on its way to SSD is in neither tier.
        cache.wait_for_cascade();
        let found = cache.get(&key_of(1, *row));
        assert!(
            found.iter().all(|found| found.record() == Some(&record_of(*row, 400)[..])),
            "row {row}"
        );
        found.is_some()
    });
    assert!(found.count() > 1_990, "all but what found no room in the index");
    assert!(matches!(cache.lookup(&key_of(1, 2_000)), Lookup::Miss));
}

#[test]
fn rows_known_to_be_absent_are_kept_in_both_tiers() {
    let cache = open_on(&Disk::default(), 256 << 10, small_ssd(16));
    for row in 0..5_000 {
        assert!(fill(&cache, &key_of(1, row), None));
        cache.wait_for_cascade();
    }
    let known = (0..5_000).filter(|row| {
        cache.wait_for_cascade();
        cache.get(&key_of(1, *row)).is_some_and(|row| row.record().is_none())
    });
    assert!(known.count() > 4_950);
    assert!(cache.statistics().ssd_hits > 1_000);
}

#[test]
fn rows_larger_than_a_page_take_one_read() {
    let disk = Disk::default();
    let cache = open_on(&disk, 1 << 20, small_ssd(40));
    for row in 0..100 {
        assert!(fill(&cache, &key_of(1, row), Some(&record_of(row, 3_000 + 600 * row as usize))));
        cache.wait_for_cascade();
    }
    let reads = disk.reads();
    let mut on_ssd = 0;
    for row in 0..100 {
        if let Lookup::OnSsd(ticket) = cache.lookup(&key_of(1, row)) {
            on_ssd += 1;
            let found = cache.read_ssd(ticket).expect("it was there");
            assert_eq!(found.record(), Some(&record_of(row, 3_000 + 600 * row as usize)[..]));
        }
    }
    assert!(on_ssd > 70, "{on_ssd}");
    assert_eq!(disk.reads() - reads, on_ssd);
}

#[test]
fn a_fill_that_a_write_overtook_is_dropped() {
    let cache = RowCache::open(options(256 << 10, None)).unwrap();
    let one = key_of(1, 1);
    let others: Vec<_> =
        (2..10).map(|row| key_of(1, row)).map(|key| (cache.begin_fill(&key), key)).collect();
    let token = cache.begin_fill(&one);
    cache.invalidate(&one);
    assert!(!cache.fill(token, &one, Some(b"stale")));
    assert!(cache.get(&one).is_none());
    // A row whose hash falls into the same stripe is dropped.
    let sound =
        others.into_iter().filter(|(token, key)| cache.fill(*token, key, Some(b"sound"))).count();
    assert!(sound >= 5, "rows of other stripes are not concerned: {sound} of 8");

    let token = cache.begin_fill(&one);
    let guard = cache.begin_write(&one);
    let token_inside = cache.begin_fill(&one);
    assert!(
        !cache.fill(token, &one, Some(b"stale"))
            && !cache.fill(token_inside, &one, Some(b"uncertain"))
    );
    drop(guard);
    assert!(!cache.fill(token_inside, &one, Some(b"stale")));
    assert!(fill(&cache, &one, Some(b"before")) && cache.get(&one).is_some());
    let guard = cache.begin_write(&one);
    assert!(cache.get(&one).is_none(), "reads go to the engine");
    drop(guard);

    let token = cache.begin_fill(&one);
    cache.clear_table(&1u32.to_be_bytes());
    assert!(!cache.fill(token, &one, Some(b"stale")));
    assert!((2..10).all(|row| cache.get(&key_of(1, row)).is_none()), "cleared with their table");
    assert_eq!(cache.statistics().fills_dropped, 5 + 8 - sound as u64);
}

#[test]
fn a_row_read_from_ssd_does_not_outlive_its_invalidation() {
    let cache = open_on(&Disk::default(), 256 << 10, small_ssd(16));
    fill_beyond_memory(&cache);
    let key = key_of(1, 0);
    let probe = cache.shared.probe(&key);
    assert!(cache.keep_out(&probe), "it is on SSD");
    let Lookup::OnSsd(ticket) = cache.lookup(&key) else { panic!("the first row is on SSD") };
    cache.take_out(&probe);
    assert!(cache.read_ssd(ticket).is_none(), "the row as it was before the write");
    assert!(cache.get(&key).is_none());
}

#[test]
fn a_write_brings_a_row_in_memory_up_to_date() {
    let cache = RowCache::open(options(256 << 10, None)).unwrap();
    let key = key_of(1, 1);
    cache.update(&key, |_| panic!("there is nothing to merge with"));
    fill(&cache, &key, Some(b"a"));
    let append = |more: &'static [u8]| {
        move |old: Option<&[u8]>| Update::Record([old.unwrap_or(b"-"), more].concat())
    };
    cache.update(&key, append(b"b"));
    assert_eq!(cache.get(&key).unwrap().record(), Some(&b"ab"[..]));
    cache.begin_write(&key).update(append(b"c"));
    assert_eq!(cache.get(&key).unwrap().record(), Some(&b"abc"[..]));
    cache.update(&key, |_| Update::Absent);
    assert_eq!(cache.get(&key).unwrap().record(), None);
    cache.update(&key, append(b"d"));
    assert_eq!(cache.get(&key).unwrap().record(), Some(&b"-d"[..]));
    cache.update(&key, |_| Update::Forget);
    assert!(cache.get(&key).is_none());
}
