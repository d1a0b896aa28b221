//! The core that owns a keyspace's shard carries a transaction out: planned, locked, read, decided,
//! written.
//!
//! [`shunt_transactions::Transactions`] decides when each step may be taken; here the step is
//! taken, and its result reported.

use std::sync::Arc;

use shunt_locks::{Ticket, Written};
use shunt_reactor::Io;
use shunt_transactions::guard::idempotency::GuardRows;
use shunt_transactions::plan::{Moment, Plan, bytes_of};
use shunt_transactions::request::Request;
use shunt_transactions::{Begin, Outcome, Refused, Ticket as Number, TransactionId};
use shunt_wire::cql::statement::{Kind, classify};

use super::modes::{self, rules};
use super::{answer, evaluation, levels, observation, pause, planning, writes};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::statements::{Heard, Whose};
use crate::locks::reply::Verdict;
use crate::metrics::Observation;
use crate::transactions::effects::Effect;
use crate::transactions::job::{Failure, Job};
use crate::transactions::observation::Original;
use crate::transactions::part::{OneWrite, Parked, Part, Who};
use crate::transactions::planning::texts::Waiter;
use crate::transactions::timer::set_due;

/// Time limit of a transaction, unless that of queries is shorter.
const WITHIN_MS: u64 = 5_000;

/// Accepts a transaction of a client of this core or of another. It is answered once. `who` is the
/// client whose quota it counts against.
pub(crate) fn start(core: &mut Core, io: &mut Io, ticket: Ticket, who: &str, message: &[u8]) {
    let who: Arc<str> = who.into();
    let keeper = &mut core.fleet.transactions;
    let asked = match Request::decode(message) {
        Ok(asked) => asked,
        Err(error) => return keeper.fail(ticket, &Fault::from(error).into()),
    };
    if let Err(fault) = keeper.shares.accept(&who, message.len()) {
        return keeper.fail(ticket, &fault.into());
    }
    let within_ms = WITHIN_MS.min(core.context.config.query_timeout_ms);
    let keeper = &mut core.fleet.transactions;
    keeper.number += 1;
    let number = keeper.number;
    let job = Job {
        ticket,
        who: Arc::clone(&who),
        version: asked.version,
        types: asked.types,
        plan: None,
        message: message.into(),
        values: Vec::new(),
        shard: 0,
        deadline_ms: io.now_ns() / 1_000_000 + within_ms,
        id: None,
        rows: Vec::new(),
        reads: 0,
        selected: None,
        returned: None,
        is_answered: false,
        writes: Vec::new(),
        guard_rows: GuardRows::default(),
        told: None,
        failed: None,
        timestamp_us: 0,
        bytes: message.len(),
        is_observed: false,
        passes: None,
        conditional: None,
    };
    keeper.jobs.insert(number, job);
    keeper.by_ticket.insert(ticket.0, number);
    let text = (asked.text, asked.keyspace);
    if let Some(plan) = planning::request(core, io, text, &who, Waiter::Job(number)) {
        plan_ready(core, io, number, Ok(plan));
    }
}

/// Takes in a plan, or why there is none.
pub(super) fn plan_ready(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    plan: Result<Arc<Plan>, Failure>,
) {
    let begun = plan.and_then(|plan| lock(core, io, number, &plan).map_err(Failure::from));
    if let Err(failed) = begun {
        let failed = match (pass_to_node(core, io, number), failed) {
            (Ok(true), _) => return observation::count(core, Observation::NotCompared),
            (Err(fault), _) => fault.into(),
            (Ok(false), Failure::NoMode(fault)) if is_by_mode(core, number) => {
                Fault::overloaded(fault.why).into()
            }
            (Ok(false), other) => other,
        };
        refuse(core, number, &failed);
    }
}

/// Passes a statement that the proxies do not decide to a node, if its table's mode leaves that to
/// nodes; otherwise returns `false`.
fn pass_to_node(core: &mut Core, io: &mut Io, number: u64) -> Result<bool, Fault> {
    pause::check(core, io)?;
    let Some(job) = core.fleet.transactions.jobs.get(&number) else { return Ok(false) };
    let (who, original) = (Who::of(&job.who), observation::original(core, &job.message));
    let Some(Original { shard, table, .. }) = original else { return Ok(false) };
    let (now, keeper) = (levels::now(io), &mut core.fleet.transactions);
    // Another owner of the shard would not know of the statement.
    if !keeper.table().0.holds(now, shard) {
        let why = "Shunt: another proxy owns this keyspace's transactions, or is about to; nothing was written, ask again";
        return Err(Fault::new(FaultKind::Unserved, why));
    }
    keeper.rows.doubt_observed(table);
    keeper.jobs.get_mut(&number).into_iter().for_each(|job| job.passes = Some((shard, table)));
    let whose = Whose::Transaction(Part::Passed { job: number, who });
    if !core.fleet.statements.has_room(&whose) {
        writes::park(core, Parked::Passed(number), who);
    } else if !observation::send(core, io, number, whose) {
        return Err(no_node());
    }
    Ok(true)
}

