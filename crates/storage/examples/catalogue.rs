//! Measures the schema catalogue against names in every row: bytes on disk after compaction, time
//! to encode and decode, and throughput of whole rows at 95, 50 and 5 % reads (CaSSanDra, Menon et
//! al., ICDE 2014, section V).
//!
//! `cargo run --release -p shunt-storage --example catalogue [ROWS] [ROUNDS] [DIRECTORY]`
//!
//! Every round uses its own rows and prints a line of JSON per storage format, for `shunt bench run
//! catalogue`.

use shunt_storage::catalogue::{Catalogue, Limits, RecordView, decode_row, encode_row};
use shunt_storage::engine::{
    Engine, EngineOptions, Found, Merger, ReadTier, RocksEngine, Stall, Verdict, Write,
};
use shunt_storage::row::{Cell, CellValue, ColumnId, Row, TableId};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use data::{Data, Random, key, paper, telemetry};

#[allow(dead_code, reason = "shared with another example")]
mod data;

const TABLE: TableId = TableId(1);

/// Merger for records that are never merged.
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

/// Encodes the names in every row, with timestamps of 8 bytes each, as in earlier wide-column
/// stores, or as differences.
fn encode_named(row: &Row, names: &[String], differences: bool) -> Vec<u8> {
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

/// Size of these records on disk after compaction, in bytes.
fn disk_bytes(
    directory: &Path,
    records: &[Vec<u8>],
    compression: bool,
) -> Result<u64, Box<dyn Error>> {
    let options = EngineOptions { compression, ..EngineOptions::default() };
    let engine = RocksEngine::open(directory, &options, Arc::new(Keep))?;
    for (number, record) in records.iter().enumerate() {
        engine.write(&[Write::Put(stored(number as u64), record.clone())], Stall::Wait)?;
    }
    engine.flush()?;
    engine.compact(&[0], &[1]);
    let bytes = engine.sizes().disk_bytes;
    drop(engine);
    std::fs::remove_dir_all(directory)?;
    Ok(bytes)
}

/// Storage formats under test.
const ARMS: [&str; 3] = ["names", "differences", "catalogue"];
const DIFFERENCES: usize = 1;
const CATALOGUE: usize = 2;
/// Figures measured for one format.
type Figures = BTreeMap<String, f64>;

/// Average duration of `work` over `count` items, in nanoseconds.
fn ns_each(
    count: usize,
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_nanos() as f64 / count as f64)
}

fn measure_bytes(
    data: &Data,
    directory: &Path,
    found: &mut [Figures; 3],
) -> Result<(), Box<dyn Error>> {
    let catalogue = Catalogue::in_memory(Limits::default());
    let mut ours = Vec::with_capacity(data.rows.len());
    let encode_ns = ns_each(data.rows.len(), || {
        for row in &data.rows {
            let mut out = Vec::new();
            encode_row(row, TABLE, &catalogue, &mut out);
            ours.push(out);
        }
        Ok(())
    })?;
    let decode_ns = ns_each(ours.len(), || {
        for record in &ours {
            black_box(decode_row(record, &catalogue)?);
        }
        Ok(())
    })?;
    let column = ColumnId(data.columns.len() as u32 / 2);
    let column_ns = ns_each(ours.len(), || {
        for record in &ours {
            black_box(RecordView::parse(record, &catalogue)?.column(column)?);
        }
        Ok(())
    })?;
    for (name, ns) in [("encode_ns", encode_ns), ("decode_ns", decode_ns), ("column_ns", column_ns)]
    {
        found[CATALOGUE].insert(name.into(), ns);
    }
    let encoded = |differences| {
        data.rows.iter().map(|row| encode_named(row, &data.columns, differences)).collect()
    };
    let records: [Vec<Vec<u8>>; 3] = [encoded(false), encoded(true), ours];
    for (name, compression) in [("row_bytes", false), ("row_bytes_compressed", true)] {
        for (figures, records) in found.iter_mut().zip(&records) {
            let bytes = disk_bytes(&directory.join("bytes"), records, compression)?;
            figures.insert(name.into(), bytes as f64 / records.len() as f64);
        }
    }
    Ok(())
}

