//! A transaction that has its partitions reads, and is decided by what it has read; then there is a
//! record of what it writes.
//!
//! What is read is read at QUORUM. Beside that, it is made sure that the tables are those that the
//! plan was made with, and that those to which it writes have the same columns: what was planned
//! with a table that was dropped, or changed, is planned anew, before anything is written. A node
//! is asked for that each time, when the transaction has its partitions: what it is told is
//! committed it is told before the writes are made, which no node would take then.

use std::sync::Arc;

use shunt_language::terms::Value;
use shunt_reactor::Io;
use shunt_transactions::record::{self, Record};
use shunt_transactions::{Decision, TransactionId};
use shunt_wire::cql::message::{ErrorMessage, ResultMessage, Rows, error_code};

use super::failed::Failed;
use super::job::Job;
use super::part::{Part, WaitsForName, Who};
use super::timer::set_due;
use super::unconfirmed::Unconfirmed;
use super::{answer, confirm, levels, lone, modes, names};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::statements::{self, Heard, Levels, Whose};
use shunt_transactions::catalogue::table_identity::{Found, Named, What};
use shunt_transactions::guard::idempotency as own_rows;
use shunt_transactions::plan::{Decided, Plan, RowRead};
use shunt_transactions::request::Head;

/// Bytes of the rows that one may return: they have to fit between proxies too.
const SELECTED_BYTES_MAX: usize = 3 << 20;
/// Bytes of one: what it asks, and what it has read.
const JOB_BYTES_MAX: usize = 16 << 20;

/// It has its partitions: what it reads is read.
pub(super) fn read(core: &mut Core, io: &mut Io, id: TransactionId, number: u64) {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else {
        return decide(core, io, id, Decision::GiveUp);
    };
    job.own
        .begin(keeper.table.as_ref().and_then(|table| table.claim(job.shard)), &mut keeper.fences);
    let Some(plan) = job.plan.clone() else { return };
    if plan.draft.lone.is_some() {
        return read_alone(core, io, number, &plan);
    }
    let (of_plan, tables) = (plan.draft.reads.len(), plan.tables());
    let count = of_plan + job.own.count();
    job.rows.clear();
    job.rows.resize(of_plan, None);
    let asks_columns = plan.asks_columns();
    job.reads = count + tables.len() + asks_columns.iter().filter(|asks| **asks).count();
    for read in 0..count {
        if let Err(failed) = ask_read(core, io, number, read as u16) {
            return give_up(core, io, number, &failed);
        }
    }
    let since_ns = io.now_ns();
    for ((place, table), asks_columns) in (0u16..).zip(tables).zip(asks_columns) {
        let name = (&*table.keyspace, &*table.name);
        for what in
            [What::Id, What::Columns].into_iter().filter(|what| *what == What::Id || *asks_columns)
        {
            names::want(core, io, name, since_ns, WaitsForName::Job { number, table: place, what });
        }
    }
}

/// A single statement has its row: what is not known of it is read.
fn read_alone(core: &mut Core, io: &mut Io, number: u64, plan: &Arc<Plan>) {
    let begun = lone::begin(core, io, number);
    let since_ns = match begun {
        Ok(lone::Begun::Name(since_ns)) => {
            if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
                job.reads = 1;
            }
            since_ns
        }
        Ok(lone::Begun::Row) => {
            if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
                job.rows = vec![None];
                job.reads = 3;
            }
            if let Err(failed) = ask_read(core, io, number, 0) {
                return give_up(core, io, number, &failed);
            }
            let since_ns = io.now_ns();
            lone::want(core, io, number, plan, (What::Columns, since_ns));
            since_ns
        }
        Err(failed) => return give_up(core, io, number, &failed),
    };
    lone::want(core, io, number, plan, (What::Id, since_ns));
}

