//! Consistency levels of the fleet's statements, and the clocks of a lease.

use shunt_fleet::Level;
use shunt_locks::Now;
use shunt_reactor::Io;
use shunt_topology::Node;
use shunt_wire::cql::message::Consistency;

/// The quorum of the fleet's reads and writes. `None` stands for the level of a fleet that is not
/// known.
pub(crate) fn quorum(level: Option<Level>) -> Consistency {
    match level {
        Some(Level::LocalSerial) => Consistency::LOCAL_QUORUM,
        Some(Level::Serial) | None => Consistency::QUORUM,
    }
}

/// A consistency that meets both levels while the fleet's level is not known. In a ring of one
/// datacentre the two are the same.
pub(crate) fn unknown_quorum(nodes: &[Node]) -> Consistency {
    match nodes.windows(2).all(|pair| pair[0].datacentre == pair[1].datacentre) {
        true => Consistency::QUORUM,
        false => Consistency::EACH_QUORUM,
    }
}

/// The serial consistency of a fleet's conditional statements.
pub(crate) fn serial(level: Option<Level>) -> Consistency {
    match level {
        Some(Level::LocalSerial) => Consistency::LOCAL_SERIAL,
        Some(Level::Serial) | None => Consistency::SERIAL,
    }
}

/// Reads both clocks anew. If the process was stopped within a turn, for longer than its lease and
/// the longest TTL, the time at the start of the turn could show a lease that is over, or grant a
/// lock in memory whose time is over.
pub(crate) fn now(io: &mut Io) -> Now {
    Now { boot_ns: io.read_clock_ns(), wall_us: io.wall_us() }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use shunt_topology::NodeId;

    use super::*;

    /// A quorum of all replicas may miss what a quorum of one datacentre has written.
    #[test]
    fn a_fleet_of_unknown_level_is_read_in_each_datacentre() {
        let node = |datacentre: &str| Node {
            id: NodeId(0),
            host_id: 0,
            address: SocketAddr::from(([127, 0, 0, 1], 9042)),
            datacentre: datacentre.to_owned(),
            rack: String::new(),
            tokens: Vec::new(),
            up: true,
            release_version: String::new(),
        };
        assert_eq!(unknown_quorum(&[]), Consistency::QUORUM);
        assert_eq!(unknown_quorum(&[node("a"), node("a")]), Consistency::QUORUM);
        assert_eq!(unknown_quorum(&[node("a"), node("a"), node("b")]), Consistency::EACH_QUORUM);
    }
}
