//! Words between the core that runs the membership and those that keep locks.

use shunt_fleet::{SHARDS, Shard};
use shunt_locks::Lease;
use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::membership::run;
use crate::fleet::statements;
use crate::locks::word::Word;
use crate::locks::{core_of, keep};
use crate::transactions::ownership::Draining;
use crate::transactions::shards as transactions;

/// Says something to every core.
pub(crate) fn tell_all(core: &mut Core, io: &mut Io, word: Word) {
    for to in 0..core.context.config.cores.max(1) {
        tell(core, io, to, word);
    }
}

/// Says something to the core of a shard.
pub(crate) fn tell_shard(core: &mut Core, io: &mut Io, shard: Shard, word: Word) {
    tell(core, io, core_of(shard, core.context.config.cores), word);
}

pub(crate) fn tell(core: &mut Core, io: &mut Io, to: usize, word: Word) {
    if to == core.context.index {
        take(core, io, word);
    } else {
        core.fleet.lanes.tell(to, word);
    }
}

/// Takes a word that was said to this core.
pub(crate) fn take(core: &mut Core, io: &mut Io, word: Word) {
    let now = keep::now(io);
    match word {
        Word::Begin { level, max_ttl_ms } => {
            core.fleet.locks.level = Some(level);
            core.fleet.locks.max_ttl_ms = max_ttl_ms;
            core.fleet.locks.looks.restart();
            // Links are there when the first row is to be read.
            statements::ask::pool(core, io);
        }
        Word::End => {
            core.fleet.locks.level = None;
            let (table, outbox) = core.fleet.locks.table();
            table.set_lease(now, Lease::default(), outbox);
            for shard in 0..SHARDS as Shard {
                core.fleet.locks.lose(shard, now.boot_ns);
            }
            transactions::leave_fleet(core, io);
        }
        Word::Lease(post) => {
            let lease =
                Lease { valid_until_ns: post.valid_until_ns, ts_limit_us: post.ts_limit_us };
            let (table, outbox) = core.fleet.locks.table();
            table.set_lease(now, lease, outbox);
            let token_us = table.last_token_us();
            transactions::set_lease(core, io, lease, post.incarnation);
            let token_us = token_us.max(core.fleet.transactions.highest_timestamp_us());
            tell(core, io, 0, Word::GrantedUpTo(token_us));
        }
        Word::Gain(gain) => {
            let grace_ns = gain.memory_grace_until_ns;
            let (table, outbox) = core.fleet.locks.table();
            table.gain(now, gain.shard, gain.ts_floor_us, grace_ns, outbox);
            transactions::gain(core, io, &gain);
        }
        Word::Drain { shard, number } => {
            let (table, _) = core.fleet.locks.table();
            // Before it is lost: after that its tokens count no more.
            let (last_token_us, memory_empty) =
                (table.last_token_us(), table.is_memory_free(now, shard));
            core.fleet.locks.lose(shard, now.boot_ns);
            // Told when its transactions have ended too.
            transactions::drain(core, Draining { shard, number, last_token_us, memory_empty });
        }
        Word::Resume(shard) => {
            // Its holds were forgotten when it was to be handed over. Durable ones are read again,
            // and those in memory may be held for as long as the longest of them.
            let grace_ns = core.fleet.locks.forgotten_until_ns[usize::from(shard)];
            let (table, outbox) = core.fleet.locks.table();
            table.gain(now, shard, 0, grace_ns, outbox);
            transactions::resume(core, shard);
        }
        Word::Lost(shard) => {
            core.fleet.locks.lose(shard, now.boot_ns);
            transactions::lose(core, io, shard);
        }
        Word::Drained { .. } | Word::GrantedUpTo(_) => run::word(core, io, word),
    }
    keep::set_due(core, io);
}

impl super::LockKeeper {
    /// A shard is this core's no more.
    fn lose(&mut self, shard: Shard, now_ns: u64) {
        let (table, outbox) = self.table();
        let memory_empty = table.has_no_memory_holds(shard);
        table.lose(shard, outbox);
        self.unreadable.lose(shard);
        if !memory_empty {
            // One in a hundred more: the clocks of clients may be slower.
            let longest_ns = u64::from(self.max_ttl_ms) * 1_010_000;
            let until_ns = &mut self.forgotten_until_ns[usize::from(shard)];
            *until_ns = (*until_ns).max(now_ns + longest_ns);
        }
    }
}
