//! Measures reads of whole rows from the row cache's memory, its SSD and the engine's block cache;
//! and writes to cached rows, which are merged into the cache or drop the row.
//!
//! `cargo run --release -p shunt-storage --example point_reads [ROWS] [DIRECTORY]`

use allocation_counter::measure;
use shunt_storage::catalogue::ValueView;
use shunt_storage::engine::ReadTier;
use shunt_storage::row::{
    Cell, CellValue, ColumnId, Fragment, Liveness, PartitionKey, Row, TableId,
};
use shunt_storage::row_cache::{RowCacheOptions, SsdAdmission, SsdOptions};
use shunt_storage::store::{Durability, Mutation, Read, RowRef};
use shunt_storage::{Store, StoreOptions, Target};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

const TABLE: TableId = TableId(1);
const NOW_S: i64 = 1_790_000_000;
const LATE: Durability = Durability::Periodic { interval: Duration::from_secs(10) };
const READS: usize = 200_000;

fn key(number: usize) -> Vec<u8> {
    let token = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [&token.to_be_bytes()[..], format!("user{number:020}").as_bytes()].concat()
}

/// Ten columns of ten bytes, or the given ones.
fn row(columns: std::ops::Range<u32>, timestamp: i64, liveness: bool) -> Row {
    let value = CellValue::Live(b"0123456789".to_vec());
    let cell = |column| Cell {
        column: ColumnId(column),
        path: None,
        timestamp,
        expiry: None,
        value: value.clone(),
    };
    let liveness = liveness.then_some(Liveness { timestamp, expiry: None });
    Row { liveness, cells: columns.map(cell).collect(), ..Row::default() }
}

fn write(store: &Store, key: &[u8], row: Row) -> Result<(), Box<dyn Error>> {
    let (partition, target) = (PartitionKey(key), Target::Row(b""));
    store.apply(
        &[Mutation { table: TABLE, partition, target, fragment: Fragment::Row(row) }],
        LATE,
    )?;
    Ok(())
}

fn filled(
    directory: &Path,
    rows: usize,
    row_cache: Option<RowCacheOptions>,
) -> Result<Store, Box<dyn Error>> {
    let store = Store::open(
        directory,
        StoreOptions { reserve_bytes: 0, row_cache, ..StoreOptions::default() },
    )?;
    for number in 0..rows {
        write(&store, &key(number), row(0..10, NOW_S * 1_000_000, true))?;
    }
    store.compact(TABLE)?;
    Ok(store)
}

/// Duration and allocations of each call; cycles through the keys.
fn timed(name: &str, rows: usize, mut act: impl FnMut(&[u8])) {
    let keys: Vec<Vec<u8>> = (0..rows).map(key).collect();
    keys.iter().for_each(|key| act(key));
    let begun = Instant::now();
    (0..READS).for_each(|at| act(&keys[at * 7919 % rows]));
    let ns = begun.elapsed().as_nanos() as usize / READS;
    let allocations = measure(|| (0..1000).for_each(|at| act(&keys[at * 7919 % rows])));
    println!("{name:60} {ns:6} ns {:6.1} allocations", allocations.count_total as f64 / 1000.0);
}

fn read(store: &Store, key: &[u8]) {
    let found = store.read_row_nonblocking(TABLE, PartitionKey(key), Target::Row(b""), NOW_S);
    if black_box(found).is_ok_and(|found| found.ready().is_none()) {
        let _ = black_box(store.read_row(TABLE, PartitionKey(key), Target::Row(b""), NOW_S));
    }
}

/// Reads all columns without decoding the row.
fn look(store: &Store, key: &[u8]) {
    let place = (TABLE, PartitionKey(key), Target::Row(b""));
    let bytes = store.with_row(place, NOW_S, ReadTier::Memory, |row| {
        let Some(RowRef::InPlace(view)) = row else { return 0 };
        let cells = (0..10).filter_map(|column| view.column(ColumnId(column)).ok().flatten());
        cells
            .map(|cell| if let ValueView::Live(bytes) = cell.value { bytes.len() } else { 0 })
            .sum::<usize>()
    });
    assert!(
        black_box(bytes).is_ok_and(|bytes| bytes == Read::Ready(100)),
        "a row of ten columns of ten bytes"
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(Ok(10_000), |rows| rows.parse::<usize>())?;
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent)?;
    println!("{rows} rows of ten columns of ten bytes");
    let store = filled(&directory.path().join("plain"), rows, None)?;
    timed("read, block cache", rows, |key| read(&store, key));
    timed("update of one column", rows, |key| {
        drop(write(&store, key, row(3..4, NOW_S * 1_000_000 + 1, false)))
    });
    timed("read, block cache and memtable", rows, |key| read(&store, key));
    let memory = RowCacheOptions { memory_bytes: rows * 1024, ..RowCacheOptions::default() };
    let store = filled(&directory.path().join("memory"), rows, Some(memory))?;
    timed("read, row cache in memory", rows, |key| read(&store, key));
    timed("read in place, row cache in memory", rows, |key| look(&store, key));
    timed("update of one column of a cached row", rows, |key| {
        drop(write(&store, key, row(3..4, NOW_S * 1_000_000 + 1, false)));
    });
    timed("read, row cache in memory, after the updates", rows, |key| read(&store, key));
    println!("{:?}", store.figures().row_cache);
    let mut ssd = SsdOptions::new(directory.path().join("ssd"), (rows as u64 * 1024).max(8 << 20));
    ssd.admission = SsdAdmission::All;
    let small =
        RowCacheOptions { memory_bytes: rows * 32, ssd: Some(ssd), ..RowCacheOptions::default() };
    let store = filled(&directory.path().join("small"), rows, Some(small))?;
    timed("read, row cache on SSD for most", rows, |key| read(&store, key));
    println!("{:?}", store.figures().row_cache);
    Ok(())
}
