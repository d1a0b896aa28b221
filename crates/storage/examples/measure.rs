//! Measures the store: bytes per row against names in every row, and the time of writes and reads.
//!
//! `cargo run --release -p shunt-storage --example measure [ROWS] [DIRECTORY]`

use shunt_storage::catalogue::{Catalogue, Limits, RecordView, decode_row, encode_row};
use shunt_storage::engine::{Engine, EngineOptions, Merger, RocksEngine, Verdict, Write};
use shunt_storage::row::{Cell, CellValue, ColumnId, Fragment, Liveness, PartitionKey, Row, TableId};
use shunt_storage::store::{Durability, FRAGMENT_CLASSES, Mutation, Slice};
use shunt_storage::{Store, StoreOptions, Target};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TABLE: TableId = TableId(1);
const START_US: i64 = 1_790_000_000_000_000;

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
}

/// Rows to store, with the names of their columns.
struct Data {
    name: &'static str,
    columns: Vec<String>,
    rows: Vec<Row>,
}

fn row(at: usize, values: Vec<(u32, Vec<u8>)>) -> Row {
    let timestamp = START_US + at as i64 * 1000;
    let cell = |(column, value)| Cell {
        column: ColumnId(column),
        path: None,
        timestamp,
        expiry: None,
        value: CellValue::Live(value),
    };
    let cells = values.into_iter().map(cell).collect();
    Row { liveness: Some(Liveness { timestamp, expiry: None }), cells, ..Row::default() }
}

/// Paper 5: 5 to 10 of 10 columns, names of 5 bytes, values of 10.
fn paper(rows: usize, random: &mut Random) -> Data {
    let columns = (0..10).map(|at| format!("fiel{at}")).collect();
    let mut one = |at| {
        let mut chosen: Vec<u32> = (0..10).collect();
        for _ in 0..random.below(6) {
            chosen.remove(random.below(chosen.len() as u64) as usize);
        }
        let mut value = || (0..10).map(|_| b' ' + random.below(95) as u8).collect::<Vec<u8>>();
        row(at, chosen.into_iter().map(|column| (column, value())).collect())
    };
    Data { name: "paper", columns, rows: (0..rows).map(&mut one).collect() }
}

/// Telemetry: hosts of 64 kinds, each with its own 20 to 40 of 40 columns with real names, three of them missing at times.
fn telemetry(rows: usize, random: &mut Random) -> Data {
    let parts = ["cpu", "mem", "disk", "net", "jvm", "http", "gc", "db"];
    let kinds = ["utilization_percent", "bytes_read_total", "queue_depth", "latency_p99_micros", "errors_total"];
    let columns: Vec<String> =
        parts.iter().flat_map(|part| kinds.iter().map(move |kind| format!("{part}.{kind}"))).collect();
    let mut drop_some = |from: &[u32], some: u64| {
        let mut left = from.to_vec();
        for _ in 0..some {
            left.remove(random.below(left.len() as u64) as usize);
        }
        left
    };
    let all: Vec<u32> = (0..columns.len() as u32).collect();
    let hosts: Vec<Vec<u32>> = (0..64).map(|kind| drop_some(&all, kind % 21)).collect();
    let mut noise = Random(7);
    let mut one = |at: usize| {
        let host = noise.below(2000);
        let missing = if noise.below(10) == 0 { 3 } else { 0 };
        let chosen = drop_some(&hosts[(host % 64) as usize], missing);
        let mut value = |column: u32| match column % 4 {
            0 => format!("{}.{:02}", noise.below(100), noise.below(100)),
            1 => (1_000_000 + host * 7919 + noise.below(5000)).to_string(),
            2 => noise.below(16).to_string(),
            _ => (200 + noise.below(3000)).to_string(),
        };
        row(at, chosen.into_iter().map(|column| (column, value(column).into_bytes())).collect())
    };
    Data { name: "telemetry", columns, rows: (0..rows).map(&mut one).collect() }
}

fn key(number: u64) -> Vec<u8> {
    let token = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [&token.to_be_bytes()[..], format!("user{number:020}").as_bytes()].concat()
}

/// For records that are never merged.
struct Keep;

