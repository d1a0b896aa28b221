//! Measures the cost for readers of many range deletions in one partition, and of many elements in
//! one collection: the first read after the writes, the median of 21 more, a slice, and a flush.
//!
//! `cargo run --release -p shunt-storage --example range_deletes [COUNT ..]`

use shunt_storage::engine::{EngineOptions, ReadTier};
use shunt_storage::row::{
    Cell, CellValue, ColumnId, Deletion, Fragment, Header, Liveness, PartitionKey, RangeTombstone,
    Row, TableId,
};
use shunt_storage::store::{Durability, Mutation, Read, Slice};
use shunt_storage::{Store, StoreOptions, Target};
use std::error::Error;
use std::ops::Bound;
use std::time::{Duration, Instant};

const TABLE: TableId = TableId(1);
const NOW_S: i64 = 1_790_000_000;
const LATE: Durability = Durability::Periodic { interval: Duration::from_secs(10) };
const PARTITION: &[u8] = b"\x80\0\0\0\0\0\0\x01key";

fn clustering(number: usize) -> Vec<u8> {
    [&[0x40][..], &(number as u64).to_be_bytes()].concat()
}

fn cell(path: Option<Vec<u8>>) -> Cell {
    let value = CellValue::Live(b"0123456789".to_vec());
    Cell { column: ColumnId(1), path, timestamp: NOW_S * 1_000_000, expiry: None, value }
}

fn write(store: &Store, target: Target<'_>, fragment: Fragment) -> Result<(), Box<dyn Error>> {
    store.apply(
        &[Mutation { table: TABLE, partition: PartitionKey(PARTITION), target, fragment }],
        LATE,
    )?;
    Ok(())
}

/// Times `act`: the first call, and the median of the following ones.
fn timed(
    mut act: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<[Duration; 2], Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..22 {
        let begun = Instant::now();
        act()?;
        times.push(begun.elapsed());
        // A measurement of minutes is long enough.
        if times.iter().sum::<Duration>() > Duration::from_secs(60) {
            break;
        }
    }
    let first = times.remove(0);
    times.sort();
    Ok([first, times.get(times.len() / 2).copied().unwrap_or(first)])
}

fn measure(count: usize, collection: bool) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let engine = EngineOptions { memtable_bytes: 256 << 20, ..EngineOptions::default() };
    let store = Store::open(
        directory.path(),
        StoreOptions { reserve_bytes: 0, engine, ..StoreOptions::default() },
    )?;
    let liveness = Some(Liveness { timestamp: NOW_S * 1_000_000, expiry: None });
    let row = |path| Fragment::Row(Row { liveness, cells: vec![cell(path)], ..Row::default() });
    let begun = Instant::now();
    for number in 0..count {
        if collection {
            write(
                &store,
                Target::Row(&clustering(0)),
                row(Some(clustering(number * 7919 % count))),
            )?;
            continue;
        }
        // Disjoint, in shuffled order; every other row is in one.
        let at = number * 7919 % count * 2;
        let deletion = Deletion { timestamp: NOW_S * 1_000_000 + number as i64, local: NOW_S };
        let range = RangeTombstone::new(
            Bound::Included(clustering(at)),
            Bound::Excluded(clustering(at + 1)),
            deletion,
        );
        write(
            &store,
            Target::Header,
            Fragment::Header(Header { deletion: None, ranges: vec![range] }),
        )?;
    }
    if !collection {
        for number in 0..200.min(count) {
            write(&store, Target::Row(&clustering(number)), row(None))?;
        }
    }
    let wrote = begun.elapsed() / count as u32;
    let target = clustering(usize::from(!collection));
    let on_loop = |times: &mut u32| -> Result<(), Box<dyn Error>> {
        let read = store.with_row(
            (TABLE, PartitionKey(PARTITION), Target::Row(&target)),
            NOW_S,
            ReadTier::Memory,
            |_| (),
        )?;
        *times += u32::from(read == Read::WouldBlock);
        Ok(())
    };
    let mut given_up = 0;
    let first_on_loop = timed(|| on_loop(&mut given_up))?[0];
    let [first, read] = timed(|| {
        let row = store.read_row(TABLE, PartitionKey(PARTITION), Target::Row(&target), NOW_S)?;
        assert!(row.is_some());
        Ok(())
    })?;
    let slice = Slice { limit: 1, ..Slice::default() };
    let [_, slice] = timed(|| {
        store.read_partition(TABLE, PartitionKey(PARTITION), &slice, NOW_S)?.next()?;
        Ok(())
    })?;
    given_up = 0;
    let [_, then_on_loop] = timed(|| on_loop(&mut given_up))?;
    let begun = Instant::now();
    store.flush()?;
    let flush = begun.elapsed();
    let what = if collection { "elements" } else { "ranges" };
    println!(
        "{count:7} {what:8} | a write {wrote:9.1?} | read: first on a loop {first_on_loop:9.1?}, first {first:9.1?}, \
         then {read:9.1?}, on a loop {then_on_loop:9.1?} (given up {given_up} of 22), slice {slice:9.1?} | \
         flush {flush:9.1?}"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut counts: Vec<usize> =
        std::env::args().skip(1).map(|count| count.parse()).collect::<Result<_, _>>()?;
    if counts.is_empty() {
        counts = vec![100, 2_000, 10_000, 100_000];
    }
    for collection in [false, true] {
        for count in &counts {
            measure(*count, collection)?;
        }
    }
    Ok(())
}
