//! Consistency levels of the fleet's statements, and the clocks of a lease.

use shunt_fleet::Level;
use shunt_locks::Now;
use shunt_reactor::Io;
use shunt_wire::cql::message::Consistency;

/// The quorum at which rows of a fleet are read and written; none: that of a fleet whose level is
/// unknown.
pub(crate) fn quorum(level: Option<Level>) -> Consistency {
    match level {
        Some(Level::LocalSerial) => Consistency::LOCAL_QUORUM,
        Some(Level::Serial) | None => Consistency::QUORUM,
    }
}

/// The serial consistency of a fleet's conditional statements.
pub(crate) fn serial(level: Option<Level>) -> Consistency {
    match level {
        Some(Level::LocalSerial) => Consistency::LOCAL_SERIAL,
        Some(Level::Serial) | None => Consistency::SERIAL,
    }
}

/// Both clocks, read anew. If this process were stopped within a turn, for longer than its lease
/// and the longest TTL, the time at which the turn began would grant a lock in memory, or show a
/// lease, that is over.
pub(crate) fn now(io: &mut Io) -> Now {
    Now { boot_ns: io.read_clock_ns(), wall_us: io.wall_us() }
}
