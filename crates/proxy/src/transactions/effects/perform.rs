//! Performs queued effects at the end of the event that caused them.

use shunt_locks::Written;
use shunt_reactor::Io;

use crate::core::Core;
use crate::transactions::effects::Effect;
use crate::transactions::intake::owner;
use crate::transactions::ownership::Unconfirmed;
use crate::transactions::part::{IdentityWaiter, OneWrite};
use crate::transactions::planning::texts::Waiter;
use crate::transactions::timer::set_due;
use crate::transactions::{
    answer, conditional, confirmation, evaluation, execute, log, planning, recovery, shards, time,
    writes,
};

/// Performs all queued effects. Further effects that they cause are left for the next call.
#[cold]
pub(crate) fn perform(core: &mut Core, io: &mut Io) {
    for effect in std::mem::take(&mut core.fleet.transactions.effects.list) {
        match effect {
            Effect::Read(id, number) => evaluation::read_rows(core, io, id, number.0),
            Effect::Answer(number, outcome) => execute::finish(core, number.0, outcome),
            Effect::WriteRecord { id, shard, place, timestamp_us } => {
                log::write_record(core, io, id, (shard, place), timestamp_us);
            }
            Effect::Write { id, write } => writes::start(core, io, OneWrite::Own { id, write }),
            Effect::WriteUnlogged { id, timestamp_us } => {
                conditional::write(core, io, id, timestamp_us)
            }
            Effect::PassToNode(number) => execute::resume_pass(core, io, number),
            Effect::Confirmed(heard, is_alive) => confirmed(core, io, heard, is_alive),
            Effect::WriteDone(OneWrite::Own { id, write }, made) => {
                execute::write_done(core, io, id, write, made)
            }
            Effect::WriteDone(OneWrite::Found { claim, place, write }, made) => {
                recovery::write_done(core, io, claim, (place, write), made);
            }
            Effect::IdentityKnown(IdentityWaiter::Job { number, table, what }, named) => {
                evaluation::identity_known(core, io, (number, table, what), named);
            }
            Effect::IdentityKnown(IdentityWaiter::Write(write), named) => {
                writes::identity_known(core, io, write, named)
            }
            Effect::Forget(id) => execute::forget_id(core, id),
            Effect::WriteLow { shard, generation, low } => {
                log::write_low(core, io, shard, generation, low);
            }
            Effect::DeleteBucket { shard, generation, bucket } => {
                log::delete_bucket(core, io, shard, generation, bucket);
            }
            Effect::PlanReady(Waiter::Job(number), plan) => {
                execute::plan_ready(core, io, number, plan)
            }
            Effect::PlanReady(Waiter::Prepare(ticket, text), Ok(plan)) => {
                answer::prepared(core, ticket, &text, &plan)
            }
            Effect::PlanReady(Waiter::Prepare(ticket, _), Err(failed)) => {
                core.fleet.transactions.fail(ticket, &failed)
            }
            Effect::PlanWaiting => planning::serve_line(core, io),
            Effect::SendToCore(ticket, (keeper, who), message) => {
                owner::send_to_core(core, io, ticket, keeper, &who, &message)
            }
            Effect::Deliver(ticket, head, body) => owner::deliver(core, io, ticket, head, &body),
            Effect::OpenLog(shard) => recovery::open(core, io, shard),
            Effect::Recover(shard) => recovery::recover(core, io, shard),
            Effect::Retry => time::hurry(core, io),
            Effect::ReportDrained => shards::report_drained(core, io),
        }
    }
}

/// Takes in an answer that is confirmed, or that came while this proxy may have been dead.
fn confirmed(core: &mut Core, io: &mut Io, heard: Unconfirmed, is_alive: bool) {
    let now = confirmation::time_of(io, is_alive);
    match heard {
        Unconfirmed::Decided(id, decision) => {
            let (table, effects) = core.fleet.transactions.table();
            table.decided(now, id, decision, effects);
            set_due(core, io);
        }
        Unconfirmed::Recorded(id) => log::record_is(core, io, now, id, Written::Acknowledged),
        Unconfirmed::Unlogged(id) => {
            conditional::settle(core, io, now, id, Ok(Written::Acknowledged))
        }
        Unconfirmed::Row(claim, row) => recovery::row_confirmed(core, io, claim, row, is_alive),
        Unconfirmed::Again(claim, place) => {
            recovery::record_rewritten(core, io, claim, place, is_alive)
        }
    }
}
