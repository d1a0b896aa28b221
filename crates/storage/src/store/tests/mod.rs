//! The store against a naive model, and its promises of durability, damage detection and upkeep.

mod cached;
mod damage;
mod durability;
mod in_place;
mod model;
mod stalled;
mod stress;
mod upkeep;
mod watched;
mod write_back;

use super::*;
use crate::engine::{EngineOptions, MemoryEngine, ReadTier, RocksEngine, Stall, Write};
use crate::key::Target;
use crate::row::{
    Cell, CellValue, ColumnId, Deletion, Fragment, Header, Liveness, PartitionKey, Row,
};
use std::time::Duration;

const TABLE: TableId = TableId(5);
const NOW: i64 = 5;

/// Small, with a fixed clock and no watch of the disk.
fn options() -> StoreOptions {
    let engine = EngineOptions {
        block_cache_bytes: 4 << 20,
        memtable_bytes: 4 << 20,
        ..EngineOptions::default()
    };
    StoreOptions {
        engine,
        clock: Arc::new(|| NOW),
        reserve_bytes: 0,
        watch_interval: Duration::from_millis(5),
        ..StoreOptions::default()
    }
}

fn periodic() -> Durability {
    Durability::Periodic { interval: Duration::from_secs(3600) }
}

/// Eight bytes of token and one of key.
fn partition(number: u8) -> [u8; 9] {
    [0x80, 0, 0, 0, 0, 0, 0, number, number]
}

fn cell(column: u32, timestamp: i64, value: CellValue) -> Cell {
    Cell { column: ColumnId(column), path: None, timestamp, expiry: None, value }
}

fn insert(column: u32, timestamp: i64, value: &[u8]) -> Row {
    let cells = vec![cell(column, timestamp, CellValue::Live(value.to_vec()))];
    Row { liveness: Some(Liveness { timestamp, expiry: None }), cells, ..Row::default() }
}

fn put(store: &Store, partition: &[u8], target: Target<'_>, row: Row) -> Ticket {
    let mutation = Mutation {
        table: TABLE,
        partition: PartitionKey(partition),
        target,
        fragment: Fragment::Row(row),
    };
    store.apply(&[mutation], periodic()).unwrap()
}

fn delete(store: &Store, partition: &[u8], header: Header) -> Ticket {
    let fragment = Fragment::Header(header);
    let mutation = Mutation {
        table: TABLE,
        partition: PartitionKey(partition),
        target: Target::Header,
        fragment,
    };
    store.apply(&[mutation], periodic()).unwrap()
}

fn value(store: &Store, partition: &[u8], target: Target<'_>) -> Option<CellValue> {
    let row = store.read_row(TABLE, PartitionKey(partition), target, NOW).unwrap()?;
    row.cells.first().map(|cell| cell.value.clone())
}

fn text(store: &Store, partition: &[u8], target: Target<'_>) -> Option<String> {
    match value(store, partition, target)? {
        CellValue::Live(bytes) => Some(String::from_utf8(bytes).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn in_memory(options: StoreOptions) -> Store {
    Store::on_engine(options, |merger| Box::new(MemoryEngine::new(merger))).unwrap()
}
