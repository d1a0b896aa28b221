//! What is known of a lock, a hold, a request and a write; how they are linked, and what is due of
//! them.

use hashbrown::HashTable;

use crate::slab::{NIL, Slab};
use crate::text::Name;
use crate::types::{Handle, Mode, Namespace, Now, Ticket};
use crate::wheel::{Entries, Links};

/// A lock that somebody holds or waits for. Others are not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) namespace: Namespace,
    pub(crate) shard: u8,
    /// It is in the list of those whose next holder could not be granted for want of a lease.
    pub(crate) stalled: bool,
    /// The first of its holds, in the order of their grants.
    pub(crate) first_hold: u32,
    /// The [`Queue`] of the requests that wait; [`NIL`] when none does.
    pub(crate) queue: u32,
}

/// The requests that wait for a lock, in the order in which they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) length: u32,
}

/// Where a hold is among those that share its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbours {
    /// Before the first is the last.
    pub(crate) previous: u32,
    /// [`NIL`] behind the last.
    pub(crate) next: u32,
}

/// How far a hold has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// Its owner was told, or may be.
    Held,
    /// Its row is being written for the first time, or it is not known whether it was.
    Writing,
    /// It was read from a row, or its row was acknowledged too late: its owner is told after the
    /// row was written again.
    Unconfirmed,
}

/// Somebody's hold of a lock. There may be millions, so what few have lies elsewhere, and nothing
/// is padded to eight bytes.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(crate) struct Hold {
    pub(crate) lock: u32,
    /// Its [`Neighbours`]; [`NIL`] of one that has had none.
    pub(crate) neighbours: u32,
    pub(crate) owner: u32,
    pub(crate) role: u32,
    /// The TTL in its row, which no renewal exceeds.
    pub(crate) ttl_ms: u32,
    /// Its [`HoldRow`]; [`NIL`] when that is [`HoldRow::settled`].
    pub(crate) row: u32,
    pub(crate) links: Links,
    pub(crate) mode: Mode,
    pub(crate) state: HoldState,
    /// Its owner was told of it by another request than the one that it was granted to.
    pub(crate) found_again: bool,
    /// It was found in a row, and its owner has not asked for it since: it is among [`Apart`].
    pub(crate) is_apart: bool,
    pub(crate) token: i64,
    /// When it ends, milliseconds.
    pub(crate) due_ms: u64,
}

/// How the row of a hold is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldRow {
    /// The timestamp that it is written with, microseconds.
    pub(crate) timestamp_us: i64,
    /// The write of it that is under way.
    pub(crate) write: u32,
}

impl HoldRow {
    /// Of most holds: written with the hold's token as its timestamp, or never to be written.
    pub(crate) fn settled(token: i64) -> Self {
        Self { timestamp_us: token, write: NIL }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire { mode: Mode, ttl_ms: u32, wait_ms: u32 },
    Renew { mode: Option<Mode>, ttl_ms: u32, fence: Option<i64> },
    Release { fence: Option<i64>, forced: bool },
    GiveBack { fence: i64 },
    Look,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// Its turn with this lock.
    Turn(u32),
    /// This write.
    Write(u32),
    /// The rows of this partition.
    Load(u16),
    /// Nothing: it is being taken on now.
    Nothing,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) generation: u32,
    pub(crate) operation: Operation,
    pub(crate) awaits: Awaits,
    pub(crate) owner: u32,
    pub(crate) role: u32,
    /// Its neighbours in the list of what it waits for.
    pub(crate) previous: u32,
    pub(crate) next: u32,
    pub(crate) links: Links,
    /// When its wait ends, milliseconds.
    pub(crate) due_ms: u64,
}

/// A row that is being written and whose outcome matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) generation: u32,
    /// The hold that the row is of; [`NIL`] when it has ended since.
    pub(crate) hold: u32,
    /// The requests that are answered when it is done.
    pub(crate) first_request: u32,
    pub(crate) last_request: u32,
    pub(crate) requests: u32,
    /// The request that the hold was granted to, while it waits.
    pub(crate) original: u32,
    /// How often its outcome was unknown.
    pub(crate) unknown: u32,
    /// The timestamp and the TTL in the row that was sent.
    pub(crate) timestamp_us: i64,
    pub(crate) ttl_ms: u32,
    /// It was sent, and its outcome has not come.
    pub(crate) in_flight: bool,
    /// The client whose grant it is has gone.
    pub(crate) abandoned: bool,
    /// Whose it is, also when the hold has ended.
    pub(crate) role: u32,
    pub(crate) links: Links,
    /// When it is repeated, milliseconds.
    pub(crate) due_ms: u64,
}

/// What can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Hold(u32),
    Request(u32),
    Write(u32),
}

