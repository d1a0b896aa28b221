//! What goes into [`crate::Locks`] and what comes out.

/// Shards of all locks; each has one owner among the proxies of a fleet.
pub const SHARDS: usize = 64;
/// Partitions of the table that durable locks are kept in; 16 for each shard.
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

/// The shard that a lock belongs to, durable or not.
#[inline]
pub fn shard_of(name: &[u8]) -> u8 {
    (stable_hash(name) % SHARDS as u64) as u8
}

/// The partition that a durable lock's rows lie in.
pub fn bucket_of(name: &[u8]) -> u16 {
    let hash = stable_hash(name);
    let shard = hash % SHARDS as u64;
    (shard * BUCKETS_PER_SHARD as u64 + (hash >> 32) % BUCKETS_PER_SHARD as u64) as u16
}

/// The shard that the locks of a partition belong to.
#[inline]
pub fn shard_of_bucket(bucket: u16) -> u8 {
    (usize::from(bucket) / BUCKETS_PER_SHARD) as u8
}

/// The present moment, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Of the clock that never goes back and counts suspended time too (`CLOCK_BOOTTIME`),
    /// nanoseconds. Leases, TTLs and waits are measured by it.
    pub boot_ns: u64,
    /// Of the wall clock, microseconds since 1970. Fences are near it; nothing is wrong when it
    /// jumps.
    pub wall_us: i64,
}

impl Now {
    pub(crate) fn ms(self) -> u64 {
        self.boot_ns / 1_000_000
    }
}

/// How a lock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Each grant is a row in Cassandra, so that the next owner of the shard knows the holders.
    Durable,
    /// In memory only: the next owner of the shard grants none before the longest TTL has passed.
    Memory,
}

/// With whom a lock is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With others who hold it in this mode.
    Shared,
    /// With nobody.
    Exclusive,
}

/// The caller's name for a request; each is answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// A request that is not answered yet, for [`crate::Locks::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Who asks, and for which lock.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// How the lock is kept.
    pub namespace: Namespace,
    /// Its name, 1 to 1,024 bytes; the caller has checked it.
    pub name: &'a [u8],
    /// The role that has logged in; empty where nobody logs in.
    pub role: &'a [u8],
    /// Who holds, or is to hold, the lock, in the words of the client. A hold belongs to role and
    /// owner.
    pub owner: &'a [u8],
    /// The request.
    pub ticket: Ticket,
}

/// A proxy's right to grant, as the fleet has given it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// When it ends, by [`Now::boot_ns`].
    pub valid_until_ns: u64,
    /// All fences granted under it are below, microseconds.
    pub ts_limit_us: i64,
}

/// How much there may be on one core.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Holds in all, without those that [`Limits::loaded`] is about.
    pub holds: u32,
    /// Holds of one role.
    pub holds_per_role: u32,
    /// Bytes of the names and owners of all these holds; one role's are half of that.
    pub text_bytes: u64,
    /// Holds that were found in rows of an earlier owner, and of which nobody has asked since: they
    /// were granted elsewhere and cannot be refused. They count for their roles, and for nobody
    /// else. A partition that has more is not served until some have ended.
    pub loaded: u32,
    /// Bytes of the names and owners of those.
    pub loaded_text_bytes: u64,
    /// Rows of one role that are being written.
    pub writes_per_role: u32,
    /// Requests that wait, in all: for a lock, for a row to be written, or for rows to be read.
    pub requests: u32,
    /// The same of one role.
    pub requests_per_role: u32,
    /// How long a request waits for rows to be read, milliseconds.
    pub load_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            holds: 1_000_000,
            holds_per_role: 500_000,
            text_bytes: 256 << 20,
            // What three others had that have died.
            loaded: 3_000_000,
            loaded_text_bytes: 768 << 20,
            writes_per_role: 8_192,
            requests: 100_000,
            requests_per_role: 50_000,
            load_ms: 2000,
        }
    }
}

