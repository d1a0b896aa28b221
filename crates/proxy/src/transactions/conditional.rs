//! Single statements on tables with the mode `conditional`: decided by the row as this core knows
//! it, and written once.
//!
//! 1. The statement locks its row. A row that the core knows is not read, unless a node names
//!    another version of the schema than before; nodes are asked once a second. Otherwise it is
//!    read at SERIAL, which completes conditional statements that nodes have begun, and a node is
//!    asked whether the table still has the planned columns.
//! 2. If the conditions do not hold, that is the answer; if the row was not known, the core first
//!    rewrites it as in 3. A statement without conditions that replaces the whole row, or whose row
//!    has no outstanding write, needs neither the row nor the rewrite.
//! 3. Otherwise the statement is written at QUORUM, with a timestamp of the shard's clock. If the
//!    row was not known, the write goes in one batch behind a rewrite of the row, so that a former
//!    owner's late write changes nothing.
//! 4. When the write is acknowledged and the lease is still valid, the row is as changed. After an
//!    unknown outcome, the row is dropped, and the next statement begins at 1.
//!
//! This must never: decide by a row to which an unknown write may be outstanding; decide by a row
//! whose values may have expired, except that a row read in a value's last second counts for 50 ms;
//! decide by a row of a table that was dropped or emptied by a proxy, or of columns that were
//! dropped more than a second ago, whatever the control connection heard of it, unless the node in
//! turn is cut off from the others: it names the old version, which counts for another second;
//! answer that a statement was applied where the next owner may read otherwise.
//! [ADR 21](../../../../docs/adr/0021-conditional-statements-decided-by-rows-in-memory.md) has the
//! reasons.

use shunt_locks::{Now, Written};
use shunt_reactor::Io;
use shunt_transactions::conditional::doubt::Doubt;
use shunt_transactions::conditional::row::{Change, Knowledge, ReadRow, Row, RowVersion};
use shunt_transactions::conditional::state::{ConditionalState, ObservedState};
pub(super) use shunt_transactions::plan::conditional::TIMESTAMPS;
use shunt_transactions::plan::conditional::{ConditionalPlan, Verdict, when_applied, whole};
use shunt_transactions::plan::{ColumnSpec, Plan};
use shunt_transactions::request::Head;
use shunt_transactions::{Decision, Partition, Refused, TransactionId};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::encode_result::RowsWriter;
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage, encode, error_code};

use super::{confirmation, evaluation, levels, observation, writes};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::limits::SECOND_NS;
use crate::metrics::Observation;
use crate::transactions::job::{Failure, Job};
use crate::transactions::ownership::Unconfirmed;
use crate::transactions::part::{Parked, Part, Who};
use crate::transactions::timer::set_due;

/// Age of an answer about the table's name, or the version of the schema, that is accepted if the
/// row is known and nothing else is asked.
pub(super) const NAMED_NS: u64 = SECOND_NS;

/// Bytes of an answer, which must also fit between proxies.
const ANSWER_BYTES_MAX: usize = 3 << 20;

/// The questions to nodes before a statement can be decided.
pub(super) enum Prerequisite {
    /// The table's identity, no older than this.
    Name(u64),
    /// The row, and the table's identity and columns.
    Row,
}

