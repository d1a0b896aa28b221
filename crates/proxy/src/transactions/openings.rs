//! Shards whose logs are being opened: what their former owners left undone is done.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Written;
use shunt_reactor::Io;
#[cfg(feature = "weakened")]
use shunt_transactions::OpeningStep;
use shunt_transactions::record::Record;
use shunt_transactions::{Claim, Conditional, Failed, Found, Opening, Page, Place, Refused, Row};

use super::open::Open;
use super::outbox::{Openings, ToOpen};
use super::part::{OneWrite, OpeningPart};
use super::timer::set_due;
use super::unconfirmed::Unconfirmed;
use super::{confirm, levels, log, writes};
use crate::core::Core;
use crate::fleet::statements::Heard;
use crate::log_limits::Logged;

/// Opens the log of a shard of this core, unless that was begun before.
pub(super) fn open(core: &mut Core, io: &mut Io, shard: u8) {
    let keeper = &mut core.fleet.transactions;
    if let Some(claim) = keeper.claims[usize::from(shard)].take() {
        return begin(core, io, shard, claim, false);
    }
    for open in keeper.openings.values_mut().filter(|open| open.is_of(shard)) {
        open.only_recovers = false;
    }
}

/// Opens the log of a shard of this core if it has one, whatever modes tables have: acknowledged
/// writes of a former owner may be undone, and nobody would ask for them.
pub(super) fn recover(core: &mut Core, io: &mut Io, shard: u8) {
    if let Some(claim) = core.fleet.transactions.claims[usize::from(shard)].take() {
        begin(core, io, shard, claim, true);
    }
}

fn begin(core: &mut Core, io: &mut Io, shard: u8, claim: Claim, only_recovers: bool) {
    let mut wanted = Openings::default();
    let opening = Opening::begin(shard, claim, &mut wanted);
    core.fleet
        .transactions
        .openings
        .insert(claim.0, Open { shard, opening, bodies: HashMap::new(), only_recovers });
    carry_out(core, io, claim, wanted);
}

/// What an opening wants is done. What could not be sent is told like an answer.
fn carry_out(core: &mut Core, io: &mut Io, claim: Claim, wanted: Openings) {
    let Some(shard) = core.fleet.transactions.openings.get(&claim.0).map(|open| open.shard) else {
        return;
    };
    #[cfg(feature = "weakened")]
    if core.fleet.transactions.left_out == Some(OpeningStep::Seal)
        && matches!(wanted.0[..], [ToOpen::Seal(_)])
    {
        return step(core, io, claim, |opening, now, _, sink| {
            opening.sealed(now, Conditional::Applied, sink)
        });
    }
    for one in wanted.0 {
        let (part, is_sent) = match one {
            ToOpen::ReadRow => (OpeningPart::Row, log::read_row(core, io, shard, claim)),
            ToOpen::Claim(row) => (OpeningPart::Claim, log::claim(core, io, shard, claim, row)),
            ToOpen::Seal(claimed) => {
                (OpeningPart::Seal, log::seal(core, io, shard, claim, claimed))
            }
            ToOpen::ReadLow(generation) => {
                (OpeningPart::Low(generation), log::read_low(core, io, shard, claim, generation))
            }
            ToOpen::ReadPage(from) => {
                (OpeningPart::Page(from), log::read_page(core, io, shard, claim, from))
            }
            ToOpen::Record(place) => {
                (OpeningPart::Record(place), write_record(core, io, (shard, claim), place))
            }
            ToOpen::Write(place, write) => {
                writes::make(core, io, OneWrite::Found { claim, place, write });
                continue;
            }
            ToOpen::Forget(place) => {
                if let Some(open) = core.fleet.transactions.openings.get_mut(&claim.0) {
                    open.bodies.remove(&place);
                }
                continue;
            }
            ToOpen::DeleteBucket(generation, bucket) => {
                log::delete_bucket(core, io, shard, generation, bucket);
                continue;
            }
            ToOpen::DeleteLow(generation) => {
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

/// If it is open, its shard is served from now on.
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
        let (table, outbox) = core.fleet.transactions.table();
        table.open_shard(opened, outbox);
    }
    set_due(core, io);
}

/// Gives an opening what it waits for.
fn step(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    step: impl FnOnce(&mut Opening, shunt_locks::Now, bool, &mut Openings),
) {
    // Read anew, after the answer came.
    let now = levels::now(io);
    let keeper = &mut core.fleet.transactions;
    let Some(open) = keeper.openings.get_mut(&claim.0) else { return };
    let holds = keeper.table.as_ref().is_some_and(|table| table.holds(now, open.shard));
    let mut wanted = Openings::default();
    step(&mut open.opening, now, holds, &mut wanted);
    carry_out(core, io, claim, wanted);
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

/// An answer to a step.
pub(super) fn heard(
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
                say(core, io, "the row of a shard's log", heard);
            }
            match confirm::is_wanted(core) {
                true => confirm::want(core, io, Unconfirmed::Row(claim, row)),
                false => row_is(core, io, claim, row, true),
            }
        }
        OpeningPart::Claim => {
            let outcome = log::conditional(heard);
            step(core, io, claim, |opening, now, _, sink| opening.claimed(now, outcome, sink));
        }
        OpeningPart::Seal => {
            let outcome = log::conditional(heard);
            step(core, io, claim, |opening, now, _, sink| opening.sealed(now, outcome, sink));
        }
        OpeningPart::Low(generation) => {
            let low = log::low(heard);
            step(core, io, claim, |opening, now, _, sink| {
                opening.low_read(now, generation, low, sink)
            });
        }
        OpeningPart::Page(from) => page(core, io, claim, from, heard),
        OpeningPart::Record(place) => {
            let written = levels::written(heard);
            if confirm::needs(core, written) {
                return confirm::want(core, io, Unconfirmed::Again(claim, place));
            }
            step(core, io, claim, |opening, now, holds, sink| {
                opening.appended(now, place, written, holds, sink)
            });
        }
    }
}

