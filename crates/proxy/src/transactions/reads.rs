//! A transaction that has its partitions reads, and is decided by what it has read; then there is a record of what it writes.
//!
//! What is read is read at QUORUM. Beside that, a node is asked if the tables are still those that the plan was made with: what was planned
//! with a table that was dropped is planned anew, before anything is written.

use std::sync::Arc;

use shunt_language::terms::Value;
use shunt_reactor::Io;
use shunt_transactions::record::{self, Record};
use shunt_transactions::{Decision, TransactionId};
use shunt_wire::cql::message::{ErrorMessage, ResultMessage, Rows, error_code};

use super::failed::Failed;
use super::job::Job;
use super::named::{Found, Named, WaitsForName};
use super::part::Part;
use super::plan::{Decided, Plan, RowRead};
use super::timer::set_due;
use super::{levels, names};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::own::{self, Heard, Levels, Whose};

/// Bytes of the rows that one may return: they have to fit between proxies too.
const SELECTED_BYTES_MAX: usize = 3 << 20;
/// Bytes of one: what it asks, and what it has read.
const JOB_BYTES_MAX: usize = 16 << 20;

/// It has its partitions: what it reads is read.
pub(super) fn read(core: &mut Core, io: &mut Io, id: TransactionId, number: u64) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else {
        return decide(core, io, id, Decision::GiveUp);
    };
    let Some(plan) = job.plan.clone() else { return };
    let (count, tables) = (plan.draft.reads.len(), plan.tables());
    job.rows.clear();
    job.rows.resize(count, None);
    job.reads = count + tables.len();
    for read in 0..count {
        if let Err(failed) = ask_read(core, io, number, read as u16) {
            return give_up(core, io, number, &failed);
        }
    }
    let since_ns = io.now_ns();
    for (place, table) in (0u16..).zip(tables) {
        let waits = WaitsForName::Job { number, table: place };
        names::want(core, io, (&table.keyspace, &table.name), since_ns, waits);
    }
}

/// It is known which table has the name of one that the plan was made with.
pub(super) fn named(core: &mut Core, io: &mut Io, (number, table): (u64, u16), named: Named) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number).filter(|job| job.reads > 0) else { return };
    let Some(plan) = &job.plan else { return };
    let planned = plan.tables().get(usize::from(table)).map(|table| table.id);
    let failed = match names::known(io, named) {
        Found::Table(id) if Some(id) == planned => return count(core, io, number),
        Found::Table(_) | Found::Nothing => changed(core, number),
        Found::Unknown => {
            let why = "Shunt: no node has said which tables there are; nothing was written, ask again";
            Fault::new(FaultKind::Unserved, why).into()
        }
    };
    give_up(core, io, number, &failed);
}

/// Its plan is not true any more: the next one is planned anew.
fn changed(core: &mut Core, number: u64) -> Failed {
    let keeper = &mut core.fleet.transactions;
    if let Some(plan) = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref()) {
        let outline = &plan.draft.outline;
        keeper.plans.forget(&(Arc::clone(&outline.keyspace), Arc::clone(&outline.text)));
    }
    let why = "Shunt: a table of this transaction was changed just now; nothing was written, ask again";
    Fault::new(FaultKind::Unserved, why).into()
}

/// One of those that it waits for has come.
fn count(core: &mut Core, io: &mut Io, number: u64) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    job.reads -= 1;
    if job.reads == 0 {
        all_read(core, io, number);
    }
}

fn ask_read(core: &mut Core, io: &mut Io, number: u64, read: u16) -> Result<(), Failed> {
    let job = core.fleet.transactions.jobs.get(&number);
    let Some((job, plan)) = job.and_then(|job| Some((job, job.plan.clone()?))) else { return Ok(()) };
    let place = usize::from(read);
    let list = plan.with(&job.values).read_values(place).map_err(Fault::from)?;
    let whose = Whose::Transaction(Part::Read { job: number, read });
    let levels = Levels { consistency: levels::quorum(core), serial: None, timestamp_us: None, elsewhere: false };
    let (page, text) = ((plan.rows_max(place) + 1, None), &plan.draft.reads[place].text);
    if own::ask::ask_text(core, io, whose, text, list.values(), &levels, Some(page)) {
        return Ok(());
    }
    let why = "Shunt: no node could be asked for what a transaction reads; nothing was written";
    Err(Fault::new(FaultKind::Unserved, why).into())
}

/// Nothing was written, and it is answered with this.
fn give_up(core: &mut Core, io: &mut Io, number: u64, failed: &Failed) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let (ticket, id) = (job.ticket, job.id);
    job.reads = 0;
    // Its shard may be lost in this same turn, and it be told of that too.
    if !std::mem::replace(&mut job.is_answered, true) {
        core.fleet.transactions.fail(ticket, failed);
    }
    if let Some(id) = id {
        decide(core, io, id, Decision::GiveUp);
    }
}

fn decide(core: &mut Core, io: &mut Io, id: TransactionId, decision: Decision) {
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.decided(now, id, decision, outbox);
    set_due(core, io);
}

