//! The nodes of one process: names, addresses, and their parts of the token ring.

use std::net::SocketAddr;

use shunt_topology::Token;

use crate::schema::Uuid;

/// One node as shown by the system tables.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Address for CQL connections.
    pub address: SocketAddr,
    /// Host id, stable across restarts on the same data.
    pub host_id: Uuid,
    /// Ends of the node's token ranges, ascending.
    pub tokens: Vec<i64>,
}

/// The nodes of the process. Each token range has one owner; nothing is replicated.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    /// Name of the cluster.
    pub name: String,
    /// Datacentre of all nodes.
    pub datacentre: String,
    /// Rack of all nodes.
    pub rack: String,
    /// The nodes.
    pub nodes: Vec<NodeInfo>,
    /// End of each token range, ascending, and its owner.
    owners: Vec<(i64, usize)>,
}

/// Number of ranges per node.
const RANGES_PER_NODE: usize = 16;

impl ClusterInfo {
    /// Nodes at these addresses, with the ring in even parts assigned in turn. The parts depend
    /// only on the number of nodes, so that a restart finds every row in place. The host ids are
    /// those of nodes whose store has no id.
    pub fn new(name: &str, addresses: &[SocketAddr]) -> ClusterInfo {
        let count = addresses.len().max(1);
        let ranges = count * RANGES_PER_NODE;
        let step = (1_u128 << 64) / ranges as u128;
        let end =
            |range: usize| (i128::from(i64::MIN) + (step * (range as u128 + 1)) as i128 - 1) as i64;
        let owners: Vec<(i64, usize)> =
            (0..ranges).map(|range| (end(range), range % count)).collect();
        let node = |(index, address): (usize, &SocketAddr)| NodeInfo {
            address: *address,
            host_id: host_id(name, index),
            tokens: owners
                .iter()
                .filter(|(_, owner)| *owner == index)
                .map(|(end, _)| *end)
                .collect(),
        };
        ClusterInfo {
            name: name.to_owned(),
            datacentre: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            nodes: addresses.iter().enumerate().map(node).collect(),
            owners,
        }
    }

    /// Gives the nodes host ids derived from the id of the store with their data.
    ///
    /// Nodes of two stores must never have the same host id. A proxy distinguishes rings by host id
    /// and cluster name, all clusters have the same name, and one store lacks the writes
    /// acknowledged by another.
    pub(crate) fn set_store(&mut self, store: &Uuid) {
        let store: String = store.iter().map(|byte| format!("{byte:02x}")).collect();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.host_id = host_id(&store, index);
        }
    }

    /// Index of the node that owns a token.
    #[inline]
    pub fn owner(&self, token: Token) -> usize {
        let range = self.owners.partition_point(|(end, _)| *end < token.0);
        self.owners.get(range).or(self.owners.first()).map_or(0, |(_, owner)| *owner)
    }
}

/// A host id derived from the store's id or the cluster's name, and the node's number; formatted as
/// version 4.
fn host_id(of: &str, index: usize) -> Uuid {
    let low = shunt_topology::token::token(format!("{of}/{index}/low").as_bytes()).0;
    let high = shunt_topology::token::token(format!("{of}/{index}/high").as_bytes()).0;
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(nodes: u16) -> ClusterInfo {
        let addresses: Vec<SocketAddr> =
            (0..nodes).map(|index| SocketAddr::from(([127, 0, 0, 1], 9000 + index))).collect();
        ClusterInfo::new("test", &addresses)
    }

    #[test]
    fn every_token_has_the_owner_that_shows_its_range() {
        for nodes in 1..=5 {
            let cluster = cluster(nodes);
            for token in [i64::MIN, i64::MIN + 1, -1, 0, 1, 1 << 60, i64::MAX - 1, i64::MAX] {
                let owner = cluster.owner(Token(token));
                let mut all: Vec<(i64, usize)> = Vec::new();
                for (index, node) in cluster.nodes.iter().enumerate() {
                    all.extend(node.tokens.iter().map(|end| (*end, index)));
                }
                all.sort_unstable();
                let expected = all.iter().find(|(end, _)| *end >= token).unwrap_or(&all[0]).1;
                assert_eq!(owner, expected, "{nodes} nodes, token {token}");
            }
        }
    }

    #[test]
    fn nodes_own_about_the_same() {
        let cluster = cluster(3);
        let mut counts = [0; 3];
        for step in 0..30_000_u64 {
            counts[cluster.owner(Token(step.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64))] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn ids_stay_and_differ() {
        let (one, again) = (cluster(3), cluster(3));
        assert_eq!(one.nodes[1].host_id, again.nodes[1].host_id);
        assert_ne!(one.nodes[1].host_id, one.nodes[2].host_id);
    }
}
