//! Clusters for tests.

use shunt_topology::{Keyspace, Node, NodeId, Replication, RoutingTable};

/// A node whose other fields follow from its number.
pub(crate) fn node(id: u16, datacentre: &str, rack: &str, tokens: &[i64]) -> Node {
    Node {
        id: NodeId(id),
        host_id: u128::from(id) << 64,
        address: ([10, 0, (id >> 8) as u8, id as u8], 9042).into(),
        datacentre: datacentre.to_owned(),
        rack: rack.to_owned(),
        tokens: tokens.to_vec(),
        up: true,
        release_version: "5.0.9".to_owned(),
    }
}

/// A snapshot with one keyspace, `ks`.
pub(crate) fn table(
    nodes: Vec<Node>,
    replication: Replication,
    local: Option<&str>,
) -> RoutingTable {
    let keyspace = Keyspace { name: "ks".to_owned(), replication };
    RoutingTable::build(nodes, vec![keyspace], Vec::new(), local)
}
