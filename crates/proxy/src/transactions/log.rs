//! Statements on the tables of the log: records, low marks, and the rows that name a shard's owner.
//!
//! `shunt_meta.txn_shard` is changed by conditional statements only; everything else is written and
//! read at QUORUM ([ADR 19](../../../../docs/adr/0019-the-log-of-transactions.md)).

use shunt_locks::{Now, Written};
use shunt_reactor::Io;
use shunt_transactions::{
    Claim, Conditional, Failed, Generation, Place, Position, Row, TransactionId,
};
use shunt_wire::cql::message::{ResultMessage, Value, ValueList};

use super::{VERSION, confirmation, levels};
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::transactions::ownership::Unconfirmed;
use crate::transactions::part::{OpeningPart, Part, Who};
use crate::transactions::timer::set_due;

const READ_ROW: &str =
    "SELECT generation, claim, sealed FROM shunt_meta.txn_shard WHERE cluster = ? AND shard = ?";
const FIRST: &str = "INSERT INTO shunt_meta.txn_shard (cluster, shard, generation, claim, sealed) VALUES (?, ?, 1, ?, 0) IF NOT EXISTS";
const CLAIM: &str = "UPDATE shunt_meta.txn_shard SET generation = ?, claim = ? WHERE cluster = ? AND shard = ? IF generation = ? AND sealed = ?";
const SEAL: &str = "UPDATE shunt_meta.txn_shard SET sealed = ? WHERE cluster = ? AND shard = ? IF generation = ? AND claim = ?";
const READ_LOW: &str =
    "SELECT low FROM shunt_meta.txn_low WHERE cluster = ? AND shard = ? AND generation = ?";
const WRITE_LOW: &str =
    "INSERT INTO shunt_meta.txn_low (cluster, shard, generation, low) VALUES (?, ?, ?, ?)";
const DELETE_LOW: &str =
    "DELETE FROM shunt_meta.txn_low WHERE cluster = ? AND shard = ? AND generation = ?";
const READ: &str = "SELECT position, body FROM shunt_meta.txn_log WHERE cluster = ? AND shard = ? AND generation = ? AND bucket = ? AND position >= ? LIMIT 16";
const WRITE: &str = "INSERT INTO shunt_meta.txn_log (cluster, shard, generation, bucket, position, body) VALUES (?, ?, ?, ?, ?, ?)";
const DELETE_BUCKET: &str = "DELETE FROM shunt_meta.txn_log WHERE cluster = ? AND shard = ? AND generation = ? AND bucket = ?";
/// Records of a page, as [`READ`] says. There are few, since one may have two megabytes.
pub(super) const PAGE_RECORDS: usize = 16;

/// Values of a statement, in order.
struct List(ValueList);

impl List {
    fn new() -> List {
        List(ValueList::positional(VERSION))
    }

    /// Begins with the fleet and the shard.
    fn of_shard(core: &Core, shard: u8) -> List {
        List::new().shard(core, shard)
    }