/// The columns of a record with names.
fn decode_named(record: &[u8], ids: &HashMap<&[u8], u32>) -> Option<Row> {
    let (count, mut rest) = record.split_first()?;
    let first = i64::from_be_bytes(*rest.first_chunk()?);
    rest = &rest[8..];
    let mut cells = Vec::with_capacity(usize::from(*count));
    for _ in 0..*count {
        let (length, after) = rest.split_first()?;
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        let (difference, after) = after.split_first()?;
        let (length, after) = after.split_first()?;
        let (value, after) = after.split_at_checked(usize::from(*length))?;
        let column = ColumnId(*ids.get(name)?);
        let timestamp = first + i64::from(*difference);
        cells.push(Cell {
            column,
            path: None,
            timestamp,
            expiry: None,
            value: CellValue::Live(value.to_vec()),
        });
        rest = after;
    }
    Some(Row { cells, ..Row::default() })
}

/// Reads and writes whole rows at a given share of reads, with names in the rows and with the
/// catalogue; returns operations per second.
fn measure_mixed(
    data: &Data,
    round: u64,
    directory: &Path,
    found: &mut [Figures; 3],
) -> Result<(), Box<dyn Error>> {
    let names: HashMap<&[u8], u32> =
        data.columns.iter().zip(0..).map(|(name, id)| (name.as_bytes(), id)).collect();
    let catalogue = Catalogue::in_memory(Limits::default());
    let encode = |arm: usize, row: &Row| {
        let mut out = Vec::new();
        match arm {
            CATALOGUE => encode_row(row, TABLE, &catalogue, &mut out),
            _ => out = encode_named(row, &data.columns, true),
        }
        out
    };
    let count = data.rows.len() as u64;
    let filled = |arm: usize| -> Result<RocksEngine, Box<dyn Error>> {
        let engine = RocksEngine::open(
            &directory.join(ARMS[arm]),
            &EngineOptions::default(),
            Arc::new(Keep),
        )?;
        for (number, row) in data.rows.iter().enumerate() {
            engine.write(&[Write::Put(stored(number as u64), encode(arm, row))], Stall::Wait)?;
        }
        engine.flush()?;
        Ok(engine)
    };
    let mut engines = [(DIFFERENCES, filled(DIFFERENCES)?), (CATALOGUE, filled(CATALOGUE)?)];
    for percent in [95, 50, 5] {
        engines.rotate_left(usize::from(round % 2 == 1));
        for (arm, engine) in &engines {
            let (begun, ops, mut random) = (Instant::now(), count / 2, Random(1 + round * 7919));
            for _ in 0..ops {
                let number = random.below(count);
                if random.below(100) >= percent {
                    let write =
                        Write::Put(stored(number), encode(*arm, &data.rows[number as usize]));
                    engine.write(&[write], Stall::Wait)?;
                    continue;
                }
                let Found::Value { bytes, .. } = engine.get(&stored(number), ReadTier::Disk)?
                else {
                    return Err("a row is not there".into());
                };
                black_box(match *arm {
                    CATALOGUE => decode_row(&bytes, &catalogue)?,
                    _ => decode_named(&bytes, &names).ok_or("a record is broken")?,
                });
            }
            found[*arm].insert(
                format!("rows_per_s_{percent}"),
                ops as f64 / begun.elapsed().as_secs_f64(),
            );
        }
    }
    Ok(())
}

/// The engine's key of a row.
fn stored(number: u64) -> Vec<u8> {
    [&[0, 0, 0, 1][..], &key(number)[..8], &[24], &key(number)[8..], &[2]].concat()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().map_or(Ok(200_000), |rows| rows.parse::<usize>())?;
    let rounds = arguments.next().map_or(Ok(5), |rounds| rounds.parse::<u64>())?;
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    for round in 0..rounds {
        let mut random = Random(88_172_645_463_325_252 + round);
        for data in [paper(rows, &mut random), telemetry(rows / 4, &mut random)] {
            let directory = tempfile::tempdir_in(&parent)?;
            let mut found: [Figures; 3] = Default::default();
            measure_bytes(&data, directory.path(), &mut found)?;
            measure_mixed(&data, round, directory.path(), &mut found)?;
            for (arm, figures) in ARMS.iter().zip(&found) {
                let point = data.name;
                let figures: Vec<_> =
                    figures.iter().map(|(name, value)| format!("\"{name}\": {value:.2}")).collect();
                let figures = figures.join(", ");
                println!(
                    r#"{{"arm": "{arm}", "point": "{point}", "round": {round}, "figures": {{{figures}}}}}"#
                );
            }
        }
    }
    Ok(())
}
