//! The lease of this proxy and the shards of this core, for the locks.

use shunt_fleet::{Gain, Level, SHARDS, Shard};
use shunt_locks::Lease;
use shunt_reactor::Io;

use crate::core::Core;
use crate::locks::{LockKeeper, keeper};

/// Begins to serve locks: this proxy is a member of its fleet.
pub(crate) fn begin(core: &mut Core, level: Level, max_ttl_ms: u32) {
    let locks = &mut core.fleet.locks;
    (locks.level, locks.max_ttl_ms) = (Some(level), max_ttl_ms);
    locks.foreign.restart();
}

/// Stops serving locks: this proxy is no longer a member.
pub(crate) fn end(core: &mut Core, io: &mut Io) {
    let now = keeper::now(io);
    core.fleet.locks.level = None;
    let (table, effects) = core.fleet.locks.table();
    table.set_lease(now, Lease::default(), effects);
    for shard in 0..SHARDS as Shard {
        core.fleet.locks.lose(shard, now.boot_ns);
    }
    keeper::set_due(core, io);
}

/// Sets a new lease. Returns the highest token that the core has granted.
pub(crate) fn set_lease(core: &mut Core, io: &mut Io, lease: Lease) -> i64 {
    let now = keeper::now(io);
    let (table, effects) = core.fleet.locks.table();
    table.set_lease(now, lease, effects);
    let token_us = table.last_token_us();
    keeper::set_due(core, io);
    token_us
}

/// Takes over a shard.
pub(crate) fn gain(core: &mut Core, io: &mut Io, gain: &Gain) {
    let now = keeper::now(io);
    let (table, effects) = core.fleet.locks.table();
    table.gain(now, gain.shard, gain.ts_floor_us, gain.memory_grace_until_ns, effects);
    keeper::set_due(core, io);
}

/// Prepares the hand-over of a shard. Returns the highest token granted in it, and whether no lock
/// in memory is held.
pub(crate) fn drain(core: &mut Core, io: &mut Io, shard: Shard) -> (i64, bool) {
    let now = keeper::now(io);
    let (table, _) = core.fleet.locks.table();
    // This happens before the shard is lost, because its tokens do not count afterwards.
    let drained = (table.last_token_us(), table.is_memory_free(now, shard));
    core.fleet.locks.lose(shard, now.boot_ns);
    keeper::set_due(core, io);
    drained
}

/// Keeps a shard that was to be handed over. Its holds were forgotten: durable ones are read again,
/// and those in memory may be held for the longest TTL.
pub(crate) fn resume(core: &mut Core, io: &mut Io, shard: Shard) {
    let now = keeper::now(io);
    let grace_ns = core.fleet.locks.forgotten_until_ns[usize::from(shard)];
    let (table, effects) = core.fleet.locks.table();
    table.gain(now, shard, 0, grace_ns, effects);
    keeper::set_due(core, io);
}

/// Gives a shard up.
pub(crate) fn lose(core: &mut Core, io: &mut Io, shard: Shard) {
    let now = keeper::now(io);
    core.fleet.locks.lose(shard, now.boot_ns);
    keeper::set_due(core, io);
}

impl LockKeeper {
    fn lose(&mut self, shard: Shard, now_ns: u64) {
        let (table, effects) = self.table();
        let memory_empty = table.has_no_memory_holds(shard);
        table.lose(shard, effects);
        self.damaged.lose(shard);
        if !memory_empty {
            // One percent more, because clocks of clients may be slower.
            let longest_ns = u64::from(self.max_ttl_ms) * 1_010_000;
            let until_ns = &mut self.forgotten_until_ns[usize::from(shard)];
            *until_ns = (*until_ns).max(now_ns + longest_ns);
        }
    }
}
