//! The lease of a core's transactions, and shards that it gains, hands over and loses.

use shunt_fleet::{Gain, Incarnation, Level, SHARDS, Shard};
use shunt_locks::Lease;
use shunt_reactor::Io;
use shunt_transactions::Claim;

use super::levels;
use crate::config::Commit;
use crate::core::Core;
use crate::fleet::notices;
use crate::fleet::notices::notice::Notice;
use crate::transactions::effects::Effect;
use crate::transactions::ownership::Draining;
use crate::transactions::part::OneWrite;
use crate::transactions::timer::set_due;

/// Notes the fleet's level: modes are read at it even while this proxy is no member.
pub(crate) fn note_level(core: &mut Core, level: Level) {
    core.fleet.transactions.modes.level = Some(level);
}

/// Replaces the lease, of this membership.
pub(crate) fn set_lease(core: &mut Core, io: &mut Io, lease: Lease, incarnation: Incarnation) {
    let now = levels::now(io);
    let commit = core.context.config.transaction_commit;
    let keeper = &mut core.fleet.transactions;
    keeper.confirming.member = Some(incarnation);
    keeper.table().0.confirm(commit == Commit::Lwt);
    let is_new = now.boot_ns < lease.valid_until_ns && !keeper.table().0.has_lease(now);
    let (table, effects) = keeper.table();
    table.set_lease(now, lease, effects);
    if is_new {
        keeper.hurry();
    }
    set_due(core, io);
}

/// Ends the membership of this proxy.
pub(crate) fn leave_fleet(core: &mut Core, io: &mut Io) {
    let keeper = &mut core.fleet.transactions;
    let incarnation = keeper.confirming.member.unwrap_or_default();
    set_lease(core, io, Lease::default(), incarnation);
    for shard in 0..SHARDS as Shard {
        lose(core, io, shard);
    }
}

/// Gains a shard.
pub(crate) fn gain(core: &mut Core, io: &mut Io, gain: &Gain) {
    lose(core, io, gain.shard);
    let claim = new_claim(core, io);
    let (table, _) = core.fleet.transactions.table();
    table.gain(gain.shard, gain.ts_floor_us, claim);
    core.fleet.transactions.claims[usize::from(gain.shard)] = Some(claim);
    // A former owner may have left unfinished writes to a table that no longer has a mode.
    let is_wanted = core.fleet.transactions.is_wanted(gain.shard);
    let wanted = if is_wanted { Effect::OpenLog(gain.shard) } else { Effect::Recover(gain.shard) };
    core.fleet.transactions.effects.list.push(wanted);
}

/// A random claim, and so a new one.
fn new_claim(core: &mut Core, io: &mut Io) -> Claim {
    let halves = [core.context.random(), core.context.random() ^ io.wall_us().cast_unsigned()];
    let random = u128::from(halves[0]) << 64 | u128::from(halves[1]);
    // Version 4, variant 1 of RFC 9562.
    let (version, variant) = (0xf_u128 << 76, 0b11_u128 << 62);
    Claim(random & !version & !variant | 4 << 76 | 0b10 << 62)
}

/// Loses a shard.
pub(crate) fn lose(core: &mut Core, io: &mut Io, shard: Shard) {
    let keeper = &mut core.fleet.transactions;
    keeper.claims[usize::from(shard)] = None;
    keeper.openings.retain(|_, open| !open.is_of(shard));
    let openings = &keeper.openings;
    keeper.trials.forget(
        |write| matches!(write, OneWrite::Found { claim, .. } if !openings.contains_key(&claim.0)),
    );
    keeper.draining.retain(|draining| draining.shard != shard);
    let (table, effects) = keeper.table();
    table.lose(shard, effects);
    set_due(core, io);
}

/// Prepares to hand over a shard: it accepts no new transactions. The membership is told once the
/// shard is idle.
pub(crate) fn drain(core: &mut Core, draining: Draining) {
    let keeper = &mut core.fleet.transactions;
    keeper.draining.retain(|other| other.shard != draining.shard);
    keeper.draining.push(draining);
    let (table, effects) = keeper.table();
    table.close(draining.shard, effects);
    effects.list.push(Effect::ReportDrained);
}

/// Keeps a shard that was to be handed over.
pub(crate) fn resume(core: &mut Core, shard: Shard) {
    let keeper = &mut core.fleet.transactions;
    keeper.draining.retain(|draining| draining.shard != shard);
    keeper.table().0.reopen(shard);
    keeper.hurry();
}

impl super::TransactionKeeper {
    /// Highest timestamp of a shard's transactions, that of their last write.
    pub(crate) fn last_timestamp_us(&self, shard: Shard) -> i64 {
        self.table.as_ref().map_or(0, |table| table.last_timestamp_us(shard))
    }

    /// Highest timestamp of all shards.
    pub(crate) fn highest_timestamp_us(&self) -> i64 {
        (0..SHARDS as Shard).map(|shard| self.last_timestamp_us(shard)).max().unwrap_or(0)
    }
}

/// Tells the membership of shards that are being handed over and are idle now.
pub(super) fn report_drained(core: &mut Core, io: &mut Io) {
    let keeper = &mut core.fleet.transactions;
    let (table, draining) = (keeper.table.as_ref(), std::mem::take(&mut keeper.draining));
    // The next owner of the shard does not learn of statements that were passed to nodes.
    let passes =
        |shard| keeper.jobs.values().any(|job| job.passes.is_some_and(|(of, _)| of == shard));
    let is_idle =
        |one: &Draining| table.is_none_or(|table| table.is_idle(one.shard)) && !passes(one.shard);
    let (idle, busy) = draining.into_iter().partition::<Vec<_>, _>(is_idle);
    keeper.draining = busy;
    for Draining { shard, number, last_token_us, memory_empty } in idle {
        let last_token_us = last_token_us.max(core.fleet.transactions.last_timestamp_us(shard));
        notices::tell(core, io, 0, Notice::Drained { shard, number, last_token_us, memory_empty });
    }
}
