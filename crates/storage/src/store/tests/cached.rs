//! A store with a tiny row cache gives the same answers as one without, after any operations:
//! random ones from seeds.

use super::*;
use crate::catalogue::Catalogue;
use crate::row::{Expiry, RangeTombstone};
use crate::row_cache::tests::disk::Disk;
use crate::row_cache::tests::{Random, open_on, small_ssd};
use crate::row_cache::{RowCacheOptions, RowCacheStatistics, SsdAdmission, SsdOptions};
use std::ops::Bound;
use std::sync::atomic::AtomicI64;

/// Number of rows, and the first of those with counters.
const ROWS: u64 = 400;
const COUNTERS_FROM: u64 = 360;
/// Rows of a partition; the last one is static.
const PARTITION_ROWS: u64 = 8;
/// Two tables, so that wrongly clearing the other one shows.
const TABLES: [TableId; 2] = [TABLE, TableId(6)];
/// Longer than timestamps are out of order: no write that a tombstone deletes comes after that
/// tombstone was purged.
const GRACE_S: i64 = 10;
const MEMORY_BYTES: usize = 256 << 10;

/// Place of a row.
struct Place {
    table: TableId,
    partition: [u8; 9],
    clustering: Option<[u8; 1]>,
}

impl Place {
    fn target(&self) -> Target<'_> {
        self.clustering.as_ref().map_or(Target::Static, |clustering| Target::Row(clustering))
    }
}

fn place(row: u64) -> Place {
    let table = TABLES[usize::from(row % 16 >= PARTITION_ROWS)];
    let clustering =
        Some([(row % PARTITION_ROWS) as u8]).filter(|at| u64::from(at[0]) < PARTITION_ROWS - 1);
    Place { table, partition: partition((row / 16) as u8), clustering }
}

/// The same store twice, with a cache and without.
struct Pair {
    with: Store,
    without: Store,
    now: Arc<AtomicI64>,
    random: Random,
}

impl Pair {
    fn new(seed: u64, open: impl Fn(StoreOptions, bool) -> Store) -> Self {
        let now = Arc::new(AtomicI64::new(1_000));
        let clock = Arc::clone(&now);
        let options = StoreOptions {
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            write_back_fragments: 3,
            ..options()
        };
        let pair = Pair {
            with: open(options.clone(), true),
            without: open(options, false),
            now,
            random: Random::new(seed),
        };
        for store in pair.both() {
            TABLES.iter().for_each(|table| store.set_gc_grace(*table, GRACE_S));
        }
        pair
    }

    fn both(&self) -> [&Store; 2] {
        [&self.with, &self.without]
    }

    fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    /// In µs, up to three seconds late.
    fn timestamp(&mut self) -> i64 {
        self.now() * 1_000_000 - self.random.below(3_000_000) as i64
    }

    fn deletion(&mut self) -> Deletion {
        Deletion { timestamp: self.timestamp(), local: self.now() }
    }

    fn values(&mut self, timestamp: i64, expiry: Option<Expiry>) -> Vec<Cell> {
        let mut cells = Vec::new();
        for column in 0..4 {
            if self.random.one_in(2) {
                let bytes = 1 + self.random.below(3_000) as usize;
                let value = CellValue::Live(vec![self.random.next() as u8; bytes]);
                cells.push(Cell { expiry, ..cell(column * 2, timestamp, value) });
            }
        }
        cells
    }

    fn fragment(&mut self, row: u64) -> Row {
        let timestamp = self.timestamp();
        if row >= COUNTERS_FROM && !self.random.one_in(10) {
            let added = CellValue::CounterDelta(self.random.below(9) as i64 - 4);
            return Row { cells: vec![cell(9, timestamp, added)], ..Row::default() };
        }
        let ttl = 1 + self.random.below(4) as u32;
        let expiry = self
            .random
            .one_in(4)
            .then(|| Expiry { ttl, at: timestamp / 1_000_000 + i64::from(ttl) });
        let liveness = self.random.one_in(2).then_some(Liveness { timestamp, expiry });
        match self.random.below(10) {
            0 => Row { deletion: Some(self.deletion()), ..Row::default() },
            1 => {
                let local = self.now();
                Row {
                    cells: vec![cell(2, timestamp, CellValue::Tombstone { local })],
                    ..Row::default()
                }
            }
            2 => {
                let path = Some(vec![self.random.below(3) as u8]);
                let element = Cell {
                    path,
                    expiry,
                    ..cell(3, timestamp, CellValue::Live(b"element".to_vec()))
                };
                let complex = self.random.one_in(3).then(|| (ColumnId(3), self.deletion()));
                Row {
                    complex: complex.into_iter().collect(),
                    cells: vec![element],
                    liveness,
                    ..Row::default()
                }
            }
            _ => Row { liveness, cells: self.values(timestamp, expiry), ..Row::default() },
        }
    }