/// A row was read, or not.
pub(super) fn heard(core: &mut Core, io: &mut Io, (number, read): (u64, u16), heard: &Heard<'_>, raw: &[u8]) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number).filter(|job| job.reads > 0) else { return };
    let Some(plan) = &job.plan else { return };
    let is_returned = plan.is_returned(usize::from(read));
    let failed = match heard {
        Heard::Result(ResultMessage::Rows(rows)) if !plan.has_columns(usize::from(read), rows) => {
            Some(changed(core, number))
        }
        Heard::Result(ResultMessage::Rows(_)) if is_returned && raw.len() > SELECTED_BYTES_MAX => {
            let why = format!(
                "Shunt: the SELECT of a transaction found {} bytes: {SELECTED_BYTES_MAX} are the most",
                raw.len()
            );
            Some(Fault::invalid(why).into())
        }
        Heard::Result(ResultMessage::Rows(rows)) if is_returned => {
            let most = plan.rows_max(usize::from(read)) as usize;
            if rows.row_count > most || rows.metadata.paging_state.is_some() {
                Some(Fault::invalid(format!("Shunt: the SELECT of a transaction found more than {most} rows")).into())
            } else {
                job.selected = Some(raw.into());
                grow(core, number, raw.len()).err()
            }
        }
        Heard::Result(ResultMessage::Rows(rows)) => {
            job.rows[usize::from(read)] = first_row(rows);
            grow(core, number, raw.len()).err()
        }
        // Its columns have changed since it was prepared: as text it is not asked for these.
        Heard::Error(error) if error.unprepared_id().is_some() => match ask_read(core, io, number, read) {
            Ok(()) => return,
            Err(failed) => Some(failed),
        },
        Heard::Error(error) => Some(of_node(error)),
        Heard::Result(_) | Heard::Unreadable => {
            Some(Fault::overloaded("Shunt: what a transaction reads cannot be read; nothing was written").into())
        }
    };
    match failed {
        Some(failed) => give_up(core, io, number, &failed),
        None => count(core, io, number),
    }
}

/// A transaction has so many bytes more.
fn grow(core: &mut Core, number: u64, bytes: usize) -> Result<(), Failed> {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(()) };
    job.bytes += bytes;
    if keeper.shares.grow(&job.who, bytes) && job.bytes <= JOB_BYTES_MAX {
        return Ok(());
    }
    let why =
        "Shunt: transactions of this role, or all of them, read more than this proxy may keep; nothing was written";
    Err(Fault::overloaded(why).into())
}

fn first_row(rows: &Rows<'_>) -> RowRead {
    let row = rows.rows().next()?.ok()?;
    Some(row.values().map(|value| value.map(Box::from)).collect())
}

/// Nothing is written yet: the client may simply ask again.
fn of_node(error: &ErrorMessage<'_>) -> Failed {
    if levels::is_clients(error.code) {
        return Failed::Node { code: error.code, message: error.message.to_owned() };
    }
    let why = format!("Shunt: what a transaction reads could not be read, nothing was written: {}", error.message);
    Failed::Node { code: error_code::OVERLOADED, message: why }
}

fn all_read(core: &mut Core, io: &mut Io, number: u64) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let (Some(plan), Some(id)) = (job.plan.clone(), job.id) else { return };
    let bound = plan.with(&job.values);
    // Before anything is written: what it answers may be refused.
    let decided = bound.returned(&job.rows).and_then(|returned| Ok((returned, bound.decide(&job.rows)?)));
    let decided = decided.map(|(returned, decided)| {
        job.returned = returned;
        decided
    });
    let decision = match decided {
        Err(error) => return give_up(core, io, number, &Fault::from(error).into()),
        Ok(Decided::Nothing) => Decision::Nothing,
        Ok(Decided::Write(writes)) => {
            job.writes = writes;
            // The timestamp is not known yet; its place is.
            if let Err(error) = encode(job, &plan, 0) {
                let fault = Fault::invalid(format!("Shunt: the writes of this transaction make no record: {error}"));
                return give_up(core, io, number, &fault.into());
            }
            let bytes = job.record.len();
            if let Err(failed) = grow(core, number, bytes) {
                return give_up(core, io, number, &failed);
            }
            Decision::Write(plan.draft.writes.len() as u16)
        }
    };
    decide(core, io, id, decision);
}

fn encode(job: &mut Job, plan: &Plan, timestamp_us: i64) -> Result<(), record::BadRecord> {
    let writes = plan.draft.writes.iter().zip(&job.writes).enumerate().map(|(place, (write, values))| {
        let table = plan.table_of_write(place);
        let (keyspace, name) = table.map_or(("", ""), |table| (&table.keyspace, &table.name));
        let id = table.map_or([0; 16], |table| table.id);
        let values = values.iter().map(|value| match value {
            Value::Bytes(bytes) => record::Value::Bytes(bytes),
            Value::Null => record::Value::Null,
            Value::Unset => record::Value::Unset,
        });
        record::Write { keyspace, table: name, id, text: &write.text, values: values.collect() }
    });
    let record = Record { shard: job.shard, timestamp_us, key: &[], writes: writes.collect() };
    job.record.clear();
    let mut bytes = std::mem::take(&mut job.record);
    let done = record.encode(&mut bytes);
    job.record = bytes;
    done
}

/// The record of a transaction, with its timestamp. None: it is not there any more.
pub(super) fn record_of(core: &mut Core, id: TransactionId, timestamp_us: i64) -> Option<Vec<u8>> {
    let number = core.fleet.transactions.of_id.get(&id)?;
    let job = core.fleet.transactions.jobs.get_mut(number)?;
    let plan = job.plan.clone()?;
    job.timestamp_us = timestamp_us;
    encode(job, &plan, timestamp_us).ok()?;
    Some(job.record.clone())
}
