//! Names of what a core's tables hold.

use shunt_reactor::ConnId;

/// A client for as long as it lives: a place in the core's table and the number that must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientRef {
    pub(crate) slot: u32,
    pub(crate) id: u32,
}

impl ClientRef {
    /// Stands for the proxy itself, which asks nodes things of its own.
    pub(crate) const PROXY: ClientRef = ClientRef { slot: u32::MAX, id: u32::MAX };

    /// Stands for a part of a client's request, which the proxy puts together with the others.
    pub(crate) const PART: ClientRef = ClientRef { slot: u32::MAX, id: u32::MAX - 1 };
}

/// A place in the core's table of links. The link there may be another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkKey(pub(crate) u32);

/// A link for as long as it lives: its place and the connection that must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRef {
    pub(crate) key: LinkKey,
    pub(crate) conn: ConnId,
}

/// A place in the core's table of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolId(pub(crate) u32);

impl PoolId {
    /// The pool of requests that belong to none: the proxy's own.
    pub(crate) const NONE: PoolId = PoolId(u32::MAX);
}

/// A request that waits until a statement is prepared again, or the nodes agree. A number is not
/// used again while the answer to an earlier one could still be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u32);