/// Begins a single statement that has its row to itself.
pub(super) fn start(core: &mut Core, io: &mut Io, number: u64) -> Result<Prerequisite, Failure> {
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(Prerequisite::Row) };
    let Some((plan, conditional)) =
        job.plan.as_deref().and_then(|plan| Some((plan, plan.draft.conditional.as_ref()?)))
    else {
        return Ok(Prerequisite::Row);
    };
    let claim = keeper.table.as_ref().and_then(|table| table.claim(job.shard));
    let Some((claim, table)) = claim.zip(plan.tables().first().copied()) else {
        let why = "Shunt: another proxy owns this keyspace's transactions, or is about to; nothing was written, ask again";
        return Err(Fault::new(FaultKind::Unserved, why).into());
    };
    let name = whole(&table.keyspace, &table.name);
    let observed = if job.is_observed { keeper.rows.observed(name) } else { 0 };
    let of = RowVersion {
        claim,
        table: table.id,
        name,
        columns: conditional.layout,
        epoch: keeper.rows.epoch(),
        observed,
    };
    let bound = plan.with(&job.values);
    let key = match conditional.is_truncate() {
        true => None,
        false => bound.partitions().map_err(Fault::from)?.first().map(|(partition, _)| *partition),
    };
    let known = key.map_or(Knowledge::Nothing, |key| keeper.rows.get(key, of, now_ns));
    let doubt = key.map(|key| keeper.rows.doubt(key)).unwrap_or_default();
    let needs_row = match known {
        Knowledge::Row(_) => false,
        _ if conditional.is_conditional() => true,
        // A write that is outstanding must not show in a column that this statement leaves.
        Knowledge::Nothing if !job.is_observed => bound.keeps_columns(conditional),
        Knowledge::Nothing | Knowledge::Settled => false,
    };
    let before = job.conditional.as_deref();
    let reads = ConditionalState::next_read(before, needs_row).ok_or_else(evaluation::expires)?;
    let row = if let Knowledge::Row(row) = &known { Some(row.clone()) } else { None };
    job.conditional = Some(Box::new(ConditionalState {
        key,
        of,
        known,
        needs_row,
        asked_ns: now_ns,
        answered_ns: 0,
        reads,
        anew: None,
        row,
        is_refused: false,
        change: Change::Delete,
        seconds: None,
        timestamp_us: 0,
        is_sent_again: false,
        answer: None,
        observed: job.is_observed.then(|| ObservedState {
            doubt,
            latest_us: i64::MIN,
            ..ObservedState::default()
        }),
    }));
    Ok(if needs_row {
        Prerequisite::Row
    } else {
        Prerequisite::Name(now_ns.saturating_sub(NAMED_NS))
    })
}

/// The consistency level at which the row is read.
pub(super) fn level(core: &Core, job: &Job) -> Consistency {
    match &job.conditional {
        Some(state) if state.observed.is_some() => observation::level(core, &job.message),
        Some(state) if state.known == Knowledge::Nothing => levels::serial(core),
        _ => levels::quorum(core),
    }
}

/// Decides a statement once its row is known.
pub(super) fn decide(core: &mut Core, io: &mut Io, number: u64) -> Result<Decision, Failure> {
    let now = levels::now(io);
    let leaves_out = core.fleet.transactions.leaves_row_as_read();
    let is_settled = observation::is_settled(core, number, now.boot_ns);
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else {
        return Ok(Decision::GiveUp);
    };
    let (Some(plan), Some(mut state)) = (job.plan.clone(), job.conditional.take()) else {
        return Ok(Decision::GiveUp);
    };
    let Some(conditional) = &plan.draft.conditional else { return Ok(Decision::GiveUp) };
    let weighed = weigh(&plan, conditional, job, &mut state, leaves_out);
    if state.observed.is_some() {
        let doubt = state.observed.as_ref().map_or(Doubt::default(), |observed| observed.doubt);
        let says = is_settled && state.asked_ns >= doubt.compares_from_ns;
        expect_answer(&plan, conditional, &mut state, weighed.ok().filter(|_| says));
        job.conditional = Some(state);
        return Ok(Decision::Unlogged(TIMESTAMPS));
    }
    let verdict = weighed?;
    let shard = job.shard;
    let latest_us = state.anew.as_ref().map_or(i64::MIN, |read| read.latest_us);
    let (decision, answer) = match verdict {
        Verdict::Refuse(columns, values) => {
            let decision = if state.anew.is_some() {
                Decision::Unlogged(TIMESTAMPS)
            } else {
                Decision::Nothing
            };
            state.is_refused = true;
            let answer = rows(&plan, &columns, &values);
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(too_long(&answer).into());
            }
            (decision, Some(answer))
        }
        Verdict::Write => (Decision::Unlogged(TIMESTAMPS), None),
    };
    state.answer = answer;
    if decision == Decision::Nothing && state.known == Knowledge::Settled {
        let row = state.row.clone();
        remember(core, &state, row);
    }
    if let Some(job) = core.fleet.transactions.jobs.get_mut(&number) {
        job.conditional = Some(state);
    }
    // A proxy whose clock is behind may take the past for the future.
    if matches!(decision, Decision::Unlogged(_))
        && let Some(fault) = core.fleet.clocks.refusal(now)
    {
        return Err(fault.into());
    }
    if matches!(decision, Decision::Unlogged(_)) {
        raise(core, now, (number, shard), latest_us, conditional.is_conditional())?;
    }
    Ok(decision)
}

