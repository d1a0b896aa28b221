//! Notices between cores, as values.

use shunt_fleet::{Gain, LeasePost, Level, Shard};

/// A notice. Notices from one core to another arrive in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The level of the fleet, for every core, whether or not this proxy can be a member.
    Level(Level),
    /// This proxy is a member from now on: its levels, and the longest TTL of a lock in memory. For
    /// every core.
    Begin { level: Level, max_ttl_ms: u32 },
    /// The membership has ended, and this proxy owns no shard. For every core.
    End,
    /// The lease, for every core.
    Lease(LeasePost),
    /// This proxy has got a shard. This notice and the next three are for the shard's core.
    Gain(Gain),
    /// The shard will be handed over.
    Drain { shard: Shard, number: u64 },
    /// The shard stays with this proxy after all.
    Resume(Shard),
    /// This proxy has lost the shard.
    Lost(Shard),
    /// The answer to [`Notice::Drain`]: the core grants nothing in the shard any more.
    Drained { shard: Shard, number: u64, last_token_us: i64, memory_empty: bool },
    /// The answer to [`Notice::Lease`]: the highest token that the core has granted.
    GrantedUpTo(i64),
}
