//! The cores of one proxy: they grant according to the member's posts and their own clock.

use shunt_fleet::{Gain, Incarnation, LeasePost, SHARDS, Shard};

/// Smallest distance between the tokens of one shard, microseconds.
const STEP_US: i64 = 64;

/// A shard in which cores may grant.
#[derive(Clone, Copy)]
struct Served {
    last_us: i64,
    grace_until_ns: u64,
    /// End of the last memory lock granted.
    memory_until_ns: u64,
    open: bool,
}

/// The cores of one proxy.
pub(crate) struct Cores {
    lease: LeasePost,
    shards: [Option<Served>; SHARDS],
}

impl Cores {
    pub(crate) fn new() -> Self {
        let lease = LeasePost {
            incarnation: Incarnation::default(),
            epoch: -1,
            valid_until_ns: 0,
            ts_limit_us: 0,
        };
        Self { lease, shards: [None; SHARDS] }
    }

    pub(crate) fn lease(&mut self, lease: LeasePost) {
        self.lease = lease;
    }

    pub(crate) fn gain(&mut self, gain: &Gain) {
        let (last_us, grace_until_ns) = (gain.ts_floor_us, gain.memory_grace_until_ns);
        self.shards[usize::from(gain.shard)] =
            Some(Served { last_us, grace_until_ns, memory_until_ns: 0, open: true });
    }

    pub(crate) fn lose(&mut self, shard: Shard) {
        self.shards[usize::from(shard)] = None;
    }

    pub(crate) fn open(&mut self, shard: Shard, open: bool) {
        if let Some(served) = &mut self.shards[usize::from(shard)] {
            served.open = open;
        }
    }

    /// Report for a drained shard: its last token, and that no memory lock is held there.
    pub(crate) fn drained(&self, shard: Shard, now_ns: u64) -> (i64, bool) {
        let served = self.shards[usize::from(shard)];
        served.map_or((0, true), |served| {
            (served.last_us, now_ns >= served.memory_until_ns && now_ns >= served.grace_until_ns)
        })
    }

    /// True if the cores would grant in this shard now.
    pub(crate) fn serves(&self, shard: Shard, now_ns: u64) -> bool {
        now_ns < self.lease.valid_until_ns
            && self.shards[usize::from(shard)].is_some_and(|served| served.open)
    }

    /// Grants: returns the token, and whether a memory lock was granted too, for `ttl_ns`.
    pub(crate) fn grant(
        &mut self,
        shard: Shard,
        now_ns: u64,
        wall_us: i64,
        ttl_ns: u64,
    ) -> Option<(i64, bool)> {
        if !self.serves(shard, now_ns) {
            return None;
        }
        let served = self.shards[usize::from(shard)].as_mut()?;
        let token = (served.last_us + STEP_US).max(wall_us);
        if token >= self.lease.ts_limit_us {
            return None;
        }
        served.last_us = token;
        let memory = now_ns >= served.grace_until_ns;
        if memory {
            served.memory_until_ns = now_ns + ttl_ns;
        }
        Some((token, memory))
    }

    pub(crate) fn owned(&self) -> usize {
        self.shards.iter().flatten().count()
    }
}
