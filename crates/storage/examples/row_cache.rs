//! The row cache on a slow disk: CaSSanDra's experiment (Menon et al., ICDE 2014, section V),
//! scaled down.
//!
//! Loads rows of 5 columns of 75 bytes, fragmented over files, then reads and updates single
//! columns in the 'latest' distribution, in a closed loop. Arms: no row cache; memory; the same
//! memory and an SSD; memory and SSD within the budget of that memory; memory with the budget of
//! both. Every arm begins with the same data, warms its caches up while the disk is fast, and is
//! measured while it is slow.
//!
//! `experiments/slow-disk run cargo run --release -p shunt-storage --example row_cache -- --cache
//! DIRECTORY`

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shunt_storage::engine::EngineOptions;
use shunt_storage::row::{
    Cell, CellValue, ColumnId, Fragment, Liveness, PartitionKey, Row, TableId,
};
use shunt_storage::row_cache::{RowCacheOptions, RowCacheStatistics, SsdAdmission, SsdOptions};
use shunt_storage::store::{Durability, Mutation, StoreFigures};
use shunt_storage::{Store, StoreOptions, Target};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TABLE: TableId = TableId(1);
const COLUMNS: u32 = 5;
const VALUE_BYTES: usize = 75;
const START_US: i64 = 1_790_000_000_000_000;
/// Durability of all writes; the example does not measure loss in a crash.
const LATE: Durability = Durability::Periodic { interval: Duration::from_secs(1) };

/// Parameters of a measurement, from the command line: `--name value`.
struct Plan {
    rows: u64,
    data: PathBuf,
    cache: PathBuf,
    threads: usize,
    seconds: u64,
    warm_up: u64,
    reads_percent: Vec<u64>,
    disk: Option<SlowDisk>,
}

/// A block device whose reads a cgroup slows down.
struct SlowDisk {
    limit: PathBuf,
    device: String,
    iops: u64,
}

impl SlowDisk {
    fn slow(&self, slow: bool) -> Outcome<()> {
        let iops = if slow { self.iops } else { 0 };
        Ok(fs::write(&self.limit, format!("{} {iops}", self.device))?)
    }

    /// Number of reads that the device has completed.
    fn reads(&self) -> Outcome<u64> {
        let stat = fs::read_to_string(format!("/sys/dev/block/{}/stat", self.device))?;
        Ok(stat.split_whitespace().next().ok_or("no figures of the device")?.parse()?)
    }
}

impl Plan {
    fn from_arguments() -> Outcome<Plan> {
        let mut given = BTreeMap::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let name = name
                .strip_prefix("--")
                .ok_or(format!("{name}: options are `--name value`"))?
                .to_owned();
            given.insert(name.clone(), arguments.next().ok_or(format!("--{name} has no value"))?);
        }
        let mut number = |name: &str, default: u64| -> Outcome<u64> {
            given.remove(name).map_or(Ok(default), |text| {
                text.parse().map_err(|_| format!("--{name} {text}").into())
            })
        };
        let (rows, threads) = (number("rows", 400_000)?, number("threads", 8)?);
        let (seconds, warm_up, iops) =
            (number("seconds", 20)?, number("warm-up", 300_000)?, number("iops", 300)?);
        let reads = given.remove("reads").unwrap_or_else(|| "95,85,75".to_owned());
        let (slow, device) = (given.remove("limit"), given.remove("device"));
        let data = given.remove("data").map_or_else(std::env::temp_dir, PathBuf::from);
        let cache = given.remove("cache").map_or_else(std::env::temp_dir, PathBuf::from);
        if let Some(unknown) = given.keys().next() {
            return Err(format!("--{unknown} is no option").into());
        }
        Ok(Plan {
            rows,
            data: data.join("row-cache"),
            cache: cache.join("row-cache-ssd"),
            threads: threads as usize,
            seconds,
            warm_up,
            reads_percent: reads.split(',').map(str::parse).collect::<Result<_, _>>()?,
            disk: slow.zip(device).map(|(limit, device)| SlowDisk {
                limit: limit.into(),
                device,
                iops,
            }),
        })
    }

    fn row_bytes(&self) -> u64 {
        self.rows * u64::from(COLUMNS) * VALUE_BYTES as u64
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// YCSB's zipfian generator (Gray et al., SIGMOD 1994) with a constant of 0.99.
#[derive(Clone, Copy)]
struct Zipf {
    items: u64,
    zeta: f64,
    eta: f64,
    zeta_two: f64,
}

const THETA: f64 = 0.99;

impl Zipf {
    fn new(items: u64) -> Zipf {
        let zeta: f64 = (1..=items).map(|rank| (rank as f64).powf(-THETA)).sum();
        let zeta_two = 1.0 + 2f64.powf(-THETA);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta_two / zeta);
        Zipf { items, zeta, eta, zeta_two }
    }

    fn sample(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < self.zeta_two {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.items - 1)
    }

    /// Picks a key, favouring the most recent ones.
    fn latest(&self, random: &mut Random) -> u64 {
        self.items - 1 - self.sample(random)
    }
}

