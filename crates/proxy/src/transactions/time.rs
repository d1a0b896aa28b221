//! Deadlines, retries, low marks and metrics of a core's transactions.

use shunt_reactor::Io;

use super::intake::owner;
use super::{levels, planning, recovery, table_identity, writes};
use crate::core::Core;
use crate::metrics::TransactionEvent;
use crate::transactions::timer::set_due;
use crate::transactions::writes::attempts::Unmade;

/// Runs what is due when the timer fires.
pub(crate) fn due(core: &mut Core, io: &mut Io) {
    core.fleet.transactions.wakes.passed(io.now_ns());
    let now = levels::now(io);
    let (table, effects) = core.fleet.transactions.table();
    table.tick(now, effects);
    recovery::tick(core, io);
    owner::retry_due(core, io);
    planning::go_on_with_line(core, io);
    set_due(core, io);
}

/// Repeats everything that waits for a pause.
pub(super) fn hurry(core: &mut Core, io: &mut Io) {
    let now = levels::now(io);
    let (table, effects) = core.fleet.transactions.table();
    table.hurry(now, effects);
    recovery::hurry(core, io);
    set_due(core, io);
}

/// Writes low marks, repeats what could not be sent, and counts.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    planning::tick(core, io);
    if core.fleet.transactions.table.is_none() {
        return;
    }
    count(core, io);
    recovery::fail_unsent(core, io);
    writes::tick(core, io);
    table_identity::tick(core, io);
    if core.context.ticks.is_multiple_of(LOWS_TICKS) {
        let (table, effects) = core.fleet.transactions.table();
        table.tell_lows(effects);
    }
    set_due(core, io);
}

/// Updates metrics.
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
    metrics.rows.set(keeper.rows.count() as u64);
    for (event, count) in [
        (Committed, counters.committed),
        (Alone, counters.unlogged),
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

/// Ticks between two low marks of a shard.
const LOWS_TICKS: u64 = 2;