fn no_node() -> Fault {
    Fault::new(
        FaultKind::Unserved,
        "Shunt: the request could not be sent to a node in time; nothing was written, ask again",
    )
}

/// Passes a statement on that waited for room, or that no node knew as prepared.
pub(super) fn resume_pass(core: &mut Core, io: &mut Io, number: u64) {
    let deadline_ms = core.fleet.transactions.jobs.get(&number).map(|job| job.deadline_ms);
    let is_early = deadline_ms.is_some_and(|deadline_ms| io.now_ns() / 1_000_000 < deadline_ms);
    let passes = if is_early { pass_to_node(core, io, number) } else { Ok(false) };
    if passes != Ok(true) {
        refuse(core, number, &passes.err().unwrap_or_else(no_node).into());
    }
}

/// Takes in a node's answer to such a statement.
pub(super) fn pass_answered(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    heard: &Heard<'_>,
    raw: &[u8],
) {
    let Some(job) = core.fleet.transactions.jobs.get(&number) else { return };
    let (ticket, versions, passes) = (job.ticket, (job.version, job.types), job.passes);
    if matches!(heard, Heard::Error(error) if error.unprepared_id().is_some()) {
        // No node has executed the statement. Sent as text, it needs no preparation.
        return resume_pass(core, io, number);
    }
    passes.into_iter().for_each(|(_, table)| core.fleet.transactions.rows.doubt_observed(table));
    match observation::client_answer(versions, heard, raw) {
        Some((head, body)) => core.fleet.transactions.tell(ticket, head, body),
        None => answer::of_verdict(core, ticket, Verdict::InDoubt),
    }
    forget(core, number);
}

/// True of a statement that is a transaction only because of its table.
fn is_by_mode(core: &Core, number: u64) -> bool {
    let message =
        core.fleet.transactions.jobs.get(&number).map(|job| &*job.message).unwrap_or_default();
    // A write that a rule turns into a transaction is refused for as long as its table has no mode.
    let asked = Request::decode(message).ok().filter(|_| !rules::has_rule(core, message));
    asked.is_some_and(|asked| {
        asked.safeguards.is_empty() && classify(asked.text).kind != Kind::Transaction
    })
}

/// Binds the values, and locks the partitions.
fn lock(core: &mut Core, io: &mut Io, number: u64, plan: &Arc<Plan>) -> Result<(), Fault> {
    pause::check(core, io)?;
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(()) };
    let message = std::mem::take(&mut job.message);
    let asked = Request::decode(&message)?;
    let (refusal, is_observed) =
        (modes::refusal(core, io, plan, asked.options.is_some()), modes::observes(core, plan));
    let begun = match refusal {
        Some(fault) => Err(fault),
        None => lock_as(core, io, number, plan, &asked, is_observed),
    };
    if (is_observed || begun.is_err())
        && let Some(job) = core.fleet.transactions.jobs.get_mut(&number)
    {
        job.message = message;
    }
    begun
}

