//! Logs of shards that this core has gained are opened, and the unfinished work of former owners is
//! finished.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Written;
use shunt_reactor::Io;
#[cfg(feature = "weakened")]
use shunt_transactions::OpeningStep;
use shunt_transactions::record::Record;
use shunt_transactions::{
    Claim, Conditional, Failed, FoundRecord, Opening, Page, Place, Refused, Row,
};

use super::{confirmation, levels, log, writes};
use crate::core::Core;
use crate::fleet::statements::Heard;
use crate::log_limits::Logged;
use crate::transactions::effects::{OpeningEffect, OpeningEffects};
use crate::transactions::ownership::{Open, Unconfirmed};
use crate::transactions::part::{OneWrite, OpeningPart};
use crate::transactions::timer::set_due;

/// Opens the log of a shard of this core, unless that was begun.
pub(super) fn open(core: &mut Core, io: &mut Io, shard: u8) {
    let keeper = &mut core.fleet.transactions;
    if let Some(claim) = keeper.claims[usize::from(shard)].take() {
        return begin(core, io, shard, claim, false);
    }
    for open in keeper.openings.values_mut().filter(|open| open.is_of(shard)) {
        open.only_recovers = false;
    }
}

/// Opens the log of a shard of this core if it exists, whatever modes tables have: a former owner
/// may have left acknowledged writes that no client would ask for.
pub(super) fn recover(core: &mut Core, io: &mut Io, shard: u8) {
    if let Some(claim) = core.fleet.transactions.claims[usize::from(shard)].take() {
        begin(core, io, shard, claim, true);
    }
}

fn begin(core: &mut Core, io: &mut Io, shard: u8, claim: Claim, only_recovers: bool) {
    let mut effects = OpeningEffects::default();
    let opening = Opening::begin(shard, claim, &mut effects);
    core.fleet
        .transactions
        .openings
        .insert(claim.0, Open { shard, opening, bodies: HashMap::new(), only_recovers });
    perform(core, io, claim, effects);
}

/// Performs the effects of an opening. A statement that cannot be sent counts as one without an
/// answer.
fn perform(core: &mut Core, io: &mut Io, claim: Claim, effects: OpeningEffects) {
    let Some(shard) = core.fleet.transactions.openings.get(&claim.0).map(|open| open.shard) else {
        return;
    };
    #[cfg(feature = "weakened")]
    if core.fleet.transactions.left_out == Some(OpeningStep::Seal)
        && matches!(effects.0[..], [OpeningEffect::Seal(_)])
    {
        return step(core, io, claim, |opening, now, _, effects| {
            opening.sealed(now, Conditional::Applied, effects)
        });
    }
    for one in effects.0 {
        let (part, is_sent) = match one {
            OpeningEffect::ReadRow => (OpeningPart::Row, log::read_row(core, io, shard, claim)),
            OpeningEffect::Claim(row) => {
                (OpeningPart::Claim, log::claim(core, io, shard, claim, row))
            }
            OpeningEffect::Seal(claimed) => {
                (OpeningPart::Seal, log::seal(core, io, shard, claim, claimed))
            }
            OpeningEffect::ReadLow(generation) => {
                (OpeningPart::Low(generation), log::read_low(core, io, shard, claim, generation))
            }
            OpeningEffect::ReadPage(from) => {
                (OpeningPart::Page(from), log::read_page(core, io, shard, claim, from))
            }
            OpeningEffect::Record(place) => {
                (OpeningPart::Record(place), write_record(core, io, (shard, claim), place))
            }
            OpeningEffect::Write(place, write) => {
                writes::start(core, io, OneWrite::Found { claim, place, write });
                continue;
            }
            OpeningEffect::Forget(place) => {
                if let Some(open) = core.fleet.transactions.openings.get_mut(&claim.0) {
                    open.bodies.remove(&place);
                }
                continue;
            }
            OpeningEffect::DeleteBucket(generation, bucket) => {
                log::delete_bucket(core, io, shard, generation, bucket);
                continue;
            }
            OpeningEffect::DeleteLow(generation) => {
                log::delete_low(core, io, shard, generation);
                continue;
            }
        };
        if !is_sent {
            core.fleet.transactions.unsent.push((claim, part));
        }
    }
    settle(core, io, claim);
}

