//! A member's settings, their agreement with the fleet's row, and the times that follow from the
//! lease.

use std::ops::RangeInclusive;

use crate::answer::{ADDRESS_BYTES_MAX, FleetRow, MemberRow, State};
use crate::ids::{Incarnation, SHARDS};
use crate::refusal::Refusal;
use crate::schema::{FORMAT, FORMAT_MIN};
use crate::statement::Level;

/// Allowed leases in milliseconds: long enough for a conditional statement and its repetition, and
/// short enough to wait for.
pub const LEASE_MS: RangeInclusive<i32> = 1_000..=60_000;
/// Default lease of a new fleet, in milliseconds.
pub const LEASE_MS_DEFAULT: i32 = 6_000;
/// Distance of another host's wall clock that is worth a warning, in microseconds. Locks do not
/// depend on it.
pub const CLOCK_OFFSET_MAX_US: u64 = 500_000;
/// Distance of fences above the wall clock that raises an alarm, in microseconds: a member's
/// headroom is two minutes at most.
pub(crate) const FENCES_AHEAD_MAX_US: i64 = 3_600 * 1_000_000;

/// Settings of a member.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the fleet, the key of all its rows.
    pub cluster: String,
    /// Address of this proxy for clients and other members.
    pub address: String,
    /// Lease, in milliseconds.
    pub lease_ms: i32,
    /// Longest time to live of a memory lock, in milliseconds.
    pub max_ttl_ms: i32,
    /// Consistency levels of all statements.
    pub level: Level,
    /// Datacentre of this proxy. Used with [`Level::LocalSerial`] only.
    pub datacentre: String,
    /// Formats that this version supports.
    pub formats: RangeInclusive<i32>,
    /// Replication factor of `shunt_meta` as found by the caller: in the datacentre with
    /// [`Level::LocalSerial`], otherwise over all.
    pub replication_factor: u32,
    /// Smallest replication factor to start with: 3, except for trials on fewer nodes.
    pub replication_factor_min: u32,
    /// Earlier incarnations of this proxy that are certainly dead: their process has ended, or it
    /// is this one and all its cores have taken the mail that ended its lease. At most [`SHARDS`].
    pub own_dead: Vec<Incarnation>,
    /// If true, a dead member is sealed only after [`crate::Member::redone`]; otherwise at once,
    /// because there is nothing to redo.
    pub redo: bool,
}

impl Config {
    /// Default settings: three replicas, SERIAL, a lease of 6 s, memory locks of 30 s at most.
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

    /// Refuses settings that work with no fleet.
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

    /// Refuses a fleet that this member may not join.
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

    /// Refuses to join a fleet that has as many live members as shards.
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
    /// Validity of a lease, counted from before its statement was sent: 1 % less, because this
    /// clock may be slow.
    pub(crate) valid_ns: u64,
    /// Time without a new beat after which a member is dead: 1 % more, because this clock may be
    /// fast.
    pub(crate) silent_ns: u64,
    /// Age at which a lease is renewed.
    pub(crate) renew_ns: u64,
    /// Time limit for an answer.
    pub(crate) deadline_ns: u64,
    /// Interval between reads of the rows.
    pub(crate) poll_ns: u64,
    /// Interval between reads of the fleet's row while a change is expected, and shortest interval
    /// between renewals.
    pub(crate) watch_ns: u64,
    /// Delay between members that act on the same finding.
    pub(crate) stagger_ns: u64,
    /// Age of a beat up to which its member can be given shards.
    pub(crate) fresh_ns: u64,
    /// Time after which memory locks of a dead owner's shard have run out.
    pub(crate) grace_ns: u64,
    /// Largest distance of tokens above the clock, in microseconds.
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
