//! The nodes that an operator has taken out of routing.
//!
//! The set belongs to the process: it outlives control connections and reloads, and ends with the
//! process. A node is known by its host id, so that its place in the ring passes to nobody else.

use std::collections::HashSet;

use shunt_topology::{NodeId, RoutingTable};

use crate::limits;

/// Host ids of drained nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct DrainedNodes(HashSet<u128>);

impl DrainedNodes {
    /// Adds a node, or removes it. A full set forgets the nodes that have left the ring.
    pub(super) fn set(
        &mut self,
        host_id: u128,
        is_drained: bool,
        is_member: impl Fn(u128) -> bool,
    ) {
        if !is_drained {
            self.0.remove(&host_id);
            return;
        }
        if self.0.len() >= limits::DRAINED_NODES_MAX {
            self.0.retain(|host_id| is_member(*host_id));
        }
        if self.0.len() < limits::DRAINED_NODES_MAX {
            self.0.insert(host_id);
        }
    }

    pub(super) fn contains(&self, host_id: u128) -> bool {
        self.0.contains(&host_id)
    }

    /// Returns the numbers of the drained nodes that are in the ring, in order.
    pub(super) fn numbers(&self, routing: &RoutingTable) -> Vec<NodeId> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let drained = routing.nodes().iter().filter(|node| self.contains(node.host_id));
        let mut numbers: Vec<NodeId> = drained.map(|node| node.id).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_keeps_the_members_of_the_ring() {
        let max = limits::DRAINED_NODES_MAX as u128;
        let mut drained = DrainedNodes::default();
        (0..max).for_each(|host_id| drained.set(host_id, true, |_| true));
        drained.set(max, true, |_| true);
        assert!(!drained.contains(max) && drained.0.len() == limits::DRAINED_NODES_MAX);
        drained.set(max, true, |host_id| host_id % 2 == 0);
        assert!(drained.contains(max) && drained.contains(0) && !drained.contains(1));
        drained.set(max, false, |_| true);
        assert!(!drained.contains(max));
    }
}
