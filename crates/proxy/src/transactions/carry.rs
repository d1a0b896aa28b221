//! What the transactions of a core want done is done when the event that it came of is over.

use shunt_locks::{Now, Ticket, Written};
use shunt_reactor::Io;
use shunt_transactions::{Generation, Position, TransactionId};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code;

use super::draining::Draining;
use super::outbox::Wanted;
use super::part::{OneWrite, Part, WaitsForName};
use super::plans::Waiter;
use super::timer::set_due;
use super::unconfirmed::Unconfirmed;
use super::unmade::Unmade;
use super::{answer, confirm, levels, log, lone, openings, reads, run, take, writes};
use crate::core::Core;
use crate::locks::word::Word;
use crate::locks::{ask, requests, words};
use crate::metrics::TransactionEvent;
use shunt_transactions::request::Head;

/// Empties the outbox. What is done may want more done, which is for the next call.
#[cold]
pub(crate) fn out(core: &mut Core, io: &mut Io) {
    for wanted in std::mem::take(&mut core.fleet.transactions.outbox.wanted) {
        match wanted {
            Wanted::Read(id, number) => reads::read(core, io, id, number.0),
            Wanted::Answer(number, outcome) => run::answered(core, number.0, outcome),
            Wanted::Record { id, shard, place, timestamp_us } => {
                let record = reads::record_of(core, id, timestamp_us);
                let is_sent = record.is_some_and(|(body, who)| {
                    log::write(
                        core,
                        io,
                        Part::Record { id, who },
                        (shard, place),
                        timestamp_us,
                        &body,
                    )
                });
                if !is_sent {
                    recorded(core, io, id, Written::NotSent);
                }
            }
            Wanted::Write { id, write } => writes::make(core, io, OneWrite::Own { id, write }),
            Wanted::Alone { id, timestamp_us } => lone::write(core, io, id, timestamp_us),
            Wanted::Pass(number) => run::pass_on(core, io, number),
            Wanted::Confirmed(heard, is_alive) => confirmed(core, io, heard, is_alive),
            Wanted::Made(OneWrite::Own { id, write }, made) => {
                run::applied(core, io, id, write, made)
            }
            Wanted::Made(OneWrite::Found { claim, place, write }, made) => {
                openings::applied(core, io, claim, (place, write), made);
            }
            Wanted::Named(WaitsForName::Job { number, table, what }, named) => {
                reads::named(core, io, (number, table, what), named);
            }
            Wanted::Named(WaitsForName::Write(write), named) => {
                writes::named(core, io, write, named)
            }
            Wanted::Forget(id) => run::forgotten(core, id),
            Wanted::Low { shard, generation, low } => {
                if !log::write_low(core, io, shard, generation, low) {
                    low_written(core, io, (shard, generation, low), Written::NotSent);
                }
            }
            Wanted::DeleteBucket { shard, generation, bucket } => {
                log::delete_bucket(core, io, shard, generation, bucket);
            }
            Wanted::Planned(Waiter::Job(number), plan) => run::planned(core, io, number, plan),
            Wanted::Planned(Waiter::Prepare(ticket, text), Ok(plan)) => {
                answer::prepared(core, ticket, &text, &plan)
            }
            Wanted::Planned(Waiter::Prepare(ticket, _), Err(failed)) => {
                core.fleet.transactions.fail(ticket, &failed)
            }
            Wanted::Allowed { ticket, login, known, message } => {
                take::send(core, io, ticket, &login, &known.domain, &message);
            }
            Wanted::Send(ticket, (keeper, who), message) => {
                take::send_to(core, io, ticket, keeper, &who, &message)
            }
            Wanted::Tell(ticket, head, body) => tell(core, io, ticket, head, &body),
            Wanted::Open(shard) => openings::open(core, io, shard),
            Wanted::Recover(shard) => openings::recover(core, io, shard),
            Wanted::Hurry => hurry(core, io),
            Wanted::LookAtDraining => tell_drained(core, io),
        }
    }
}

/// Answers, here or on the core whose client asked.
fn tell(core: &mut Core, io: &mut Io, ticket: Ticket, head: Head, body: &[u8]) {
    let of = requests::core_of(ticket);
    if of != core.context.index {
        return core.fleet.lanes.answer_with(of, ticket, head, body);
    }
    let is_unserved =
        head.0 == opcode::ERROR && error_code::peek(body) == Some(error_code::IS_BOOTSTRAPPING);
    if !is_unserved || !take::again(core, io, ticket) {
        ask::answer_with(core, io, ticket, head, body);
    }
}

