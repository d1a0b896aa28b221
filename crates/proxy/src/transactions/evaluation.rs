//! Evaluation of a transaction that has its partitions: its rows are read, and decide it.
//!
//! Rows are read at QUORUM. A node is also asked each time whether the tables are those of the
//! plan, and whether written tables have the planned columns: a transaction planned with a table
//! that was dropped or changed is planned again before anything is written. The check happens while
//! the partitions are locked, because clients are told of the commit before the writes are made,
//! and no node would accept writes to a changed table.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_transactions::catalogue::table_identity::{Identity, IdentityAnswer, IdentityKind};
use shunt_transactions::conditional::row::{Knowledge, ReadRow};
use shunt_transactions::guard::idempotency;
use shunt_transactions::plan::{Plan, PlanDecision, RowRead};
use shunt_transactions::request::Head;
use shunt_transactions::{Decision, TransactionId};
use shunt_wire::cql::message::{ErrorMessage, ResultMessage, Rows, error_code};

use super::{answer, conditional, confirmation, levels, modes, table_identity};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::transactions::job::{Failure, Job};
use crate::transactions::ownership::Unconfirmed;
use crate::transactions::part::{IdentityWaiter, Part, Who};
use crate::transactions::timer::set_due;

/// Bytes of the rows that a transaction may return, which must also fit between proxies.
const SELECTED_BYTES_MAX: usize = 3 << 20;
/// Bytes of one transaction: its request and the rows that it reads.
const JOB_BYTES_MAX: usize = 16 << 20;

/// Reads the rows of a transaction that has its partitions.
pub(super) fn read_rows(core: &mut Core, io: &mut Io, id: TransactionId, number: u64) {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else {
        return decide(core, io, id, Decision::GiveUp);
    };
    job.guard_rows
        .begin(keeper.table.as_ref().and_then(|table| table.claim(job.shard)), &mut keeper.fences);
    let Some(plan) = job.plan.clone() else { return };
    if plan.draft.conditional.is_some() {
        return read_single_row(core, io, number, &plan);
    }
    let (of_plan, tables) = (plan.draft.reads.len(), plan.tables());
    let count = of_plan + job.guard_rows.count();
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
        for what in [IdentityKind::Id, IdentityKind::Columns]
            .into_iter()
            .filter(|what| *what == IdentityKind::Id || *asks_columns)
        {
            look_up(core, io, (number, place, what), name, since_ns);
        }
    }
}

/// Reads the row of a single statement, if it is not known. In any case a node is asked for the
/// version of the schema, unless one has named it within the last second.
fn read_single_row(core: &mut Core, io: &mut Io, number: u64, plan: &Arc<Plan>) {
    if !core.fleet.transactions.schema_versions.is_known() {
        // A row is known from a version on, so its first question comes before the first row.
        if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
            (job.reads, job.conditional) = (1, None);
        }
        return look_up_version(core, io, number);
    }
    let begun = conditional::start(core, io, number);
    let since_ns = match begun {
        Ok(conditional::Prerequisite::Name(since_ns)) => {
            if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
                job.reads = 2;
            }
            since_ns
        }
        Ok(conditional::Prerequisite::Row) => {
            if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
                job.rows = vec![None];
                job.reads = 4;
            }
            if let Err(failed) = ask_read(core, io, number, 0) {
                return give_up(core, io, number, &failed);
            }
            let since_ns = io.now_ns();
            look_up_table(core, io, number, plan, (IdentityKind::Columns, since_ns));
            since_ns
        }
        Err(failed) => return give_up(core, io, number, &failed),
    };
    look_up_table(core, io, number, plan, (IdentityKind::Id, since_ns));
    look_up_version(core, io, number);
}

/// Asks a node for the version of the schema.
fn look_up_version(core: &mut Core, io: &mut Io, number: u64) {
    let versions = &core.fleet.transactions.schema_versions;
    let since_ns = versions.since_ns(io.now_ns(), conditional::NAMED_NS);
    look_up(core, io, (number, 0, IdentityKind::Schema), ("", ""), since_ns);
}

/// Looks up the table of a single statement.
fn look_up_table(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    plan: &Plan,
    (what, since_ns): (IdentityKind, u64),
) {
    if let Some(table) = plan.tables().first() {
        look_up(core, io, (number, 0, what), (&table.keyspace, &table.name), since_ns);
    }
}