/// Serves the shard if its log is open.
fn settle(core: &mut Core, io: &mut Io, claim: Claim) {
    let opened =
        core.fleet.transactions.openings.get(&claim.0).and_then(|open| open.opening.opened());
    if let Some(opened) = opened {
        let refused = core
            .fleet
            .transactions
            .openings
            .remove(&claim.0)
            .map_or(0, |open| open.opening.refused());
        if refused > 0 {
            tracing::warn!(
                refused,
                "writes of a former owner's transactions could not be made: their tables are gone"
            );
        }
        let (table, effects) = core.fleet.transactions.table();
        table.open_shard(opened, effects);
    }
    set_due(core, io);
}

/// Gives an answer to an opening.
fn step(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    step: impl FnOnce(&mut Opening, shunt_locks::Now, bool, &mut OpeningEffects),
) {
    // The clock is read after the answer came.
    let now = levels::now(io);
    let keeper = &mut core.fleet.transactions;
    let Some(open) = keeper.openings.get_mut(&claim.0) else { return };
    let holds = keeper.table.as_ref().is_some_and(|table| table.holds(now, open.shard));
    let mut effects = OpeningEffects::default();
    step(&mut open.opening, now, holds, &mut effects);
    perform(core, io, claim, effects);
}

fn body(core: &Core, claim: Claim, place: Place) -> Option<&Arc<[u8]>> {
    core.fleet.transactions.openings.get(&claim.0)?.bodies.get(&place)
}

fn write_record(core: &mut Core, io: &mut Io, (shard, claim): (u8, Claim), place: Place) -> bool {
    let Some(bytes) = body(core, claim, place).cloned() else { return false };
    let Ok(timestamp_us) = Record::decode(&bytes).map(|record| record.timestamp_us) else {
        return false;
    };
    log::write_again(core, io, (shard, claim), place, &bytes, timestamp_us)
}

/// Takes in the answer to a step.
pub(super) fn step_answered(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    part: OpeningPart,
    heard: &Heard<'_>,
) {
    match part {
        OpeningPart::Row => {
            let row = log::row(heard);
            if row.is_err() {
                log_unreadable(core, io, "the row of a shard's log", heard);
            }
            match confirmation::is_enabled(core) {
                true => confirmation::request(core, io, Unconfirmed::Row(claim, row)),
                false => row_confirmed(core, io, claim, row, true),
            }
        }
        OpeningPart::Claim => {
            let outcome = log::conditional(heard);
            step(core, io, claim, |opening, now, _, effects| {
                opening.claimed(now, outcome, effects)
            });
        }
        OpeningPart::Seal => {
            let outcome = log::conditional(heard);
            step(core, io, claim, |opening, now, _, effects| opening.sealed(now, outcome, effects));
        }
        OpeningPart::Low(generation) => {
            let low = log::low(heard);
            step(core, io, claim, |opening, now, _, effects| {
                opening.low_read(now, generation, low, effects)
            });
        }
        OpeningPart::Page(from) => page(core, io, claim, from, heard),
        OpeningPart::Record(place) => {
            let written = levels::written(heard);
            if confirmation::needs(core, written) {
                return confirmation::request(core, io, Unconfirmed::Again(claim, place));
            }
            step(core, io, claim, |opening, now, holds, effects| {
                opening.appended(now, place, written, holds, effects)
            });
        }
    }
}

/// Takes in the row of a shard. `is_alive` says whether this proxy was alive when the row came, if
/// its lease does not say so.
pub(super) fn row_confirmed(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    row: Result<Option<Row>, Failed>,
    is_alive: bool,
) {
    if row == Ok(None) && leave_without_log(core, io, claim) {
        return;
    }
    step(core, io, claim, |opening, now, holds, effects| {
        opening.row_read(now, row, holds && is_alive, effects)
    });
}

/// Leaves a shard without a log unopened until a client needs it; `false` if one does.
fn leave_without_log(core: &mut Core, io: &mut Io, claim: Claim) -> bool {
    let keeper = &mut core.fleet.transactions;
    let Some(open) = keeper.openings.remove(&claim.0) else { return false };
    if !open.only_recovers {
        keeper.openings.insert(claim.0, open);
        return false;
    }
    keeper.claims[usize::from(open.shard)] = Some(claim);
    set_due(core, io);
    true
}

/// Takes in that a recovered record is rewritten.
pub(super) fn record_rewritten(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    place: Place,
    is_alive: bool,
) {
    step(core, io, claim, |opening, now, holds, effects| {
        opening.appended(now, place, Written::Acknowledged, holds && is_alive, effects);
    });
}

