//! State of a lock, a hold, a request and a write; their links and timers.

use hashbrown::HashTable;

use crate::slab::{NIL, Slab};
use crate::text::Name;
use crate::types::{Handle, Mode, Namespace, Now, Ticket};
use crate::wheel::{Entries, Links};

/// A lock with a holder or a waiting request. Others take no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) namespace: Namespace,
    pub(crate) shard: u8,
    /// The lock is in the list of those whose next holder could not be granted for lack of a lease.
    pub(crate) stalled: bool,
    /// The first of its holds, in the order of their grants.
    pub(crate) first_hold: u32,
    /// The [`Queue`] of waiting requests; [`NIL`] without any.
    pub(crate) queue: u32,
}

/// Requests that wait for a lock, in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) length: u32,
}

/// Place of a hold among those that share its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbours {
    /// The hold before; for the first one, the last.
    pub(crate) previous: u32,
    /// The hold after; [`NIL`] for the last one.
    pub(crate) next: u32,
}

/// State of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// The owner was told, or may be told.
    Held,
    /// The row is being written for the first time, or the outcome of that is unknown.
    Writing,
    /// Read from a row, or its row was acknowledged too late: the owner is told after the row was
    /// written again.
    Unconfirmed,
}

/// A hold of a lock. There may be millions, so rare data lies elsewhere, and nothing is padded to
/// eight bytes.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(crate) struct Hold {
    pub(crate) lock: u32,
    /// Its [`Neighbours`]; [`NIL`] if it never had any.
    pub(crate) neighbours: u32,
    pub(crate) owner: u32,
    pub(crate) role: u32,
    /// TTL in its row, which no renewal exceeds.
    pub(crate) ttl_ms: u32,
    /// Its [`HoldRow`]; [`NIL`] if that is [`HoldRow::settled`].
    pub(crate) row: u32,
    pub(crate) links: Links,
    pub(crate) mode: Mode,
    pub(crate) state: HoldState,
    /// The owner was told of it by a request other than the one it was granted to.
    pub(crate) found_again: bool,
    /// Found in a row, and its owner has not asked for it since: counted in [`Apart`].
    pub(crate) is_apart: bool,
    pub(crate) token: i64,
    /// End of the hold, milliseconds.
    pub(crate) due_ms: u64,
}

/// Writing state of a hold's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldRow {
    /// Timestamp to write it with, microseconds.
    pub(crate) timestamp_us: i64,
    /// The pending write of it.
    pub(crate) write: u32,
}

impl HoldRow {
    /// The usual state: written with the hold's token as its timestamp, or never to be written.
    pub(crate) fn settled(token: i64) -> Self {
        Self { timestamp_us: token, write: NIL }
    }
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire { mode: Mode, ttl_ms: u32, wait_ms: u32 },
    Renew { mode: Option<Mode>, ttl_ms: u32, fence: Option<i64> },
    Release { fence: Option<i64>, forced: bool },
    GiveBack { fence: i64 },
    Look,
}

/// Object of a request's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// Its turn with this lock.
    Turn(u32),
    /// This write.
    Write(u32),
    /// Rows of this partition.
    Load(u16),
    /// No wait: it is being processed now.
    Nothing,
}

/// An unanswered request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) generation: u32,
    pub(crate) operation: Operation,
    pub(crate) awaits: Awaits,
    pub(crate) owner: u32,
    pub(crate) role: u32,
    /// Its neighbours in the list that it waits in.
    pub(crate) previous: u32,
    pub(crate) next: u32,
    pub(crate) links: Links,
    /// End of its wait, milliseconds.
    pub(crate) due_ms: u64,
}

