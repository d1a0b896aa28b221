//! Locks: statements on the tables of the keyspace `shunt` are answered here, by the core that
//! keeps the lock.
//!
//! ```text
//! decode -> statement -> ask ----(lane)----> keep -> [shunt_locks] -> rows -> own statements
//!           reply  <---- answer <--(lane)--- outbox <-----'
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
//! | [`outbox`], [`carry`] | what [`shunt_locks::Locks`] wants done, until it is; and doing it |
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
pub(crate) mod ask;
pub(crate) mod carry;
pub(crate) mod foreign;
pub(crate) mod form;
mod gathered;
mod group;
pub(crate) mod heard;
pub(crate) mod keep;
pub(crate) mod listing;
mod looks;
pub(crate) mod outbox;
pub(crate) mod overview;
pub(crate) mod permission;
pub(crate) mod question;
pub(crate) mod recognise;
pub(crate) mod request;
pub(crate) mod requests;
pub(crate) mod rows;
pub(crate) mod several;
pub(crate) mod shown;
pub(crate) mod statement;
pub(crate) mod sweep;
pub(crate) mod swept;
pub(crate) mod told;
mod unreadable;
mod unsent;
pub(crate) mod withdrawn;
pub(crate) mod word;
pub(crate) mod words;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shunt_fleet::{Level, SHARDS};
use shunt_locks::{Handle, LoadId, Locks, Ticket};

use slab::Slab;

use gathered::{Gathered, Looked};
use group::Group;
use looks::Looks;
use outbox::Outbox;
use permission::Undecided;
use requests::Requests;
use swept::Sweep;
use unreadable::Unreadable;
use unsent::Unsent;

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
    outbox: Outbox,
    /// What clients of this core have asked.
    requests: Requests,
    /// Requests to be made again, in the order of their times.
    again: VecDeque<(u64, Ticket)>,
    /// Requests of other cores' clients that wait here, by ticket.
    remote: HashMap<u64, Handle>,
    /// Of those that ask for a list, the lock.
    listings: HashMap<u64, (Box<[u8]>, Option<bool>)>,
    /// Bytes of lists since the last tick.
    lists_bytes: usize,
    /// Batches under way.
    groups: Slab<Group>,
    /// How many of them are of each role.
    groups_of: HashMap<Arc<str>, usize>,
    /// Requests that wait for a verdict on the right of their role.
    undecided: Undecided,
    /// Questions to all cores under way.
    gathered: Slab<Gathered>,
    /// What was last seen of many locks, of the durable ones and of those in memory.
    looked: [Looked; 2],
    /// How far the looking for rows in the tables has come.
    looks: Looks,
    /// How far the deleting of rows has come.
    pub(crate) sweep: Sweep,
    /// Buffers of requests that were answered.
    spare: Vec<Vec<u8>>,
    /// The role where nobody logs in.
    no_role: Arc<str>,
    /// Partitions that could not be asked for.
    unread: Vec<LoadId>,
    /// Partitions whose rows cannot be understood.
    unreadable: Unreadable,
    /// Free rows that could not be sent.
    unsent: Unsent,
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
            outbox: Outbox::default(),
            requests: Requests::default(),
            again: VecDeque::new(),
            remote: HashMap::new(),
            listings: HashMap::new(),
            lists_bytes: 0,
            groups: Slab::new(),
            groups_of: HashMap::new(),
            undecided: Undecided::default(),
            gathered: Slab::new(),
            looked: Default::default(),
            looks: Looks::default(),
            sweep: Sweep::default(),
            spare: Vec::new(),
            unread: Vec::new(),
            unreadable: Unreadable::default(),
            unsent: Unsent::default(),
            no_role: Arc::from(""),
            level: None,
            max_ttl_ms: 0,
            forgotten_until_ns: [0; SHARDS],
            wakes: Wakes::default(),
        }
    }
}

/// Buffers that are kept for the next requests.
const SPARE_MAX: usize = 1_024;

impl LockKeeper {
    /// How the fleet's rows are written and read; none while this proxy is no member.
    pub(crate) fn level(&self) -> Option<Level> {
        self.level
    }

    /// What clients of this core have asked, of locks and else.
    pub(crate) fn requests_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// The longest TTL of a lock in memory, milliseconds.
    pub(crate) fn max_ttl_ms(&self) -> u32 {
        self.max_ttl_ms
    }

    /// True if the locks want something done.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// True if this core keeps no locks for a fleet, or not any more.
    pub(crate) fn has_left(&self) -> bool {
        self.level.is_none()
    }

    /// An empty buffer.
    pub(crate) fn spare_texts(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a buffer for another request.
    pub(crate) fn keep_texts(&mut self, mut texts: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && texts.capacity() > 0 {
            texts.clear();
            self.spare.push(texts);
        }
    }
}
