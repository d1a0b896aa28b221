//! A storage node as the ring's own tables (`system.local`, `system.peers_v2`) describe it.

use std::net::SocketAddr;

/// The proxy's own number for a node: small, dense and stable for the life of the process, whatever
/// address the node takes. Whoever builds snapshots gives the same `host_id` the same number every
/// time.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct NodeId(pub u16);

/// One storage node.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Node {
    /// The proxy's number for it.
    pub id: NodeId,
    /// The ring's own identity of the node (a UUID as a big-endian number).
    pub host_id: u128,
    /// Where it takes CQL connections.
    pub address: SocketAddr,
    /// Datacentre as the snitch names it; case matters.
    pub datacentre: String,
    /// Rack within the datacentre; case matters.
    pub rack: String,
    /// The tokens it owns, in any order; several with vnodes. Empty while it joins, and left empty
    /// for a partitioner that is not understood (see [`crate::token::parse_tokens`]): it then takes
    /// queries but is nobody's replica.
    pub tokens: Vec<i64>,
    /// The state that the ring last told of it. A hint only: a node whose links work is used
    /// whatever this says.
    pub up: bool,
    /// Server version, for example `5.0.9`.
    pub release_version: String,
}