/// A row being written whose outcome matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) generation: u32,
    /// Hold of the row; [`NIL`] if it has ended since.
    pub(crate) hold: u32,
    /// Requests that are answered when it is done.
    pub(crate) first_request: u32,
    pub(crate) last_request: u32,
    pub(crate) requests: u32,
    /// The request that the hold was granted to, while it waits.
    pub(crate) original: u32,
    /// Number of unknown outcomes.
    pub(crate) unknown: u32,
    /// Timestamp and TTL in the row that was sent.
    pub(crate) timestamp_us: i64,
    pub(crate) ttl_ms: u32,
    /// Sent, and its outcome has not come.
    pub(crate) in_flight: bool,
    /// The client of the grant has gone.
    pub(crate) abandoned: bool,
    /// Role of the hold, kept after its end.
    pub(crate) role: u32,
    pub(crate) links: Links,
    /// Time of its repetition, milliseconds.
    pub(crate) due_ms: u64,
}

/// Kinds of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Hold(u32),
    Request(u32),
    Write(u32),
}

const KIND_SHIFT: u32 = 30;
const INDEX_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Due {
    /// Id of the timer in the wheel.
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

/// Entries with timers.
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

    /// True without a holder and without waiting requests.
    pub(crate) fn is_unused(&self) -> bool {
        self.first_hold == NIL && self.queue == NIL
    }
}

/// State of one shard.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Shard {
    /// The shard belongs to this proxy and this core.
    pub(crate) owned: bool,
    /// Latest token of any of its locks, microseconds.
    pub(crate) last_token: i64,
    /// Time before which no memory lock is granted, by [`Now::boot_ns`].
    pub(crate) memory_grace_until_ns: u64,
    /// Its locks with holders or waiting requests.
    pub(crate) index: HashTable<u32>,
}

/// Knowledge of a partition's rows.
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
    /// Timestamp for writes to holds found in it: above all that earlier owners wrote,
    /// microseconds.
    pub(crate) found_us: i64,
    /// Name whose rows are being read, and the timestamp of its exclusive row.
    pub(crate) name: Vec<u8>,
    pub(crate) exclusive_us: i64,
    /// The partition has, or may have, rows: some were found when it was read, or were written
    /// since.
    pub(crate) has_rows: bool,
    /// Time of the last write, by [`Now::boot_ns`]: timestamps may be far from all clocks.
    pub(crate) wrote_ns: u64,
    /// Holds were found in it since the reading began.
    pub(crate) has_holds: bool,
    pub(crate) deferred: Vec<Deferred>,
}

impl Bucket {
    /// Notes that a row of it is written.
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

/// Use by one role.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoleUse {
    pub(crate) holds: u32,
    pub(crate) requests: u32,
    /// Rows being written.
    pub(crate) writes: u32,
    /// Bytes of names and owners of holds.
    pub(crate) text_bytes: u64,
}

/// Holds found in rows that no owner has asked for since. They were not granted here, so they count
/// only for their own roles, and have a limit of their own: [`crate::Limits::loaded`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Apart {
    pub(crate) holds: u32,
    /// Bytes of their names and owners.
    pub(crate) text_bytes: u64,
}

/// Contents of a new hold, which takes over the references to owner and role.
#[derive(Clone, Copy)]
pub(crate) struct HoldOf {
    pub(crate) owner: u32,
    pub(crate) role: u32,
    pub(crate) mode: Mode,
    pub(crate) state: HoldState,
    pub(crate) token: i64,
    pub(crate) ttl_ms: u32,
}

/// The new holder of a lock, and its request.
pub(crate) struct Claim {
    pub(crate) owner: u32,
    pub(crate) role: u32,
    pub(crate) mode: Mode,
    pub(crate) ttl_ms: u32,
    pub(crate) token: i64,
    /// [`NIL`] if the request is answered at once.
    pub(crate) request: u32,
    pub(crate) ticket: Ticket,
}

/// Reason for the end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed<'a> {
    /// This role asked for it.
    Released(&'a [u8]),
    /// Nobody wanted the hold any more.
    GivenBack,
    Expired,
}

/// Mode in which a lock was granted to waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    Nobody,
    Shared,
    Exclusive,
}