/// Takes in the outcome of a write of a recovered record.
pub(super) fn write_done(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    (place, write): (Place, u16),
    written: Result<Written, Refused>,
) {
    step(core, io, claim, |opening, now, _, effects| {
        opening.applied(now, place, write, written, effects)
    });
}

/// Takes in a page of records.
fn page(core: &mut Core, io: &mut Io, claim: Claim, from: Place, heard: &Heard<'_>) {
    let read = log::page(heard).and_then(|read| {
        let found = read.iter().map(|(position, body)| {
            let record = Record::decode(body).map_err(|_| Failed)?;
            Ok(FoundRecord {
                position: *position,
                timestamp_us: record.timestamp_us,
                writes: record.writes.len() as u16,
            })
        });
        Ok((found.collect::<Result<Vec<_>, Failed>>()?, read))
    });
    #[cfg(feature = "weakened")]
    let read = match core.fleet.transactions.left_out {
        Some(OpeningStep::Recovery) => Ok(Default::default()),
        _ => read,
    };
    let found = match read {
        Ok((found, bodies)) => {
            let Some(open) = core.fleet.transactions.openings.get_mut(&claim.0) else { return };
            let placed = bodies
                .into_iter()
                .map(|(position, body)| (Place { position, ..from }, Arc::from(body)));
            open.bodies.extend(placed);
            Ok(found)
        }
        Err(failed) => {
            log_unreadable(core, io, "a record of transactions", heard);
            Err(failed)
        }
    };
    step(core, io, claim, |opening, now, _, effects| {
        let page = found
            .as_deref()
            .map(|records| Page { records, is_last: records.len() < log::PAGE_RECORDS });
        opening.page_read(now, from, page.map_err(|_| Failed), effects);
    });
}

fn log_unreadable(core: &Core, io: &Io, what: &str, heard: &Heard<'_>) {
    if let Some(suppressed) = core.context.log_limits.admit(Logged::Transactions, io.now_ns()) {
        let why = match heard {
            Heard::Error(error) => error.message,
            Heard::Result(_) | Heard::Unreadable => "it is not as a proxy writes it",
        };
        tracing::warn!(
            what,
            why,
            suppressed,
            "could not be read: transactions of its keyspaces wait for that"
        );
    }
}

/// Reports statements that could not be sent as ones without an answer.
pub(super) fn fail_unsent(core: &mut Core, io: &mut Io) {
    for (claim, part) in std::mem::take(&mut core.fleet.transactions.unsent) {
        match part {
            OpeningPart::Row => step(core, io, claim, |opening, now, holds, effects| {
                opening.row_read(now, Err(Failed), holds, effects)
            }),
            OpeningPart::Claim => step(core, io, claim, |opening, now, _, effects| {
                opening.claimed(now, Conditional::Unknown, effects)
            }),
            OpeningPart::Seal => step(core, io, claim, |opening, now, _, effects| {
                opening.sealed(now, Conditional::Unknown, effects)
            }),
            OpeningPart::Low(generation) => {
                step(core, io, claim, |opening, now, _, effects| {
                    opening.low_read(now, generation, Err(Failed), effects)
                });
            }
            OpeningPart::Page(from) => step(core, io, claim, |opening, now, _, effects| {
                opening.page_read(now, from, Err(Failed), effects)
            }),
            OpeningPart::Record(place) => {
                step(core, io, claim, |opening, now, holds, effects| {
                    opening.appended(now, place, Written::NotSent, holds, effects)
                });
            }
        }
    }
}

/// Repeats what is due.
pub(super) fn tick(core: &mut Core, io: &mut Io) {
    let now_ms = io.now_ns() / 1_000_000;
    let is_due = |open: &Open| open.opening.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms);
    let claims: Vec<u128> = core
        .fleet
        .transactions
        .openings
        .iter()
        .filter(|(_, open)| is_due(open))
        .map(|(claim, _)| *claim)
        .collect();
    for claim in claims {
        step(core, io, Claim(claim), |opening, now, _, effects| opening.tick(now, effects));
    }
}

/// Repeats everything that waits for a pause.
pub(super) fn hurry(core: &mut Core, io: &mut Io) {
    let claims: Vec<u128> = core.fleet.transactions.openings.keys().copied().collect();
    for claim in claims {
        step(core, io, Claim(claim), |opening, now, _, effects| opening.hurry(now, effects));
    }
}
