//! Consistency levels (section 3).

use std::fmt;

/// `[consistency]`, as the number on the wire. Any number passes through; the node decides whether
/// it is acceptable.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Consistency(pub u16);

impl Consistency {
    /// A write that any node may store on behalf of the replica.
    pub const ANY: Consistency = Consistency(0);
    /// One replica.
    pub const ONE: Consistency = Consistency(1);
    /// Two replicas.
    pub const TWO: Consistency = Consistency(2);
    /// Three replicas.
    pub const THREE: Consistency = Consistency(3);
    /// More than half of all replicas.
    pub const QUORUM: Consistency = Consistency(4);
    /// Every replica.
    pub const ALL: Consistency = Consistency(5);
    /// More than half of the replicas in the coordinator's datacentre.
    pub const LOCAL_QUORUM: Consistency = Consistency(6);
    /// More than half of the replicas in each datacentre.
    pub const EACH_QUORUM: Consistency = Consistency(7);
    /// Linearizable over all datacentres.
    pub const SERIAL: Consistency = Consistency(8);
    /// Linearizable within the coordinator's datacentre.
    pub const LOCAL_SERIAL: Consistency = Consistency(9);
    /// One replica in the coordinator's datacentre.
    pub const LOCAL_ONE: Consistency = Consistency(10);

    /// True if every node version knows the number. Only later versions know Cassandra's NODE_LOCAL
    /// (11).
    #[inline]
    pub fn is_known(self) -> bool {
        self.0 <= 10
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 11] = [
            "ANY",
            "ONE",
            "TWO",
            "THREE",
            "QUORUM",
            "ALL",
            "LOCAL_QUORUM",
            "EACH_QUORUM",
            "SERIAL",
            "LOCAL_SERIAL",
            "LOCAL_ONE",
        ];
        match NAMES.get(usize::from(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "consistency {:#06x}", self.0),
        }
    }
}