/// Has a node confirm the id or columns of a table, or takes in an answer that is known.
fn look_up(
    core: &mut Core,
    io: &mut Io,
    (number, table, what): (u64, u16, IdentityKind),
    name: (&str, &str),
    since_ns: u64,
) {
    let waiter = IdentityWaiter::Job { number, table, what };
    if let Some(known) = table_identity::look_up(core, io, name, since_ns, waiter) {
        identity_known(core, io, (number, table, what), known);
    }
}

/// Takes in the id or columns of one of the plan's tables.
pub(super) fn identity_known(
    core: &mut Core,
    io: &mut Io,
    (number, table, what): (u64, u16, IdentityKind),
    named: IdentityAnswer,
) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number).filter(|job| job.reads > 0)
    else {
        return;
    };
    let Some(plan) = job.plan.clone() else { return };
    let tables = plan.tables();
    let Some(of) = tables.get(usize::from(table)) else { return };
    let planned = match what {
        IdentityKind::Id => Some(of.id),
        IdentityKind::Columns => Some(of.columns_id),
        // Another version has marked all rows as to be read.
        IdentityKind::Schema => None,
    };
    let failed = match table_identity::current(io, named) {
        Identity::Table(found) if planned.is_none_or(|planned| found == planned) => {
            return count(core, io, number);
        }
        Identity::Table(_) | Identity::Nothing => plan_outdated(core, number),
        Identity::Unknown => {
            let why = match what {
                IdentityKind::Id => {
                    "Shunt: no node has confirmed that the table is unchanged; nothing was written, ask again"
                }
                IdentityKind::Columns => {
                    "Shunt: no node has confirmed that the table's columns are unchanged; nothing was written, ask again"
                }
                IdentityKind::Schema => {
                    "Shunt: no node has confirmed that the schema is unchanged; nothing was written, ask again"
                }
            };
            Fault::new(FaultKind::Unserved, why).into()
        }
    };
    give_up(core, io, number, &failed);
}

/// Drops an outdated plan, so that the next transaction is planned again.
pub(super) fn plan_outdated(core: &mut Core, number: u64) -> Failure {
    let keeper = &mut core.fleet.transactions;
    if let Some(plan) = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref()) {
        let outline = &plan.draft.outline;
        keeper.plannings.plans.forget(&(Arc::clone(&outline.keyspace), Arc::clone(&outline.text)));
    }
    changed_just_now().into()
}

pub(super) fn changed_just_now() -> Fault {
    let why = "Shunt: a table of this transaction has just changed; nothing was written, ask again";
    Fault::new(FaultKind::Unserved, why)
}

pub(super) fn expires() -> Fault {
    let why = "Shunt: a value of the row expires about now, and nodes took long to answer; nothing was written, ask again";
    Fault::new(FaultKind::Unserved, why)
}

/// Counts an answer, and goes on after the last.
fn count(core: &mut Core, io: &mut Io, number: u64) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    job.reads -= 1;
    if job.reads == 0 {
        all_read(core, io, number);
    }
}

fn ask_read(core: &mut Core, io: &mut Io, number: u64, read: u16) -> Result<(), Failure> {
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
        None => match job.guard_rows.read_statement(place - plan.draft.reads.len()) {
            Some((text, list)) => (text, list, 1),
            None => return Ok(()),
        },
    };
    let whose = Whose::Transaction(Part::Read { job: number, read, who: Who::of(&job.who) });
    let consistency = conditional::level(core, job);
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
    let why = "Shunt: a transaction's rows could not be read; nothing was written";
    Err(Fault::new(FaultKind::Unserved, why).into())
}

/// Ends a transaction with an error. Nothing was written.
fn give_up(core: &mut Core, io: &mut Io, number: u64, failed: &Failure) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let (ticket, id) = (job.ticket, job.id);
    job.reads = 0;
    if job.conditional.as_ref().is_some_and(|state| state.observed.is_some())
        && let Some(id) = id
    {
        // A node decides the statement, without the rows.
        return decide(core, io, id, Decision::Unlogged(conditional::TIMESTAMPS));
    }
    // The shard may be lost in the same turn, which also answers the client.
    if !std::mem::replace(&mut job.is_answered, true) {
        core.fleet.transactions.fail(ticket, failed);
    }
    if let Some(id) = id {
        decide(core, io, id, Decision::GiveUp);
    }
}