/// Raises the timestamps of the shard above those of a row to be rewritten. A statement without
/// conditions also changes a row from the future, but does not rewrite the row.
fn raise(
    core: &mut Core,
    now: Now,
    (number, shard): (u64, u8),
    latest_us: i64,
    is_conditional: bool,
) -> Result<(), Fault> {
    let (table, _) = core.fleet.transactions.table();
    // Without a lease, the statement is refused anyway.
    if !table.has_lease(now) || table.raise(now, shard, latest_us) {
        return Ok(());
    }
    if is_conditional || latest_us <= now.wall_us {
        return Err(unreached(latest_us, now.wall_us));
    }
    let job = core.fleet.transactions.jobs.get_mut(&number);
    if let Some(state) = job.and_then(|job| job.conditional.as_mut()) {
        state.anew = None;
    }
    Ok(())
}

/// The reason why this timestamp may not be overwritten.
fn unreached(latest_us: i64, wall_us: i64) -> Fault {
    if latest_us <= wall_us {
        let why = "Shunt: this proxy's clock was set forward, and its lease has to be renewed before it may write now; nothing was written, ask again";
        return Fault::new(FaultKind::Unserved, why);
    }
    let ahead_ms = latest_us.saturating_sub(wall_us) / 1_000;
    Fault::invalid(format!(
        "Shunt: the row has a value with the timestamp {latest_us}, which is in the future, {ahead_ms} ms ahead of this proxy's clock: nothing \
         can be written over it before then, and nothing was. Ask again then, and look for who wrote it USING TIMESTAMP or by a wrong clock"
    ))
}

/// Evaluates a statement on its row.
fn weigh(
    plan: &Plan,
    conditional: &ConditionalPlan,
    job: &Job,
    state: &mut ConditionalState,
    leaves_out: bool,
) -> Result<Verdict, Fault> {
    let bound = plan.with(&job.values);
    bound.check_conditional()?;
    let mut expired = None;
    if state.row.is_none() && state.needs_row {
        let read = job
            .rows
            .first()
            .and_then(|read| ReadRow::from_values(conditional.columns.len(), read))
            .ok_or_else(|| {
                Fault::overloaded(
                    "Shunt: a node's answer about the row cannot be decoded; nothing was written",
                )
            })?;
        let mut is_anew = state.known == Knowledge::Nothing && state.observed.is_none();
        if is_anew && let Err(too_long) = bound.check_anew(&read) {
            // Without conditions, nothing is decided by a row that is too long to be rewritten.
            is_anew = false;
            if conditional.is_conditional() {
                return Err(too_long.into());
            }
        }
        state.row = Some(read.to_row(state.asked_ns));
        state.observed.iter_mut().for_each(|observed| observed.latest_us = read.latest_us);
        let may_have_expired = state.known == Knowledge::Settled && read.cells.is_none();
        expired =
            (may_have_expired && !leaves_out && state.observed.is_none()).then(|| read.clone());
        state.anew = (is_anew && !leaves_out).then_some(read);
    }
    state.seconds = bound.lives(conditional)?;
    state.change = bound.change(conditional)?;
    let cells = state.row.as_ref().and_then(|row| row.cells.as_ref());
    // A node's answer is compared in the protocol version of the request.
    let types = if state.observed.is_some() { statements::VERSION } else { job.types };
    let verdict = bound.verdict(conditional, cells, types)?;
    // By another node's clock the values may not have expired. Without a deletion, those that this
    // statement does not write would reappear.
    if matches!(verdict, Verdict::Write) && expired.is_some() {
        state.anew = expired;
    }
    Ok(verdict)
}