    fn header(&mut self) -> Header {
        if self.random.one_in(4) {
            return Header { deletion: Some(self.deletion()), ranges: Vec::new() };
        }
        let (from, deletion) = (self.random.below(6) as u8, self.deletion());
        let range = RangeTombstone::new(
            Bound::Included(vec![from]),
            Bound::Excluded(vec![from + 2]),
            deletion,
        );
        Header { deletion: None, ranges: vec![range] }
    }

    /// Writes a batch of rows and deletions; a few rows are chosen most.
    fn write(&mut self) {
        let count = 1 + self.random.below(3);
        let mutations: Vec<(Place, Fragment)> = (0..count)
            .map(|_| {
                let row = self.row();
                match self.random.one_in(20) {
                    true => (place(row), Fragment::Header(self.header())),
                    false => (place(row), Fragment::Row(self.fragment(row))),
                }
            })
            .collect();
        let mutations: Vec<Mutation<'_>> = mutations
            .iter()
            .map(|(place, fragment)| {
                let target = if matches!(fragment, Fragment::Header(_)) {
                    Target::Header
                } else {
                    place.target()
                };
                let partition = PartitionKey(&place.partition);
                Mutation { table: place.table, partition, target, fragment: fragment.clone() }
            })
            .collect();
        for store in self.both() {
            store.apply(&mutations, periodic()).unwrap();
        }
    }

    fn row(&mut self) -> u64 {
        let below = 1 + self.random.below(ROWS);
        self.random.below(below)
    }

    fn read(&self, row: u64) {
        let place = place(row);
        let read = |store: &Store| {
            store.read_row(place.table, PartitionKey(&place.partition), place.target(), self.now())
        };
        let expected = read(&self.without).unwrap();
        let at_once = self.with.read_row_nonblocking(
            place.table,
            PartitionKey(&place.partition),
            place.target(),
            self.now(),
        );
        if let Read::Ready(found) = at_once.unwrap() {
            assert_eq!(found, expected, "row {row} from memory");
        }
        assert_eq!(read(&self.with).unwrap(), expected, "row {row}");
    }

    fn scan(&self) {
        for table in TABLES {
            let [mut with, mut without] = self
                .both()
                .map(|store| store.scan(table, &ScanRange::default(), self.now()).unwrap());
            while let Some(item) = without.next().unwrap() {
                assert_eq!(with.next().unwrap(), Some(item));
            }
            assert_eq!(with.next().unwrap(), None);
        }
    }

    fn upkeep(&mut self) {
        let table = TABLES[self.random.below(2) as usize];
        let what = self.random.below(30);
        for store in self.both() {
            match what {
                0 => store.truncate(table, periodic()).map(|_| ()),
                1 => store.drop_table(table, periodic()).map(|_| ()),
                2..6 => store.sweep(table).map(|_| ()),
                6..10 => store.reclaim_schemas().map(|_| ()),
                10..18 => store.compact(table),
                _ => store.flush(),
            }
            .unwrap();
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0 => self.upkeep(),
            1..3 => {
                self.now.fetch_add(1 + self.random.below(4) as i64, Ordering::SeqCst);
            }
            3..30 => self.write(),
            _ => {
                let row = self.row();
                self.read(row);
            }
        }
    }

    /// Runs a number of steps, then reads everything.
    fn run(&mut self, steps: usize) -> RowCacheStatistics {
        for _ in 0..steps {
            self.step();
        }
        (0..ROWS).for_each(|row| self.read(row));
        self.scan();
        self.with.figures().row_cache.unwrap()
    }
}

/// A pair on an engine in memory, with an SSD controlled by the test.
fn pair_on(disk: &Disk, segments: u64, seed: u64) -> Pair {
    Pair::new(seed, |options, cached| {
        let cache = cached.then(|| open_on(disk, MEMORY_BYTES, small_ssd(segments)));
        let catalogue = Arc::new(Catalogue::in_memory(options.catalogue));
        Store::assemble(options, catalogue, cache, None, |_, merger| {
            Ok(Box::new(MemoryEngine::new(merger)))
        })
        .unwrap()
    })
}

#[test]
fn a_cache_changes_no_answer() {
    for seed in 0..6 {
        let statistics = pair_on(&Disk::default(), 4, seed).run(6_000);
        assert!(
            statistics.memory_hits > 1_000 && statistics.fills > 500,
            "seed {seed}: {statistics:?}"
        );
        assert!(
            statistics.memory_evictions > 100 && statistics.ssd_hits > 20,
            "seed {seed}: {statistics:?}"
        );
        assert!(statistics.ssd_write_amplification() > 0.5, "seed {seed}: {statistics:?}");
    }
}

#[test]
fn a_cache_changes_no_answer_of_an_engine_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 100..102 {
        let path = |name: &str| directory.path().join(format!("{seed}-{name}"));
        let mut pair = Pair::new(seed, |options, cached| {
            let mut ssd = SsdOptions::new(path("ssd"), 1 << 20);
            ssd.admission = SsdAdmission::All;
            ssd.segment_bytes = 256 << 10;
            let row_cache = RowCacheOptions {
                memory_bytes: MEMORY_BYTES,
                ssd: Some(ssd),
                ..RowCacheOptions::default()
            };
            let row_cache = Some(row_cache).filter(|_| cached);
            let path = if cached { path("with") } else { path("without") };
            Store::open(&path, StoreOptions { row_cache, ..options }).unwrap()
        });
        let statistics = pair.run(4_000);
        assert!(
            statistics.ssd_on && statistics.ssd_hits > 0 && statistics.memory_hits > 500,
            "{statistics:?}"
        );
    }
}

