//! Single statements on tables with the mode `conditional`: decided by the row as this core knows
//! it, and written once.
//!
//! 1. The statement has its row. If the core knows the row, nothing is read; else it is read at
//!    SERIAL, which ends what nodes have begun of conditional statements of their own, and a node
//!    is asked if the table's columns are still those that it was planned with.
//! 2. If its conditions do not hold, that is its answer; where the row was not known, once it was
//!    made anew as in 3.
//! 3. Else it is written at QUORUM, with a timestamp of the shard's clock. Where the row was not
//!    known it goes in one batch behind what makes the row anew, so that whatever a former owner
//!    has on its way changes nothing when it comes.
//! 4. When that is acknowledged, and the lease is valid still, the row is what it was changed to.
//!    When nobody knows, the row is forgotten, and the next statement begins at 1.
//!
//! What must never be: a decision by a row to which something may be on its way that nobody has
//! heard of; one by a row of which the values may have expired, or of a table that was dropped, or
//! emptied by a proxy; an answer that says applied, where the next owner may read otherwise. [ADR
//! 21](../../../../docs/adr/0021-conditional-statements-decided-by-rows-in-memory.md) has the
//! reasons.

use shunt_locks::{Now, Written};
use shunt_reactor::Io;
use shunt_transactions::{Decision, Partition, Refused, TransactionId};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::encode_result::RowsWriter;
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage, encode, error_code};

use super::failed::Failed;
use super::job::Job;
use super::names;
use super::part::{Parked, Part, WaitsForName, Who};
use super::timer::set_due;
use super::unconfirmed::Unconfirmed;
use super::{confirm, levels, observe, reads, writes};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::limits::SECOND_NS;
use crate::metrics::Observation;
use shunt_transactions::catalogue::table_identity::What;
use shunt_transactions::conditional::doubt::Doubt;
use shunt_transactions::conditional::row::{Change, Known, Of, ReadRow, Row};
use shunt_transactions::conditional::state::{Deciding, Observed};
pub(super) use shunt_transactions::plan::conditional::TIMESTAMPS;
use shunt_transactions::plan::conditional::{Lone, Verdict, when_applied, whole};
use shunt_transactions::plan::{Plan, Shown};
use shunt_transactions::request::Head;

/// How old it may be what a node said of the table's name, where the row is known and nothing else
/// is asked.
const NAMED_NS: u64 = SECOND_NS;

/// Bytes of an answer: it has to fit between proxies too.
const ANSWER_BYTES_MAX: usize = 3 << 20;

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
    let Some((plan, lone)) =
        job.plan.as_deref().and_then(|plan| Some((plan, plan.draft.lone.as_ref()?)))
    else {
        return Ok(Begun::Row);
    };
    let claim = keeper.table.as_ref().and_then(|table| table.claim(job.shard));
    let Some((claim, table)) = claim.zip(plan.tables().first().copied()) else {
        let why = "Shunt: this keyspace is another proxy's, or about to be; nothing was written, ask again";
        return Err(Fault::new(FaultKind::Unserved, why).into());
    };
    let name = whole(&table.keyspace, &table.name);
    let observed = if job.is_observed { keeper.rows.observed(name) } else { 0 };
    let of = Of {
        claim,
        table: table.id,
        name,
        columns: lone.layout,
        epoch: keeper.rows.epoch(),
        observed,
    };
    let bound = plan.with(&job.values);
    let key = match lone.is_truncate() {
        true => None,
        false => bound.partitions().map_err(Fault::from)?.first().map(|(partition, _)| *partition),
    };
    let known = key.map_or(Known::Nothing, |key| keeper.rows.get(key, of, now_ns));
    let doubt = key.map(|key| keeper.rows.doubt(key)).unwrap_or_default();
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
        observed: job.is_observed.then(|| Observed {
            doubt,
            latest_us: i64::MIN,
            ..Observed::default()
        }),
    }));
    Ok(if needs_row { Begun::Row } else { Begun::Name(now_ns.saturating_sub(NAMED_NS)) })
}

/// At which level a row is read.
pub(super) fn level(core: &Core, job: &Job) -> Consistency {
    match &job.deciding {
        Some(deciding) if deciding.observed.is_some() => observe::level(core, &job.message),
        Some(deciding) if deciding.known == Known::Nothing => levels::serial(core),
        _ => levels::quorum(core),
    }
}

