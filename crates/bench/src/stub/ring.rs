//! The ring that stub nodes present: addresses, host ids and tokens.

use std::net::SocketAddr;

/// A node as its peers and clients see it.
#[derive(Clone, Debug)]
pub struct RingNode {
    /// CQL address.
    pub address: SocketAddr,
    /// Unique id, constant over the node's life.
    pub host_id: u128,
    /// Tokens of the node; each is the inclusive end of its range.
    pub tokens: Vec<i64>,
    /// Datacentre name.
    pub datacentre: String,
    /// Rack name.
    pub rack: String,
}

/// A static ring.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The nodes, ordered by their first token.
    pub nodes: Vec<RingNode>,
    /// Cluster name of every node.
    pub cluster_name: String,
    /// Cassandra version of every node.
    pub release_version: String,
    /// Schema version, the same on all nodes.
    pub schema_version: u128,
    /// Replication factor of keyspace `bench`.
    pub replication: u8,
}

impl Ring {
    /// Creates nodes at `addresses` in one datacentre, with `tokens_each` evenly spread tokens per
    /// node in turn.
    pub fn even(addresses: &[SocketAddr], tokens_each: usize) -> Self {
        let tokens_total = addresses.len() * tokens_each.max(1);
        let step = (1u128 << 64) / tokens_total.max(1) as u128;
        let node = |(index, address): (usize, &SocketAddr)| RingNode {
            address: *address,
            host_id: 0x5348_554e_5400_4000_8000_0000_0000_0000 + index as u128 + 1,
            tokens: (0..tokens_each.max(1))
                .map(|turn| {
                    let position = (turn * addresses.len() + index) as u128 * step;
                    (i128::from(i64::MIN) + position as i128 + 1) as i64
                })
                .collect(),
            datacentre: "datacenter1".into(),
            rack: "rack1".into(),
        };
        Self {
            nodes: addresses.iter().enumerate().map(node).collect(),
            cluster_name: "Shunt stub".into(),
            release_version: "5.0.9".into(),
            schema_version: 0x5348_554e_5400_4000_8000_5343_4845_4d41,
            replication: 1,
        }
    }
}

/// Maps tokens to nodes, under SimpleStrategy with the ring's replication factor.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Ends of ranges in order, each with a bit set of the nodes of its range.
    ranges: Vec<(i64, u64)>,
}

/// Most nodes in the bit sets of [`Placement`].
pub const NODES_MAX: usize = 64;

impl Placement {
    /// Computes the replicas of every range.
    pub fn of(ring: &Ring) -> Self {
        let mut ends: Vec<(i64, usize)> = Vec::new();
        for (index, node) in ring.nodes.iter().enumerate().take(NODES_MAX) {
            ends.extend(node.tokens.iter().map(|&end| (end, index)));
        }
        ends.sort_unstable();
        let replicas = |start: usize| {
            let mut nodes = 0u64;
            for &(_, node) in ends[start..].iter().chain(&ends[..start]) {
                if nodes.count_ones() < u32::from(ring.replication) {
                    nodes |= 1 << node;
                }
            }
            nodes
        };
        Self {
            ranges: ends
                .iter()
                .enumerate()
                .map(|(start, &(end, _))| (end, replicas(start)))
                .collect(),
        }
    }

    /// Returns the nodes that hold `token`, as a bit set.
    pub fn replicas(&self, token: i64) -> u64 {
        let range = self.ranges.partition_point(|&(end, _)| end < token);
        self.ranges.get(range).or(self.ranges.first()).map_or(0, |&(_, nodes)| nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement, Ring};

    fn ring(count: u16, tokens_each: usize) -> Ring {
        let addresses: Vec<_> =
            (0..count).map(|port| ([127, 0, 0, 1], 9000 + port).into()).collect();
        Ring::even(&addresses, tokens_each)
    }

    #[test]
    fn three_nodes_own_a_third_each() {
        let ring = ring(3, 1);
        let tokens: Vec<i64> = ring.nodes.iter().map(|node| node.tokens[0]).collect();
        assert_eq!(tokens[0], i64::MIN + 1);
        let widths: Vec<i128> =
            tokens.windows(2).map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect();
        assert!(widths.iter().all(|width| (width - (1i128 << 64) / 3).abs() <= 1));
    }

    #[test]
    fn a_token_belongs_to_the_next_end_and_wraps() {
        let ring = ring(3, 4);
        let first_end = ring.nodes[1].tokens[0];
        let placement = Placement::of(&ring);
        assert_eq!(placement.replicas(first_end), 0b010);
        assert_eq!(placement.replicas(first_end + 1), 0b100);
        assert_eq!(placement.replicas(i64::MAX), 0b001);
    }

    #[test]
    fn replication_takes_distinct_nodes() {
        let mut ring = ring(3, 4);
        ring.replication = 3;
        assert_eq!(Placement::of(&ring).replicas(12345), 0b111);
    }
}