#[test]
fn a_failing_disk_of_the_cache_fails_no_query() {
    type Fault = fn(&Disk) -> &std::sync::atomic::AtomicBool;
    let faults: [Fault; 4] = [
        |disk| &disk.faults.failing_writes,
        |disk| &disk.faults.failing_reads,
        |disk| &disk.faults.flipped_bits,
        |disk| &disk.faults.full,
    ];
    for (seed, fault) in (200..).zip(faults) {
        let disk = Disk::default();
        // A full disk shows when another segment is created.
        let mut pair = pair_on(&disk, 64, seed);
        let before = pair.run(4_000);
        assert!(before.ssd_on && before.ssd_rows_written > 0, "seed {seed}: {before:?}");
        fault(&disk).store(true, Ordering::SeqCst);
        // The writing thread determines how much of a run reaches the disk.
        let is_off = (0..10).any(|_| !pair.run(5_000).ssd_on);
        assert!(is_off, "seed {seed}: {:?}", pair.with.figures());
    }
}

#[test]
fn a_disk_that_cannot_be_used_leaves_the_cache_its_memory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"not a directory").unwrap();
    let ssd = Some(SsdOptions::new(file.join("ssd"), 8 << 20));
    let row_cache = Some(RowCacheOptions { ssd, ..RowCacheOptions::default() });
    let store =
        Store::open(&directory.path().join("data"), StoreOptions { row_cache, ..options() })
            .unwrap();
    put(&store, &partition(1), Target::Row(b"r"), insert(0, 1, b"v"));
    for _ in 0..2 {
        assert_eq!(text(&store, &partition(1), Target::Row(b"r")).as_deref(), Some("v"));
    }
    let statistics = store.figures().row_cache.unwrap();
    assert_eq!((statistics.ssd_on, statistics.fills, statistics.memory_hits), (false, 1, 1));
    let wrong = StoreOptions {
        row_cache: Some(RowCacheOptions { memory_bytes: 1, ..Default::default() }),
        ..options()
    };
    let refused =
        Store::on_engine(wrong, |merger| Box::new(MemoryEngine::new(merger))).err().unwrap();
    assert!(refused.to_string().contains("memory_bytes is 1"), "{refused}");
}

#[test]
fn plain_writes_leave_a_cached_row_up_to_date_and_others_drop_it() {
    let row_cache = Some(RowCacheOptions { memory_bytes: 1 << 20, ..RowCacheOptions::default() });
    let store = in_memory(StoreOptions { row_cache, ..options() });
    let key = partition(1);
    let fills = || store.figures().row_cache.unwrap().fills;
    assert_eq!(text(&store, &key, Target::Row(b"r")), None, "which is remembered, too");
    put(&store, &key, Target::Row(b"r"), insert(0, 1, b"one"));
    assert_eq!(text(&store, &key, Target::Row(b"r")).as_deref(), Some("one"));
    put(&store, &key, Target::Row(b"r"), insert(0, 2, b"two"));
    assert_eq!(text(&store, &key, Target::Row(b"r")).as_deref(), Some("two"));
    assert_eq!(fills(), 1);
    let add = || Row { cells: vec![cell(1, 2, CellValue::CounterDelta(1))], ..Row::default() };
    let expiry = Some(Expiry { ttl: 9, at: 9 });
    let passing = Row {
        cells: vec![Cell { expiry, ..cell(2, 3, CellValue::Live(vec![1])) }],
        ..Row::default()
    };
    let gone = Row { deletion: Some(Deletion { timestamp: 9, local: 4 }), ..Row::default() };
    for (count, dropping) in [add(), passing, gone].into_iter().enumerate() {
        put(&store, &key, Target::Row(b"r"), dropping);
        let deleted = text(&store, &key, Target::Row(b"r")).is_none();
        assert_eq!((deleted, fills()), (count == 2, count as u64 + 2));
    }
}

#[test]
fn scans_and_slices_leave_the_cache_alone() {
    let row_cache = Some(RowCacheOptions { memory_bytes: 1 << 20, ..RowCacheOptions::default() });
    let store = in_memory(StoreOptions { row_cache, ..options() });
    for row in 0..50 {
        put(&store, &partition(1), Target::Row(&[row]), insert(0, 1, b"v"));
    }
    let mut scan = store.scan(TABLE, &ScanRange::default(), NOW).unwrap();
    while scan.next().unwrap().is_some() {}
    let mut slice =
        store.read_partition(TABLE, PartitionKey(&partition(1)), &Slice::default(), NOW).unwrap();
    while slice.next().unwrap().is_some() {}
    let statistics = store.figures().row_cache.unwrap();
    assert_eq!((statistics.fills, statistics.memory_rows), (0, 0));
}