/// It is known what there is to be known: it is decided.
pub(super) fn decide(core: &mut Core, io: &mut Io, number: u64) -> Result<Decision, Failed> {
    let now = levels::now(io);
    let leaves_out = core.fleet.transactions.leaves_row_as_read();
    let is_settled = observe::is_settled(core, number, now.boot_ns);
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else {
        return Ok(Decision::GiveUp);
    };
    let (Some(plan), Some(mut deciding)) = (job.plan.clone(), job.deciding.take()) else {
        return Ok(Decision::GiveUp);
    };
    let Some(lone) = &plan.draft.lone else { return Ok(Decision::GiveUp) };
    let weighed = weigh(&plan, lone, job, &mut deciding, leaves_out);
    if deciding.observed.is_some() {
        let doubt = deciding.observed.as_ref().map_or(Doubt::default(), |observed| observed.doubt);
        let says = is_settled && deciding.asked_ns >= doubt.compares_from_ns;
        expect(&plan, lone, &mut deciding, weighed.ok().filter(|_| says));
        job.deciding = Some(deciding);
        return Ok(Decision::Alone(TIMESTAMPS));
    }
    let verdict = weighed?;
    let shard = job.shard;
    let latest_us = deciding.anew.as_ref().map_or(i64::MIN, |read| read.latest_us);
    let (decision, answer) = match verdict {
        Verdict::Refuse(columns, values) => {
            let decision = if deciding.anew.is_some() {
                Decision::Alone(TIMESTAMPS)
            } else {
                Decision::Nothing
            };
            deciding.is_refused = true;
            let answer = rows(&plan, &columns, &values);
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(too_long(&answer).into());
            }
            (decision, Some(answer))
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
    // What such a proxy takes for the future may be the past.
    if matches!(decision, Decision::Alone(_))
        && let Some(fault) = core.fleet.clocks.refusal(now)
    {
        return Err(fault.into());
    }
    let (table, _) = core.fleet.transactions.table();
    // Without a lease it is refused for that.
    if matches!(decision, Decision::Alone(_))
        && table.has_lease(now)
        && !table.raise(now, shard, latest_us)
    {
        return Err(unreached(latest_us, now.wall_us).into());
    }
    Ok(decision)
}

/// Why nothing may be written over this timestamp.
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

/// What becomes of a statement, by its row.
fn weigh(
    plan: &Plan,
    lone: &Lone,
    job: &Job,
    deciding: &mut Deciding,
    leaves_out: bool,
) -> Result<Verdict, Fault> {
    let bound = plan.with(&job.values);
    bound.check_lone()?;
    let mut expired = None;
    if deciding.row.is_none() && lone.is_conditional() {
        let read =
            job.rows.first().and_then(|read| ReadRow::of(lone.columns.len(), read)).ok_or_else(
                || {
                    Fault::overloaded(
                        "Shunt: what nodes say of a row cannot be read; nothing was written",
                    )
                },
            )?;
        if deciding.known == Known::Nothing && deciding.observed.is_none() {
            bound.check_anew(&read)?;
        }
        deciding.row = Some(read.known(deciding.asked_ns));
        deciding.observed.iter_mut().for_each(|observed| observed.latest_us = read.latest_us);
        let is_anew =
            deciding.known == Known::Nothing && !leaves_out && deciding.observed.is_none();
        let may_have_expired = deciding.known == Known::Settled && read.cells.is_none();
        expired =
            (may_have_expired && !leaves_out && deciding.observed.is_none()).then(|| read.clone());
        deciding.anew = is_anew.then_some(read);
    }
    deciding.seconds = bound.lives(lone)?;
    deciding.change = bound.change(lone)?;
    let cells = deciding.row.as_ref().and_then(|row| row.cells.as_ref());
    // What a node answers is compared in the version of the protocol in which it is asked.
    let types = if deciding.observed.is_some() { statements::VERSION } else { job.types };
    let verdict = bound.verdict(lone, cells, types)?;
    // By another node's clock the row's values may not have expired. Without a deletion, the values
    // that this statement does not write would show again.
    if matches!(verdict, Verdict::Write) && expired.is_some() {
        deciding.anew = expired;
    }
    Ok(verdict)
}

/// What would be answered to a statement that a node decides.
fn expect(plan: &Plan, lone: &Lone, deciding: &mut Deciding, verdict: Option<Verdict>) {
    let until_ns = deciding.row.as_ref().map_or(0, Row::until_ns);
    let (Some(observed), Some(verdict)) = (&mut deciding.observed, verdict) else { return };
    deciding.is_refused = matches!(verdict, Verdict::Refuse(..));
    let (columns, values) = match verdict {
        Verdict::Refuse(columns, values) => (columns, values),
        Verdict::Write => when_applied(),
    };
    if lone.is_conditional() {
        (observed.expected, observed.until_ns) = (Some(rows(plan, &columns, &values)), until_ns);
    }
}

/// As it is told.
fn failed(fault: &Fault) -> (Head, Vec<u8>) {
    let mut body = Vec::new();
    encode::error(&mut body, fault.kind.code(), &fault.why);
    ((opcode::ERROR, 0), body)
}

fn too_long(answer: &[u8]) -> Fault {
    let bytes = answer.len();
    Fault::invalid(format!(
        "Shunt: its conditions do not hold, and what it would be told of its row has {bytes} bytes: {ANSWER_BYTES_MAX} are the most; nothing was \
         written. Ask for shorter columns by IF, or SELECT the row"
    ))
}

/// An answer of one row.
fn rows(plan: &Plan, columns: &[Shown], values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let (keyspace, table) = plan.names();
    let columns: Vec<_> =
        columns.iter().map(|column| (&*column.name, &*column.type_option)).collect();
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

/// It is written, with this timestamp and those behind it. What has become of that is told once,
/// later.
pub(super) fn write(core: &mut Core, io: &mut Io, id: TransactionId, timestamp_us: i64) {
    let now_ms = io.now_ns() / 1_000_000;
    let keeper = &core.fleet.transactions;
    let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get(number));
    // What has waited for room for too long is not written behind its client's back.
    if let Some(who) = job.filter(|job| now_ms < job.deadline_ms).map(|job| Who::of(&job.who)) {
        if !core.fleet.statements.has_room(&Whose::Transaction(Part::Alone { id, who })) {
            return writes::park(core, Parked::Alone(id, timestamp_us), who);
        }
        if send(core, io, id, timestamp_us) {
            return;
        }
    }
    written(core, io, id, Ok(Written::NotSent));
}

fn send(core: &mut Core, io: &mut Io, id: TransactionId, timestamp_us: i64) -> bool {
    // Not the turn's time: the write lives from now on.
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number)) else {
        return false;
    };
    let (Some(plan), Some(deciding)) = (job.plan.clone(), &mut job.deciding) else { return false };
    let Some(lone) = &plan.draft.lone else { return false };
    let passed_ns = now_ns.saturating_sub(deciding.asked_ns);
    deciding.anew.iter_mut().for_each(|read| read.pass(passed_ns));
    let (bound, is_refused, is_observed) =
        (plan.with(&job.values), deciding.is_refused, deciding.observed.is_some());
    let written = bound.lone_write(lone, deciding.anew.as_ref(), timestamp_us, is_refused);
    (deciding.asked_ns, deciding.timestamp_us) = (now_ns, timestamp_us);
    let who = Who::of(&job.who);
    // Until it is acknowledged nobody knows the row. A TRUNCATE has its table to itself.
    match deciding.key {
        Some(key) => keeper.rows.forget(key),
        None => keeper.rows.forget_table(deciding.of.table),
    }
    let whose = Whose::Transaction(Part::Alone { id, who });
    if is_observed {
        let number = keeper.of_id.get(&id).copied();
        return number.is_some_and(|number| observe::send(core, io, number, whose));
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

/// A node has answered, or nobody has.
pub(super) fn heard(
    core: &mut Core,
    io: &mut Io,
    id: TransactionId,
    heard: &Heard<'_>,
    raw: &[u8],
) {
    let refused = match heard {
        // No node has taken it: it was prepared before its table was changed. As text it is not
        // asked for that.
        Heard::Error(error) if error.unprepared_id().is_some() => {
            let keeper = &mut core.fleet.transactions;
            let job = keeper.of_id.get(&id).and_then(|number| keeper.jobs.get_mut(number));
            match job
                .and_then(|job| job.deciding.as_mut())
                .filter(|deciding| !deciding.is_sent_again)
            {
                Some(deciding) => {
                    deciding.is_sent_again = true;
                    let timestamp_us = deciding.timestamp_us;
                    return write(core, io, id, timestamp_us);
                }
                None => return written(core, io, id, Ok(Written::NotSent)),
            }
        }
        _ if is_observed(core, id) => return heard_observed(core, io, id, heard, raw),
        // A node that does not take it says so before it sends it to others. Had another node had
        // it before, this would be a write timeout (`retry::failure`).
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
            written(core, io, id, Err(Refused));
        }
        _ => written(core, io, id, Ok(levels::written(heard))),
    }
}