fn key(number: u64) -> Vec<u8> {
    let token = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [&token.to_be_bytes()[..], format!("user{number:020}").as_bytes()].concat()
}

/// Values of some columns of a row.
fn fragment(
    random: &mut Random,
    columns: impl Iterator<Item = u32>,
    timestamp: i64,
    whole: bool,
) -> Fragment {
    let mut value = || (0..VALUE_BYTES).map(|_| b' ' + (random.next() >> 20) as u8 % 95).collect();
    let cell = |column| Cell {
        column: ColumnId(column),
        path: None,
        timestamp,
        expiry: None,
        value: CellValue::Live(value()),
    };
    let liveness = whole.then_some(Liveness { timestamp, expiry: None });
    Fragment::Row(Row { liveness, cells: columns.map(cell).collect(), ..Row::default() })
}

fn write(store: &Store, number: u64, fragment: Fragment) -> Outcome<()> {
    let key = key(number);
    let (partition, target) = (PartitionKey(&key), Target::Row(b""));
    store.apply(&[Mutation { table: TABLE, partition, target, fragment }], LATE)?;
    Ok(())
}

fn store_options(row_cache: Option<RowCacheOptions>) -> StoreOptions {
    let engine = EngineOptions {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 8 << 20,
        direct_reads: true,
        ..EngineOptions::default()
    };
    StoreOptions { engine, row_cache, reserve_bytes: 0, ..StoreOptions::default() }
}

/// Writes all rows whole, then one column of as many rows, chosen with the distribution of the
/// reads.
fn load(plan: &Plan) -> Outcome<PathBuf> {
    let directory = plan.data.join("loaded");
    let store = Store::open(&directory, store_options(None))?;
    let mut random = Random(88_172_645_463_325_252);
    for number in 0..plan.rows {
        write(&store, number, fragment(&mut random, 0..COLUMNS, START_US, true))?;
    }
    store.flush()?;
    let zipf = Zipf::new(plan.rows);
    for at in 0..plan.rows {
        let (number, column) = (zipf.latest(&mut random), random.below(u64::from(COLUMNS)) as u32);
        write(
            &store,
            number,
            fragment(&mut random, column..column + 1, START_US + 1 + at as i64, false),
        )?;
    }
    store.flush()?;
    let ticket = store.apply(&[], Durability::Batch)?;
    store.wait_durable(ticket)?;
    println!(
        "{} rows, {:.1} MB of values, {:?}",
        plan.rows,
        plan.row_bytes() as f64 / 1e6,
        store.figures().sizes
    );
    Ok(directory)
}

/// Counts of the threads of one arm.
#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    read_ns: AtomicU64,
    stop: AtomicBool,
}

