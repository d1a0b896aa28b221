//! Measures the duration of the store's writes and reads.
//!
//! `cargo run --release -p shunt-storage --example measure [ROWS] [DIRECTORY]`

use shunt_storage::row::{Fragment, PartitionKey, Row, TableId};
use shunt_storage::store::{Durability, FRAGMENT_CLASSES, Mutation, Slice};
use shunt_storage::{Store, StoreOptions, Target};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use data::{Data, Random, START_US, key, paper, row};

#[allow(dead_code, reason = "shared with another example")]
mod data;

const TABLE: TableId = TableId(1);

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
    let store = Store::open(
        &directory.join("times"),
        StoreOptions { reserve_bytes: 0, ..StoreOptions::default() },
    )?;
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
    for (name, count) in
        store.engine_statistics().into_iter().filter(|(name, _)| name.contains("bloom"))
    {
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
        black_box(store.read_row(
            TABLE,
            PartitionKey(&key),
            Target::Row(b""),
            START_US / 1_000_000,
        )?);
    }
    per_op("read of a row", ops, begun);
    let begun = Instant::now();
    for _ in 0..ops {
        let key = key(count as u64 + random.below(count as u64));
        black_box(store.read_row(
            TABLE,
            PartitionKey(&key),
            Target::Row(b""),
            START_US / 1_000_000,
        )?);
    }
    per_op("read of a row that is not there", ops, begun);
    let begun = Instant::now();
    for _ in 0..ops {
        let key = key(count as u64 + random.below(count as u64));
        black_box(store.read_partition(TABLE, PartitionKey(&key), &Slice::default(), 0)?.next()?);
    }
    per_op("read of a partition that is not there", ops, begun);
    let after = store.figures();
    let classes: Vec<u64> =
        after.fragments.iter().zip(&before.fragments).map(|(now, then)| now - then).collect();
    println!("  fragments per read, up to {FRAGMENT_CLASSES:?} and more: {classes:?}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(Ok(200_000), |rows| rows.parse::<usize>())?;
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent)?;
    measure_times(&paper(rows, &mut Random(88_172_645_463_325_252)), directory.path())
}
