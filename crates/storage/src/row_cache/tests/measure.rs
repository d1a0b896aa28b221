//! Measurements, printed on demand: `cargo test --release -p shunt-storage
//! row_cache::tests::measure -- --ignored --nocapture --test-threads 1`. `ROW_CACHE_DIR` is the
//! directory of the SSD tier, by default in the system's temporary one.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use super::*;

/// Rows in the data set of the hit ratios, and bytes of a record: the paper's row, scaled down.
const ROWS: u64 = 400_000;
const RECORD_BYTES: usize = 400;
const OPERATIONS: u64 = 3_000_000;

/// Ranks by Zipf's law with exponent 0.99, as YCSB draws them.
struct Zipf {
    items: f64,
    zeta: f64,
    eta: f64,
    alpha: f64,
}

impl Zipf {
    fn new(items: u64) -> Self {
        let zeta = |items: u64| (1..=items).map(|rank| (rank as f64).powf(-0.99)).sum::<f64>();
        let (zeta_two, zeta_all) = (zeta(2), zeta(items));
        let eta = (1.0 - (2.0 / items as f64).powf(0.01)) / (1.0 - zeta_two / zeta_all);
        Zipf { items: items as f64, zeta: zeta_all, eta, alpha: 100.0 }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        match unit * self.zeta {
            scaled if scaled < 1.0 => 0,
            scaled if scaled < 1.0 + 0.5f64.powf(0.99) => 1,
            _ => ((self.items * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64)
                .min(self.items as u64 - 1),
        }
    }
}

/// Least recently used, bounded in the bytes that our own rows cost: the basis of comparison.
struct Lru {
    rows: HashMap<u64, (u64, u64)>,
    order: std::collections::BTreeMap<u64, u64>,
    clock: u64,
    rows_max: usize,
}

impl Lru {
    fn new(rows_max: usize) -> Self {
        Lru { rows: HashMap::new(), order: Default::default(), clock: 0, rows_max }
    }

    /// True if the row was present in this version; makes it the newest.
    fn get(&mut self, row: u64) -> bool {
        self.clock += 1;
        let Some((_, stamp)) = self.rows.get_mut(&row) else { return false };
        self.order.remove(stamp);
        *stamp = self.clock;
        self.order.insert(self.clock, row);
        true
    }

    /// Inserts a row; returns the evicted one.
    fn put(&mut self, row: u64) -> Option<u64> {
        self.clock += 1;
        self.rows.insert(row, (0, self.clock));
        self.order.insert(self.clock, row);
        if self.rows.len() <= self.rows_max {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        self.rows.remove(&oldest);
        Some(oldest)
    }

    fn remove(&mut self, row: u64) {
        if let Some((_, stamp)) = self.rows.remove(&row) {
            self.order.remove(&stamp);
        }
    }
}

/// Distribution of the requested rows, and concurrent activity.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// The newest rows are requested most, and new ones arrive; otherwise the same rows throughout,
    /// in no order.
    latest: bool,
    write_percent: u64,
    /// Percentage of sequential reads, each row once, in runs of 2,000.
    scan_percent: u64,
}

const LOADS: [Load; 5] = [
    Load { name: "zipfian, 5 % writes", latest: false, write_percent: 5, scan_percent: 0 },
    Load { name: "zipfian, 5 % writes, scans", latest: false, write_percent: 5, scan_percent: 20 },
    Load { name: "latest, 5 % inserts", latest: true, write_percent: 5, scan_percent: 0 },
    Load { name: "latest, 5 % inserts, scans", latest: true, write_percent: 5, scan_percent: 20 },
    Load { name: "latest, 15 % inserts", latest: true, write_percent: 15, scan_percent: 0 },
];

enum Operation {
    Read(u64),
    Scan(u64),
    Write(u64),
}

struct Source {
    load: Load,
    zipf: Zipf,
    random: Random,
    newest: u64,
    scan_at: u64,
    scan_left: u64,
}

impl Source {
    fn new(load: Load) -> Self {
        Source {
            load,
            zipf: Zipf::new(ROWS),
            random: Random::new(5),
            newest: ROWS,
            scan_at: 0,
            scan_left: 0,
        }
    }

