//! A storage node as described by the ring's tables (`system.local`, `system.peers_v2`).

use std::net::SocketAddr;

/// The proxy's own number for a node: small, dense and stable for the life of the process, whatever
/// the node's address. The builder of snapshots must give a `host_id` the same number every time.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct NodeId(pub u16);

/// One storage node.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Node {
    /// The proxy's number for the node.
    pub id: NodeId,
    /// The ring's own identity of the node (a UUID as a big-endian number).
    pub host_id: u128,
    /// Address for CQL connections.
    pub address: SocketAddr,
    /// Datacentre as the snitch names it; case matters.
    pub datacentre: String,
    /// Rack within the datacentre; case matters.
    pub rack: String,
    /// Tokens that the node owns, in any order; several with vnodes. Empty while it joins, and for
    /// an unsupported partitioner (see [`crate::token::parse_tokens`]): the node then takes queries
    /// but is no replica.
    pub tokens: Vec<i64>,
    /// State last reported by the ring. A hint only: a node with working links is used in any
    /// state.
    pub up: bool,
    /// Server version, for example `5.0.9`.
    pub release_version: String,
}