fn decide(core: &mut Core, io: &mut Io, id: TransactionId, decision: Decision) {
    if decision == Decision::Nothing && confirmation::is_enabled(core) {
        return confirmation::request(core, io, Unconfirmed::Decided(id, decision));
    }
    let now = levels::now(io);
    if let Some(number) = writer(core, id, decision)
        && let Some(fault) = core.fleet.clocks.refusal(now)
    {
        return give_up(core, io, number, &fault.into());
    }
    let (table, effects) = core.fleet.transactions.table();
    table.decided(now, id, decision, effects);
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

/// Takes in a row.
pub(super) fn row_answered(
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
            let broken = || Fault::overloaded("Shunt: a row of shunt_meta has an unknown form; nothing was written");
            match job.guard_rows.learn(place, rows) {
                Some(()) => grow(core, number, raw.len()).err().map(Failure::from),
                None => Some(broken().into()),
            }
        }
        Heard::Error(error) if own.is_some() && error.code == error_code::INVALID => Some(
            Fault::invalid(
                "Shunt: this fleet has no tables for guards and keys yet; run `shunt fleet init` of this version once",
            )
            .into(),
        ),
        Heard::Result(ResultMessage::Rows(rows)) if !plan.has_columns(usize::from(read), rows) => {
            Some(plan_outdated(core, number))
        }
        Heard::Result(ResultMessage::Rows(_)) if is_returned && raw.len() > SELECTED_BYTES_MAX => {
            let why = format!(
                "Shunt: the SELECT of a transaction found {} bytes; {SELECTED_BYTES_MAX} are allowed",
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
                grow(core, number, raw.len()).err().map(Failure::from)
            }
        }
        Heard::Result(ResultMessage::Rows(rows)) if rows.row_count > 1 => Some(
            Fault::overloaded(format!(
                "Shunt: a read of one row returned {} rows; nothing was written",
                rows.row_count
            ))
            .into(),
        ),
        Heard::Result(ResultMessage::Rows(rows)) => {
            keep_row(job, usize::from(read), rows, io.now_ns());
            grow(core, number, raw.len()).err().map(Failure::from)
        }
        // The columns have changed since the statement was prepared. Sent as text, it needs no
        // preparation.
        Heard::Error(error) if error.unprepared_id().is_some() => match ask_read(core, io, number, read) {
            Ok(()) => return,
            Err(failed) => Some(failed),
        },
        Heard::Error(error) if plan.draft.is_refused_for_another(error) => Some(plan_outdated(core, number)),
        Heard::Error(error) => Some(of_node(error)),
        Heard::Result(_) | Heard::Unreadable => {
            Some(Fault::overloaded("Shunt: a node's answer to a read cannot be decoded; nothing was written").into())
        }
    };
    let Some(failed) = failed else { return count(core, io, number) };
    match core.fleet.transactions.jobs.get_mut(&number) {
        // The transaction may have been carried out before, and the earlier answer counts.
        Some(job) if own.is_none() && job.guard_rows.wants_answer() => {
            job.failed.get_or_insert(failed);
            count(core, io, number);
        }
        _ => give_up(core, io, number, &failed),
    }
}

/// Adds bytes to a transaction.
pub(super) fn grow(core: &mut Core, number: u64, bytes: usize) -> Result<(), Fault> {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(()) };
    job.bytes += bytes;
    if keeper.shares.grow(&job.who, bytes) && job.bytes <= JOB_BYTES_MAX {
        return Ok(());
    }
    let why = "Shunt: transactions, of this role or in all, exceed the memory that they may use; nothing was written";
    Err(Fault::overloaded(why))
}

/// Keeps a row that was read, and when it came.
fn keep_row(job: &mut Job, place: usize, rows: &Rows<'_>, now_ns: u64) {
    job.rows[place] = first_row(rows);
    job.conditional.iter_mut().for_each(|state| state.answered_ns = now_ns);
}

fn first_row(rows: &Rows<'_>) -> RowRead {
    let row = rows.rows().next()?.ok()?;
    Some(row.values().map(|value| value.map(Box::from)).collect())
}

/// Converts a node's error. Since nothing is written yet, the client can simply repeat the request.
fn of_node(error: &ErrorMessage<'_>) -> Failure {
    if levels::is_clients(error.code) {
        return Failure::Node { code: error.code, message: error.message.to_owned() };
    }
    let why = format!(
        "Shunt: a transaction's rows could not be read, nothing was written: {}",
        error.message
    );
    Failure::Node { code: error_code::OVERLOADED, message: why }
}