/// Notes the answer that the proxies would give to a statement that a node decides.
fn expect_answer(
    plan: &Plan,
    conditional: &ConditionalPlan,
    state: &mut ConditionalState,
    verdict: Option<Verdict>,
) {
    let until_ns = state.row.as_ref().map_or(0, Row::until_ns);
    let (Some(observed), Some(verdict)) = (&mut state.observed, verdict) else { return };
    state.is_refused = matches!(verdict, Verdict::Refuse(..));
    let (columns, values) = match verdict {
        Verdict::Refuse(columns, values) => (columns, values),
        Verdict::Write => when_applied(),
    };
    if conditional.is_conditional() {
        (observed.expected, observed.until_ns) = (Some(rows(plan, &columns, &values)), until_ns);
    }
}

/// Encodes a fault as an ERROR answer.
fn failed(fault: &Fault) -> (Head, Vec<u8>) {
    let mut body = Vec::new();
    encode::error(&mut body, fault.kind.code(), &fault.why);
    ((opcode::ERROR, 0), body)
}

fn too_long(answer: &[u8]) -> Fault {
    let bytes = answer.len();
    Fault::invalid(format!(
        "Shunt: the conditions do not hold, and the part of the row in the answer has {bytes} bytes; the limit is {ANSWER_BYTES_MAX}; nothing was \
         written. Ask for shorter columns by IF, or SELECT the row"
    ))
}

/// Encodes an answer of one row.
fn rows(plan: &Plan, columns: &[ColumnSpec], values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let (keyspace, table) = plan.names();
    let columns: Vec<_> =
        columns.iter().map(|column| (&*column.name, &*column.type_option)).collect();
    let mut out = Vec::new();
    let mut writer = RowsWriter::new(&mut out, keyspace, table, &columns);
    values.iter().for_each(|value| _ = writer.value(value.as_deref()));
    writer.finish();
    out
}

fn remember(core: &mut Core, state: &ConditionalState, row: Option<Row>) {
    if let Some(key) = state.key {
        core.fleet.transactions.rows.put(key, state.of, row);
    }
}

/// Writes the statement, with this timestamp and those after it. The outcome is reported once,
/// later.
pub(super) fn write(core: &mut Core, io: &mut Io, id: TransactionId, timestamp_us: i64) {
    let now_ms = io.now_ns() / 1_000_000;
    let keeper = &core.fleet.transactions;
    let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get(number));
    // A statement that waited too long for room is not written after its client was answered.
    if let Some(who) = job.filter(|job| now_ms < job.deadline_ms).map(|job| Who::of(&job.who)) {
        if !core.fleet.statements.has_room(&Whose::Transaction(Part::Unlogged { id, who })) {
            return writes::park(core, Parked::Unlogged(id, timestamp_us), who);
        }
        if send(core, io, id, timestamp_us) {
            return;
        }
    }
    written(core, io, id, Ok(Written::NotSent));
}

