//! What a transaction reads, once it has its partitions; and what it decides when all is there.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_transactions::{Decision, TransactionId};
use shunt_wire::cql::message::{ErrorMessage, ResultMessage, Rows, error_code};

use super::failed::Failed;
use super::job::Job;
use super::known::Head;
use super::part::Part;
use super::plan::{Decided, RowRead};
use super::run::{JOBS_BYTES_MAX, decide, encode, give_up};
use super::{answer, levels, own_rows};
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
    let of_plan = plan.draft.reads.len();
    let count = of_plan + job.own.count();
    job.rows.clear();
    job.rows.resize(of_plan, None);
    job.reads = count;
    for read in 0..count {
        if let Err(failed) = ask_read(core, io, number, read as u16) {
            return give_up(core, io, number, &failed);
        }
    }
    if count == 0 {
        all_read(core, io, number);
    }
}

fn ask_read(core: &mut Core, io: &mut Io, number: u64, read: u16) -> Result<(), Failed> {
    let job = core.fleet.transactions.jobs.get(&number);
    let Some((job, plan)) = job.and_then(|job| Some((job, job.plan.clone()?))) else { return Ok(()) };
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
    let whose = Whose::Transaction(Part::Read { job: number, read });
    let levels = Levels { consistency: levels::quorum(core), serial: None, timestamp_us: None, elsewhere: false };
    if own::ask::ask_text(core, io, whose, &text, list.values(), &levels, Some((rows_max + 1, None))) {
        return Ok(());
    }
    let why = "Shunt: no node could be asked for what a transaction reads; nothing was written";
    Err(Fault::new(FaultKind::Unserved, why).into())
}

/// A row was read, or not.
pub(super) fn heard(core: &mut Core, io: &mut Io, (number, read): (u64, u16), heard: &Heard<'_>, raw: &[u8]) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number).filter(|job| job.reads > 0) else { return };
    let Some(plan) = &job.plan else { return };
    let is_returned = plan.is_returned(usize::from(read));
    let own = usize::from(read).checked_sub(plan.draft.reads.len());
    let failed = match heard {
        Heard::Result(ResultMessage::Rows(rows)) if let Some(place) = own => match job.own.learn(place, rows) {
            Some(()) => None,
            None => Some(
                Fault::overloaded("Shunt: a row of shunt_meta is not as a proxy writes it; nothing was written").into(),
            ),
        },
        Heard::Result(ResultMessage::Rows(rows)) if !plan.has_columns(usize::from(read), rows) => {
            let outline = &plan.draft.outline;
            let key = (Arc::clone(&outline.keyspace), Arc::clone(&outline.text));
            core.fleet.transactions.plans.forget(&key);
            let why = "Shunt: a table of this transaction was changed just now; nothing was written, ask again";
            Some(Fault::new(FaultKind::Unserved, why).into())
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
                job.bytes += raw.len();
                core.fleet.transactions.jobs_bytes += raw.len();
                None
            }
        }
        Heard::Result(ResultMessage::Rows(rows)) => {
            job.bytes += raw.len();
            core.fleet.transactions.jobs_bytes += raw.len();
            if job.bytes > JOB_BYTES_MAX || core.fleet.transactions.jobs_bytes > 2 * JOBS_BYTES_MAX {
                let why = "Shunt: transactions read more than this proxy may keep; nothing was written";
                Some(Fault::overloaded(why).into())
            } else {
                job.rows[usize::from(read)] = first_row(rows);
                None
            }
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
    if let Some(failed) = failed {
        if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
            job.reads = 0;
        }
        return give_up(core, io, number, &failed);
    }
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    job.reads -= 1;
    if job.reads == 0 {
        all_read(core, io, number);
    }
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
    let Some(id) = job.id else { return };
    match decision(job) {
        Ok(To::Decide(decision)) => {
            let bytes = job.record.len();
            job.bytes += bytes;
            core.fleet.transactions.jobs_bytes += bytes;
            decide(core, io, id, decision);
        }
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
    Decide(Decision),
    /// It was carried out before, and this was its answer.
    TellAgain(Head, Vec<u8>),
}

fn decision(job: &mut Job) -> Result<To, Failed> {
    let Some(plan) = job.plan.clone() else { return Ok(To::Decide(Decision::GiveUp)) };
    if let Some(outcome) = job.own.check()? {
        let (head, body) = answer::again(job.version, outcome);
        return Ok(To::TellAgain(head, body));
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
    let count = job.writes.len() + job.own.writes.len();
    if count == 0 {
        return Ok(To::Decide(Decision::Nothing));
    }
    // The timestamp is not known yet; its place is.
    encode(job, &plan, 0).map_err(|error| {
        Failed::from(Fault::invalid(format!("Shunt: the writes of this transaction make no record: {error}")))
    })?;
    Ok(To::Decide(Decision::Write(count as u16)))
}
