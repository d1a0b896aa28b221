//! Locks: the core that keeps a lock answers statements on the tables of the keyspace `shunt`.
//!
//! ```text
//! decode -> intake -> dispatch --(core)--> keeper -> [shunt_locks] -> effects -> rows -> statements
//!           reply <- answer <- dispatch <--(core)-----------------------'
//! ```
//!
//! A lock belongs to one of 64 shards. The fleet decides which proxy owns the shard
//! ([`crate::fleet::membership`]); on that proxy, the core with the shard's number, modulo the
//! number of cores, keeps the lock.
//!
//! | module | subject |
//! |---|---|
//! | [`recognition`] | statements on the tables of locks are found among all statements |
//! | [`intake`] | a client's statement, as text, prepared or batch, is read; a proxy withdraws what it has forwarded |
//! | [`permission`] | whether the client's role may use the locks of a table |
//! | [`validation`] | a request is checked against the limits of fleet and proxy |
//! | [`request`], [`mod@reply`] | requests and their outcomes, as they travel between cores |
//! | [`dispatch`] | requests go to the cores and proxies that keep the locks, and are sent again after a take-over |
//! | [`keeper`] | this core's locks: requests, times, answers to writes |
//! | [`ownership`] | the lease and the shards of this core |
//! | [`effects`] | the effects of [`shunt_locks::Locks`], and their execution |
//! | [`rows`] | rows of durable locks are written and read |
//! | [`sweep`] | rows that are no longer needed are deleted |
//! | [`listing`] | lists of holders and waiters, as they travel between cores |
//! | [`batch`] | several locks at once |
//! | [`overview`] | the locks of all cores, longest queues first |
//! | [`answer`] | outcomes, as the rows and errors that clients get |
//! | [`status`] | the report for `/status` on the locks and the fleet |
//! | [`foreign_rows`] | rows in the tables of locks, which should have none |
//! | [`state`] | states that the owner of a core's locks keeps for the steps above |
//!
//! Requests that are not answered yet are in [`crate::fleet::requests`].

pub(crate) mod answer;
pub(crate) mod batch;
mod validation;
pub(crate) mod dispatch;
pub(crate) mod effects;
pub(crate) mod foreign_rows;
pub(crate) mod intake;
pub(crate) mod keeper;
pub(crate) mod listing;
pub(crate) mod overview;
pub(crate) mod ownership;
pub(crate) mod permission;
pub(crate) mod recognition;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod rows;
mod state;
pub(crate) mod status;
pub(crate) mod sweep;

use std::collections::HashMap;
use std::sync::Arc;

use shunt_fleet::{Level, SHARDS};
use shunt_locks::{Handle, LoadId, Locks};

use slab::Slab;

use batch::state::Batch;
use effects::Effects;
use rows::backlog::Backlog;
use rows::damage::DamagedPartitions;
use state::{ForeignRows, OVERVIEWS_MAX, Overview, Snapshot, Undecided};
use sweep::progress::Sweep;

use crate::fleet::requests::retry::LockRetries;
use crate::fleet::role_shares::RoleShares;
use crate::wakes::Wakes;

/// The key of the timer of the locks.
pub(crate) const TIMER: u64 = 3;

/// The core of a shard, of so many cores.
pub(crate) fn core_of(shard: u8, cores: usize) -> usize {
    usize::from(shard) % cores.max(1)
}

/// The owner of a core's locks.
pub(crate) struct LockKeeper {
    /// Locks of this core's shards; none before the first request.
    table: Option<Box<Locks>>,
    effects: Effects,
    /// Requests that are sent again after a take-over.
    retries: LockRetries,
    /// Requests of other cores' clients that wait here, by ticket.
    remote: HashMap<u64, Handle>,
    /// Locks whose lists requests ask for, by ticket.
    listings: HashMap<u64, (Box<[u8]>, Option<bool>)>,
    /// Bytes of lists since the last tick.
    lists_bytes: usize,
    /// Places that lists of few locks have visited since the last tick.
    visits: usize,
    /// Batches under way.
    batches: Slab<Batch>,
    /// Number of batches of each role.
    batches_by_role: HashMap<Arc<str>, usize>,
    /// Requests that wait for a verdict on the right of their role.
    undecided: Undecided,
    /// Questions to all cores under way.
    overviews: Slab<Overview>,
    overview_shares: RoleShares,
    /// The last snapshots of many locks: durable ones, and those in memory.
    snapshots: [Snapshot; 2],
    /// Progress of the search for rows in the tables of locks.
    foreign: ForeignRows,
    /// Progress of the sweep.
    pub(crate) sweep: Sweep,
    /// Partitions that could not be asked for.
    unread: Vec<LoadId>,
    /// Partitions whose rows cannot be understood.
    damaged: DamagedPartitions,
    /// Free rows that could not be sent.
    backlog: Backlog,
    /// Serial level of the fleet, by which rows are written and read; none while this proxy is no
    /// member.
    level: Option<Level>,
    /// The longest TTL of a lock in memory.
    max_ttl_ms: u32,
    /// By shard: the time until which locks in memory may be held that this core has forgotten.
    forgotten_until_ns: [u64; SHARDS],
    /// Times for which the timer is set.
    wakes: Wakes,
}

impl Default for LockKeeper {
    fn default() -> Self {
        Self {
            table: None,
            effects: Effects::default(),
            retries: LockRetries::default(),
            remote: HashMap::new(),
            listings: HashMap::new(),
            lists_bytes: 0,
            visits: 0,
            batches: Slab::new(),
            batches_by_role: HashMap::new(),
            undecided: Undecided::default(),
            overviews: Slab::new(),
            overview_shares: RoleShares::new(OVERVIEWS_MAX, 0),
            snapshots: Default::default(),
            foreign: ForeignRows::default(),
            sweep: Sweep::default(),
            unread: Vec::new(),
            damaged: DamagedPartitions::default(),
            backlog: Backlog::default(),
            level: None,
            max_ttl_ms: 0,
            forgotten_until_ns: [0; SHARDS],
            wakes: Wakes::default(),
        }
    }
}

impl LockKeeper {
    /// Serial level of the fleet; none while this proxy is no member.
    pub(crate) fn level(&self) -> Option<Level> {
        self.level
    }

    /// The longest TTL of a lock in memory, milliseconds.
    pub(crate) fn max_ttl_ms(&self) -> u32 {
        self.max_ttl_ms
    }

    /// True if there are effects to perform.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.effects.is_empty()
    }

    /// True if this core keeps no locks for a fleet.
    pub(crate) fn has_left(&self) -> bool {
        self.level.is_none()
    }
}
