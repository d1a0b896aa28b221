//! Inputs and outputs of [`crate::Locks`].

/// Shards of all locks; each has one owner among the proxies of a fleet.
pub const SHARDS: usize = 64;
/// Partitions of the table of durable locks; 16 for each shard.
pub const BUCKETS: usize = SHARDS * BUCKETS_PER_SHARD;
pub(crate) const BUCKETS_PER_SHARD: usize = 16;

/// A hash that is the same on every proxy, of every version: FNV-1a, with the finalizer of
/// MurmurHash3.
fn stable_hash(name: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Shard of a lock, durable or not.
#[inline]
pub fn shard_of(name: &[u8]) -> u8 {
    (stable_hash(name) % SHARDS as u64) as u8
}

/// Partition of a durable lock's rows.
pub fn bucket_of(name: &[u8]) -> u16 {
    let hash = stable_hash(name);
    let shard = hash % SHARDS as u64;
    (shard * BUCKETS_PER_SHARD as u64 + (hash >> 32) % BUCKETS_PER_SHARD as u64) as u16
}

/// Shard of a partition's locks.
#[inline]
pub fn shard_of_bucket(bucket: u16) -> u8 {
    (usize::from(bucket) / BUCKETS_PER_SHARD) as u8
}

/// The present moment, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Clock that never goes back and counts suspended time too (`CLOCK_BOOTTIME`), nanoseconds.
    /// Leases, TTLs and waits are measured by it.
    pub boot_ns: u64,
    /// Wall clock, microseconds since 1970. Fences are near it; jumps do no harm.
    pub wall_us: i64,
}

impl Now {
    pub(crate) fn ms(self) -> u64 {
        self.boot_ns / 1_000_000
    }
}

/// Storage of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Each grant is a row in Cassandra, so that the next owner of the shard knows the holders.
    Durable,
    /// In memory only: the next owner of the shard grants none before the longest TTL has passed.
    Memory,
}

/// Sharing of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shared with others that hold it in this mode.
    Shared,
    /// Held alone.
    Exclusive,
}

/// The caller's id of a request; each is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// A request that is not answered yet, for [`crate::Locks::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Lock, role and owner of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Storage of the lock.
    pub namespace: Namespace,
    /// Name of the lock, 1 to 1,024 bytes; the caller has checked it.
    pub name: &'a [u8],
    /// Role of the login; empty without logins.
    pub role: &'a [u8],
    /// Owner of the hold, in the client's words. A hold belongs to role and owner.
    pub owner: &'a [u8],
    /// The request.
    pub ticket: Ticket,
}

/// A proxy's right to grant, given by the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// End of the lease, by [`Now::boot_ns`].
    pub valid_until_ns: u64,
    /// Limit of all fences granted under it, exclusive, microseconds.
    pub ts_limit_us: i64,
}

/// Limits of one core.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Holds in all, except those counted by [`Limits::loaded`].
    pub holds: u32,
    /// Holds of one role.
    pub holds_per_role: u32,
    /// Bytes of the names and owners of all these holds; one role may have half of that.
    pub text_bytes: u64,
    /// Holds found in rows of an earlier owner that were not asked for since: they were granted
    /// elsewhere and cannot be refused. They count for their own roles only. A partition that has
    /// more is not served until some have ended.
    pub loaded: u32,
    /// Bytes of the names and owners of those.
    pub loaded_text_bytes: u64,
    /// Rows of one role that are being written.
    pub writes_per_role: u32,
    /// Waiting requests in all: for a lock, for a row to be written, or for rows to be read.
    pub requests: u32,
    /// Waiting requests of one role.
    pub requests_per_role: u32,
    /// Longest wait of a request for rows to be read, milliseconds.
    pub load_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            holds: 1_000_000,
            holds_per_role: 500_000,
            text_bytes: 256 << 20,
            // The holds of three other cores that have died.
            loaded: 3_000_000,
            loaded_text_bytes: 768 << 20,
            writes_per_role: 8_192,
            requests: 100_000,
            requests_per_role: 50_000,
            load_ms: 2000,
        }
    }
}

