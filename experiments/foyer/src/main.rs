//! The row cache beside foyer's hybrid cache: the same look-ups, fills and writes, the same memory,
//! the same room on SSD.
//!
//! `cargo run --release --manifest-path experiments/foyer/Cargo.toml -- [ROWS] [DIRECTORY]`
//!
//! Rows of 400 bytes in YCSB's 'latest' distribution, 95 % reads; a miss is filled in, a write
//! drops the row. Both have 2 % of the rows' bytes in memory and 8 % on SSD. foyer: LRU in memory,
//! its block engine on a file system, no admission filter, 64 bytes of its own per row counted as
//! the row cache counts its own.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, LruConfig,
    Source,
};
use shunt_storage::row_cache::{Lookup, RowCache, RowCacheOptions, SsdAdmission, SsdOptions};

const ROW_BYTES: usize = 400;
const READS_PERCENT: u64 = 95;
/// Bytes that foyer is charged per row in memory beyond key and value.
const FOYER_ROW_BYTES: usize = 64;
const THETA: f64 = 0.99;

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A step of a trace: a row, and whether it is read.
struct Trace {
    random: Random,
    items: u64,
    zeta: f64,
}

impl Trace {
    fn new(items: u64) -> Trace {
        let zeta = (1..=items).map(|rank| (rank as f64).powf(-THETA)).sum();
        Trace { random: Random(88_172_645_463_325_252), items, zeta }
    }