/// Nodes do not take it as it was sent. What they say of a column that its client has not named is
/// none of the client's business: it is planned anew.
fn refusal(core: &mut Core, id: TransactionId, error: &ErrorMessage<'_>) -> Failed {
    let keeper = &core.fleet.transactions;
    let number = keeper.of_id.get(&id).copied().unwrap_or_default();
    let plan = keeper.jobs.get(&number).and_then(|job| job.plan.as_ref());
    match plan.is_some_and(|plan| plan.draft.is_refused_for_another(error)) {
        true => reads::changed(core, number),
        false => Failed::Node { code: error.code, message: error.message.to_owned() },
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

/// What is in doubt about the row of a statement which a node has answered is noted.
fn in_doubt(core: &mut Core, io: &Io, number: u64, heard: &Heard<'_>) -> Doubt {
    let job = core.fleet.transactions.jobs.get(&number);
    let deciding = job.and_then(|job| Some((job, job.deciding.as_deref()?)));
    let Some((job, deciding, observed)) =
        deciding.and_then(|(job, one)| Some((job, one, one.observed.as_ref()?)))
    else {
        return Doubt::default();
    };
    let doubt =
        observed.doubt.and(observe::doubt(core, io, &job.message, heard, observed.latest_us));
    if let (Some(key), of) = (deciding.key, deciding.of)
        && doubt.keeps_from_ns > io.now_ns()
    {
        core.fleet.transactions.rows.put_doubt(key, of, doubt);
    }
    doubt
}

/// A node has decided a statement. The row is known by it only if it has decided as it was expected
/// to.
fn heard_observed(core: &mut Core, io: &mut Io, id: TransactionId, heard: &Heard<'_>, raw: &[u8]) {
    let now_ns = io.read_clock_ns();
    let keeper = &mut core.fleet.transactions;
    let Some(number) = keeper.of_id.get(&id).copied() else { return };
    let doubt = in_doubt(core, io, number, heard);
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let Some(deciding) = job.deciding.as_deref_mut() else { return };
    let observation = observe::compared(deciding, heard, raw, now_ns);
    if observation != Some(Observation::Same) || doubt.keeps_from_ns > now_ns {
        deciding.key = None;
    }
    if let Some(observed) = &mut deciding.observed {
        let is_long = raw.len() > ANSWER_BYTES_MAX && matches!(heard, Heard::Result(_));
        observed.told = match is_long {
            true => Some(failed(&too_long(raw))),
            false => observe::told((job.version, job.types), heard, raw),
        };
    }
    let is_conditional = matches!(heard, Heard::Result(ResultMessage::Rows(_)));
    match observation {
        Some(Observation::Different) => observe::differs(core, io, number, raw),
        // What has no conditions is nobody's to decide.
        Some(other) if is_conditional => observe::count(core, other),
        _ => {}
    }
    written(core, io, id, Ok(levels::written(heard)));
}

fn written(core: &mut Core, io: &mut Io, id: TransactionId, outcome: Result<Written, Refused>) {
    if let Ok(written) = outcome
        && confirm::needs(core, written)
    {
        return confirm::want(core, io, Unconfirmed::Alone(id));
    }
    // Read anew, after the answer came: without a lease it may be that another owner has decided
    // already.
    let now = levels::now(io);
    settled(core, io, now, id, outcome);
}

/// It is known what has become of a write, and by when the lease had to be valid.
pub(super) fn settled(
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

/// What is known of its row once its write is acknowledged; none if nothing is: others may have
/// something on their way to it.
fn known_after(plan: Option<&Plan>, deciding: &mut Deciding) -> Option<KnownAfter> {
    let columns = plan?.draft.lone.as_ref()?.columns.len();
    let key = deciding.key?;
    let is_anew = deciding.anew.is_some() || deciding.observed.is_some();
    let is_gone = deciding.change == Change::Delete && !deciding.is_refused;
    // Also of a row that was deleted: it may have a value that is later than that.
    if deciding.known == Known::Nothing && !is_anew {
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

/// A node is to say which table has the name of its own, or which columns, no earlier than this.
pub(super) fn want(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    plan: &Plan,
    (what, since_ns): (What, u64),
) {
    if let Some(table) = plan.tables().first() {
        let waits = WaitsForName::Job { number, table: 0, what };
        names::want(core, io, (&table.keyspace, &table.name), since_ns, waits);
    }
}
