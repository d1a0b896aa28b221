//! `system.local` and `system.peers`: this node and the others of its process.

use std::net::SocketAddr;

use super::values::RowMaker;
use crate::cluster::{ClusterInfo, NodeInfo};
use crate::schema::Schema;

/// Version reported by the node, that of the Cassandra which its statements follow.
pub(crate) const RELEASE_VERSION: &str = "5.0.0";

/// Rows of one of these tables, as shown by `node`.
pub(super) fn rows(
    name: &str,
    schema: &Schema,
    cluster: &ClusterInfo,
    node: usize,
) -> Vec<RowMaker> {
    let peers = || {
        cluster
            .nodes
            .iter()
            .enumerate()
            .filter(move |(index, _)| *index != node)
            .map(|(_, peer)| peer)
    };
    match name {
        "local" => {
            cluster.nodes.get(node).map(|node| local(schema, cluster, node)).into_iter().collect()
        }
        "peers" => peers()
            .map(|peer| shared(schema, cluster, peer).inet("rpc_address", peer.address.ip()))
            .collect(),
        "peers_v2" => peers().map(|peer| peer_v2(schema, cluster, peer)).collect(),
        _ => Vec::new(),
    }
}

/// Port between nodes, which nodes do not use. Reports the clients' port, because `peers_v2`
/// distinguishes nodes by it and those of one process may share an address.
fn port(address: SocketAddr) -> i32 {
    i32::from(address.port())
}

/// Columns that `local` and both kinds of `peers` have.
fn shared(schema: &Schema, cluster: &ClusterInfo, node: &NodeInfo) -> RowMaker {
    let mut tokens: Vec<String> = node.tokens.iter().map(i64::to_string).collect();
    tokens.sort_unstable(); // as texts, the form that clients see
    RowMaker::default()
        .inet("peer", node.address.ip())
        .text("data_center", &cluster.datacentre)
        .text("rack", &cluster.rack)
        .uuid("host_id", &node.host_id)
        .text("release_version", RELEASE_VERSION)
        .uuid("schema_version", &schema.version)
        .texts("tokens", tokens.iter().map(String::as_str))
}

fn peer_v2(schema: &Schema, cluster: &ClusterInfo, node: &NodeInfo) -> RowMaker {
    shared(schema, cluster, node)
        .int("peer_port", port(node.address))
        .inet("native_address", node.address.ip())
        .int("native_port", port(node.address))
}

fn local(schema: &Schema, cluster: &ClusterInfo, node: &NodeInfo) -> RowMaker {
    let mut row = shared(schema, cluster, node);
    row.0.remove("peer");
    row.text("key", "local")
        .text("bootstrapped", "COMPLETED")
        .inet("broadcast_address", node.address.ip())
        .int("broadcast_port", port(node.address))
        .text("cluster_name", &cluster.name)
        .text("cql_version", "3.4.7")
        .inet("listen_address", node.address.ip())
        .int("listen_port", port(node.address))
        .text("native_protocol_version", "5")
        .text("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner")
        .inet("rpc_address", node.address.ip())
        .int("rpc_port", port(node.address))
}
