//! A transaction is carried out by the core that owns the shard of its keyspace: planned, locked, read, decided, written.
//!
//! [`shunt_transactions::Transactions`] says when what may be done; here it is done, and what comes of it told.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_language::terms::Value;
use shunt_locks::{Ticket, Written};
use shunt_reactor::Io;
use shunt_transactions::record::{self, Record};
use shunt_transactions::{Asked as Wish, Decision, Outcome, Refused, Ticket as Number, TransactionId};
use shunt_wire::cql::message::{ValueList, error_code};

use super::failed::Failed;
use super::job::Job;
use super::known::Asked;
use super::outbox::Wanted;
use super::own_rows::OwnRows;
use super::part::Part;
use super::plan::{Plan, push};
use super::plans::Waiter;
use super::timer::set_due;
use super::{VERSION, answer, levels, planning};
use crate::core::Core;
use crate::fault::Fault;
use crate::own::{self, Heard, Levels, Whose};

/// Transactions that wait for their plan, or are under way, on one core.
const JOBS_MAX: usize = 4_096;
/// Bytes of what they ask and have read.
pub(super) const JOBS_BYTES_MAX: usize = 64 << 20;
/// How long one may take, unless queries have less.
const WITHIN_MS: u64 = 5_000;

/// Takes a transaction on, of a client of this core or of another. It is answered once.
pub(crate) fn take(core: &mut Core, io: &mut Io, ticket: Ticket, message: &[u8]) {
    let jobs = &core.fleet.transactions.jobs;
    if jobs.len() >= JOBS_MAX || core.fleet.transactions.jobs_bytes + message.len() > JOBS_BYTES_MAX {
        let fault = Fault::overloaded("Shunt: as many transactions are under way as may; ask again");
        return core.fleet.transactions.fail(ticket, &fault.into());
    }
    let asked = match Asked::read(message) {
        Ok(asked) => asked,
        Err(error) => return core.fleet.transactions.fail(ticket, &Fault::from(error).into()),
    };
    let within_ms = WITHIN_MS.min(core.context.config.query_timeout_ms);
    let keeper = &mut core.fleet.transactions;
    keeper.number += 1;
    let number = keeper.number;
    keeper.jobs_bytes += message.len();
    let job = Job {
        ticket,
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
        refused: HashMap::new(),
        writes: Vec::new(),
        own: OwnRows::default(),
        record: Vec::new(),
        bytes: message.len(),
    };
    keeper.jobs.insert(number, job);
    keeper.by_ticket.insert(ticket.0, number);
    planning::want(core, io, asked.text, asked.keyspace, Waiter::Job(number));
}

/// There is a plan for it, or none.
pub(super) fn planned(core: &mut Core, io: &mut Io, number: u64, plan: Result<Arc<Plan>, Failed>) {
    let begun = plan.and_then(|plan| begin(core, io, number, &plan).map_err(Failed::from));
    if let Err(failed) = begun {
        refuse(core, number, &failed);
    }
}

fn begin(core: &mut Core, io: &mut Io, number: u64, plan: &Arc<Plan>) -> Result<(), Fault> {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return Ok(()) };
    let message = std::mem::take(&mut job.message);
    let asked = Asked::read(&message)?;
    job.values = plan.bind(&asked.values)?;
    job.plan = Some(Arc::clone(plan));
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
        keeper.jobs_bytes -= job.bytes;
        keeper.by_ticket.remove(&job.ticket.0);
        if let Some(id) = job.id {
            keeper.of_id.remove(&id);
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

/// Nothing was written, and it is answered with this.
pub(super) fn give_up(core: &mut Core, io: &mut Io, number: u64, failed: &Failed) {
    let Some(job) = core.fleet.transactions.jobs.get_mut(&number) else { return };
    let (ticket, id) = (job.ticket, job.id);
    // Its shard may be lost in this same turn, and it be told of that too.
    if !std::mem::replace(&mut job.is_answered, true) {
        core.fleet.transactions.fail(ticket, failed);
    }
    if let Some(id) = id {
        decide(core, io, id, Decision::GiveUp);
    }
}

pub(super) fn decide(core: &mut Core, io: &mut Io, id: TransactionId, decision: Decision) {
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.decided(now, id, decision, outbox);
    set_due(core, io);
}

/// Puts its record down.
pub(super) fn encode(job: &mut Job, plan: &Plan, timestamp_us: i64) -> Result<(), record::BadRecord> {
    fn of<'a>(text: &'a str, values: &'a [Value]) -> record::Write<'a> {
        let values = values.iter().map(|value| match value {
            Value::Bytes(bytes) => record::Value::Bytes(bytes),
            Value::Null => record::Value::Null,
            Value::Unset => record::Value::Unset,
        });
        record::Write { keyspace: "", text, values: values.collect() }
    }
    let writes = plan.draft.writes.iter().zip(&job.writes).map(|(write, values)| of(&write.text, values));
    let mut writes: Vec<record::Write<'_>> = writes.collect();
    writes.extend(job.own.writes.iter().map(|(text, values)| of(text, values)));
    let record = Record { shard: job.shard, timestamp_us, key: &[], writes };
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
    encode(job, &plan, timestamp_us).ok()?;
    Some(job.record.clone())
}

/// Makes one of the writes of a transaction.
pub(super) fn write(core: &mut Core, io: &mut Io, id: TransactionId, write: u16, timestamp_us: i64) {
    let found = core.fleet.transactions.of_id.get(&id).and_then(|number| core.fleet.transactions.jobs.get(number));
    let prepared = found.and_then(|job| {
        let plan = job.plan.as_ref()?;
        let place = usize::from(write);
        let (text, values) = match job.writes.get(place) {
            Some(values) => (&plan.draft.writes.get(place)?.text, values),
            None => job.own.writes.get(place - job.writes.len()).map(|(text, values)| (text, values))?,
        };
        let mut list = ValueList::positional(VERSION);
        values.iter().for_each(|value| push(&mut list, value));
        Some((Arc::clone(text), list))
    });
    let whose = Whose::Transaction(Part::Write { id, write });
    let timestamp_us = Some(timestamp_us + i64::from(write));
    let levels = Levels { consistency: levels::quorum(core), serial: None, timestamp_us, elsewhere: false };
    let is_sent =
        prepared.is_some_and(|(text, list)| own::ask::ask_text(core, io, whose, &text, list.values(), &levels, None));
    if !is_sent {
        applied(core, io, id, write, Ok(Written::NotSent));
    }
}

pub(super) fn applied(core: &mut Core, io: &mut Io, id: TransactionId, write: u16, written: Result<Written, Refused>) {
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.applied(now, id, write, written, outbox);
    set_due(core, io);
}

/// A node has answered one of the writes.
pub(super) fn heard_write(core: &mut Core, io: &mut Io, (id, write): (TransactionId, u16), heard: &Heard<'_>) {
    let now_ns = io.now_ns();
    let number = core.fleet.transactions.of_id.get(&id).copied();
    let job = number.and_then(|number| core.fleet.transactions.jobs.get_mut(&number));
    let refused_since_ns = match (heard, job) {
        (Heard::Error(error), Some(job)) if error.code == error_code::INVALID => {
            Some(*job.refused.entry(write).or_insert(now_ns))
        }
        (_, Some(job)) => {
            job.refused.remove(&write);
            None
        }
        _ => None,
    };
    let verdict = levels::verdict(core, heard, refused_since_ns, now_ns);
    applied(core, io, id, write, verdict);
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
