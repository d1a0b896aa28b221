//! What the fleet says to the transactions of a core: the lease, and shards that come and go.

use shunt_fleet::{Gain, Incarnation, SHARDS, Shard};
use shunt_locks::Lease;
use shunt_reactor::Io;
use shunt_transactions::Claim;

use super::draining::Draining;
use super::levels;
use super::outbox::Wanted;
use super::part::OneWrite;
use super::timer::set_due;
use crate::config::Commit;
use crate::core::Core;

/// The lease is another one, of this membership.
pub(crate) fn lease(core: &mut Core, io: &mut Io, lease: Lease, incarnation: Incarnation) {
    let now = levels::now(io);
    let commit = core.context.config.transaction_commit;
    let keeper = &mut core.fleet.transactions;
    keeper.confirming.member = Some(incarnation);
    keeper.table().0.confirm(commit == Commit::Lwt);
    let is_new = now.boot_ns < lease.valid_until_ns && !keeper.table().0.has_lease(now);
    let (table, outbox) = keeper.table();
    table.set_lease(now, lease, outbox);
    if is_new {
        keeper.hurry();
    }
    set_due(core, io);
}

/// This proxy is no member any more.
pub(crate) fn end(core: &mut Core, io: &mut Io) {
    let keeper = &mut core.fleet.transactions;
    let incarnation = keeper.confirming.member.unwrap_or_default();
    lease(core, io, Lease::default(), incarnation);
    for shard in 0..SHARDS as Shard {
        lose(core, io, shard);
    }
}

/// A shard is this core's.
pub(crate) fn gain(core: &mut Core, io: &mut Io, gain: &Gain) {
    lose(core, io, gain.shard);
    let claim = new_claim(core, io);
    let (table, _) = core.fleet.transactions.table();
    table.gain(gain.shard, gain.ts_floor_us, claim);
    core.fleet.transactions.claims[usize::from(gain.shard)] = Some(claim);
    // A former owner may have left writes undone of a table that has no mode any more.
    let is_wanted = core.fleet.transactions.is_wanted(gain.shard);
    let wanted = if is_wanted { Wanted::Open(gain.shard) } else { Wanted::Recover(gain.shard) };
    core.fleet.transactions.outbox.wanted.push(wanted);
}

/// Random, and so never used before.
fn new_claim(core: &mut Core, io: &mut Io) -> Claim {
    let halves = [core.context.random(), core.context.random() ^ io.wall_us().cast_unsigned()];
    let random = u128::from(halves[0]) << 64 | u128::from(halves[1]);
    // Version 4, variant 1 of RFC 9562.
    let (version, variant) = (0xf_u128 << 76, 0b11_u128 << 62);
    Claim(random & !version & !variant | 4 << 76 | 0b10 << 62)
}

/// A shard is this core's no more.
pub(crate) fn lose(core: &mut Core, io: &mut Io, shard: Shard) {
    let keeper = &mut core.fleet.transactions;
    keeper.claims[usize::from(shard)] = None;
    keeper.openings.retain(|_, open| !open.is_of(shard));
    let openings = &keeper.openings;
    keeper.trials.forget(
        |write| matches!(write, OneWrite::Found { claim, .. } if !openings.contains_key(&claim.0)),
    );
    keeper.draining.retain(|draining| draining.shard != shard);
    let (table, outbox) = keeper.table();
    table.lose(shard, outbox);
    set_due(core, io);
}

/// A shard is to be handed over: it takes on nothing new. The membership is told once nothing of it
/// is under way.
pub(crate) fn drain(core: &mut Core, draining: Draining) {
    let keeper = &mut core.fleet.transactions;
    keeper.draining.retain(|other| other.shard != draining.shard);
    keeper.draining.push(draining);
    let (table, outbox) = keeper.table();
    table.close(draining.shard, outbox);
    outbox.wanted.push(Wanted::LookAtDraining);
}

/// A shard that was to be handed over stays this core's.
pub(crate) fn resume(core: &mut Core, shard: Shard) {
    let keeper = &mut core.fleet.transactions;
    keeper.draining.retain(|draining| draining.shard != shard);
    keeper.table().0.reopen(shard);
    keeper.hurry();
}

impl super::TransactionKeeper {
    /// The highest timestamp of a shard's transactions, that of their last write.
    pub(crate) fn last_timestamp_us(&self, shard: Shard) -> i64 {
        self.table.as_ref().map_or(0, |table| table.last_timestamp_us(shard))
    }

    /// The highest of all shards.
    pub(crate) fn highest_timestamp_us(&self) -> i64 {
        (0..SHARDS as Shard).map(|shard| self.last_timestamp_us(shard)).max().unwrap_or(0)
    }
}
