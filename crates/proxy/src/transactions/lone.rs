//! Single statements on tables with the mode `conditional`: decided by the row as this core knows it, and written once.
//!
//! 1. The statement has its row. If the core knows the row, nothing is read; else it is read at SERIAL, which ends what nodes have
//!    begun of conditional statements of their own, and a node is asked if the table's columns are still those that it was planned with.
//! 2. If its conditions do not hold, that is its answer; where the row was not known, once it was made anew as in 3.
//! 3. Else it is written at QUORUM, with a timestamp of the shard's clock. Where the row was not known it goes in one batch behind what makes the
//!    row anew, so that whatever a former owner has on its way changes nothing when it comes.
//! 4. When that is acknowledged, and the lease is valid still, the row is what it was changed to. When nobody knows, the row is forgotten, and
//!    the next statement begins at 1.
//!
//! What must never be: a decision by a row to which something may be on its way that nobody has heard of; one by a row of which the
//! values may have expired, or of a table that was dropped, or emptied by a proxy; an answer that says applied, where the next owner
//! may read otherwise. [ADR 21](../../../../docs/adr/0021-conditional-statements-decided-by-rows-in-memory.md) has the reasons.

use shunt_locks::Written;
use shunt_reactor::Io;
use shunt_transactions::{Decision, Partition, Refused, TransactionId};
use shunt_wire::cql::message::encode_result::RowsWriter;
use shunt_wire::cql::message::{Consistency, ResultMessage, encode, error_code};

use super::deciding::Deciding;
use super::failed::Failed;
use super::job::Job;
use super::named::WaitsForName;
use super::names;
use super::part::{Part, Who};
use super::plan::lone::{Lone, TIMESTAMPS, Verdict, when_applied};
use super::plan::{Plan, Shown};
use super::row::{Change, Known, Of, ReadRow, Row};
use super::timer::set_due;
use super::{levels, schema};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::limits::SECOND_NS;
use crate::own::{self, Heard, Levels, Whose};

/// How old it may be what a node said of the table's name, where the row is known and nothing else is asked.
const NAMED_NS: u64 = SECOND_NS;

/// What a statement waits for before it can be decided.
pub(super) enum Begun {
    /// A node's word on its table, no older than this.
    Name(u64),
    /// Its row, a node's word on the table, and on its columns.
    Row,
}

/// A single statement has its row to itself.
pub(super) fn begin(core: &mut Core, io: &mut Io, number: u64) -> Result<Begun, Failed> {
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(Begun::Row) };
    let Some((plan, lone)) = job.plan.as_deref().and_then(|plan| Some((plan, plan.draft.lone.as_ref()?))) else {
        return Ok(Begun::Row);
    };
    let claim = keeper.table.as_ref().and_then(|table| table.claim(job.shard));
    let Some((claim, table)) = claim.zip(plan.tables().first().copied()) else {
        let why = "Shunt: this keyspace is another proxy's, or about to be; nothing was written, ask again";
        return Err(Fault::new(FaultKind::Unserved, why).into());
    };
    let of = Of { claim, table: table.id, columns: lone.layout };
    let bound = plan.with(&job.values);
    let key = match lone.is_truncate() {
        true => None,
        false => bound.partitions().map_err(Fault::from)?.first().map(|(partition, _)| *partition),
    };
    let known = key.map_or(Known::Nothing, |key| keeper.rows.get(key, of, now_ns));
    let needs_row = lone.is_conditional() && !matches!(known, Known::Row(_));
    let row = if let Known::Row(row) = &known { Some(row.clone()) } else { None };
    job.deciding = Some(Box::new(Deciding {
        key,
        of,
        known,
        asked_ns: now_ns,
        anew: None,
        row,
        is_refused: false,
        change: Change::Delete,
        seconds: None,
        timestamp_us: 0,
        is_sent_again: false,
        answer: None,
    }));
    Ok(if needs_row { Begun::Row } else { Begun::Name(now_ns.saturating_sub(NAMED_NS)) })
}

/// A node is asked for the columns of the table. `false`: none could be.
pub(super) fn ask_columns(core: &mut Core, io: &mut Io, number: u64, plan: &Plan) -> bool {
    let Some(table) = plan.tables().first().copied() else { return false };
    let (keyspace, name) = (schema::literal(&table.keyspace), schema::literal(&table.name));
    let text = format!("{}{keyspace} AND table_name = {name}", schema::COLUMNS);
    let pool = own::ask::pool(core, io);
    let who = core.fleet.transactions.jobs.get(&number).map_or(Who::FORMER, |job| Who::of(&job.who));
    let whose = Whose::Transaction(Part::Columns { job: number, who });
    pool.is_some_and(|pool| own::ask::ask_in(core, io, pool, whose, &text, Consistency::ONE))
}