fn send(core: &mut Core, io: &mut Io, id: TransactionId, timestamp_us: i64) -> bool {
    // The turn's time is too old: the TTL of the write starts now.
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number)) else {
        return false;
    };
    let (Some(plan), Some(state)) = (job.plan.clone(), &mut job.conditional) else { return false };
    let Some(conditional) = &plan.draft.conditional else { return false };
    let passed_ns = now_ns.saturating_sub(state.asked_ns);
    state.anew.iter_mut().for_each(|read| read.pass(passed_ns));
    let (bound, is_refused, is_observed) =
        (plan.with(&job.values), state.is_refused, state.observed.is_some());
    let written =
        bound.conditional_write(conditional, state.anew.as_ref(), timestamp_us, is_refused);
    (state.asked_ns, state.timestamp_us) = (now_ns, timestamp_us);
    let who = Who::of(&job.who);
    // The row is unknown until the write is acknowledged. TRUNCATE has its table to itself.
    match state.key {
        Some(key) => keeper.rows.forget(key),
        None => keeper.rows.forget_table(state.of.table),
    }
    let whose = Whose::Transaction(Part::Unlogged { id, who });
    if is_observed {
        let number = keeper.of_id.get(&id).copied();
        return number.is_some_and(|number| observation::send(core, io, number, whose));
    }
    let Ok((text, list)) = written else { return false };
    let last_us = timestamp_us + i64::from(TIMESTAMPS) - 1;
    let levels = Levels {
        consistency: levels::quorum(core),
        serial: None,
        timestamp_us: Some(last_us),
        elsewhere: false,
    };
    statements::ask::ask_text(core, io, whose, &text, list.values(), &levels, None)
}

/// Takes in a node's answer.
pub(super) fn answered(
    core: &mut Core,
    io: &mut Io,
    id: TransactionId,
    heard: &Heard<'_>,
    raw: &[u8],
) {
    let refused = match heard {
        // No node has executed the statement: it was prepared before its table changed. Sent as
        // text, it needs no preparation.
        Heard::Error(error) if error.unprepared_id().is_some() => {
            let keeper = &mut core.fleet.transactions;
            let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
            match job.and_then(|job| job.conditional.as_mut()).filter(|state| !state.is_sent_again)
            {
                Some(state) => {
                    state.is_sent_again = true;
                    let timestamp_us = state.timestamp_us;
                    return write(core, io, id, timestamp_us);
                }
                None => return written(core, io, id, Ok(Written::NotSent)),
            }
        }
        _ if is_observed(core, id) => return observed_answered(core, io, id, heard, raw),
        // A node that refuses the statement does so before it sends it to others. If another node
        // had received it before, this would be a write timeout (`retry::failure`).
        Heard::Error(error)
            if matches!(error.code, error_code::INVALID | error_code::SYNTAX_ERROR) =>
        {
            Some(refusal(core, id, error))
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
            written(core, io, id, Err(Refused::ForGood));
        }
        _ => written(core, io, id, Ok(levels::written(heard))),
    }
}

/// The error for a statement that nodes refuse. An error about a column that the client has not
/// named leads to a new plan.
fn refusal(core: &mut Core, id: TransactionId, error: &ErrorMessage<'_>) -> Failure {
    let keeper = &core.fleet.transactions;
    let number = keeper.of_id.get(&id).copied().unwrap_or_default();
    let plan = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref());
    match plan.is_some_and(|plan| plan.draft.is_refused_for_another(error)) {
        true => evaluation::plan_outdated(core, number),
        false => Failure::Node { code: error.code, message: error.message.to_owned() },
    }
}

fn is_observed(core: &Core, id: TransactionId) -> bool {
    let keeper = &core.fleet.transactions;
    keeper
        .of_id
        .get(&id)
        .and_then(|number| keeper.jobs.get(number))
        .is_some_and(|job| job.is_observed)
}

/// Notes the doubt about the row of a statement that a node has answered.
fn in_doubt(core: &mut Core, io: &Io, number: u64, heard: &Heard<'_>) -> Doubt {
    let job = core.fleet.transactions.jobs.get(&number);
    let state = job.and_then(|job| Some((job, job.conditional.as_deref()?)));
    let Some((job, state, observed)) =
        state.and_then(|(job, one)| Some((job, one, one.observed.as_ref()?)))
    else {
        return Doubt::default();
    };
    let doubt =
        observed.doubt.and(observation::doubt(core, io, &job.message, heard, observed.latest_us));
    if let (Some(key), of) = (state.key, state.of)
        && doubt.keeps_from_ns > io.now_ns()
    {
        core.fleet.transactions.rows.put_doubt(key, of, doubt);
    }
    doubt
}

