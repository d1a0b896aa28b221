//! A transaction is carried out by the core that owns the shard of its keyspace: planned, locked,
//! read, decided, written.
//!
//! [`shunt_transactions::Transactions`] says when what may be done; here it is done, and what comes
//! of it told.

use std::sync::Arc;

use shunt_locks::{Ticket, Written};
use shunt_reactor::Io;
use shunt_transactions::{Asked as Wish, Outcome, Refused, Ticket as Number, TransactionId};
use shunt_wire::cql::statement::{Kind, classify};

use super::failed::Failed;
use super::job::Job;
use super::observe::Original;
use super::outbox::Wanted;
use super::part::{OneWrite, Parked, Part, Who};
use super::plans::Waiter;
use super::timer::set_due;
use super::{answer, levels, modes, observe, planning, reads, ruled, still, writes};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::statements::{Heard, Whose};
use crate::locks::outbox::Verdict;
use crate::metrics::Observation;
use shunt_transactions::guard::idempotency::OwnRows;
use shunt_transactions::plan::{Moment, Plan, bytes_of};
use shunt_transactions::request::Asked;

/// How long one may take, unless queries have less.
const WITHIN_MS: u64 = 5_000;

/// Takes a transaction on, of a client of this core or of another. It is answered once. `who`:
/// whose share it counts to.
pub(crate) fn take(core: &mut Core, io: &mut Io, ticket: Ticket, who: &str, message: &[u8]) {
    let who: Arc<str> = who.into();
    let keeper = &mut core.fleet.transactions;
    let asked = match Asked::read(message) {
        Ok(asked) => asked,
        Err(error) => return keeper.fail(ticket, &Fault::from(error).into()),
    };
    if let Err(fault) = keeper.shares.take(&who, message.len()) {
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
        own: OwnRows::default(),
        told: None,
        failed: None,
        timestamp_us: 0,
        bytes: message.len(),
        is_observed: false,
        passes: None,
        deciding: None,
    };
    keeper.jobs.insert(number, job);
    keeper.by_ticket.insert(ticket.0, number);
    planning::want(core, io, (asked.text, asked.keyspace), &who, Waiter::Job(number));
}

/// There is a plan for it, or none.
pub(super) fn planned(core: &mut Core, io: &mut Io, number: u64, plan: Result<Arc<Plan>, Failed>) {
    let begun = plan.and_then(|plan| begin(core, io, number, &plan).map_err(Failed::from));
    if let Err(failed) = begun {
        let failed = match (pass(core, io, number), failed) {
            (Ok(true), _) => return observe::count(core, Observation::NotCompared),
            (Err(fault), _) => fault.into(),
            (Ok(false), Failed::NoMode(fault)) if is_by_mode(core, number) => {
                Fault::overloaded(fault.why).into()
            }
            (Ok(false), other) => other,
        };
        refuse(core, number, &failed);
    }
}

/// What the proxies do not decide goes to a node as it is, if its table's mode leaves that to
/// nodes. `false`: it does not.
fn pass(core: &mut Core, io: &mut Io, number: u64) -> Result<bool, Fault> {
    still::check(core, io)?;
    let Some(job) = core.fleet.transactions.jobs.get(&number) else { return Ok(false) };
    let (who, original) = (Who::of(&job.who), observe::original(core, &job.message));
    let Some(Original { shard, table, .. }) = original else { return Ok(false) };
    let (now, keeper) = (levels::now(io), &mut core.fleet.transactions);
    // Whoever else has the shard would know nothing of it.
    if !keeper.table().0.holds(now, shard) {
        let why = "Shunt: this keyspace is another proxy's, or about to be; nothing was written, ask again";
        return Err(Fault::new(FaultKind::Unserved, why));
    }
    keeper.rows.doubt_observed(table);
    keeper.jobs.get_mut(&number).into_iter().for_each(|job| job.passes = Some((shard, table)));
    let whose = Whose::Transaction(Part::Passed { job: number, who });
    if !core.fleet.statements.has_room(&whose) {
        writes::park(core, Parked::Passed(number), who);
    } else if !observe::send(core, io, number, whose) {
        return Err(unsent());
    }
    Ok(true)
}