/// Tells of the shards that are being handed over and of which nothing is under way any more.
fn tell_drained(core: &mut Core, io: &mut Io) {
    let keeper = &mut core.fleet.transactions;
    let (table, draining) = (keeper.table.as_ref(), std::mem::take(&mut keeper.draining));
    // What is passed on is not told whoever has the shard next.
    let passes =
        |shard| keeper.jobs.values().any(|job| job.passes.is_some_and(|(of, _)| of == shard));
    let is_idle =
        |one: &Draining| table.is_none_or(|table| table.is_idle(one.shard)) && !passes(one.shard);
    let (idle, busy) = draining.into_iter().partition::<Vec<_>, _>(is_idle);
    keeper.draining = busy;
    for Draining { shard, number, last_token_us, memory_empty } in idle {
        let last_token_us = last_token_us.max(core.fleet.transactions.last_timestamp_us(shard));
        words::tell(core, io, 0, Word::Drained { shard, number, last_token_us, memory_empty });
    }
}

/// Time has passed.
pub(crate) fn due(core: &mut Core, io: &mut Io) {
    core.fleet.transactions.wakes.passed(io.now_ns());
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.tick(now, outbox);
    openings::due(core, io);
    take::ask_again(core, io);
    set_due(core, io);
}

/// What waits to be tried again is tried now.
fn hurry(core: &mut Core, io: &mut Io) {
    let now = levels::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.hurry(now, outbox);
    openings::hurry(core, io);
    set_due(core, io);
}

/// It is known if this proxy was alive when it heard this.
fn confirmed(core: &mut Core, io: &mut Io, heard: Unconfirmed, is_alive: bool) {
    let now = confirm::time_of(io, is_alive);
    match heard {
        Unconfirmed::Decided(id, decision) => {
            let (table, outbox) = core.fleet.transactions.table();
            table.decided(now, id, decision, outbox);
            set_due(core, io);
        }
        Unconfirmed::Recorded(id) => record_is(core, io, now, id, Written::Acknowledged),
        Unconfirmed::Alone(id) => lone::settled(core, io, now, id, Ok(Written::Acknowledged)),
        Unconfirmed::Row(claim, row) => openings::row_is(core, io, claim, row, is_alive),
        Unconfirmed::Again(claim, place) => openings::is_again(core, io, claim, place, is_alive),
    }
}

/// What has become of writing a record.
pub(super) fn recorded(core: &mut Core, io: &mut Io, id: TransactionId, written: Written) {
    if confirm::needs(core, written) {
        return confirm::want(core, io, Unconfirmed::Recorded(id));
    }
    // Read anew, after the answer came: without a lease it is not committed.
    let now = levels::now(io);
    record_is(core, io, now, id, written);
}

fn record_is(core: &mut Core, io: &mut Io, now: Now, id: TransactionId, written: Written) {
    let (table, outbox) = core.fleet.transactions.table();
    table.appended(now, id, written, outbox);
    set_due(core, io);
    // A shard that is handed over waits for no more than this.
    core.fleet.transactions.look_at_draining();
}

/// What has become of writing a low mark.
pub(super) fn low_written(
    core: &mut Core,
    io: &mut Io,
    (shard, generation, low): (u8, Generation, Position),
    written: Written,
) {
    let (table, outbox) = core.fleet.transactions.table();
    table.low_written(shard, generation, low, written, outbox);
    set_due(core, io);
}

/// Writes low marks, tells what could not be sent, and counts.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    if core.fleet.transactions.table.is_none() {
        return;
    }
    count(core, io);
    openings::tell_unsent(core, io);
    writes::tick(core, io);
    if core.context.ticks.is_multiple_of(LOWS_TICKS) {
        let (table, outbox) = core.fleet.transactions.table();
        table.tell_lows(outbox);
    }
    set_due(core, io);
}

/// Counts, for whoever looks at the metrics.
fn count(core: &mut Core, io: &Io) {
    use TransactionEvent::{
        Alone, Committed, GivenUp, InDoubt, NotExecuted, Read, ToldEarly, WrittenAgain,
    };
    let keeper = &core.fleet.transactions;
    let Some(table) = &keeper.table else { return };
    let (metrics, counters) = (&core.context.metrics.transactions, table.counters());
    metrics.open.set(table.open() as u64);
    metrics.records.set(table.open_records() as u64);
    metrics.unmade.set(keeper.trials.count(io.now_ns()) as u64);
    metrics.opening.set(keeper.openings.len() as u64);
    metrics.rows.set(keeper.rows.len() as u64);
    for (event, count) in [
        (Committed, counters.committed),
        (Alone, counters.alone),
        (ToldEarly, counters.told_early),
        (Read, counters.read),
        (NotExecuted, counters.not_executed),
        (InDoubt, counters.in_doubt),
        (WrittenAgain, counters.repeated),
        (GivenUp, counters.refused),
    ] {
        let counted = metrics.events.of(event);
        counted.add(count - counted.get());
    }
    for one in core.fleet.transactions.trials.due(io.now_ns()) {
        let Unmade { table, writes, since_ms, why, is_found } = one;
        tracing::warn!(table, writes, since_ms, why, former_owners = is_found, "{UNMADE}");
    }
}

const UNMADE: &str = "writes of committed transactions cannot be made: their partitions stay locked, and, where they are a former owner's, no \
                      transaction of the same shard is carried out";

/// So many ticks between two low marks of a shard.
const LOWS_TICKS: u64 = 2;