/// Takes in a node's decision. The row is known only if the decision was the expected one.
fn observed_answered(
    core: &mut Core,
    io: &mut Io,
    id: TransactionId,
    heard: &Heard<'_>,
    raw: &[u8],
) {
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(number) = keeper.of_id.get(&id).copied() else { return };
    let doubt = in_doubt(core, io, number, heard);
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let Some(state) = job.conditional.as_deref_mut() else { return };
    let observation = observation::compared(state, heard, raw, now_ns);
    if observation != Some(Observation::Same) || doubt.keeps_from_ns > now_ns {
        state.key = None;
    }
    if let Some(observed) = &mut state.observed {
        let is_long = raw.len() > ANSWER_BYTES_MAX && matches!(heard, Heard::Result(_));
        observed.told = match is_long {
            true => Some(failed(&too_long(raw))),
            false => observation::client_answer((job.version, job.types), heard, raw),
        };
    }
    let is_conditional = matches!(heard, Heard::Result(ResultMessage::Rows(_)));
    match observation {
        Some(Observation::Different) => observation::differs(core, io, number, raw),
        // Statements without conditions are not compared.
        Some(other) if is_conditional => observation::count(core, other),
        _ => {}
    }
    written(core, io, id, Ok(levels::written(heard)));
}

fn written(core: &mut Core, io: &mut Io, id: TransactionId, outcome: Result<Written, Refused>) {
    if let Ok(written) = outcome
        && confirmation::needs(core, written)
    {
        return confirmation::request(core, io, Unconfirmed::Unlogged(id));
    }
    // The clock is read after the answer came: without a lease, another owner may have decided
    // already.
    let now = levels::now(io);
    settle(core, io, now, id, outcome);
}

/// Settles a write, with the time at which the lease had to be valid.
pub(super) fn settle(
    core: &mut Core,
    io: &mut Io,
    now: Now,
    id: TransactionId,
    outcome: Result<Written, Refused>,
) {
    let keeper = &mut core.fleet.transactions;
    let keeps = outcome == Ok(Written::Unknown) && keeper.keeps_row_in_doubt();
    let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
    let mut known = None;
    if let Some(job) = job
        && let Some(state) = job.conditional.as_deref_mut()
    {
        known = known_after(job.plan.as_deref(), state);
        if let Some(plan) = &job.plan
            && !state.is_refused
            && plan.draft.conditional.as_ref().is_some_and(ConditionalPlan::is_conditional)
        {
            let (columns, values) = when_applied();
            state.answer = Some(rows(plan, &columns, &values));
        }
    }
    let (table, effects) = keeper.table();
    let is_committed = table.unlogged_written(now, id, outcome, effects);
    if (is_committed || keeps)
        && let Some((key, of, row)) = known
    {
        core.fleet.transactions.rows.put(key, of, row);
    }
    set_due(core, io);
    // A shard that is being handed over waits for this at most.
    core.fleet.transactions.check_draining();
}

type KnownAfter = (Partition, RowVersion, Option<Row>);

/// The row after its write is acknowledged; none if other writes to it may be outstanding.
fn known_after(plan: Option<&Plan>, state: &mut ConditionalState) -> Option<KnownAfter> {
    let columns = plan?.draft.conditional.as_ref()?.columns.len();
    let key = state.key?;
    let is_anew = state.anew.is_some() || state.observed.is_some();
    let is_gone = state.change == Change::Delete && !state.is_refused;
    // Even a deleted row may have a value with a later timestamp.
    if state.known == Knowledge::Nothing && !is_anew {
        return None;
    }
    let life = state.life(state.asked_ns);
    let after = match state.row.take() {
        row if state.is_refused => row,
        Some(row) => row.changed(&state.change, columns, life),
        None if is_gone => Row::from_read(None, life).changed(&Change::Delete, columns, life),
        None => None,
    };
    Some((key, state.of, after))
}

/// The answer, once the outcome is known.
pub(super) fn answer(state: &ConditionalState) -> Vec<u8> {
    state.answer.clone().unwrap_or_else(|| {
        let mut out = Vec::new();
        encode::void(&mut out);
        out
    })
}
