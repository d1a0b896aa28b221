//! Locks: statements on the tables of the keyspace `shunt` are answered here, by the core that
//! keeps the lock.
//!
//! ```text
//! decode -> statement -> ask ----(lane)----> keep -> [shunt_locks] -> rows -> own statements
//!           reply  <---- answer <--(lane)--- effects <-----'
//! ```
//!
//! A lock belongs to one of 64 shards; which proxy owns the shard, the fleet decides
//! ([`crate::fleet::membership`]), and there the core with the shard's number, modulo the number of cores,
//! keeps it.
//!
//! | module | what happens there |
//! |---|---|
//! | [`recognise`] | among what clients send, statements on the tables are found |
//! | [`statement`] | a client's statement is read, as text, prepared or batch |
//! | [`permission`] | whether the client's role may use the locks of a table |
//! | [`ask`] | its requests go to the cores that keep the locks; a client that is gone takes its requests back |
//! | [`heard`] | requests and answers of other cores come in |
//! | [`keep`] | this core's locks: requests, times, answers to writes |
//! | [`effects`], [`carry`] | what [`shunt_locks::Locks`] wants done, until it is; and doing it |
//! | [`form`], [`question`], [`request`], [`requests`] | what is asked, how it is answered, and what is not answered yet |
//! | [`withdrawn`] | another proxy takes back what it has forwarded |
//! | [`several`] | several locks at once |
//! | [`listing`] | who holds a lock and who waits, as it travels between cores |
//! | [`overview`], [`gathered`] | the locks of all cores, those with the longest queues first |
//! | [`shown`], [`told`] | what `/status` shows of them, and of the fleet |
//! | [`rows`], [`unsent`], [`unreadable`] | rows of durable locks are written and read, and which cannot be |
//! | [`sweep`], [`swept`] | those that say nothing any more are deleted |
//! | [`answer`] | outcomes, as the rows and errors that clients get |
//! | [`foreign`], [`looks`] | rows that lie in the tables, and should not |
//! | [`word`], [`words`] | what the core with the membership and those that keep locks say to each other |

pub(crate) mod answer;
pub(crate) mod batch;
mod checks;
pub(crate) mod dispatch;
pub(crate) mod effects;
pub(crate) mod foreign;
pub(crate) mod intake;
pub(crate) mod keep;
pub(crate) mod listing;
pub(crate) mod overview;
pub(crate) mod ownership;
pub(crate) mod permission;
pub(crate) mod recognise;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod rows;
mod state;
pub(crate) mod status;
pub(crate) mod sweep;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shunt_fleet::{Level, SHARDS};
use shunt_locks::{Handle, LoadId, Locks, Ticket};

use slab::Slab;

use batch::state::Batch;
use effects::Effects;
use rows::backlog::Backlog;
use rows::damage::DamagedPartitions;
use state::{ForeignRows, Overview, Snapshot, Undecided};
use sweep::progress::Sweep;

use crate::wakes::Wakes;

/// The key of the timer of the locks.
pub(crate) const TIMER: u64 = 3;

/// The core of a shard, of so many cores.
pub(crate) fn core_of(shard: u8, cores: usize) -> usize {
    usize::from(shard) % cores.max(1)
}

/// The owner of all that a core knows of locks.
pub(crate) struct LockKeeper {
    /// The locks of this core's shards; none before one of them was asked for.
    table: Option<Box<Locks>>,
    effects: Effects,
    /// Requests to be made again, in the order of their times.
    again: VecDeque<(u64, Ticket)>,
    /// Requests of other cores' clients that wait here, by ticket.
    remote: HashMap<u64, Handle>,
    /// Of those that ask for a list, the lock.
    listings: HashMap<u64, (Box<[u8]>, Option<bool>)>,
    /// Bytes of lists since the last tick.
    lists_bytes: usize,
    /// Batches under way.
    batches: Slab<Batch>,
    /// How many of them are of each role.
    batches_by_role: HashMap<Arc<str>, usize>,
    /// Requests that wait for a verdict on the right of their role.
    undecided: Undecided,
    /// Questions to all cores under way.
    overviews: Slab<Overview>,
    /// What was last seen of many locks, of the durable ones and of those in memory.
    snapshots: [Snapshot; 2],
    /// How far the looking for rows in the tables has come.
    foreign: ForeignRows,
    /// How far the deleting of rows has come.
    pub(crate) sweep: Sweep,
    /// Partitions that could not be asked for.
    unread: Vec<LoadId>,
    /// Partitions whose rows cannot be understood.
    damaged: DamagedPartitions,
    /// Free rows that could not be sent.
    backlog: Backlog,
    /// How rows are written and read.
    level: Option<Level>,
    /// The longest TTL of a lock in memory.
    max_ttl_ms: u32,
    /// By shard: until when locks in memory may be held of which this core has forgotten.
    forgotten_until_ns: [u64; SHARDS],
    /// When the timer is set to go off.
    wakes: Wakes,
}

impl Default for LockKeeper {
    fn default() -> Self {
        Self {
            table: None,
            effects: Effects::default(),
            again: VecDeque::new(),
            remote: HashMap::new(),
            listings: HashMap::new(),
            lists_bytes: 0,
            batches: Slab::new(),
            batches_by_role: HashMap::new(),
            undecided: Undecided::default(),
            overviews: Slab::new(),
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
    /// How the fleet's rows are written and read; none while this proxy is no member.
    pub(crate) fn level(&self) -> Option<Level> {
        self.level
    }

    /// The longest TTL of a lock in memory, milliseconds.
    pub(crate) fn max_ttl_ms(&self) -> u32 {
        self.max_ttl_ms
    }

    /// True if the locks want something done.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.effects.is_empty()
    }

    /// True if this core keeps no locks for a fleet, or not any more.
    pub(crate) fn has_left(&self) -> bool {
        self.level.is_none()
    }
}
