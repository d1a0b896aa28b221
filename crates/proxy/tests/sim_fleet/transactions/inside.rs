//! Checks of transactions that only the ring can make: a record precedes its writes, and nothing
//! begins after a seal.

use std::collections::BTreeMap;

use shunt_transactions::record::{Record, Value};

use super::parsed::{Parsed, Request, ShardKey, parts_of};
use super::tables::{LOG_TABLE, Row, RowKey, Shard, TABLES};

/// Counts the replicas that have a row as written then, or later.
pub type Count<'a> = &'a dyn Fn(&RowKey, i64) -> usize;

/// The record of a transaction.
#[derive(Clone, Debug)]
pub struct Recorded {
    shard: ShardKey,
    pub generation: i64,
    at: RowKey,
    written_us: i64,
    /// Rows that it writes, with their timestamps, microseconds.
    writes: Vec<(RowKey, i64)>,
    /// True once one of them has come.
    pub is_begun: bool,
}

/// The ring's observations.
#[derive(Default)]
pub struct Inside {
    /// Records by the number that the transaction writes.
    records: BTreeMap<i64, Recorded>,
    /// The last generation of each shard in which a transaction began.
    last_begun: BTreeMap<ShardKey, i64>,
    /// Number of transactions' writes.
    pub writes: u64,
    /// Number of records written.
    pub records_written: u64,
    /// Number of records sent that will be late.
    pub records_late: u64,
    /// Transactions begun by the owner of a later generation.
    pub recovered: u64,
    /// Records that came after the seal of their generation.
    pub late: u64,
    /// The first violation.
    pub fault: Option<String>,
    /// True if violations are reported.
    pub is_looking: bool,
}

/// The number of the transaction that writes this.
fn writer_of(key: &RowKey, cells: &Row) -> Option<i64> {
    let (_, value) = cells.get(&TABLES[key.0].column("writer"))?;
    Some(i64::from_be_bytes(value.as_slice().try_into().ok()?))
}

impl Inside {
    fn violate(&mut self, what: String) {
        if self.is_looking {
            self.fault.get_or_insert(what);
        }
    }

    /// The record of a transaction.
    pub fn record(&self, writer: i64) -> Option<&Recorded> {
        self.records.get(&writer)
    }

    /// Notes a written row.
    pub fn written(
        &mut self,
        key: &RowKey,
        cells: &Row,
        shards: &BTreeMap<ShardKey, Shard>,
        count: Count<'_>,
    ) {
        if key.0 == LOG_TABLE {
            self.recorded(key, cells, shards);
        } else if TABLES[key.0].is_applications() && TABLES[key.0].name != "leases" {
            self.begun(key, cells, shards, count);
        }
    }

    fn recorded(&mut self, at: &RowKey, cells: &Row, shards: &BTreeMap<ShardKey, Shard>) {
        self.records_written += 1;
        let Some((written_us, body)) = cells.values().next() else { return };
        let record = Record::decode(body).expect("a record that this version has written");
        let mut writer = None;
        let writes = record.writes.iter().enumerate().map(|(place, write)| {
            let parsed = Parsed::read(write.text).expect("a write on a table of the simulation");
            let values = write.values.iter().map(|value| match value {
                Value::Bytes(bytes) => bytes.to_vec(),
                other => panic!("{other:?} is written"),
            });
            let values: Vec<Vec<u8>> = values.collect();
            let Request::Write { key, cells } =
                parsed.request(&values, record.timestamp_us + place as i64)
            else {
                panic!("{} is no write", write.text)
            };
            writer = writer.or(writer_of(&key, &cells));
            (key, record.timestamp_us + place as i64)
        });
        let writes: Vec<(RowKey, i64)> = writes.collect();
        let writer = writer.expect("all transactions write their numbers");
        let parts = parts_of(&at.1);
        let shard = (parts[0].clone(), parts[1].clone());
        let generation = i64::from_be_bytes(parts[2].as_slice().try_into().expect("eight bytes"));
        let written_us = *written_us;
        self.late += u64::from(shards.get(&shard).is_some_and(|shard| shard.sealed >= generation));
        let record =
            Recorded { shard, generation, at: at.clone(), written_us, writes, is_begun: false };
        let known = self.records.entry(writer).or_insert_with(|| record.clone());
        if (&known.at, &known.writes) != (&record.at, &record.writes) {
            let what = format!("two records of transaction {writer}: {known:?} {record:?}");
            self.violate(what);
        }
    }