/// A holder, as others are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// In the words of its client.
    pub owner: &'a [u8],
    /// How it holds the lock.
    pub mode: Mode,
    /// Its fencing token.
    pub fence: i64,
    /// Time until it loses the lock, unless it renews, milliseconds.
    pub ttl_ms: u32,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The lock is the asker's, newly or for longer.
    Granted {
        /// The hold.
        holder: Holder<'a>,
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// The asker holds it no more.
    Released {
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// Nothing has changed: somebody else holds the lock, or the asker does already, or, for a
    /// renewal or release, does not.
    Refused {
        /// The first of the holders, or the asker where it is one.
        holder: Option<Holder<'a>>,
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// What [`crate::Locks::look`] has found.
    Seen {
        /// The first of the holders.
        holder: Option<Holder<'a>>,
        /// Requests that wait for the lock.
        waiters: u32,
    },
    /// Certainly not executed; asked again later, or elsewhere, it may be.
    NotServed(NotServed),
    /// The grant's row may have been written, and may stay; asked again, the same owner gets the
    /// same fence or another.
    InDoubt,
    /// Another role holds the lock under the same owner's name.
    Unauthorized,
    /// The asker holds the lock in another mode than it names, which nothing changes: it has to
    /// release it first.
    OtherMode,
    /// There are as many as there may be.
    Quota(Quota),
}

/// Why a request was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// The lock's shard is another proxy's.
    Elsewhere,
    /// This proxy has no valid lease.
    LeaseOver,
    /// An earlier owner of the shard may have granted locks in memory whose time has not run out.
    Grace,
    /// The rows of an earlier owner of the shard could not be read in time.
    Loading,
    /// The row could not be sent to any node.
    Store,
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Holds of the asker's role.
    HoldsOfRole,
    /// Holds.
    Holds,
    /// Waiting requests of the asker's role.
    RequestsOfRole,
    /// Waiting requests.
    Requests,
}

/// Names a write, from [`Sink::write`] to [`crate::Locks::written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(pub u64);

impl WriteId {
    /// Of a write whose outcome nobody waits for.
    pub const UNWATCHED: Self = Self(u64::MAX);
}

/// A row of a durable lock: the exclusive one of its name, or that of one shared holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The lock's name.
    pub name: &'a [u8],
    /// Whose row it is among those of the name: empty for the exclusive one, else the shared
    /// holder's owner text.
    pub slot: &'a [u8],
    /// The holder; empty: there is none.
    pub owner: &'a [u8],
    /// The holder's role.
    pub role: &'a [u8],
    /// The holder's fence, microseconds.
    pub token: i64,
    /// No holder's time is longer than this after any renewal, milliseconds.
    pub ttl_ms: u32,
    /// The timestamp that the row is written with, or its `WRITETIME`, microseconds: the token, or
    /// later.
    pub timestamp_us: i64,
}

/// A row to be written at QUORUM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Names it in [`crate::Locks::written`], unless it is [`WriteId::UNWATCHED`].
    pub id: WriteId,
    /// The partition.
    pub bucket: u16,
    /// What is written.
    pub row: Row<'a>,
}

/// Names a reading of a partition, from [`Sink::load`] to [`crate::Locks::loaded`].
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
    /// It may have been executed.
    Unknown,
    /// It certainly was not.
    NotSent,
}

/// Where answers and writes go. Called from within methods of [`crate::Locks`].
pub trait Sink {
    /// The answer to a request.
    fn reply(&mut self, ticket: Ticket, outcome: Outcome<'_>);
    /// Writes a row; [`crate::Locks::written`] is to be called later, exactly once, unless nobody
    /// waits for it.
    fn write(&mut self, write: Write<'_>);
    /// Reads all rows of a partition at QUORUM; [`crate::Locks::loaded`] or
    /// [`crate::Locks::load_failed`] is to be called later.
    fn load(&mut self, load: LoadId);
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks granted, at once or after a wait.
    pub grants: u64,
    /// Of these, after a wait.
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