/// It is known which table has the name of one that the plan was made with, or which columns.
pub(super) fn named(
    core: &mut Core,
    io: &mut Io,
    (number, table, what): (u64, u16, What),
    named: Named,
) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number).filter(|job| job.reads > 0)
    else {
        return;
    };
    let Some(plan) = job.plan.clone() else { return };
    let tables = plan.tables();
    let Some(of) = tables.get(usize::from(table)) else { return };
    let planned = if what == What::Id { of.id } else { of.columns_id };
    let failed = match names::known(io, named) {
        Found::Table(found) if found == planned => return count(core, io, number),
        Found::Table(_) | Found::Nothing => changed(core, number),
        Found::Unknown => {
            let why = match what {
                What::Id => {
                    "Shunt: no node has said which tables there are; nothing was written, ask again"
                }
                What::Columns => {
                    "Shunt: no node has said which columns the table has; nothing was written, ask again"
                }
            };
            Fault::new(FaultKind::Unserved, why).into()
        }
    };
    give_up(core, io, number, &failed);
}

/// Its plan is not true any more: the next one is planned anew.
pub(super) fn changed(core: &mut Core, number: u64) -> Failed {
    let keeper = &mut core.fleet.transactions;
    if let Some(plan) = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref()) {
        let outline = &plan.draft.outline;
        keeper.plannings.plans.forget(&(Arc::clone(&outline.keyspace), Arc::clone(&outline.text)));
    }
    changed_just_now().into()
}

pub(super) fn changed_just_now() -> Fault {
    let why =
        "Shunt: a table of this transaction was changed just now; nothing was written, ask again";
    Fault::new(FaultKind::Unserved, why)
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
    let Some((job, plan)) = job.and_then(|job| Some((job, job.plan.clone()?))) else {
        return Ok(());
    };
    let place = usize::from(read);
    let (text, list, rows_max) = match plan.draft.reads.get(place) {
        Some(read) => {
            let list = plan.with(&job.values).read_values(place).map_err(Fault::from)?;
            (Arc::clone(&read.text), list, plan.rows_max(place))
        }
        None => match job.own.read(place - plan.draft.reads.len()) {
            Some((text, list)) => (text, list, 1),
            None => return Ok(()),
        },
    };
    let whose = Whose::Transaction(Part::Read { job: number, read, who: Who::of(&job.who) });
    let consistency = lone::level(core, job);
    let levels = Levels { consistency, serial: None, timestamp_us: None, elsewhere: false };
    if statements::ask::ask_text(
        core,
        io,
        whose,
        &text,
        list.values(),
        &levels,
        Some((rows_max + 1, None)),
    ) {
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
    if job.deciding.as_ref().is_some_and(|deciding| deciding.observed.is_some())
        && let Some(id) = id
    {
        // A node decides it, and needs nothing of what was read.
        return decide(core, io, id, Decision::Alone(lone::TIMESTAMPS));
    }
    // Its shard may be lost in this same turn, and it be told of that too.
    if !std::mem::replace(&mut job.is_answered, true) {
        core.fleet.transactions.fail(ticket, failed);
    }
    if let Some(id) = id {
        decide(core, io, id, Decision::GiveUp);
    }
}

fn decide(core: &mut Core, io: &mut Io, id: TransactionId, decision: Decision) {
    if decision == Decision::Nothing && confirm::is_wanted(core) {
        return confirm::want(core, io, Unconfirmed::Decided(id, decision));
    }
    let now = levels::now(io);
    if let Some(number) = writer(core, id, decision)
        && let Some(fault) = core.fleet.clocks.refusal(now)
    {
        return give_up(core, io, number, &fault.into());
    }
    let (table, outbox) = core.fleet.transactions.table();
    table.decided(now, id, decision, outbox);
    set_due(core, io);
}

/// The job of a transaction that writes with timestamps of this proxy's clock, if this one does.
fn writer(core: &Core, id: TransactionId, decision: Decision) -> Option<u64> {
    if matches!(decision, Decision::Nothing | Decision::GiveUp) {
        return None;
    }
    let keeper = &core.fleet.transactions;
    let number = keeper.of_id.get(&id).copied()?;
    keeper.jobs.get(&number).is_some_and(|job| !job.is_observed).then_some(number)
}

/// A row was read, or not.
pub(super) fn heard(
    core: &mut Core,
    io: &mut Io,
    (number, read): (u64, u16),
    heard: &Heard<'_>,
    raw: &[u8],
) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number).filter(|job| job.reads > 0)
    else {
        return;
    };
    let Some(plan) = &job.plan else { return };
    let is_returned = plan.is_returned(usize::from(read));
    let own = usize::from(read).checked_sub(plan.draft.reads.len());
    let failed = match heard {
        Heard::Result(ResultMessage::Rows(rows)) if let Some(place) = own => {
            let broken = || Fault::overloaded("Shunt: a row of shunt_meta is not as a proxy writes it; nothing was written");
            match job.own.learn(place, rows) {
                Some(()) => grow(core, number, raw.len()).err().map(Failed::from),
                None => Some(broken().into()),
            }
        }
        Heard::Error(error) if own.is_some() && error.code == error_code::INVALID => Some(
            Fault::invalid(
                "Shunt: this fleet knows no guards and keys of transactions yet: run `shunt fleet init` of this version once",
            )
            .into(),
        ),
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
                grow(core, number, raw.len()).err().map(Failed::from)
            }
        }
        Heard::Result(ResultMessage::Rows(rows)) => {
            job.rows[usize::from(read)] = first_row(rows);
            grow(core, number, raw.len()).err().map(Failed::from)
        }
        // Its columns have changed since it was prepared: as text it is not asked for these.
        Heard::Error(error) if error.unprepared_id().is_some() => match ask_read(core, io, number, read) {
            Ok(()) => return,
            Err(failed) => Some(failed),
        },
        Heard::Error(error) if plan.draft.is_refused_for_another(error) => Some(changed(core, number)),
        Heard::Error(error) => Some(of_node(error)),
        Heard::Result(_) | Heard::Unreadable => {
            Some(Fault::overloaded("Shunt: what a transaction reads cannot be read; nothing was written").into())
        }
    };
    let Some(failed) = failed else { return count(core, io, number) };
    match core.fleet.transactions.jobs.get_mut(&number) {
        // It may have been carried out before, and what was answered then counts.
        Some(job) if own.is_none() && job.own.wants_answer() => {
            job.failed.get_or_insert(failed);
            count(core, io, number);
        }
        _ => give_up(core, io, number, &failed),
    }
}