/// What a node says of them: whether they are still those of the plan; none if it says nothing.
pub(super) fn has_columns(core: &Core, number: u64, heard: &Heard<'_>) -> Option<bool> {
    let Heard::Result(ResultMessage::Rows(rows)) = heard else { return None };
    let plan = core.fleet.transactions.jobs.get(&number)?.plan.as_ref()?;
    plan.tables().first().map(|table| table.has_layout(rows))
}

/// At which level a row is read.
pub(super) fn level(core: &Core, job: &Job) -> Consistency {
    match &job.deciding {
        Some(deciding) if deciding.known == Known::Nothing => levels::serial(core),
        _ => levels::quorum(core),
    }
}

/// It is known what there is to be known: it is decided.
pub(super) fn decide(core: &mut Core, io: &mut Io, number: u64) -> Result<Decision, Failed> {
    let now = levels::now(io);
    let leaves_out = core.fleet.transactions.leaves_row_as_read();
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(Decision::GiveUp) };
    let (Some(plan), Some(mut deciding)) = (job.plan.clone(), job.deciding.take()) else { return Ok(Decision::GiveUp) };
    let Some(lone) = &plan.draft.lone else { return Ok(Decision::GiveUp) };
    let bound = plan.with(&job.values);
    bound.check_lone().map_err(Fault::from)?;
    if deciding.row.is_none() && lone.is_conditional() {
        let read =
            job.rows.first().and_then(|read| ReadRow::of(lone.columns.len(), read)).ok_or_else(|| {
                Fault::overloaded("Shunt: what nodes say of a row cannot be read; nothing was written")
            })?;
        deciding.row = Some(read.known(deciding.asked_ns));
        deciding.anew = (deciding.known == Known::Nothing && !leaves_out).then_some(read);
    }
    deciding.seconds = bound.lives(lone).map_err(Fault::from)?;
    deciding.change = bound.change(lone).map_err(Fault::from)?;
    let cells = deciding.row.as_ref().and_then(|row| row.cells.as_ref());
    let verdict = bound.verdict(lone, cells).map_err(Fault::from)?;
    let shard = job.shard;
    let latest_us = deciding.anew.as_ref().map_or(i64::MIN, |read| read.latest_us);
    let (decision, answer) = match verdict {
        Verdict::Refuse(columns, values) => {
            let decision = if deciding.anew.is_some() { Decision::Alone(TIMESTAMPS) } else { Decision::Nothing };
            deciding.is_refused = true;
            (decision, Some(rows(&plan, &columns, &values)))
        }
        Verdict::Write => (Decision::Alone(TIMESTAMPS), None),
    };
    deciding.answer = answer;
    if decision == Decision::Nothing && deciding.known == Known::Settled {
        let row = deciding.row.clone();
        keep(core, &deciding, row);
    }
    if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
        job.deciding = Some(deciding);
    }
    let (table, _) = core.fleet.transactions.table();
    // Without a lease it is refused for that.
    if matches!(decision, Decision::Alone(_)) && table.has_lease(now) && !table.raise(shard, latest_us) {
        let why = format!(
            "Shunt: the row has a value with the timestamp {latest_us}, which is in the future: nothing can be written over it before then, \
             and nothing was"
        );
        return Err(Fault::invalid(why).into());
    }
    Ok(decision)
}

/// An answer of one row.
fn rows(plan: &Plan, columns: &[Shown], values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let (keyspace, table) = plan.names();
    let columns: Vec<_> = columns.iter().map(|column| (&*column.name, &*column.type_option)).collect();
    let mut out = Vec::new();
    let mut writer = RowsWriter::new(&mut out, keyspace, table, &columns);
    values.iter().for_each(|value| _ = writer.value(value.as_deref()));
    writer.finish();
    out
}

fn keep(core: &mut Core, deciding: &Deciding, row: Option<Row>) {
    if let Some(key) = deciding.key {
        core.fleet.transactions.rows.put(key, deciding.of, row);
    }
}

/// It is written, with this timestamp and those behind it. What has become of that is told once, later.
pub(super) fn write(core: &mut Core, io: &mut Io, id: TransactionId, timestamp_us: i64) {
    if !send(core, io, id, timestamp_us) {
        written(core, io, id, Ok(Written::NotSent));
    }
}

fn send(core: &mut Core, io: &mut Io, id: TransactionId, timestamp_us: i64) -> bool {
    // Not the turn's time: the write lives from now on.
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number)) else { return false };
    let (Some(plan), Some(deciding)) = (job.plan.clone(), &mut job.deciding) else { return false };
    let Some(lone) = &plan.draft.lone else { return false };
    let (bound, is_refused) = (plan.with(&job.values), deciding.is_refused);
    let Ok((text, list)) = bound.lone_write(lone, deciding.anew.as_ref(), timestamp_us, is_refused) else {
        return false;
    };
    (deciding.asked_ns, deciding.timestamp_us) = (now_ns, timestamp_us);
    let who = Who::of(&job.who);
    // Until it is acknowledged nobody knows the row. A TRUNCATE has its table to itself.
    match deciding.key {
        Some(key) => keeper.rows.forget(key),
        None => keeper.rows.forget_table(deciding.of.table),
    }
    let last_us = timestamp_us + i64::from(TIMESTAMPS) - 1;
    let levels =
        Levels { consistency: levels::quorum(core), serial: None, timestamp_us: Some(last_us), elsewhere: false };
    let whose = Whose::Transaction(Part::Alone { id, who });
    own::ask::ask_text(core, io, whose, &text, list.values(), &levels, None)
}

