//! The notices themselves.

use shunt_fleet::{Gain, LeasePost, Level, Shard};

/// One message. Those from one core to another arrive in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The fleet's level, whether or not this proxy can be a member. For every core.
    Level(Level),
    /// This proxy is a member now: its levels, and the longest TTL of a lock in memory. For every
    /// core.
    Begin { level: Level, max_ttl_ms: u32 },
    /// The membership has ended, and this proxy owns no shard. For every core.
    End,
    /// The lease, for every core.
    Lease(LeasePost),
    /// A shard has become this proxy's; for its core, as are the next three.
    Gain(Gain),
    /// A shard is to be handed over.
    Drain { shard: Shard, number: u64 },
    /// A shard that was to be handed over remains this proxy's.
    Resume(Shard),
    /// A shard is no longer this proxy's.
    Lost(Shard),
    /// The answer to [`Notice::Drain`]: nothing is granted in the shard any more.
    Drained { shard: Shard, number: u64, last_token_us: i64, memory_empty: bool },
    /// The answer to [`Notice::Lease`]: the highest token that the core has granted.
    GrantedUpTo(i64),
}