/// A transaction has so many bytes more.
pub(super) fn grow(core: &mut Core, number: u64, bytes: usize) -> Result<(), Fault> {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(()) };
    job.bytes += bytes;
    if keeper.shares.grow(&job.who, bytes) && job.bytes <= JOB_BYTES_MAX {
        return Ok(());
    }
    let why = "Shunt: transactions of this role, or all of them, have more than this proxy may keep; nothing was written";
    Err(Fault::overloaded(why))
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
    let why = format!(
        "Shunt: what a transaction reads could not be read, nothing was written: {}",
        error.message
    );
    Failed::Node { code: error_code::OVERLOADED, message: why }
}

fn all_read(core: &mut Core, io: &mut Io, number: u64) {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return };
    let Some(id) = job.id else { return };
    if job.deciding.is_some() {
        return match lone::decide(core, io, number) {
            Ok(decision) => decide(core, io, id, decision),
            Err(failed) => give_up(core, io, number, &failed),
        };
    }
    let plan = job.plan.clone().filter(|_| !job.own.has_guard());
    let tells_early = plan.is_some_and(|plan| modes::is_read_by_transactions(core, io, &plan));
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return };
    let decided = decision(job, tells_early);
    job.own.decided(&mut keeper.fences);
    match decided {
        Ok(To::Decide(decision, bytes)) => match grow(core, number, bytes) {
            Ok(()) => decide(core, io, id, decision),
            Err(fault) => give_up(core, io, number, &fault.into()),
        },
        Ok(To::TellAgain(head, body)) => {
            let ticket = job.ticket;
            if !std::mem::replace(&mut job.is_answered, true) {
                core.fleet.transactions.tell(ticket, head, body);
            }
            decide(core, io, id, Decision::GiveUp);
        }
        Err(failed) => give_up(core, io, number, &failed),
    }
}