/// A node has answered, or nobody has.
pub(super) fn heard(core: &mut Core, io: &mut Io, id: TransactionId, heard: &Heard<'_>) {
    let refused = match heard {
        // No node has taken it: it was prepared before its table was changed. As text it is not asked for that.
        Heard::Error(error) if error.unprepared_id().is_some() => {
            let keeper = &mut core.fleet.transactions;
            let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
            match job.and_then(|job| job.deciding.as_mut()).filter(|deciding| !deciding.is_sent_again) {
                Some(deciding) => {
                    deciding.is_sent_again = true;
                    let timestamp_us = deciding.timestamp_us;
                    return write(core, io, id, timestamp_us);
                }
                None => return written(core, io, id, Ok(Written::NotSent)),
            }
        }
        // A node that does not take it has said so before it has sent it to others.
        Heard::Error(error) if matches!(error.code, error_code::INVALID | error_code::SYNTAX_ERROR) => {
            Some(Failed::Node { code: error.code, message: error.message.to_owned() })
        }
        _ => None,
    };
    let keeper = &mut core.fleet.transactions;
    let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
    match (refused, job) {
        (Some(failed), Some(job)) => {
            let ticket = job.ticket;
            if !std::mem::replace(&mut job.is_answered, true) {
                keeper.fail(ticket, &failed);
            }
            written(core, io, id, Err(Refused));
        }
        _ => written(core, io, id, Ok(levels::written(heard))),
    }
}

fn written(core: &mut Core, io: &mut Io, id: TransactionId, outcome: Result<Written, Refused>) {
    // Read anew, after the answer came: without a lease it may be that another owner has decided already.
    let now = levels::now(io);
    let keeper = &mut core.fleet.transactions;
    let keeps = outcome == Ok(Written::Unknown) && keeper.keeps_row_in_doubt();
    let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
    let mut known = None;
    if let Some(job) = job
        && let Some(deciding) = job.deciding.as_deref_mut()
    {
        known = known_after(job.plan.as_deref(), deciding);
        if let Some(plan) = &job.plan
            && !deciding.is_refused
            && plan.draft.lone.as_ref().is_some_and(Lone::is_conditional)
        {
            let (columns, values) = when_applied();
            deciding.answer = Some(rows(plan, &columns, &values));
        }
    }
    let (table, outbox) = keeper.table();
    let is_committed = table.written_alone(now, id, outcome, outbox);
    if (is_committed || keeps)
        && let Some((key, of, row)) = known
    {
        core.fleet.transactions.rows.put(key, of, row);
    }
    set_due(core, io);
    // A shard that is handed over waits for no more than this.
    core.fleet.transactions.look_at_draining();
}

type KnownAfter = (Partition, Of, Option<Row>);

/// What is known of its row once its write is acknowledged; none if nothing is: others may have something on their way to it.
fn known_after(plan: Option<&Plan>, deciding: &mut Deciding) -> Option<KnownAfter> {
    let columns = plan?.draft.lone.as_ref()?.columns.len();
    let key = deciding.key?;
    let is_anew = deciding.anew.is_some();
    let is_gone = deciding.change == Change::Delete && !deciding.is_refused;
    if deciding.known == Known::Nothing && !is_anew && !is_gone {
        return None;
    }
    let life = deciding.life(deciding.asked_ns);
    let after = match deciding.row.take() {
        row if deciding.is_refused => row,
        Some(row) => row.changed(&deciding.change, columns, life),
        None if is_gone => Row::read(None, life).changed(&Change::Delete, columns, life),
        None => None,
    };
    Some((key, deciding.of, after))
}

/// What it answers, once it has its outcome.
pub(super) fn answer(deciding: &Deciding) -> Vec<u8> {
    deciding.answer.clone().unwrap_or_else(|| {
        let mut out = Vec::new();
        encode::void(&mut out);
        out
    })
}

/// A node is to say which table has the name of its own.
pub(super) fn want_name(core: &mut Core, io: &mut Io, number: u64, plan: &Plan, since_ns: u64) {
    if let Some(table) = plan.tables().first() {
        let waits = WaitsForName::Job { number, table: 0 };
        names::want(core, io, (&table.keyspace, &table.name), since_ns, waits);
    }
}