/// A holder as answers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Owner, in the client's words.
    pub owner: &'a [u8],
    /// Mode of the hold.
    pub mode: Mode,
    /// Fencing token.
    pub fence: i64,
    /// Time until the hold ends unless renewed, milliseconds.
    pub ttl_ms: u32,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The lock belongs to the requester, newly or for longer.
    Granted {
        /// The hold.
        holder: Holder<'a>,
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// The requester no longer holds it.
    Released {
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// Unchanged: the lock has another holder, or the requester already has it, or, for a renewal
    /// or release, does not.
    Refused {
        /// First of the holders, or the requester if it is one.
        holder: Option<Holder<'a>>,
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// Result of [`crate::Locks::look`].
    Seen {
        /// First of the holders.
        holder: Option<Holder<'a>>,
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// Certainly not executed; a later request, or one elsewhere, may succeed.
    NotServed(NotServed),
    /// The grant's row may have been written, and may stay; a repeated request of the same owner
    /// gets the same fence or another.
    InDoubt,
    /// Another role holds the lock under the same owner's name.
    Unauthorized,
    /// The requester holds the lock in another mode, which stays: it must release the lock first.
    OtherMode,
    /// A limit is reached.
    Quota(Quota),
}

/// Reason why a request was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// Another proxy owns the lock's shard.
    Elsewhere,
    /// This proxy has no valid lease.
    LeaseOver,
    /// An earlier owner of the shard may have granted memory locks whose time has not run out.
    Grace,
    /// The rows of an earlier owner of the shard could not be read in time.
    Loading,
    /// The row could not be sent to any node.
    Store,
}

/// Limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Holds of the requester's role.
    HoldsOfRole,
    /// Holds in all.
    Holds,
    /// Waiting requests of the requester's role.
    RequestsOfRole,
    /// Waiting requests in all.
    Requests,
}

/// Identifies a write, from [`Sink::write`] to [`crate::Locks::written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(pub u64);

impl WriteId {
    /// A write whose outcome does not matter.
    pub const UNWATCHED: Self = Self(u64::MAX);
}

/// A row of a durable lock: the exclusive one of its name, or that of one shared holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Name of the lock.
    pub name: &'a [u8],
    /// Key among the rows of the name: empty for the exclusive one, otherwise the shared holder's
    /// owner text.
    pub slot: &'a [u8],
    /// The holder; empty without one.
    pub owner: &'a [u8],
    /// The holder's role.
    pub role: &'a [u8],
    /// The holder's fence, microseconds.
    pub token: i64,
    /// Longest time of the holder after any renewal, milliseconds.
    pub ttl_ms: u32,
    /// Timestamp to write the row with, or its `WRITETIME`, microseconds: the token, or later.
    pub timestamp_us: i64,
}

/// A row to be written at QUORUM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Id for [`crate::Locks::written`], or [`WriteId::UNWATCHED`].
    pub id: WriteId,
    /// The partition.
    pub bucket: u16,
    /// Row to be written.
    pub row: Row<'a>,
    /// The role that a free row counts for, which has none itself: the one that asked for the
    /// release, or else the holder's. Empty for other rows.
    pub role: &'a [u8],
    /// True for the free row of a lock whose release a client asked for.
    pub is_release: bool,
}

/// Identifies a reading of a partition, from [`Sink::load`] to [`crate::Locks::loaded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadId {
    /// The partition.
    pub bucket: u16,
    pub(crate) generation: u32,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A quorum has it.
    Acknowledged,
    /// Possibly executed.
    Unknown,
    /// Certainly not executed.
    NotSent,
}

/// Receiver of answers and writes. Methods of [`crate::Locks`] call it.
pub trait Sink {
    /// Answers a request.
    fn reply(&mut self, ticket: Ticket, outcome: Outcome<'_>);
    /// Writes a row, and later calls [`crate::Locks::written`] exactly once, unless the write is
    /// unwatched.
    fn write(&mut self, write: Write<'_>);
    /// Reads all rows of a partition at QUORUM, and later calls [`crate::Locks::loaded`] or
    /// [`crate::Locks::load_failed`].
    fn load(&mut self, load: LoadId);
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks granted, at once or after a wait.
    pub grants: u64,
    /// Locks granted after a wait.
    pub waited_grants: u64,
    /// Waits that ended without the lock.
    pub wait_timeouts: u64,
    /// Holds renewed.
    pub renewals: u64,
    /// Holds released.
    pub releases: u64,
    /// Holds whose time ran out.
    pub expiries: u64,
    /// Requests answered with [`Outcome::InDoubt`].
    pub in_doubt: u64,
    /// Holds read from rows of an earlier owner.
    pub loaded_holds: u64,
    /// Writes repeated because their outcome was unknown.
    pub redriven: u64,
}