impl Merger for Keep {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, fragments: &[&[u8]], _: bool) -> Vec<u8> {
        fragments.last().copied().or(base).unwrap_or_default().to_vec()
    }

    fn merge_fragments(&self, _: &[u8], _: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }

    fn verdict(&self, _: &[u8], _: &[u8]) -> Verdict {
        Verdict::Keep
    }
}

/// Names in every row; timestamps as 8 bytes each, as wide-column stores have had them, or as differences.
fn named(row: &Row, names: &[String], differences: bool) -> Vec<u8> {
    let mut out = vec![row.cells.len() as u8];
    out.extend_from_slice(&row.cells[0].timestamp.to_be_bytes());
    for cell in &row.cells {
        let name = names[cell.column.0 as usize].as_bytes();
        let CellValue::Live(value) = &cell.value else { continue };
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        match differences {
            true => out.push((cell.timestamp - row.cells[0].timestamp) as u8),
            false => out.extend_from_slice(&cell.timestamp.to_be_bytes()),
        }
        out.push(value.len() as u8);
        out.extend_from_slice(value);
    }
    out
}

/// Bytes on disk of these records after compaction.
fn disk_bytes(directory: &Path, records: &[Vec<u8>], compression: bool) -> Result<u64, Box<dyn Error>> {
    let options = EngineOptions { compression, ..EngineOptions::default() };
    let engine = RocksEngine::open(directory, &options, Arc::new(Keep))?;
    for (number, record) in records.iter().enumerate() {
        let key = [&[0, 0, 0, 1][..], &key(number as u64)[..8], &[24], &key(number as u64)[8..], &[2]].concat();
        engine.write(&[Write::Put(key, record.clone())])?;
    }
    engine.flush()?;
    engine.compact(&[0], &[1]);
    let bytes = engine.sizes().disk_bytes;
    drop(engine);
    std::fs::remove_dir_all(directory)?;
    Ok(bytes)
}

fn measure_bytes(data: &Data, directory: &Path) -> Result<(), Box<dyn Error>> {
    let catalogue = Catalogue::in_memory(Limits::default());
    let encoded = |row: &Row| {
        let mut out = Vec::new();
        encode_row(row, TABLE, &catalogue, &mut out);
        out
    };
    let begun = Instant::now();
    let ours: Vec<_> = data.rows.iter().map(encoded).collect();
    let encode_ns = begun.elapsed().as_nanos() / data.rows.len() as u128;
    let begun = Instant::now();
    for record in &ours {
        black_box(decode_row(record, &catalogue)?);
    }
    let decode_ns = begun.elapsed().as_nanos() / data.rows.len() as u128;
    let column = ColumnId(data.columns.len() as u32 / 2);
    let begun = Instant::now();
    for record in &ours {
        black_box(RecordView::parse(record, &catalogue)?.column(column)?);
    }
    let column_ns = begun.elapsed().as_nanos() / data.rows.len() as u128;
    println!(
        "{}: {} rows, {:?}; encode {encode_ns} ns, decode {decode_ns} ns, one column in place {column_ns} ns",
        data.name,
        data.rows.len(),
        catalogue.counts()
    );
    let arms = [
        ("names, 8 bytes of timestamp", data.rows.iter().map(|row| named(row, &data.columns, false)).collect()),
        ("names, differences", data.rows.iter().map(|row| named(row, &data.columns, true)).collect()),
        ("catalogue", ours),
    ];
    for compression in [false, true] {
        let mut first = None;
        for (name, records) in &arms {
            let bytes = disk_bytes(&directory.join("bytes"), records, compression)?;
            let first = *first.get_or_insert(bytes);
            println!(
                "  {:28} {:12} {:7.1} bytes/row on disk {:+6.1} %",
                name,
                if compression { "zstd" } else { "uncompressed" },
                bytes as f64 / records.len() as f64,
                (bytes as f64 / first as f64 - 1.0) * 100.0
            );
        }
    }
    Ok(())
}

fn mutation(partition: &[u8], row: Row) -> Mutation<'_> {
    Mutation {
        table: TABLE,
        partition: PartitionKey(partition),
        target: Target::Row(b""),
        fragment: Fragment::Row(row),
    }
}

fn per_op(name: &str, ops: usize, begun: Instant) {
    println!("  {name:50} {:7.2} µs", begun.elapsed().as_secs_f64() * 1e6 / ops as f64);
}