fn unsent() -> Fault {
    Fault::new(
        FaultKind::Unserved,
        "Shunt: no node could be asked in time; nothing was written, ask again",
    )
}

/// There is room for one that waited for it, or no node knew it as it was prepared.
pub(super) fn pass_on(core: &mut Core, io: &mut Io, number: u64) {
    let deadline_ms = core.fleet.transactions.jobs.get(&number).map(|job| job.deadline_ms);
    let is_early = deadline_ms.is_some_and(|deadline_ms| io.now_ns() / 1_000_000 < deadline_ms);
    let passes = if is_early { pass(core, io, number) } else { Ok(false) };
    if passes != Ok(true) {
        refuse(core, number, &passes.err().unwrap_or_else(unsent).into());
    }
}

/// A node has answered such a statement, or nobody has.
pub(super) fn passed(core: &mut Core, io: &mut Io, number: u64, heard: &Heard<'_>, raw: &[u8]) {
    let Some(job) = core.fleet.transactions.jobs.get(&number) else { return };
    let (ticket, versions, passes) = (job.ticket, (job.version, job.types), job.passes);
    if matches!(heard, Heard::Error(error) if error.unprepared_id().is_some()) {
        // No node has taken it. As text it is not asked for that.
        return pass_on(core, io, number);
    }
    passes.into_iter().for_each(|(_, table)| core.fleet.transactions.rows.doubt_observed(table));
    match observe::told(versions, heard, raw) {
        Some((head, body)) => core.fleet.transactions.tell(ticket, head, body),
        None => answer::of_verdict(core, ticket, Verdict::InDoubt),
    }
    forget(core, number);
}

/// True of what is a transaction because of its table alone.
fn is_by_mode(core: &Core, number: u64) -> bool {
    let message =
        core.fleet.transactions.jobs.get(&number).map(|job| &*job.message).unwrap_or_default();
    // What a rule makes one will be refused for as long as its table has no mode.
    let asked = Asked::read(message).ok().filter(|_| !ruled::is_ruled(core, message));
    asked.is_some_and(|asked| {
        asked.besides.is_empty() && classify(asked.text).kind != Kind::Transaction
    })
}

fn begin(core: &mut Core, io: &mut Io, number: u64, plan: &Arc<Plan>) -> Result<(), Fault> {
    still::check(core, io)?;
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(()) };
    let message = std::mem::take(&mut job.message);
    let asked = Asked::read(&message)?;
    let (refusal, is_observed) =
        (modes::refusal(core, io, plan, asked.as_sent.is_some()), modes::observes(core, plan));
    let begun = match refusal {
        Some(fault) => Err(fault),
        None => begin_as(core, io, number, plan, &asked, is_observed),
    };
    if (is_observed || begun.is_err())
        && let Some(job) = core.fleet.transactions.jobs.get_mut(&number)
    {
        job.message = message;
    }
    begun
}