/// True if the row that a single statement would be decided by was known before the schema changed,
/// or may have expired since the statement began: nodes may take seconds to name the schema's
/// version.
fn is_outdated(core: &Core, io: &mut Io, number: u64) -> bool {
    let now_ns = io.read_clock_ns();
    let keeper = &core.fleet.transactions;
    let Some(job) = keeper.jobs.get(&number) else { return false };
    let Some(state) = &job.conditional else { return true };
    match &state.known {
        Knowledge::Row(row) => state.of.epoch != keeper.rows.epoch() || now_ns >= row.until_ns(),
        // A node decides, by its own row.
        _ if job.is_observed => false,
        Knowledge::Nothing | Knowledge::Settled => {
            let seconds = job.rows.first().and_then(ReadRow::shortest_life);
            state.may_have_expired(seconds, now_ns)
        }
    }
}

fn all_read(core: &mut Core, io: &mut Io, number: u64) {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return };
    let Some(id) = job.id else { return };
    if let Some(plan) = job.plan.clone().filter(|plan| plan.draft.conditional.is_some()) {
        // The schema has changed since its row was written down, or its version is known now, or
        // the row may have expired.
        if is_outdated(core, io, number) {
            return read_single_row(core, io, number, &plan);
        }
        return match conditional::decide(core, io, number) {
            Ok(decision) => decide(core, io, id, decision),
            Err(failed) => give_up(core, io, number, &failed),
        };
    }
    let plan = job.plan.clone().filter(|_| !job.guard_rows.has_guard());
    let tells_early = plan.is_some_and(|plan| modes::is_read_by_transactions(core, io, &plan));
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return };
    let decided = decision(job, tells_early);
    job.guard_rows.decided(&mut keeper.fences);
    match decided {
        Ok(NextStep::Decide(decision, bytes)) => match grow(core, number, bytes) {
            Ok(()) => decide(core, io, id, decision),
            Err(fault) => give_up(core, io, number, &fault.into()),
        },
        Ok(NextStep::TellAgain(head, body)) => {
            let ticket = job.ticket;
            if !std::mem::replace(&mut job.is_answered, true) {
                core.fleet.transactions.tell(ticket, head, body);
            }
            decide(core, io, id, Decision::GiveUp);
        }
        Err(failed) => give_up(core, io, number, &failed),
    }
}

/// The step after the decision.
enum NextStep {
    /// The decision, with the bytes of its record.
    Decide(Decision, usize),
    /// The earlier answer of a repeated transaction.
    TellAgain(Head, Vec<u8>),
}

/// Decides a transaction. `tells_early` says that only transactions read the tables that it writes.
fn decision(job: &mut Job, tells_early: bool) -> Result<NextStep, Failure> {
    let Some(plan) = job.plan.clone() else { return Ok(NextStep::Decide(Decision::GiveUp, 0)) };
    if let Some(outcome) = job.guard_rows.check()?.cloned() {
        job.guard_rows.raise();
        if !job.guard_rows.writes.is_empty() {
            job.told = Some(outcome);
            return to_write(job, tells_early);
        }
        let (head, body) = answer::repeat_answer(job.version, &outcome);
        return Ok(NextStep::TellAgain(head, body));
    }
    if let Some(failed) = job.failed.take() {
        return Err(failed);
    }
    let bound = plan.with(&job.values);
    // Nothing is written yet, so the answer may still be refused.
    job.returned = bound.returned(&job.rows).map_err(Fault::from)?;
    job.writes = match bound.decide(&job.rows).map_err(Fault::from)? {
        PlanDecision::Nothing => Vec::new(),
        PlanDecision::Write(writes) => writes,
    };
    let kept = job.guard_rows.wants_answer().then(|| answer::result(job)).transpose()?;
    if let Some(kept) = kept.as_ref().filter(|kept| kept.len() > idempotency::ANSWER_BYTES_MAX) {
        let (bytes, most) = (kept.len(), idempotency::ANSWER_BYTES_MAX);
        let why = format!(
            "Shunt: the answer of this transaction has {bytes} bytes; {most} are allowed with shunt-idempotency"
        );
        return Err(Fault::invalid(why).into());
    }
    job.guard_rows.decide(!job.writes.is_empty(), kept);
    to_write(job, tells_early)
}

fn to_write(job: &mut Job, tells_early: bool) -> Result<NextStep, Failure> {
    let count = job.writes_count();
    if count == 0 {
        return Ok(NextStep::Decide(Decision::Nothing, 0));
    }
    // The timestamp is not known yet, and does not change the size.
    let record = job.record(0).map_err(|error| {
        Failure::from(Fault::invalid(format!("Shunt: cannot encode the redo record: {error}")))
    })?;
    let count = count as u16;
    let decision = if tells_early { Decision::WriteAndTell(count) } else { Decision::Write(count) };
    Ok(NextStep::Decide(decision, record.len()))
}
