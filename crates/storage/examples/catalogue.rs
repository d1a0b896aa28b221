//! Measures the schema catalogue against names in every row: bytes on disk after compaction, time to encode and decode, and
//! throughput of whole rows at 95, 50 and 5 % reads (CaSSanDra, Menon et al., ICDE 2014, section V).
//!
//! `cargo run --release -p shunt-storage --example catalogue [ROWS] [DIRECTORY]`

use shunt_storage::catalogue::{Catalogue, Limits, RecordView, decode_row, encode_row};
use shunt_storage::engine::{Engine, EngineOptions, Found, Merger, ReadTier, RocksEngine, Stall, Verdict, Write};
use shunt_storage::row::{Cell, CellValue, ColumnId, Row, TableId};
use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use data::{Data, Random, key, paper, telemetry};

#[allow(dead_code, reason = "shared with another example")]
mod data;

const TABLE: TableId = TableId(1);
/// Rounds of the throughput arms, which take turns.
const ROUNDS: usize = 5;

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
        engine.write(&[Write::Put(stored(number as u64), record.clone())], Stall::Wait)?;
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

/// The columns that a record with names has.
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
        cells.push(Cell { column, path: None, timestamp, expiry: None, value: CellValue::Live(value.to_vec()) });
        rest = after;
    }
    Some(Row { cells, ..Row::default() })
}

/// Whole rows read and written at some share of reads: how many a second, with names in the rows and with the catalogue.
fn measure_mixed(data: &Data, directory: &Path) -> Result<(), Box<dyn Error>> {
    let names: HashMap<&[u8], u32> = data.columns.iter().zip(0..).map(|(name, id)| (name.as_bytes(), id)).collect();
    let catalogue = Catalogue::in_memory(Limits::default());
    let open = |name: &str| RocksEngine::open(&directory.join(name), &EngineOptions::default(), Arc::new(Keep));
    let engines = [open("names")?, open("catalogue")?];
    let encode = |arm: usize, row: &Row| {
        let mut out = Vec::new();
        match arm {
            0 => out = named(row, &data.columns, true),
            _ => encode_row(row, TABLE, &catalogue, &mut out),
        }
        out
    };
    let count = data.rows.len() as u64;
    for (arm, engine) in engines.iter().enumerate() {
        for (number, row) in data.rows.iter().enumerate() {
            engine.write(&[Write::Put(stored(number as u64), encode(arm, row))], Stall::Wait)?;
        }
        engine.flush()?;
    }
    for percent in [95, 50, 5] {
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for turn in 0..2 {
                let arm = (round + turn) % 2;
                let (engine, mut random) = (&engines[arm], Random(1 + round as u64 * 7919));
                let (begun, ops) = (Instant::now(), count / 2);
                for _ in 0..ops {
                    let number = random.below(count);
                    if random.below(100) >= percent {
                        engine.write(
                            &[Write::Put(stored(number), encode(arm, &data.rows[number as usize]))],
                            Stall::Wait,
                        )?;
                        continue;
                    }
                    let Found::Value { bytes, .. } = engine.get(&stored(number), ReadTier::Disk)? else {
                        return Err("a row is not there".into());
                    };
                    let row = match arm {
                        0 => decode_named(&bytes, &names).ok_or("a record is broken")?,
                        _ => decode_row(&bytes, &catalogue)?,
                    };
                    black_box(row);
                }
                rates[arm].push(ops as f64 / begun.elapsed().as_secs_f64());
            }
        }
        let ratios: Vec<f64> = rates[1].iter().zip(&rates[0]).map(|(ours, theirs)| ours / theirs).collect();
        let median = |mut list: Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let (least, most) =
            (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
        println!(
            "  {percent:2} % reads: {:.0} rows/s with names, {:.0} with the catalogue: x {:.2} ({least:.2} to {most:.2})",
            median(rates[0].clone()),
            median(rates[1].clone()),
            median(ratios)
        );
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
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent)?;
    let mut random = Random(88_172_645_463_325_252);
    for data in [paper(rows, &mut random), telemetry(rows / 4, &mut random)] {
        measure_bytes(&data, directory.path())?;
        measure_mixed(&data, &directory.path().join(data.name))?;
    }
    Ok(())
}