fn measure_times(data: &Data, directory: &Path) -> Result<(), Box<dyn Error>> {
    let store = Store::open(&directory.join("times"), StoreOptions { reserve_bytes: 0, ..StoreOptions::default() })?;
    let count = data.rows.len();
    let late = Durability::Periodic { interval: Duration::from_secs(10) };
    println!("times, {count} rows of the paper's data:");
    let begun = Instant::now();
    for (number, row) in data.rows.iter().enumerate() {
        store.apply(&[mutation(&key(number as u64), row.clone())], late)?;
    }
    per_op("insert, periodic", count, begun);
    let begun = Instant::now();
    let batches = count / 32;
    for batch in 0..batches {
        let keys: Vec<_> = (0..32).map(|at| key((batch * 32 + at) as u64)).collect();
        let rows = keys.iter().zip(&data.rows[batch * 32..]);
        let mutations: Vec<_> = rows.map(|(key, row)| mutation(key, row.clone())).collect();
        store.apply(&mutations, late)?;
    }
    per_op("insert, periodic, 32 to an apply, per row", batches * 32, begun);
    let mut random = Random(3);
    let mut update = |store: &Store, durability| {
        let number = random.below(count as u64);
        let value = random.next().to_be_bytes().to_vec();
        let updated = row(count + number as usize, vec![(random.below(10) as u32, value)]);
        store.apply(&[mutation(&key(number), Row { liveness: None, ..updated })], durability)
    };
    let begun = Instant::now();
    for _ in 0..count {
        update(&store, late)?;
    }
    per_op("update of one column, periodic", count, begun);
    let (begun, mut last) = (Instant::now(), None);
    for _ in 0..10_000 {
        last = Some(update(&store, Durability::Batch)?);
    }
    last.map_or(Ok(()), |ticket| store.wait_durable(ticket))?;
    per_op("update, batch, nobody waits but the last", 10_000, begun);
    let begun = Instant::now();
    for _ in 0..1000 {
        store.wait_durable(update(&store, Durability::Batch)?)?;
    }
    per_op("update, batch, each waits for its sync", 1000, begun);
    measure_reads(&store, count)?;
    let begun = Instant::now();
    store.compact(TABLE)?;
    println!("  compaction took {:.1} s", begun.elapsed().as_secs_f64());
    measure_reads(&store, count)?;
    println!("  {:?}", store.figures());
    for (name, count) in store.engine_statistics().into_iter().filter(|(name, _)| name.contains("bloom")) {
        println!("  {name} {count}");
    }
    Ok(())
}

fn measure_reads(store: &Store, count: usize) -> Result<(), Box<dyn Error>> {
    let before = store.figures();
    let mut random = Random(5);
    let ops = count.min(100_000);
    let begun = Instant::now();
    for _ in 0..ops {
        let key = key(random.below(count as u64));
        black_box(store.read_row(TABLE, PartitionKey(&key), Target::Row(b""), START_US / 1_000_000)?);
    }
    per_op("read of a row", ops, begun);
    let begun = Instant::now();
    for _ in 0..ops {
        let key = key(count as u64 + random.below(count as u64));
        black_box(store.read_row(TABLE, PartitionKey(&key), Target::Row(b""), START_US / 1_000_000)?);
    }
    per_op("read of a row that is not there", ops, begun);
    let begun = Instant::now();
    for _ in 0..ops {
        let key = key(count as u64 + random.below(count as u64));
        black_box(store.read_partition(TABLE, PartitionKey(&key), &Slice::default(), 0)?.next()?);
    }
    per_op("read of a partition that is not there", ops, begun);
    let after = store.figures();
    let classes: Vec<u64> = after.fragments.iter().zip(&before.fragments).map(|(now, then)| now - then).collect();
    println!("  fragments per read, up to {FRAGMENT_CLASSES:?} and more: {classes:?}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(Ok(200_000), |rows| rows.parse::<usize>())?;
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent)?;
    let mut random = Random(88_172_645_463_325_252);
    let data = paper(rows, &mut random);
    measure_bytes(&data, directory.path())?;
    measure_bytes(&telemetry(rows / 4, &mut random), directory.path())?;
    measure_times(&data, directory.path())
}
