//! What a member is told at its start, what must agree with the fleet's row, and the times that
//! follow from the lease.

use std::ops::RangeInclusive;

use crate::answer::{ADDRESS_BYTES_MAX, FleetRow, MemberRow, State};
use crate::ids::{Incarnation, SHARDS};
use crate::refusal::Refusal;
use crate::schema::{FORMAT, FORMAT_MIN};
use crate::statement::Level;

/// Leases that are neither too short for a conditional statement and its repetition nor too long to
/// wait for, in milliseconds.
pub const LEASE_MS: RangeInclusive<i32> = 1_000..=60_000;
/// The lease unless the fleet is made with another, in milliseconds.
pub const LEASE_MS_DEFAULT: i32 = 6_000;
/// A wall clock further than this from another host's is worth a word, in microseconds. Locks do
/// not depend on it.
pub const CLOCK_OFFSET_MAX_US: u64 = 500_000;
/// Fences further than this above the wall clock are an alarm, in microseconds: a member's headroom
/// is two minutes at most.
pub(crate) const FENCES_AHEAD_MAX_US: i64 = 3_600 * 1_000_000;

/// What a member is told at its start.
#[derive(Debug, Clone)]
pub struct Config {
    /// The fleet's name, the key of all its rows.
    pub cluster: String,
    /// Where clients and other members reach this proxy.
    pub address: String,
    /// The lease, in milliseconds.
    pub lease_ms: i32,
    /// The longest time to live of a memory lock, in milliseconds.
    pub max_ttl_ms: i32,
    /// The levels of all statements.
    pub level: Level,
    /// The datacentre of this proxy. It matters with [`Level::LocalSerial`] only.
    pub datacentre: String,
    /// The formats that this version can work with.
    pub formats: RangeInclusive<i32>,
    /// The replication factor of `shunt_meta` as the caller found it: in the datacentre with
    /// [`Level::LocalSerial`], else in all.
    pub replication_factor: u32,
    /// The least replication factor to start with: 3, but for trials on fewer nodes.
    pub replication_factor_min: u32,
    /// Earlier incarnations of this proxy that are known to be dead: no process of theirs runs, or
    /// it is this one and all its cores have taken the mail that ended its lease. At most
    /// [`SHARDS`].
    pub own_dead: Vec<Incarnation>,
    /// A dead member is sealed only after [`crate::Member::redone`]. Otherwise at once: there is
    /// nothing to redo yet.
    pub redo: bool,
}

impl Config {
    /// The settings of a first fleet: three replicas, SERIAL, a lease of 6 s, memory locks of 30 s
    /// at most.
    pub fn new(cluster: &str, address: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            address: address.to_owned(),
            lease_ms: LEASE_MS_DEFAULT,
            max_ttl_ms: 30_000,
            level: Level::Serial,
            datacentre: String::new(),
            formats: FORMAT_MIN..=FORMAT,
            replication_factor: 3,
            replication_factor_min: 3,
            own_dead: Vec::new(),
            redo: false,
        }
    }

    /// Refuses what cannot work with any fleet.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if !LEASE_MS.contains(&self.lease_ms) {
            return Err(Refusal::Setting { name: "lease_ms", allowed: "1000 to 60000" });
        }
        if self.max_ttl_ms < 1 {
            return Err(Refusal::Setting { name: "max_ttl_ms", allowed: "1 and more" });
        }
        if self.address.is_empty() || self.address.len() > ADDRESS_BYTES_MAX {
            return Err(Refusal::Setting { name: "address", allowed: "1 to 256 bytes" });
        }
        if self.own_dead.len() > SHARDS {
            return Err(Refusal::Setting { name: "own_dead", allowed: "at most 64 incarnations" });
        }
        if self.replication_factor < self.replication_factor_min {
            let (found, min) = (self.replication_factor, self.replication_factor_min);
            return Err(Refusal::ReplicationFactor { found, min });
        }
        Ok(())
    }

    /// Refuses a fleet that this member may not be part of.
    pub(crate) fn fits(&self, row: &FleetRow) -> Result<(), Refusal> {
        if !self.formats.contains(&row.format) {
            return Err(Refusal::Format { fleet: row.format, known: self.formats.clone() });
        }
        if self.level != row.level {
            return Err(Refusal::Level { fleet: row.level, own: self.level });
        }
        if self.level == Level::LocalSerial && self.datacentre != row.datacentre {
            return Err(Refusal::Datacentre {
                fleet: row.datacentre.clone(),
                own: self.datacentre.clone(),
            });
        }
        for (name, fleet, own) in [
            ("max_ttl_ms", row.max_ttl_ms, self.max_ttl_ms),
            ("lease_ms", row.lease_ms, self.lease_ms),
        ] {
            if fleet != own {
                return Err(Refusal::Time { name, fleet, own });
            }
        }
        Ok(())
    }

    /// Refuses to be one member too many.
    pub(crate) fn has_room(&self, members: &[&MemberRow]) -> Result<(), Refusal> {
        let live = members
            .iter()
            .filter(|row| row.state == State::Live && !self.own_dead.contains(&row.incarnation));
        if live.count() < SHARDS { Ok(()) } else { Err(Refusal::Full) }
    }
}

/// Times that follow from the lease, in nanoseconds of the boot-time clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) lease_ns: u64,
    /// A lease is valid for so long from before its statement was sent: 1 % less, for this clock
    /// may be slow.
    pub(crate) valid_ns: u64,
    /// A beat unchanged for so long is a dead member's: 1 % more, for this clock may be fast.
    pub(crate) silent_ns: u64,
    /// A lease is renewed when it is so old.
    pub(crate) renew_ns: u64,
    /// An answer is waited for so long.
    pub(crate) deadline_ns: u64,
    /// Rows are read so often.
    pub(crate) poll_ns: u64,
    /// The fleet's row is read so often while a change is expected; nothing is renewed more often.
    pub(crate) watch_ns: u64,
    /// Members act on the same finding one after the other, so much apart.
    pub(crate) stagger_ns: u64,
    /// A beat that changed within this time is of a member that can be given shards.
    pub(crate) fresh_ns: u64,
    /// Memory locks of a shard whose owner died have run out after so long.
    pub(crate) grace_ns: u64,
    /// Tokens may be so far above the clock, in microseconds.
    pub(crate) headroom_us: i64,
}

impl Times {
    pub(crate) fn new(lease_ms: i32, max_ttl_ms: i32) -> Self {
        let lease_ns = u64::from(lease_ms.unsigned_abs()) * 1_000_000;
        let max_ttl_ns = u64::from(max_ttl_ms.unsigned_abs()) * 1_000_000;
        Self {
            lease_ns,
            valid_ns: lease_ns - lease_ns / 100,
            silent_ns: lease_ns + lease_ns / 100,
            renew_ns: lease_ns / 3,
            deadline_ns: lease_ns / 6,
            poll_ns: lease_ns / 12,
            watch_ns: lease_ns / 60,
            stagger_ns: lease_ns / 20,
            fresh_ns: lease_ns / 3 * 2,
            grace_ns: max_ttl_ns + max_ttl_ns / 100,
            headroom_us: i64::from(lease_ms) * 2_000,
        }
    }
}