    fn next(&mut self) -> (Vec<u8>, bool) {
        let u = (self.random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let two = 1.0 + 2f64.powf(-THETA);
        let eta = (1.0 - (2.0 / self.items as f64).powf(1.0 - THETA)) / (1.0 - two / self.zeta);
        let rank = match u * self.zeta {
            low if low < 1.0 => 0,
            low if low < two => 1,
            _ => (self.items as f64 * (eta * u - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64,
        };
        let number = self.items - 1 - rank.min(self.items - 1);
        let read = (self.random.next() >> 11) % 100 < READS_PERCENT;
        (
            [&[0, 0, 0, 1][..], &number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat(),
            read,
        )
    }
}

/// The tier that had a row.
enum Found {
    Memory,
    Ssd,
    Nowhere,
}

trait Cache {
    fn read(&self, key: &[u8], row: &[u8]) -> Found;
    fn write(&self, key: &[u8]);
    /// Bytes written to SSD so far.
    fn written(&self) -> u64;
}

struct Ours(RowCache);

impl Cache for Ours {
    fn read(&self, key: &[u8], row: &[u8]) -> Found {
        match self.0.lookup(key) {
            Lookup::Hit(found) => {
                black_box(found);
                return Found::Memory;
            }
            Lookup::OnSsd(ticket) => {
                if let Some(found) = self.0.read_ssd(ticket) {
                    black_box(found);
                    return Found::Ssd;
                }
            }
            Lookup::Miss => {}
        }
        let token = self.0.begin_fill(key);
        self.0.fill(token, key, Some(row));
        Found::Nowhere
    }

    fn write(&self, key: &[u8]) {
        self.0.invalidate(key);
    }

    fn written(&self) -> u64 {
        self.0.statistics().ssd_bytes_written
    }
}

struct Foyer(HybridCache<Vec<u8>, Vec<u8>>, tokio::runtime::Runtime);

impl Cache for Foyer {
    fn read(&self, key: &[u8], row: &[u8]) -> Found {
        let key = key.to_vec();
        match self.1.block_on(self.0.get(&key)) {
            Ok(Some(found)) => {
                black_box(found.value());
                if found.source() == Source::Disk { Found::Ssd } else { Found::Memory }
            }
            _ => {
                self.0.insert(key, row.to_vec());
                Found::Nowhere
            }
        }
    }

    fn write(&self, key: &[u8]) {
        self.0.remove(key);
    }

    fn written(&self) -> u64 {
        self.0.statistics().disk_write_bytes() as u64
    }
}

/// User and system time of the process, all threads, in µs.
fn cpu_us() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> =
        stat.rsplit_once(')').ok_or("no figures")?.1.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 10_000.0)
}

fn measure(name: &str, cache: &dyn Cache, rows: u64) -> Result<(), Box<dyn Error>> {
    let mut trace = Trace::new(rows);
    let row = vec![b'x'; ROW_BYTES];
    let (warm_up, measured) = (rows * 3 / 2, rows);
    let (mut memory, mut ssd, mut reads, mut before) = (0, 0, 0, (Instant::now(), 0.0, 0));
    for at in 0..warm_up + measured {
        if at == warm_up {
            (memory, ssd, reads) = (0u64, 0u64, 0u64);
            before = (Instant::now(), cpu_us()?, cache.written());
        }
        let (key, read) = trace.next();
        if !read {
            cache.write(&key);
            continue;
        }
        reads += 1;
        match cache.read(&key, &row) {
            Found::Memory => memory += 1,
            Found::Ssd => ssd += 1,
            Found::Nowhere => {}
        }
    }
    let percent = |count: u64| count as f64 * 100.0 / reads as f64;
    println!(
        "{name:32} {:6.1} {:7.1} {:7.1} {:12.2} {:12.2} {:14.0}",
        percent(memory + ssd),
        percent(memory),
        percent(ssd),
        (cpu_us()? - before.1) / measured as f64,
        before.0.elapsed().as_secs_f64() * 1e6 / measured as f64,
        (cache.written() - before.2) as f64 / measured as f64,
    );
    Ok(())
}

fn foyer(directory: &Path, memory: usize, ssd: usize) -> Result<Foyer, Box<dyn Error>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let device = FsDeviceBuilder::new(directory).with_capacity(ssd).build()?;
    let block = (device.capacity() / 16).max(1 << 20);
    let builder = HybridCacheBuilder::<Vec<u8>, Vec<u8>>::new()
        .memory(memory)
        .with_shards(16)
        .with_eviction_config(LruConfig { high_priority_pool_ratio: 0.0 })
        .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len() + FOYER_ROW_BYTES)
        .storage()
        .with_engine_config(
            BlockEngineConfig::new(device).with_block_size(block).with_buffer_pool_size(8 << 20),
        );
    let cache = runtime.block_on(builder.build())?;
    Ok(Foyer(cache, runtime))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse::<u64>())?;
    let directory =
        tempfile::tempdir_in(arguments.next().map_or_else(std::env::temp_dir, Into::into))?;
    let bytes = rows as usize * ROW_BYTES;
    let (memory, ssd) = (bytes / 50, (bytes * 8 / 100).next_multiple_of(1 << 20));
    println!(
        "{rows} rows of {ROW_BYTES} bytes, {:.1} MB in memory, {:.1} MB on SSD",
        memory as f64 / 1e6,
        ssd as f64 / 1e6
    );
    println!(
        "{:32} {:>6} {:>7} {:>7} {:>12} {:>12} {:>14}",
        "", "hits %", "memory", "SSD", "CPU us/op", "us/op", "SSD B/op"
    );
    for (name, admission) in
        [("row cache", SsdAdmission::ReadAgain), ("row cache, all rows to SSD", SsdAdmission::All)]
    {
        let place = directory.path().join("ours");
        let tier = SsdOptions {
            admission,
            expected_row_bytes: ROW_BYTES,
            ..SsdOptions::new(&place, ssd as u64)
        };
        let options =
            RowCacheOptions { memory_bytes: memory, ssd: Some(tier), ..RowCacheOptions::default() };
        measure(name, &Ours(RowCache::open(options)?), rows)?;
    }
    measure("foyer 0.22, hybrid", &foyer(&directory.path().join("foyer"), memory, ssd)?, rows)
}
