//! What the core that runs the membership and those that keep locks say to each other.

use shunt_fleet::{Gain, LeasePost, Level, Shard};

/// One message. Those from one core to another arrive in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// This proxy is a member now: its levels, and the longest TTL of a lock in memory. For every
    /// core.
    Begin { level: Level, max_ttl_ms: u32 },
    /// It is not any more, and no shard is its. For every core.
    End,
    /// The lease, for every core.
    Lease(LeasePost),
    /// A shard has become this proxy's; for its core, as are the next three.
    Gain(Gain),
    /// It is to be handed over.
    Drain { shard: Shard, number: u64 },
    /// It stays this proxy's after all.
    Resume(Shard),
    /// It is this proxy's no more.
    Lost(Shard),
    /// The answer to [`Notice::Drain`]: nothing is granted in the shard any more.
    Drained { shard: Shard, number: u64, last_token_us: i64, memory_empty: bool },
    /// The answer to [`Notice::Lease`]: the highest token that the core has granted.
    GrantedUpTo(i64),
}
