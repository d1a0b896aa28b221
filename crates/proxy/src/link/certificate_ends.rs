//! Connections in a row that showed the certificate of an identity, and that nodes have ended.
//!
//! One node may end each of them for a reason of its own, for example because a tunnel in front of
//! it leads nowhere. So its ends alone must never be a verdict while other nodes have a say.

use std::collections::BTreeSet;

use shunt_topology::NodeId;

/// Number of ends in a row that are a verdict. A pool without a link asks a node at each tick, so
/// its clients get the verdict within a second.
const ENDS_MIN: u32 = 3;
/// Number of nodes that stand for all others if no node has an open link of the pool.
const NODES_MIN: usize = 3;

/// The ends of connections of one pool since the last link that opened.
#[derive(Default)]
pub(crate) struct CertificateEnds {
    count: u32,
    nodes: BTreeSet<NodeId>,
}

impl CertificateEnds {
    /// Notes that a node has ended a connection.
    pub(crate) fn add(&mut self, node: NodeId) {
        self.count = self.count.saturating_add(1);
        self.nodes.insert(node);
    }

    /// True if the node has ended a connection.
    pub(crate) fn are_of(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// True if there are more ends than a node that stops would cause.
    pub(crate) fn are_many(&self) -> bool {
        self.count >= ENDS_MIN
    }

    /// True if each of these nodes has ended a connection. Without an open link, a few nodes are
    /// enough: the pool asks only one node at a time then.
    pub(crate) fn are_of_all(
        &self,
        has_open_links: bool,
        mut nodes: impl Iterator<Item = NodeId>,
    ) -> bool {
        !has_open_links && self.nodes.len() >= NODES_MIN || nodes.all(|node| self.are_of(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(nodes: &[u16]) -> CertificateEnds {
        let mut ends = CertificateEnds::default();
        nodes.iter().for_each(|node| ends.add(NodeId(*node)));
        ends
    }

    fn are_of_all(ends: &CertificateEnds, has_open_links: bool, nodes: u16) -> bool {
        ends.are_of_all(has_open_links, (0..nodes).map(NodeId))
    }

    #[test]
    fn one_node_never_speaks_for_the_others() {
        let of_one = ends(&[2; 100]);
        for has_open_links in [false, true] {
            assert!(of_one.are_many() && !are_of_all(&of_one, has_open_links, 3));
        }
        assert!(are_of_all(&ends(&[0]), false, 1), "it is the only one");
    }

    #[test]
    fn a_node_with_an_open_link_contradicts_the_others() {
        let of_three = ends(&[0, 1, 2]);
        assert!(of_three.are_many());
        assert!(are_of_all(&of_three, false, 100), "nobody supports the certificate");
        assert!(!are_of_all(&of_three, true, 4), "node 3 may have the link");
        assert!(are_of_all(&of_three, true, 3), "the link is of an earlier time");
    }

    #[test]
    fn two_ends_may_be_those_of_a_node_that_stops() {
        assert!(!ends(&[0, 1]).are_many() && ends(&[0, 1, 0]).are_many());
    }
}
