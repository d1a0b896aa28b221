//! Notices between the core that runs the membership and the cores that keep locks: how they are
//! sent, and what each does.

pub(crate) mod notice;

use shunt_fleet::Shard;
use shunt_locks::Lease;
use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::membership::run;
use crate::fleet::notices::notice::Notice;
use crate::fleet::statements;
use crate::locks::{core_of, ownership as locks};
use crate::transactions::ownership::Draining;
use crate::transactions::shards as transactions;

/// Sends a notice to every core.
pub(crate) fn tell_all(core: &mut Core, io: &mut Io, notice: Notice) {
    for to in 0..core.context.config.cores.max(1) {
        tell(core, io, to, notice);
    }
}

/// Sends a notice to the core of a shard.
pub(crate) fn tell_shard(core: &mut Core, io: &mut Io, shard: Shard, notice: Notice) {
    tell(core, io, core_of(shard, core.context.config.cores), notice);
}

pub(crate) fn tell(core: &mut Core, io: &mut Io, to: usize, notice: Notice) {
    if to == core.context.index {
        take_notice(core, io, notice);
    } else {
        core.fleet.lanes.tell(to, notice);
    }
}

/// Acts on a notice to this core.
pub(crate) fn take_notice(core: &mut Core, io: &mut Io, notice: Notice) {
    match notice {
        Notice::Level(level) => transactions::note_level(core, level),
        Notice::Begin { level, max_ttl_ms } => {
            locks::begin(core, level, max_ttl_ms);
            // Opens links now, so that the first read of rows does not wait for them.
            statements::ask::pool(core, io);
        }
        Notice::End => {
            locks::end(core, io);
            transactions::leave_fleet(core, io);
        }
        Notice::Lease(post) => {
            let lease =
                Lease { valid_until_ns: post.valid_until_ns, ts_limit_us: post.ts_limit_us };
            let token_us = locks::set_lease(core, io, lease);
            transactions::set_lease(core, io, lease, post.incarnation);
            let token_us = token_us.max(core.fleet.transactions.highest_timestamp_us());
            tell(core, io, 0, Notice::GrantedUpTo(token_us));
        }
        Notice::Gain(gain) => {
            locks::gain(core, io, &gain);
            transactions::gain(core, io, &gain);
        }
        Notice::Drain { shard, number } => {
            let (last_token_us, memory_empty) = locks::drain(core, io, shard);
            // The answer follows once the shard's transactions have ended too.
            transactions::drain(core, Draining { shard, number, last_token_us, memory_empty });
        }
        Notice::Resume(shard) => {
            locks::resume(core, io, shard);
            transactions::resume(core, shard);
        }
        Notice::Lost(shard) => {
            locks::lose(core, io, shard);
            transactions::lose(core, io, shard);
        }
        Notice::Drained { .. } | Notice::GrantedUpTo(_) => run::take_notice(core, io, notice),
    }
}
