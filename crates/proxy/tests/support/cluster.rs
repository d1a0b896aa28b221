//! A ring of stub nodes as the control plane would describe it.

use std::sync::Arc;

use shunt_bench::stub::Ring;
use shunt_proxy::control::state::ClusterState;
use shunt_topology::schema::{Cells, Column, Factor};
use shunt_topology::{Keyspace, Node, NodeId, Replication, RoutingTable, Table};
use shunt_wire::cql::types::CqlType;

/// The nodes of a ring, all up.
pub(crate) fn nodes(ring: &Ring) -> Vec<Node> {
    let nodes = ring.nodes.iter().enumerate().map(|(index, node)| Node {
        id: NodeId(index as u16),
        host_id: node.host_id,
        address: node.address,
        datacentre: node.datacentre.clone(),
        rack: node.rack.clone(),
        tokens: node.tokens.clone(),
        up: true,
        release_version: ring.release_version.clone(),
    });
    nodes.collect()
}

/// The first state of a ring with these nodes, without logins, and with the stub's table with these
/// cells.
pub(crate) fn state(ring: &Ring, nodes: Vec<Node>, cells: Cells) -> ClusterState {
    state_with(ring, nodes, cells, &["bench"], &[])
}

/// Makes a state with these keyspaces, and these tables beside the stub's.
pub(crate) fn state_with(
    ring: &Ring,
    nodes: Vec<Node>,
    cells: Cells,
    keyspaces: &[&str],
    others: &[Table],
) -> ClusterState {
    let factor = Factor { all: u16::from(ring.replication), transient: 0 };
    let keyspace =
        |name: &&str| Keyspace { name: (*name).into(), replication: Replication::Simple(factor) };
    let keyspaces = keyspaces.iter().map(keyspace).collect();
    let key = Column { name: "k".into(), cql_type: CqlType::Blob };
    let table =
        Table { keyspace: "bench".into(), name: "kv".into(), partition_key: vec![key], cells };
    let tables = std::iter::once(table).chain(others.iter().cloned()).collect();
    ClusterState {
        drained: Vec::new(),
        modes: None,
        generation: 1,
        routing: Arc::new(RoutingTable::build(nodes, keyspaces, tables, Some("datacenter1"))),
        protocol_version_max: 5,
        authenticator: None,
        cluster_name: ring.cluster_name.clone(),
        release_version: ring.release_version.clone(),
        cql_version: "3.4.7".into(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".into(),
        compressions: vec!["lz4".into(), "snappy".into()],
        datacentre: "datacenter1".into(),
        rack: "rack1".into(),
        schema_version: 1,
    }
}