    fn shard(self, core: &Core, shard: u8) -> List {
        let fleet = core.context.config.fleet.as_deref().unwrap_or_default();
        self.bytes(fleet.as_bytes()).bytes(&i32::from(shard).to_be_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> List {
        self.0.push(Value::Bytes(bytes));
        self
    }

    fn number(self, number: u64) -> List {
        self.bytes(&number.to_be_bytes())
    }

    fn claim(self, claim: Claim) -> List {
        self.bytes(&claim.0.to_be_bytes())
    }
}

fn send(
    core: &mut Core,
    io: &mut Io,
    part: Part,
    text: &'static str,
    list: &List,
    how: How,
) -> bool {
    let (quorum, serial) = (levels::quorum(core), levels::serial(core));
    let (consistency, serial, timestamp_us) = match how {
        How::Quorum(timestamp_us) => (quorum, None, timestamp_us),
        How::SerialRead => (serial, None, None),
        How::Conditional => (quorum, Some(serial), None),
    };
    let levels = Levels { consistency, serial, timestamp_us, elsewhere: false };
    statements::ask::ask(core, io, Whose::Transaction(part), text, list.0.values(), &levels, None)
}

#[derive(Clone, Copy)]
enum How {
    Quorum(Option<i64>),
    SerialRead,
    Conditional,
}

fn opening(claim: Claim, part: OpeningPart) -> Part {
    Part::Opening { claim, part }
}

pub(super) fn read_row(core: &mut Core, io: &mut Io, shard: u8, claim: Claim) -> bool {
    send(
        core,
        io,
        opening(claim, OpeningPart::Row),
        READ_ROW,
        &List::of_shard(core, shard),
        How::SerialRead,
    )
}

pub(super) fn claim(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    claim: Claim,
    row: Option<Row>,
) -> bool {
    let (text, list) = match row {
        None => (FIRST, List::of_shard(core, shard).claim(claim)),
        Some(row) => {
            let list = List::new().number(row.generation.0 + 1).claim(claim);
            let list = list.shard(core, shard).number(row.generation.0).number(row.sealed.0);
            (CLAIM, list)
        }
    };
    send(core, io, opening(claim, OpeningPart::Claim), text, &list, How::Conditional)
}

pub(super) fn seal(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    claim: Claim,
    claimed: Generation,
) -> bool {
    let list = List::new().number(claimed.0 - 1).shard(core, shard);
    let list = list.number(claimed.0).claim(claim);
    send(core, io, opening(claim, OpeningPart::Seal), SEAL, &list, How::Conditional)
}

pub(super) fn read_low(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    claim: Claim,
    generation: Generation,
) -> bool {
    let list = List::of_shard(core, shard).number(generation.0);
    send(core, io, opening(claim, OpeningPart::Low(generation)), READ_LOW, &list, How::Quorum(None))
}

pub(super) fn read_page(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    claim: Claim,
    from: Place,
) -> bool {
    let list = List::of_shard(core, shard)
        .number(from.generation.0)
        .number(from.position.bucket())
        .number(from.position.0);
    send(core, io, opening(claim, OpeningPart::Page(from)), READ, &list, How::Quorum(None))
}

fn record(core: &Core, shard: u8, place: Place, body: &[u8]) -> List {
    let list =
        List::of_shard(core, shard).number(place.generation.0).number(place.position.bucket());
    list.number(place.position.0).bytes(body)
}

pub(super) fn write_again(
    core: &mut Core,
    io: &mut Io,
    (shard, claim): (u8, Claim),
    place: Place,
    body: &[u8],
    timestamp_us: i64,
) -> bool {
    let part = opening(claim, OpeningPart::Record(place));
    send(core, io, part, WRITE, &record(core, shard, place, body), How::Quorum(Some(timestamp_us)))
}

/// Writes a record. It has the timestamp of the writes, so that repeating it changes nothing.
pub(super) fn write(
    core: &mut Core,
    io: &mut Io,
    part: Part,
    (shard, place): (u8, Place),
    timestamp_us: i64,
    body: &[u8],
) -> bool {
    send(core, io, part, WRITE, &record(core, shard, place, body), How::Quorum(Some(timestamp_us)))
}

fn send_low(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    generation: Generation,
    low: Position,
) -> bool {
    let list = List::of_shard(core, shard).number(generation.0).number(low.0);
    // A late mark does not hide a later one.
    send(
        core,
        io,
        Part::Low { shard, generation, low },
        WRITE_LOW,
        &list,
        How::Quorum(Some(low.0.cast_signed())),
    )
}

pub(super) fn delete_bucket(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    generation: Generation,
    bucket: u64,
) {
    let list = List::of_shard(core, shard).number(generation.0).number(bucket);
    send(core, io, Part::Nothing, DELETE_BUCKET, &list, How::Quorum(None));
}

pub(super) fn delete_low(core: &mut Core, io: &mut Io, shard: u8, generation: Generation) {
    send(
        core,
        io,
        Part::Nothing,
        DELETE_LOW,
        &List::of_shard(core, shard).number(generation.0),
        How::Quorum(None),
    );
}

fn number(value: Option<&[u8]>) -> Option<u64> {
    value?.try_into().ok().map(u64::from_be_bytes)
}

/// Reads the row of a shard.
pub(super) fn row(heard: &Heard<'_>) -> Result<Option<Row>, Failed> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return Err(Failed) };
    if rows.row_count == 0 {
        return Ok(None);
    }
    let row = rows.rows().next().and_then(Result::ok).ok_or(Failed)?;
    let claim = row
        .get(1)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u128::from_be_bytes)
        .ok_or(Failed)?;
    let (generation, sealed) =
        (number(row.get(0)).ok_or(Failed)?, number(row.get(2)).ok_or(Failed)?);
    Ok(Some(Row {
        generation: Generation(generation),
        claim: Claim(claim),
        sealed: Generation(sealed),
    }))
}

/// Reads the outcome of a conditional statement.
pub(super) fn conditional(heard: &Heard<'_>) -> Conditional {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return Conditional::Unknown };
    let applied = rows.metadata.column_index("[applied]");
    let row = rows.rows().next().and_then(Result::ok);
    match row.zip(applied).and_then(|(row, place)| row.get(place)) {
        Some([1]) => Conditional::Applied,
        Some([0]) => Conditional::Refused,
        _ => Conditional::Unknown,
    }
}

/// Reads a low mark; the first place, where there is none.
pub(super) fn low(heard: &Heard<'_>) -> Result<Position, Failed> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return Err(Failed) };
    match rows.rows().next() {
        None => Ok(Position(0)),
        Some(row) => number(row.map_err(|_| Failed)?.get(0)).map(Position).ok_or(Failed),
    }
}

/// Reads positions and bodies of a page.
pub(super) fn page(heard: &Heard<'_>) -> Result<Vec<(Position, Vec<u8>)>, Failed> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return Err(Failed) };
    let read = rows.rows().map(|row| {
        let row = row.map_err(|_| Failed)?;
        Ok((number(row.get(0)).map(Position).ok_or(Failed)?, row.get(1).ok_or(Failed)?.to_vec()))
    });
    read.collect()
}

pub(super) fn written(heard: &Heard<'_>) -> Written {
    levels::written(heard)
}

/// Takes in the outcome of writing a record.
pub(super) fn record_answered(core: &mut Core, io: &mut Io, id: TransactionId, written: Written) {
    if confirmation::needs(core, written) {
        return confirmation::request(core, io, Unconfirmed::Recorded(id));
    }
    // The clock is read after the answer came: without a lease the transaction is not committed.
    let now = levels::now(io);
    record_is(core, io, now, id, written);
}

pub(super) fn record_is(
    core: &mut Core,
    io: &mut Io,
    now: Now,
    id: TransactionId,
    written: Written,
) {
    let (table, effects) = core.fleet.transactions.table();
    table.appended(now, id, written, effects);
    set_due(core, io);
    // A shard that is being handed over waits for this at most.
    core.fleet.transactions.check_draining();
}

/// Takes in the outcome of writing a low mark.
pub(super) fn low_answered(
    core: &mut Core,
    io: &mut Io,
    (shard, generation, low): (u8, Generation, Position),
    written: Written,
) {
    let (table, effects) = core.fleet.transactions.table();
    table.low_written(shard, generation, low, written, effects);
    set_due(core, io);
}

/// Writes the record of a transaction that is decided.
pub(super) fn write_record(
    core: &mut Core,
    io: &mut Io,
    id: TransactionId,
    place: (u8, Place),
    timestamp_us: i64,
) {
    let keeper = &mut core.fleet.transactions;
    let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
    let record = job.and_then(|job| {
        job.timestamp_us = timestamp_us;
        Some((job.record(timestamp_us).ok()?, Who::of(&job.who)))
    });
    let is_sent = record.is_some_and(|(body, who)| {
        write(core, io, Part::Record { id, who }, place, timestamp_us, &body)
    });
    if !is_sent {
        record_answered(core, io, id, Written::NotSent);
    }
}

/// Writes up to where the log is finished.
pub(super) fn write_low(
    core: &mut Core,
    io: &mut Io,
    shard: u8,
    generation: Generation,
    low: Position,
) {
    if !send_low(core, io, shard, generation, low) {
        low_answered(core, io, (shard, generation, low), Written::NotSent);
    }
}