const KIND_SHIFT: u32 = 30;
const INDEX_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Due {
    /// The number under which the wheel knows it.
    pub(crate) fn id(self) -> u32 {
        match self {
            Due::Hold(index) => index,
            Due::Request(index) => index | 1 << KIND_SHIFT,
            Due::Write(index) => index | 2 << KIND_SHIFT,
        }
    }

    pub(crate) fn of(id: u32) -> Self {
        let index = id & INDEX_MASK;
        match id >> KIND_SHIFT {
            0 => Due::Hold(index),
            1 => Due::Request(index),
            _ => Due::Write(index),
        }
    }
}

/// All that has a time.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Timed {
    pub(crate) holds: Slab<Hold>,
    pub(crate) requests: Slab<Request>,
    pub(crate) writes: Slab<PendingWrite>,
}

impl Entries for Timed {
    fn links(&mut self, id: u32) -> &mut Links {
        match Due::of(id) {
            Due::Hold(index) => &mut self.holds[index].links,
            Due::Request(index) => &mut self.requests[index].links,
            Due::Write(index) => &mut self.writes[index].links,
        }
    }

    fn due_ms(&self, id: u32) -> u64 {
        match Due::of(id) {
            Due::Hold(index) => self.holds[index].due_ms,
            Due::Request(index) => self.requests[index].due_ms,
            Due::Write(index) => self.writes[index].due_ms,
        }
    }
}

impl Lock {
    pub(crate) fn new(name: Name, namespace: Namespace, shard: u8) -> Self {
        Self { name, namespace, shard, stalled: false, first_hold: NIL, queue: NIL }
    }

    /// True if nobody holds it and nobody waits.
    pub(crate) fn is_unused(&self) -> bool {
        self.first_hold == NIL && self.queue == NIL
    }
}

/// What is known of one shard.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Shard {
    /// It is this proxy's, and this core's.
    pub(crate) owned: bool,
    /// The latest token of any of its locks, microseconds.
    pub(crate) last_token: i64,
    /// Until when no lock in memory is granted, by [`Now::boot_ns`].
    pub(crate) memory_grace_until_ns: u64,
    /// Its locks that somebody holds or waits for.
    pub(crate) index: HashTable<u32>,
}

/// How far the rows of a partition are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BucketState {
    #[default]
    Unknown,
    Loading,
    Loaded,
}

/// A partition of the table of durable locks.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Bucket {
    pub(crate) state: BucketState,
    pub(crate) generation: u32,
    /// The timestamp of what is written of holds that are found in it: above all that earlier
    /// owners wrote, microseconds.
    pub(crate) found_us: i64,
    /// The name whose rows are being read, and the timestamp of its exclusive row.
    pub(crate) name: Vec<u8>,
    pub(crate) exclusive_us: i64,
    /// It has, or may have, a row: one was found when it was read, or was written since.
    pub(crate) has_rows: bool,
    /// When a row was written last, by [`Now::boot_ns`]: timestamps may be far from all clocks.
    pub(crate) wrote_ns: u64,
    /// Holds were found in it since the reading began.
    pub(crate) has_holds: bool,
    pub(crate) deferred: Vec<Deferred>,
}

impl Bucket {
    /// A row of it is written.
    pub(crate) fn wrote(&mut self, now: Now) {
        (self.has_rows, self.wrote_ns) = (true, now.boot_ns);
    }
}

/// A request that waits for its partition.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Deferred {
    pub(crate) handle: Handle,
    pub(crate) name: Vec<u8>,
}

/// What one role has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoleUse {
    pub(crate) holds: u32,
    pub(crate) requests: u32,
    /// Rows that are being written.
    pub(crate) writes: u32,
    /// Of names and owners of holds.
    pub(crate) text_bytes: u64,
}

/// Holds that were found in rows, and of which no owner has asked since. Nobody was granted them
/// here, so they take no room from others than their own roles, and have a limit of their own:
/// [`crate::Limits::loaded`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Apart {
    pub(crate) holds: u32,
    /// Of their names and owners.
    pub(crate) text_bytes: u64,
}

/// What a new hold is; the references to owner and role become its own.
#[derive(Clone, Copy)]
pub(crate) struct HoldOf {
    pub(crate) owner: u32,
    pub(crate) role: u32,
    pub(crate) mode: Mode,
    pub(crate) state: HoldState,
    pub(crate) token: i64,
    pub(crate) ttl_ms: u32,
}

/// Who is to have a lock, and the request that asked for it.
pub(crate) struct Claim {
    pub(crate) owner: u32,
    pub(crate) role: u32,
    pub(crate) mode: Mode,
    pub(crate) ttl_ms: u32,
    pub(crate) token: i64,
    /// [`NIL`]: it is answered at once.
    pub(crate) request: u32,
    pub(crate) ticket: Ticket,
}

/// Why a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Released,
    Expired,
}

/// In which mode a lock was granted to those who waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    Nobody,
    Shared,
    Exclusive,
}
