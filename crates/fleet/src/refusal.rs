//! Reasons why a proxy does not become, or does not stay, a member, with their remedies.

use std::fmt;
use std::ops::RangeInclusive;

use crate::columns::BadRow;
use crate::statement::Level;

/// Reason why a proxy may not be a member of this fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A setting that works with no fleet.
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Allowed range.
        allowed: &'static str,
    },
    /// The ring keeps too few replicas of `shunt_meta`.
    ReplicationFactor {
        /// Replicas found.
        found: u32,
        /// Replicas required.
        min: u32,
    },
    /// The fleet does not exist.
    NoFleet(String),
    /// The fleet's row is invalid.
    Row(BadRow),
    /// The fleet's rows have a format that this version does not know.
    Format {
        /// Format of the fleet.
        fleet: i32,
        /// Formats that this version knows.
        known: RangeInclusive<i32>,
    },
    /// The fleet uses another serial consistency.
    Level {
        /// Level of the fleet.
        fleet: Level,
        /// Level of this proxy.
        own: Level,
    },
    /// The fleet lives in another datacentre.
    Datacentre {
        /// Datacentre of the fleet.
        fleet: String,
        /// Datacentre of this proxy.
        own: String,
    },
    /// A time that all members must share differs, in milliseconds.
    Time {
        /// Name of the setting.
        name: &'static str,
        /// Value of the fleet.
        fleet: i32,
        /// Value of this proxy.
        own: i32,
    },
    /// The fleet has as many members as shards.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Setting { name, allowed } => {
                write!(f, "{name} must be {allowed}: change it in the configuration")
            }
            Refusal::ReplicationFactor { found, min } => write!(
                f,
                "the keyspace shunt_meta has replication factor {found}, and {min} is the least: ALTER KEYSPACE, then run a \
                 full repair of it, then start again"
            ),
            Refusal::NoFleet(name) => {
                write!(f, "there is no fleet '{name}': run `shunt fleet init`, or correct its name")
            }
            Refusal::Row(bad) => {
                write!(f, "{bad}: find out which client wrote to shunt_meta, and restore the row")
            }
            Refusal::Format { fleet, known } if fleet > known.end() => write!(
                f,
                "the fleet's rows have format {fleet}, and this version knows up to {}: upgrade this proxy",
                known.end()
            ),
            Refusal::Format { fleet, known } => write!(
                f,
                "the fleet's rows have format {fleet}, and this version knows {} and later: upgrade the other proxies to \
                 a version that knows both first",
                known.start()
            ),
            Refusal::Level { fleet, own } => write!(
                f,
                "the fleet uses {}, and this proxy is set to {}: set what the fleet uses",
                fleet.name(),
                own.name()
            ),
            Refusal::Datacentre { fleet, own } => write!(
                f,
                "the fleet is in datacentre '{fleet}', and this proxy in '{own}': connect clients that need locks to \
                 the proxies there, or correct --local-datacentre"
            ),
            Refusal::Time { name, fleet, own } => write!(
                f,
                "the fleet's {name} is {fleet}, and this proxy's {own}: set what the fleet has (to change it, stop all \
                 proxies first)"
            ),
            Refusal::Full => {
                write!(f, "the fleet has as many members as shards (64): stop another proxy first")
            }
        }
    }
}
