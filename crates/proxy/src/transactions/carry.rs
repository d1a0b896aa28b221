//! What the transactions of a core want done is done when the event that it came of is over.

use shunt_locks::Written;
use shunt_reactor::Io;
use shunt_transactions::{Generation, Position, TransactionId};

use super::outbox::Wanted;
use super::{log, openings, run, words};
use crate::core::Core;

/// Empties the outbox. What is done may want more done, which is for the next call.
#[cold]
pub(crate) fn out(core: &mut Core, io: &mut Io) {
    for wanted in std::mem::take(&mut core.fleet.transactions.outbox.wanted) {
        match wanted {
            Wanted::Read(id, number) => run::read(core, io, id, number.0),
            Wanted::Answer(number, outcome) => run::answered(core, io, number.0, outcome),
            Wanted::Record { id, shard, place, timestamp_us } => {
                let body = run::record_of(core, id, timestamp_us);
                let is_sent = body.is_some_and(|body| log::write(core, io, id, (shard, place), timestamp_us, &body));
                if !is_sent {
                    recorded(core, io, id, Written::NotSent);
                }
            }
            Wanted::Write { id, write, timestamp_us } => run::write(core, io, id, write, timestamp_us),
            Wanted::Forget(id) => run::forgotten(core, io, id),
            Wanted::Low { shard, generation, low } => {
                if !log::write_low(core, io, shard, generation, low) {
                    low_written(core, io, (shard, generation, low), Written::NotSent);
                }
            }
            Wanted::DeleteBucket { shard, generation, bucket } => {
                log::delete_bucket(core, io, shard, generation, bucket)
            }
        }
    }
}

/// What has become of writing a record.
pub(super) fn recorded(core: &mut Core, io: &mut Io, id: TransactionId, written: Written) {
    // Read anew, after the answer came: without a lease it is not committed.
    let now = run::now(io);
    let (table, outbox) = core.fleet.transactions.table();
    table.appended(now, id, written, outbox);
    run::set_due(core, io);
    // A shard that is handed over waits for no more than this.
    words::drained(core, io);
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
    run::set_due(core, io);
}

/// Writes low marks, tells what could not be sent, and counts.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    if core.fleet.transactions.table.is_none() {
        return;
    }
    openings::tell_unsent(core, io);
    if core.ticks.is_multiple_of(LOWS_TICKS) {
        let (table, outbox) = core.fleet.transactions.table();
        table.tell_lows(outbox);
    }
    run::set_due(core, io);
}

/// So many ticks between two low marks of a shard.
const LOWS_TICKS: u64 = 2;