    fn next(&mut self) -> Operation {
        if self.scan_left == 0
            && self.random.below(200_000)
                < self.load.scan_percent * 100 / (100 - self.load.scan_percent)
        {
            (self.scan_at, self.scan_left) = (self.random.below(ROWS), 2_000);
        }
        if self.scan_left > 0 {
            self.scan_left -= 1;
            self.scan_at += 1;
            return Operation::Scan(self.scan_at % self.newest);
        }
        let write = self.random.below(100) < self.load.write_percent;
        let rank = self.zipf.draw(&mut self.random);
        match (self.load.latest, write) {
            (true, true) => {
                self.newest += 1;
                Operation::Write(self.newest - 1)
            }
            (true, false) => Operation::Read(self.newest - 1 - rank),
            (false, write) => {
                let row = key::mix(rank) % ROWS;
                if write { Operation::Write(row) } else { Operation::Read(row) }
            }
        }
    }
}

/// Percent of the reads (without scans) answered from memory and from SSD, in the second half of
/// the run.
fn ratios(load: Load, mut read: impl FnMut(u64) -> u8, mut write: impl FnMut(u64)) -> (f64, f64) {
    let mut source = Source::new(load);
    let (mut reads, mut hits) = (0u64, [0u64; 3]);
    for number in 0..OPERATIONS {
        match source.next() {
            Operation::Read(row) => {
                let tier = read(row);
                if number > OPERATIONS / 2 {
                    reads += 1;
                    hits[usize::from(tier)] += 1;
                }
            }
            Operation::Scan(row) => _ = read(row),
            Operation::Write(row) => write(row),
        }
    }
    let percent = |hits: u64| 100.0 * hits as f64 / reads as f64;
    (percent(hits[1]), percent(hits[2]))
}

fn ratios_of_cache(load: Load, cache: &RowCache) -> (f64, f64) {
    let record = record_of(1, RECORD_BYTES);
    let mut since = 0u64;
    let read = |row: u64| {
        since += 1;
        if since.is_multiple_of(500) {
            cache.wait_for_cascade();
        }
        let key = key_of(1, row);
        match cache.lookup(&key) {
            Lookup::Hit(_) => return 1,
            Lookup::OnSsd(ticket) => {
                if cache.read_ssd(ticket).is_some() {
                    return 2;
                }
            }
            Lookup::Miss => {}
        }
        fill(cache, &key, Some(&record));
        0
    };
    ratios(load, read, |row| cache.invalidate(&key_of(1, row)))
}

/// Plain LRU in memory, and behind it an LRU on SSD: the chain of the paper.
fn ratios_of_lru(load: Load, memory_rows: usize, ssd_rows: usize) -> (f64, f64) {
    let memory = std::cell::RefCell::new(Lru::new(memory_rows));
    let ssd = std::cell::RefCell::new(Lru::new(ssd_rows));
    let read = |row: u64| {
        let (mut memory, mut ssd) = (memory.borrow_mut(), ssd.borrow_mut());
        if memory.get(row) {
            return 1;
        }
        let on_ssd = ssd.get(row);
        if let Some(left) = memory.put(row)
            && ssd_rows > 0
            && !ssd.get(left)
        {
            ssd.put(left);
        }
        if on_ssd { 2 } else { 0 }
    };
    ratios(load, read, |row| {
        memory.borrow_mut().remove(row);
        ssd.borrow_mut().remove(row);
    })
}

#[test]
#[ignore = "prints figures; run it in release"]
fn hit_ratios() {
    let data = ROWS as usize * (RECORD_BYTES + 24);
    let row_cost =
        CachedRow::new(&[0; 24], Some(&[0; RECORD_BYTES])).unwrap().allocated_bytes() + 64 + 12;
    println!("{ROWS} rows of {} bytes; a row in memory costs {row_cost} bytes", RECORD_BYTES + 24);
    for (memory_percent, ssd_percent) in [(2, 0), (10, 0), (2, 8)] {
        for load in LOADS {
            let memory_bytes = data * memory_percent / 100;
            let ssd_bytes = (data * ssd_percent / 100) as u64;
            let (memory, ssd) = ratios_of_lru(
                load,
                memory_bytes / row_cost,
                ssd_bytes as usize / (RECORD_BYTES + 40),
            );
            print!(
                "{memory_percent} + {ssd_percent} %, {:28} LRU {memory:5.1} + {ssd:5.1}",
                load.name
            );
            for admission in [SsdAdmission::All, SsdAdmission::ReadAgain] {
                let disk = Disk::default();
                let mut ssd = SsdOptions::new("", ssd_bytes.max(3 << 20));
                (ssd.admission, ssd.expected_row_bytes) = (admission, RECORD_BYTES + 40);
                let with_ssd = ssd_percent > 0;
                let store = with_ssd.then(|| Box::new(disk.clone()) as _);
                let cache =
                    RowCache::open_with(options(memory_bytes, with_ssd.then_some(ssd)), store)
                        .unwrap();
                let (memory, ssd) = ratios_of_cache(load, &cache);
                let written = disk.writes() * 16 / 1024;
                print!(
                    " | {admission:?} {memory:5.1} + {ssd:5.1} = {:5.1} ({written} MB written)",
                    memory + ssd
                );
                if !with_ssd {
                    break;
                }
            }
            println!();
        }
    }
}

fn nanoseconds_each(times: u64, mut act: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..times).for_each(&mut act);
    start.elapsed().as_nanos() as f64 / times as f64
}

