//! A transaction is carried out by the core that owns the shard of its keyspace: planned, locked, read, decided, written.
//!
//! [`shunt_transactions::Transactions`] says when what may be done; here it is done, and what comes of it told.

use std::sync::Arc;

use shunt_locks::{Ticket, Written};
use shunt_reactor::Io;
use shunt_transactions::{Asked as Wish, Outcome, Refused, Ticket as Number, TransactionId};
use shunt_wire::cql::statement::{Kind, classify};

use super::failed::Failed;
use super::job::Job;
use super::known::Asked;
use super::outbox::Wanted;
use super::own_rows::OwnRows;
use super::part::OneWrite;
use super::plan::Plan;
use super::plans::Waiter;
use super::timer::set_due;
use super::{answer, levels, modes, planning, ruled};
use crate::core::Core;
use crate::fault::Fault;

/// How long one may take, unless queries have less.
const WITHIN_MS: u64 = 5_000;

/// Takes a transaction on, of a client of this core or of another. It is answered once. `who`: whose share it counts to.
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
        let failed = match failed {
            Failed::NoMode(fault) if is_by_mode(core, number) => Fault::overloaded(fault.why).into(),
            other => other,
        };
        refuse(core, number, &failed);
    }
}

/// True of what is a transaction because of its table alone.
fn is_by_mode(core: &Core, number: u64) -> bool {
    let message = core.fleet.transactions.jobs.get(&number).map(|job| &*job.message).unwrap_or_default();
    // What a rule makes one will be refused for as long as its table has no mode.
    let asked = Asked::read(message).ok().filter(|_| !ruled::is_ruled(core, message));
    asked.is_some_and(|asked| asked.besides.is_empty() && classify(asked.text).kind != Kind::Transaction)
}

fn begin(core: &mut Core, io: &mut Io, number: u64, plan: &Arc<Plan>) -> Result<(), Fault> {
    let refusal = modes::refusal(core, io, plan);
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(()) };
    let message = std::mem::take(&mut job.message);
    let asked = Asked::read(&message)?;
    if let Some(fault) = refusal {
        return Err(fault);
    }
    if plan.draft.lone.is_some() && !asked.besides.is_empty() {
        return Err(Fault::invalid(
            "Shunt: the mode of its table is 'conditional': a statement on it takes no guards and keys",
        ));
    }
    job.values = plan.bind(&asked.values)?;
    job.plan = Some(Arc::clone(plan));
    plan.with(&job.values).follow(&core.router.modes.rules, asked.besides.guard)?;
    let domain = &plan.draft.outline.domain;
    job.shard = levels::shard_of_domain(domain);
    job.own = OwnRows::of(&asked, core.context.config.fleet.as_deref().unwrap_or_default(), domain);
    let mut partitions = plan.with(&job.values).partitions()?;
    partitions.extend(job.own.partitions());
    partitions.sort_unstable();
    let wish = Wish { ticket: Number(number), shard: job.shard, partitions: &partitions, deadline_ms: job.deadline_ms };
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
        if let Some(of) = job.id {
            keeper.of_id.remove(&of);
            (0..job.writes.len() as u16).for_each(|write| keeper.trials.made(OneWrite::Own { id: of, write }));
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
pub(super) fn applied(core: &mut Core, io: &mut Io, id: TransactionId, write: u16, written: Result<Written, Refused>) {
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.applied(now, id, write, written, outbox);
    set_due(core, io);
}

/// A transaction has its outcome.
pub(super) fn answered(core: &mut Core, number: u64, outcome: Outcome) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let (ticket, version, was_begun) = (job.ticket, job.version, job.id.is_some());
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