/// What is to be done with what was read.
enum To {
    /// The record of what it writes has so many bytes.
    Decide(Decision, usize),
    /// It was carried out before, and this was its answer.
    TellAgain(Head, Vec<u8>),
}

/// `tells_early`: nobody reads what it writes but transactions.
fn decision(job: &mut Job, tells_early: bool) -> Result<To, Failed> {
    let Some(plan) = job.plan.clone() else { return Ok(To::Decide(Decision::GiveUp, 0)) };
    if let Some(outcome) = job.own.check()?.cloned() {
        job.own.raise();
        if !job.own.writes.is_empty() {
            job.told = Some(outcome);
            return to_write(job, tells_early);
        }
        let (head, body) = answer::again(job.version, &outcome);
        return Ok(To::TellAgain(head, body));
    }
    if let Some(failed) = job.failed.take() {
        return Err(failed);
    }
    let bound = plan.with(&job.values);
    // Before anything is written: what it answers may be refused.
    job.returned = bound.returned(&job.rows).map_err(Fault::from)?;
    job.writes = match bound.decide(&job.rows).map_err(Fault::from)? {
        Decided::Nothing => Vec::new(),
        Decided::Write(writes) => writes,
    };
    let kept = job.own.wants_answer().then(|| answer::result(job)).transpose()?;
    if let Some(kept) = kept.as_ref().filter(|kept| kept.len() > own_rows::ANSWER_BYTES_MAX) {
        let (bytes, most) = (kept.len(), own_rows::ANSWER_BYTES_MAX);
        let why = format!(
            "Shunt: the answer of this transaction has {bytes} bytes: {most} are the most with shunt-idempotency"
        );
        return Err(Fault::invalid(why).into());
    }
    job.own.decide(!job.writes.is_empty(), kept);
    to_write(job, tells_early)
}

fn to_write(job: &mut Job, tells_early: bool) -> Result<To, Failed> {
    let count = job.writes_count();
    if count == 0 {
        return Ok(To::Decide(Decision::Nothing, 0));
    }
    // The timestamp is not known yet; its place is.
    let record = encode(job, 0).map_err(|error| {
        Failed::from(Fault::invalid(format!(
            "Shunt: the writes of this transaction make no record: {error}"
        )))
    })?;
    let count = count as u16;
    let decision = if tells_early { Decision::WriteAndTell(count) } else { Decision::Write(count) };
    Ok(To::Decide(decision, record.len()))
}

fn encode(job: &Job, timestamp_us: i64) -> Result<Vec<u8>, record::BadRecord> {
    let writes = (0..job.writes_count()).map_while(|number| job.write(number)).map(|one| {
        let values = one.values.iter().map(|value| match value {
            Value::Bytes(bytes) => record::Value::Bytes(bytes),
            Value::Null => record::Value::Null,
            Value::Unset => record::Value::Unset,
        });
        let (keyspace, table, text) = (one.keyspace, one.table, &**one.text);
        record::Write { keyspace, table, id: one.id, text, values: values.collect() }
    });
    let record = Record { shard: job.shard, timestamp_us, key: &[], writes: writes.collect() };
    let mut bytes = Vec::new();
    record.encode(&mut bytes)?;
    Ok(bytes)
}

/// The record of a transaction, with its timestamp, and for whom it is written. None: it is not
/// there any more.
pub(super) fn record_of(
    core: &mut Core,
    id: TransactionId,
    timestamp_us: i64,
) -> Option<(Vec<u8>, Who)> {
    let number = core.fleet.transactions.of_id.get(&id)?;
    let job = core.fleet.transactions.jobs.get_mut(number)?;
    job.timestamp_us = timestamp_us;
    Some((encode(job, timestamp_us).ok()?, Who::of(&job.who)))
}