    fn begun(
        &mut self,
        key: &RowKey,
        cells: &Row,
        shards: &BTreeMap<ShardKey, Shard>,
        count: Count<'_>,
    ) {
        self.writes += 1;
        let writer = writer_of(key, cells).expect("all transactions write their numbers");
        let written_us = cells.values().next().map_or(0, |(us, _)| *us);
        let Some(record) = self.records.get_mut(&writer) else {
            return self.violate(format!("transaction {writer} is written without a record"));
        };
        let Recorded { generation, .. } = *record;
        if !record.writes.contains(&(key.clone(), written_us)) {
            let what = format!(
                "transaction {writer} writes what its record does not say: {key:?} at {written_us}"
            );
            return self.violate(what);
        }
        if std::mem::replace(&mut record.is_begun, true) {
            return;
        }
        let shard = record.shard.clone();
        let copies = count(&record.at, record.written_us);
        let (sealed, claimed) =
            shards.get(&shard).map_or((0, 0), |shard| (shard.sealed, shard.generation));
        self.recovered += u64::from(claimed > generation);
        let last = self.last_begun.entry(shard).or_insert(generation);
        let later = *last;
        *last = later.max(generation);
        if copies < 2 {
            self.violate(format!(
                "transaction {writer} is written, and {copies} replicas have its record"
            ));
        } else if generation <= sealed {
            self.violate(format!(
                "transaction {writer} of generation {generation} is begun, and {sealed} is sealed"
            ));
        } else if later > generation {
            let what = format!(
                "transaction {writer} of generation {generation} is begun, after those of {later}"
            );
            self.violate(what);
        }
    }

    /// Notes that generations of a shard up to this one are sealed, and checks that all of their
    /// commits are there.
    pub fn sealed(&mut self, of: &ShardKey, sealed: i64, count: Count<'_>) {
        let mut begun = self.records.iter().filter(|(_, record)| {
            record.is_begun && &record.shard == of && record.generation <= sealed
        });
        let lacks =
            begun.find(|(_, record)| record.writes.iter().any(|(key, us)| count(key, *us) < 2));
        if let Some(what) =
            lacks.map(|(writer, record)| format!("{writer} is sealed in part: {record:?}"))
        {
            self.violate(what);
        }
    }

    /// The violation at rest, if any. `seals`: the opener of a log seals the earlier ones.
    pub fn at_rest(
        &self,
        shards: &BTreeMap<ShardKey, Shard>,
        seals: bool,
        count: Count<'_>,
    ) -> Option<String> {
        let mut unsealed =
            shards.iter().filter(|(_, shard)| seals && shard.sealed + 1 != shard.generation);
        if let Some((of, shard)) = unsealed.next() {
            return Some(format!("the log of {of:?} is not open: {shard:?}"));
        }
        self.records.iter().find_map(|(writer, record)| {
            let lacks = record.writes.iter().any(|(key, us)| count(key, *us) < 2);
            if record.is_begun && lacks {
                return Some(format!("transaction {writer} is there in part: {record:?}"));
            }
            let is_open =
                shards.get(&record.shard).is_some_and(|shard| shard.sealed < record.generation);
            let is_there = count(&record.at, record.written_us) > 0;
            (is_open && is_there && !record.is_begun)
                .then(|| format!("transaction {writer} is undecided: {record:?} {shards:?}"))
        })
    }
}