/// The row of a shard is this, or could not be read. `is_alive`: so was this proxy when it heard
/// it, if that is not for its lease to say.
pub(super) fn row_is(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    row: Result<Option<Row>, Failed>,
    is_alive: bool,
) {
    if row == Ok(None) && leave_without_log(core, io, claim) {
        return;
    }
    step(core, io, claim, |opening, now, holds, sink| {
        opening.row_read(now, row, holds && is_alive, sink)
    });
}

/// No transaction of this shard was ever carried out, and nobody asks for one: its log is opened
/// when somebody does. `false`: somebody does by now.
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

/// A record that was found is there again.
pub(super) fn is_again(core: &mut Core, io: &mut Io, claim: Claim, place: Place, is_alive: bool) {
    step(core, io, claim, |opening, now, holds, sink| {
        opening.appended(now, place, Written::Acknowledged, holds && is_alive, sink);
    });
}

/// A write of a record that was found was made, or was not.
pub(super) fn applied(
    core: &mut Core,
    io: &mut Io,
    claim: Claim,
    (place, write): (Place, u16),
    written: Result<Written, Refused>,
) {
    step(core, io, claim, |opening, now, _, sink| {
        opening.applied(now, place, write, written, sink)
    });
}

/// Records of a page.
fn page(core: &mut Core, io: &mut Io, claim: Claim, from: Place, heard: &Heard<'_>) {
    let read = log::page(heard).and_then(|read| {
        let found = read.iter().map(|(position, body)| {
            let record = Record::decode(body).map_err(|_| Failed)?;
            Ok(Found {
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
            say(core, io, "a record of transactions", heard);
            Err(failed)
        }
    };
    step(core, io, claim, |opening, now, _, sink| {
        let page = found
            .as_deref()
            .map(|records| Page { records, is_last: records.len() < log::PAGE_RECORDS });
        opening.page_read(now, from, page.map_err(|_| Failed), sink);
    });
}

fn say(core: &Core, io: &Io, what: &str, heard: &Heard<'_>) {
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

/// What could not be sent has no answer; it is told now that it has none.
pub(super) fn tell_unsent(core: &mut Core, io: &mut Io) {
    for (claim, part) in std::mem::take(&mut core.fleet.transactions.unsent) {
        match part {
            OpeningPart::Row => step(core, io, claim, |opening, now, holds, sink| {
                opening.row_read(now, Err(Failed), holds, sink)
            }),
            OpeningPart::Claim => step(core, io, claim, |opening, now, _, sink| {
                opening.claimed(now, Conditional::Unknown, sink)
            }),
            OpeningPart::Seal => step(core, io, claim, |opening, now, _, sink| {
                opening.sealed(now, Conditional::Unknown, sink)
            }),
            OpeningPart::Low(generation) => {
                step(core, io, claim, |opening, now, _, sink| {
                    opening.low_read(now, generation, Err(Failed), sink)
                });
            }
            OpeningPart::Page(from) => step(core, io, claim, |opening, now, _, sink| {
                opening.page_read(now, from, Err(Failed), sink)
            }),
            OpeningPart::Record(place) => {
                step(core, io, claim, |opening, now, holds, sink| {
                    opening.appended(now, place, Written::NotSent, holds, sink)
                });
            }
        }
    }
}

/// Time has passed.
pub(super) fn due(core: &mut Core, io: &mut Io) {
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
        step(core, io, Claim(claim), |opening, now, _, sink| opening.tick(now, sink));
    }
}

/// What failed is tried again now.
pub(super) fn hurry(core: &mut Core, io: &mut Io) {
    let claims: Vec<u128> = core.fleet.transactions.openings.keys().copied().collect();
    for claim in claims {
        step(core, io, Claim(claim), |opening, now, _, sink| opening.hurry(now, sink));
    }
}