/// Reads and updates until told to stop, or up to a number of operations.
fn client(
    store: &Store,
    zipf: &Zipf,
    reads_percent: u64,
    seed: u64,
    most: u64,
    counts: &Counts,
) -> Outcome<Vec<u32>> {
    let mut random = Random(seed | 1);
    let mut latencies = Vec::new();
    for at in 0..most {
        if counts.stop.load(Ordering::Relaxed) {
            break;
        }
        let number = zipf.latest(&mut random);
        if random.below(100) < reads_percent {
            let begun = Instant::now();
            let row = store.read_row(
                TABLE,
                PartitionKey(&key(number)),
                Target::Row(b""),
                START_US / 1_000_000,
            )?;
            let took = begun.elapsed();
            if row.is_none_or(|row| row.cells.len() != COLUMNS as usize) {
                return Err(format!("row {number} is not whole").into());
            }
            counts.reads.fetch_add(1, Ordering::Relaxed);
            counts.read_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            latencies.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        } else {
            let column = random.below(u64::from(COLUMNS)) as u32;
            let timestamp = START_US + (1 << 40) + at as i64;
            write(store, number, fragment(&mut random, column..column + 1, timestamp, false))?;
            counts.writes.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(latencies)
}

/// Results of one arm.
struct Measured {
    ops_per_second: f64,
    read_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    hits: f64,
    memory_hits: f64,
    iops: f64,
    reads_per_miss: f64,
    read_share: f64,
    index_bytes_per_row: f64,
    write_amplification: f64,
}

/// Throughput if the disk were the only limit: IOPS / (read share x misses x disk reads per miss).
impl Measured {
    fn model(&self) -> f64 {
        self.iops / (self.read_share * (1.0 - self.hits) * self.reads_per_miss)
    }
}

fn statistics(figures: &StoreFigures) -> RowCacheStatistics {
    figures.row_cache.unwrap_or_default()
}

fn run_arm(
    plan: &Plan,
    loaded: &Store,
    cache: Option<RowCacheOptions>,
    percent: u64,
) -> Outcome<Measured> {
    let directory = plan.data.join("arm");
    remove(&directory)?;
    loaded.snapshot(&directory)?;
    if let Some(ssd) = cache.as_ref().and_then(|cache| cache.ssd.as_ref()) {
        remove(&ssd.dir)?;
        fs::create_dir_all(&ssd.dir)?;
    }
    let store = Store::open(&directory, store_options(cache))?;
    let zipf = Zipf::new(plan.rows);
    let work =
        |most: u64, seconds: Option<u64>, seed: u64| -> Outcome<(Counts, Vec<u32>, Duration)> {
            let counts = Counts::default();
            let begun = Instant::now();
            let latencies = thread::scope(|scope| -> Outcome<Vec<u32>> {
                let (store, zipf, counts) = (&store, &zipf, &counts);
                let start = |thread: usize| {
                    let seed = (seed + thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    scope.spawn(move || client(store, zipf, percent, seed, most, counts))
                };
                let threads: Vec<_> = (0..plan.threads).map(start).collect();
                if let Some(seconds) = seconds {
                    let (_never, waits) = std::sync::mpsc::channel::<()>();
                    let _ = waits.recv_timeout(Duration::from_secs(seconds));
                    counts.stop.store(true, Ordering::Relaxed);
                }
                let mut all = Vec::new();
                for thread in threads {
                    all.extend(thread.join().map_err(|_| "a client panicked")??);
                }
                Ok(all)
            })?;
            Ok((counts, latencies, begun.elapsed()))
        };
    work(plan.warm_up / plan.threads as u64, None, 1)?;
    plan.disk.as_ref().map_or(Ok(()), |disk| disk.slow(true))?;
    work(u64::MAX, Some(plan.seconds / 4), 1000)?;
    let (before, disk_before) =
        (store.figures(), plan.disk.as_ref().map_or(Ok(0), SlowDisk::reads)?);
    let (counts, mut latencies, took) = work(u64::MAX, Some(plan.seconds), 2000)?;
    let (after, disk_after) = (store.figures(), plan.disk.as_ref().map_or(Ok(0), SlowDisk::reads)?);
    plan.disk.as_ref().map_or(Ok(()), |disk| disk.slow(false))?;
    latencies.sort_unstable();
    let (reads, writes) = (counts.reads.into_inner(), counts.writes.into_inner());
    let (now, then) = (statistics(&after), statistics(&before));
    let memory_hits = now.memory_hits - then.memory_hits;
    let hits = memory_hits + now.ssd_hits - then.ssd_hits;
    let disk_reads = (disk_after - disk_before) as f64;
    let quantile = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        latencies.get(place).map_or(0.0, |us| f64::from(*us) / 1000.0)
    };
    Ok(Measured {
        ops_per_second: (reads + writes) as f64 / took.as_secs_f64(),
        read_ms: counts.read_ns.into_inner() as f64 / reads as f64 / 1e6,
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        hits: hits as f64 / reads as f64,
        memory_hits: memory_hits as f64 / reads as f64,
        iops: disk_reads / took.as_secs_f64(),
        reads_per_miss: disk_reads / (reads - hits.min(reads)).max(1) as f64,
        read_share: reads as f64 / (reads + writes) as f64,
        index_bytes_per_row: now.index_bytes as f64 / now.index_entries.max(1) as f64,
        write_amplification: now.ssd_write_amplification(),
    })
}

fn remove(directory: &Path) -> Outcome<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Arms: name, and memory and SSD in thousandths of the rows' bytes.
const ARMS: [(&str, u64, u64, SsdAdmission); 6] = [
    ("no row cache", 0, 0, SsdAdmission::All),
    ("memory 2 %", 20, 0, SsdAdmission::All),
    ("memory 2 % + SSD 8 %", 20, 80, SsdAdmission::All),
    ("  rows read again only", 20, 80, SsdAdmission::ReadAgain),
    ("memory 0.5 % + SSD 1.5 %", 5, 15, SsdAdmission::All),
    ("memory 10 %", 100, 0, SsdAdmission::All),
];

fn main() -> Outcome<()> {
    let plan = Plan::from_arguments()?;
    remove(&plan.data)?;
    fs::create_dir_all(&plan.data)?;
    plan.disk.as_ref().map_or(Ok(()), |disk| disk.slow(false))?;
    let directory = load(&plan)?;
    let loaded = Store::open(&directory, store_options(None))?;
    println!(
        "{:>5} {:26} {:>8} {:>6} {:>8} {:>7} {:>7} {:>6} {:>6} {:>6} {:>8} {:>8} {:>7} {:>6}",
        "reads",
        "row cache",
        "op/s",
        "x",
        "read ms",
        "p50",
        "p99",
        "hits",
        "memory",
        "IOPS",
        "IO/miss",
        "model",
        "index B",
        "WA"
    );
    for percent in &plan.reads_percent {
        let mut first = None;
        for (name, memory, ssd, admission) in ARMS {
            let part = |thousandths: u64| plan.row_bytes() * thousandths / 1000;
            let tier = (ssd > 0).then(|| SsdOptions {
                admission,
                expected_row_bytes: 400,
                ..SsdOptions::new(&plan.cache, part(ssd))
            });
            let memory_bytes = part(memory) as usize;
            let cache = (memory > 0).then(|| RowCacheOptions {
                memory_bytes,
                ssd: tier,
                ..RowCacheOptions::default()
            });
            let measured = run_arm(&plan, &loaded, cache, *percent)?;
            let first = *first.get_or_insert(measured.ops_per_second);
            println!(
                "{percent:>4}% {name:26} {:8.0} {:6.2} {:8.2} {:7.2} {:7.1} {:6.1} {:6.1} {:6.0} {:8.2} {:8.0} {:7.2} {:6.2}",
                measured.ops_per_second,
                measured.ops_per_second / first,
                measured.read_ms,
                measured.p50_ms,
                measured.p99_ms,
                measured.hits * 100.0,
                measured.memory_hits * 100.0,
                measured.iops,
                measured.reads_per_miss,
                measured.model(),
                measured.index_bytes_per_row,
                measured.write_amplification,
            );
        }
    }
    remove(&plan.data)?;
    remove(&plan.cache)
}