fn begin_as(
    core: &mut Core,
    io: &mut Io,
    number: u64,
    plan: &Arc<Plan>,
    asked: &Asked<'_>,
    is_observed: bool,
) -> Result<(), Fault> {
    if plan.draft.lone.is_some() && !asked.besides.is_empty() {
        return Err(Fault::invalid(
            "Shunt: the mode of its table is 'conditional' or 'observe': a statement on it takes no guards and keys",
        ));
    }
    let moment = plan.has_calls().then(|| Moment::new(io.wall_us(), core.context.random()));
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(()) };
    job.is_observed = is_observed;
    let (values, counted) = (plan.bind(&asked.values)?, job.bytes);
    // They take the message's place, and are more where a value is named more often than it was
    // sent.
    reads::grow(core, number, bytes_of(&values).saturating_sub(counted))?;
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return Ok(()) };
    job.values = values;
    if let Some(moment) = &moment {
        if asked.besides.guard.is_some() {
            return Err(Fault::invalid(
                "Shunt: now(), uuid() and the like are not taken under a guard; bind the value",
            ));
        }
        plan.call(&mut job.values, moment)?;
    }
    job.plan = Some(Arc::clone(plan));
    plan.with(&job.values).follow(&core.router.modes.rules, asked.besides.guard)?;
    let domain = &plan.draft.outline.domain;
    job.shard = levels::shard_of_domain(domain);
    job.own = OwnRows::of(asked, core.context.config.fleet.as_deref().unwrap_or_default(), domain);
    let claim = keeper.table.as_ref().and_then(|table| table.claim(job.shard));
    job.own.share(claim, &mut keeper.fences);
    let mut partitions = plan.with(&job.values).partitions()?;
    partitions.extend(job.own.partitions());
    partitions.sort_unstable();
    let wish = Wish {
        ticket: Number(number),
        shard: job.shard,
        partitions: &partitions,
        deadline_ms: job.deadline_ms,
    };
    let (now, shard) = (levels::now(io), wish.shard);
    let (table, outbox) = core.fleet.transactions.table();
    let id = table.begin(now, &wish, outbox);
    if let Some((id, job)) = id.zip(core.fleet.transactions.jobs.get_mut(&number)) {
        job.id = Some(id);
        core.fleet.transactions.of_id.insert(id, number);
    }
    core.fleet.transactions.outbox.wanted.push(Wanted::Open(shard));
    set_due(core, io);
    Ok(())
}

/// It is answered with an error, and is no more.
fn refuse(core: &mut Core, number: u64, failed: &Failed) {
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
            keeper.look_at_draining();
        }
        if let Some(of) = job.id {
            keeper.of_id.remove(&of);
            (0..job.writes.len() as u16)
                .for_each(|write| keeper.trials.made(OneWrite::Own { id: of, write }));
        }
    }
}

/// Its client is gone: one that has decided nothing ends.
pub(crate) fn cancel(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(number) = core.fleet.transactions.by_ticket.get(&ticket.0).copied() else { return };
    // One that is still being planned goes on.
    if let Some(id) = core.fleet.transactions.jobs.get(&number).and_then(|job| job.id) {
        let (table, outbox) = core.fleet.transactions.table();
        table.give_up(id, outbox);
        set_due(core, io);
    }
}

/// One of its writes was made, or was not.
pub(super) fn applied(
    core: &mut Core,
    io: &mut Io,
    id: TransactionId,
    write: u16,
    written: Result<Written, Refused>,
) {
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.applied(now, id, write, written, outbox);
    set_due(core, io);
}

/// A transaction has its outcome.
pub(super) fn answered(core: &mut Core, number: u64, outcome: Outcome) {
    let keeper = &mut core.fleet.transactions;
    let Some(job) = keeper.jobs.get_mut(&number) else { return };
    let (ticket, version, was_begun) = (job.ticket, job.version, job.id.is_some());
    if matches!(outcome, Outcome::Committed { .. }) {
        job.own.committed(&mut keeper.fences);
    }
    if !std::mem::replace(&mut job.is_answered, true) {
        let mut body = Vec::new();
        match answer::encode(&mut body, version, job, outcome) {
            Ok(head) => core.fleet.transactions.tell(ticket, head, body),
            Err(failed) => core.fleet.transactions.fail(ticket, &failed),
        }
    }
    // Refused before it was begun, it is not forgotten by anybody else.
    if !was_begun {
        forget(core, number);
    }
}

/// Nothing more comes of a transaction.
pub(super) fn forgotten(core: &mut Core, id: TransactionId) {
    if let Some(number) = core.fleet.transactions.of_id.get(&id).copied() {
        forget(core, number);
    }
    core.fleet.transactions.look_at_draining();
}