fn lock_as(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    plan: &Arc<Plan>,
    asked: &Request<'_>,
    is_observed: bool,
) -> Result<(), Fault> {
    if plan.draft.conditional.is_some() && !asked.safeguards.is_empty() {
        return Err(Fault::invalid(
            "Shunt: the mode of this table is 'conditional' or 'observe', which takes no guards and keys",
        ));
    }
    let moment = plan.has_calls().then(|| Moment::new(io.wall_us(), core.context.random()));
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(()) };
    job.is_observed = is_observed;
    let (values, counted) = (plan.bind(&asked.values)?, job.bytes);
    // The values replace the message, and take more room if a value is named more often than it was
    // sent.
    evaluation::grow(core, number, bytes_of(&values).saturating_sub(counted))?;
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(()) };
    job.values = values;
    if let Some(moment) = &moment {
        if asked.safeguards.guard.is_some() {
            return Err(Fault::invalid(
                "Shunt: now(), uuid() and the like are not supported under a guard; bind the value",
            ));
        }
        plan.call(&mut job.values, moment)?;
    }
    job.plan = Some(Arc::clone(plan));
    plan.with(&job.values).follow(&core.router.modes.rules, asked.safeguards.guard)?;
    let domain = &plan.draft.outline.domain;
    job.shard = levels::shard_of_domain(domain);
    let now = levels::now(io);
    let decides = keeper.table.as_ref().is_some_and(|table| table.holds(now, job.shard));
    if decides
        && !is_observed
        && asked.safeguards.key.is_empty()
        && plan.always_writes()
        && let Some(fault) = core.fleet.clocks.refusal(now)
    {
        // Nothing has to be read to know that this core may not decide it.
        return Err(fault);
    }
    job.guard_rows = GuardRows::for_request(
        asked,
        core.context.config.fleet.as_deref().unwrap_or_default(),
        domain,
    );
    let claim = keeper.table.as_ref().and_then(|table| table.claim(job.shard));
    job.guard_rows.share(claim, &mut keeper.fences);
    let mut partitions = plan.with(&job.values).partitions()?;
    partitions.extend(job.guard_rows.partitions());
    partitions.sort_unstable();
    let wish = Begin {
        ticket: Number(number),
        shard: job.shard,
        partitions: &partitions,
        deadline_ms: job.deadline_ms,
    };
    let shard = wish.shard;
    let (table, effects) = core.fleet.transactions.table();
    let id = table.begin(now, &wish, effects);
    if let Some((id, job)) = id.zip(core.fleet.transactions.jobs.get_mut(&number)) {
        job.id = Some(id);
        core.fleet.transactions.of_id.insert(id, number);
    }
    core.fleet.transactions.effects.list.push(Effect::OpenLog(shard));
    set_due(core, io);
    Ok(())
}

/// Ends a transaction with an error.
fn refuse(core: &mut Core, number: u64, failed: &Failure) {
    let Some(job) = core.fleet.transactions.jobs.get(&number) else { return };
    let ticket = job.ticket;
    core.fleet.transactions.fail(ticket, failed);
    forget(core, number);
}

fn forget(core: &mut Core, number: u64) {
    let keeper = &mut core.fleet.transactions;
    if let Some(job) = keeper.jobs.remove(&number) {
        keeper.shares.give_back(&job.who, job.bytes);
        keeper.by_ticket.remove(&job.ticket.0);
        if job.passes.is_some() {
            keeper.check_draining();
        }
        if let Some(of) = job.id {
            keeper.of_id.remove(&of);
            (0..job.writes.len() as u16)
                .for_each(|write| keeper.trials.made(OneWrite::Own { id: of, write }));
        }
    }
}

/// Cancels a transaction whose client is gone, unless it is decided.
pub(crate) fn cancel(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(number) = core.fleet.transactions.by_ticket.get(&ticket.0).copied() else { return };
    // A transaction that is still being planned goes on.
    if let Some(id) = core.fleet.transactions.jobs.get(&number).and_then(|job| job.id) {
        let (table, effects) = core.fleet.transactions.table();
        table.give_up(id, effects);
        set_due(core, io);
    }
}

/// Takes in the outcome of a write.
pub(super) fn write_done(
    core: &mut Core,
    io: &mut Io,
    id: TransactionId,
    write: u16,
    written: Result<Written, Refused>,
) {
    let now = levels::now(io);
    let (table, effects) = core.fleet.transactions.table();
    table.applied(now, id, write, written, effects);
    set_due(core, io);
}

/// Takes in the outcome of a transaction.
pub(super) fn finish(core: &mut Core, number: u64, outcome: Outcome) {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return };
    let (ticket, version, was_begun) = (job.ticket, job.version, job.id.is_some());
    if matches!(outcome, Outcome::Committed { .. }) {
        job.guard_rows.committed(&mut keeper.fences);
    }
    if !std::mem::replace(&mut job.is_answered, true) {
        let mut body = Vec::new();
        match answer::encode(&mut body, version, job, outcome) {
            Ok(head) => core.fleet.transactions.tell(ticket, head, body),
            Err(failed) => core.fleet.transactions.fail(ticket, &failed),
        }
    }
    // A transaction that was refused before it began has to be dropped here.
    if !was_begun {
        forget(core, number);
    }
}

/// Ends a transaction: nothing more follows.
pub(super) fn forget_id(core: &mut Core, id: TransactionId) {
    if let Some(number) = core.fleet.transactions.of_id.get(&id).copied() {
        forget(core, number);
    }
    core.fleet.transactions.check_draining();
}