/// The same in processor time, which is less sensitive to other users of the machine.
fn processor_nanoseconds_each(times: u64, mut act: impl FnMut(u64)) -> f64 {
    let used = || -> u64 {
        let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        figures.split_whitespace().next().and_then(|figure| figure.parse().ok()).unwrap_or_default()
    };
    let start = used();
    (0..times).for_each(&mut act);
    (used() - start) as f64 / times as f64
}

#[test]
#[ignore = "prints figures; run it in release"]
fn times() {
    let rows = 1_000_000u64;
    let directory = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("ROW_CACHE_DIR").map_or(directory.path().to_owned(), Into::into);
    let mut ssd = SsdOptions::new(dir.join("row-cache"), 360 << 20);
    (ssd.expected_row_bytes, ssd.admission, ssd.queue_bytes) =
        (RECORD_BYTES + 40, SsdAdmission::All, 64 << 20);
    let cache = RowCache::open(options(64 << 20, Some(ssd))).unwrap();
    let record = record_of(1, RECORD_BYTES);
    let keys: Vec<_> = (0..rows).map(|row| key_of(1, row)).collect();
    // Built in place, so that the time excludes fetching the key.
    let absent = |row: u64| {
        let mut key = [2; 24];
        key[4..12].copy_from_slice(&(row / 10).to_be_bytes());
        key[16..].copy_from_slice(&row.to_be_bytes());
        key
    };
    let write_start = Instant::now();
    let fill_ns = processor_nanoseconds_each(rows, |row| {
        fill(&cache, &keys[row as usize], Some(&record));
        if row % 10_000 == 0 {
            cache.wait_for_cascade();
        }
    });
    cache.wait_for_cascade();
    let seconds = write_start.elapsed().as_secs_f64();
    let statistics = cache.statistics();
    println!("{statistics:#?}");
    println!(
        "index: {:.2} bytes a row",
        statistics.index_bytes as f64 / statistics.index_entries as f64
    );
    println!(
        "memory: {:.0} bytes a row",
        statistics.memory_bytes as f64 / statistics.memory_rows as f64
    );
    println!(
        "fill with cascade: {fill_ns:.0} ns a row, {:.0} rows/s to SSD",
        statistics.ssd_rows_written as f64 / seconds
    );
    let mut random = Random::new(3);
    let resident: Vec<_> = (rows - 5_000..rows)
        .filter(|row| matches!(cache.lookup(&keys[*row as usize]), Lookup::Hit(_)))
        .collect();
    let hit = processor_nanoseconds_each(2_000_000, |_| {
        let row = resident[random.below(resident.len() as u64) as usize];
        black_box(cache.lookup(&keys[row as usize]));
    });
    let negative = processor_nanoseconds_each(2_000_000, |_| {
        black_box(cache.lookup(&absent(random.below(rows))));
    });
    let invalidate =
        processor_nanoseconds_each(2_000_000, |_| cache.invalidate(&absent(random.below(rows))));
    let miss = processor_nanoseconds_each(300_000, |_| {
        fill(&cache, &absent(random.below(rows)), Some(&record));
    });
    println!(
        "hit {hit:.0} ns, negative look-up {negative:.0} ns, invalidation of what is not there {invalidate:.0} ns, miss and fill {miss:.0} ns ({} resident rows)",
        resident.len()
    );
    cache.wait_for_cascade();
    let before = cache.statistics();
    let ssd =
        nanoseconds_each(30_000, |_| _ = black_box(cache.get(&keys[random.below(rows) as usize])));
    let after = cache.statistics();
    println!(
        "any row: {ssd:.0} ns; {} SSD hits, {} reads, {} memory hits, {} misses, {} errors",
        after.ssd_hits - before.ssd_hits,
        after.ssd_reads - before.ssd_reads,
        after.memory_hits - before.memory_hits,
        after.misses - before.misses,
        after.ssd_read_errors
    );
}
