//! Replicas of ranges: Cassandra's replication strategies, evaluated once per snapshot.
//!
//! For each distinct replication setting a [`Placement`] holds, for every range of the ring, an
//! index into a list of distinct replica sets. A look-up is then one binary search and two loads.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::budget::Budget;
use crate::node::NodeId;
use crate::places::Places;
use crate::ring::Ring;
use crate::schema::Replication;
use crate::sweep::Sweep;
use crate::token::Token;

/// The replicas of one token, those of the local datacentre first, otherwise in ring order.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Replicas<'a> {
    /// Replicas in order of preference. Empty if the keyspace's placement is unknown or absent; the
    /// query may then go to any node.
    pub nodes: &'a [NodeId],
    /// Number of leading nodes in the local datacentre.
    pub local: usize,
}

impl Replicas<'_> {
    /// No known replica.
    pub const NONE: Replicas<'static> = Replicas { nodes: &[], local: 0 };
}

/// Replicas of every range under one replication setting.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Range of the ring -> index into `sets`; empty if there is no token routing.
    ranges: Vec<u32>,
    sets: Vec<Set>,
    nodes: Vec<NodeId>,
}

#[derive(Copy, Clone, Debug)]
struct Set {
    start: u32,
    length: u16,
    local: u16,
}

impl Placement {
    /// Evaluates a replication setting; `None` if that would exceed the budget.
    pub(crate) fn new(
        replication: &Replication,
        ring: &Ring,
        places: &Places,
        budget: &mut Budget,
    ) -> Option<Placement> {
        let bytes = budget.bytes;
        let placement = Placement::within(replication, ring, places, budget);
        if placement.is_none() {
            budget.bytes = bytes;
        }
        placement
    }

    fn within(
        replication: &Replication,
        ring: &Ring,
        places: &Places,
        budget: &mut Budget,
    ) -> Option<Placement> {
        budget.walk(1)?;
        let mut placement = Placement::default();
        match replication {
            Replication::Simple(factor) => {
                let sweep = Sweep::simple(*factor, places);
                placement.place_ranges(sweep, ring, places, budget)?;
            }
            Replication::NetworkTopology(factors) => {
                let sweep = Sweep::network_topology(factors, places);
                placement.place_ranges(sweep, ring, places, budget)?;
            }
            Replication::Everywhere if ring.len() > 0 => {
                budget.walk(ring.len())?;
                budget.keep(ring.len() * size_of::<u32>())?;
                let mut all = ring.owners().to_vec();
                // One order for all ranges: all are equal, and one stored set is enough.
                all.sort_unstable_by_key(|&node| (!places.is_local(node), node));
                all.dedup();
                let index = placement.add(&all, places, budget)?;
                placement.ranges = vec![index; ring.len()];
            }
            Replication::Everywhere | Replication::Local | Replication::Unknown => {}
        }
        Some(placement)
    }

    /// Evaluates each range, from the last to the first.
    fn place_ranges(
        &mut self,
        mut sweep: Sweep<'_>,
        ring: &Ring,
        places: &Places,
        budget: &mut Budget,
    ) -> Option<()> {
        budget.keep(ring.len() * size_of::<u32>())?;
        // A walk from one of the last ranges goes on at the first one.
        for &owner in ring.owners().iter().rev() {
            sweep.meet(owner);
        }
        self.ranges = vec![0; ring.len()];
        // Indexes of sets by their hash. If two have the same one, the first is shared.
        let (mut known, hasher) = (HashMap::new(), RandomState::new());
        let mut present = None;
        for (range, &owner) in ring.owners().iter().enumerate().rev() {
            let is_same = !sweep.meet(owner);
            let index = match present {
                Some(index) if is_same => index,
                _ => {
                    sweep.choose();
                    budget.walk(std::mem::take(&mut sweep.steps))?;
                    let found = &mut sweep.found;
                    // Local ones first, otherwise in the order of the walk.
                    found.sort_by_key(|&node| !places.is_local(node));
                    let hash = hasher.hash_one(&**found);
                    match known.get(&hash) {
                        Some(&index) if self.set(index).nodes == &**found => index,
                        _ => {
                            let index = self.add(found, places, budget)?;
                            known.entry(hash).or_insert(index);
                            index
                        }
                    }
                }
            };
            self.ranges[range] = index;
            present = Some(index);
        }
        budget.walk(sweep.steps)?;
        self.sets.shrink_to_fit();
        self.nodes.shrink_to_fit();
        Some(())
    }

    /// Stores a replica set in the given order, in which local nodes come first.
    fn add(&mut self, found: &[NodeId], places: &Places, budget: &mut Budget) -> Option<u32> {
        budget.keep(size_of::<Set>() + size_of_val(found))?;
        self.sets.push(Set {
            start: self.nodes.len() as u32,
            length: found.len() as u16,
            local: found.partition_point(|&node| places.is_local(node)) as u16,
        });
        self.nodes.extend_from_slice(found);
        Some(self.sets.len() as u32 - 1)
    }

    #[inline]
    fn set(&self, index: u32) -> Replicas<'_> {
        let set = self.sets[index as usize];
        let start = set.start as usize;
        Replicas {
            nodes: &self.nodes[start..start + usize::from(set.length)],
            local: usize::from(set.local),
        }
    }

    #[inline]
    pub(crate) fn replicas(&self, ring: &Ring, token: Token) -> Replicas<'_> {
        match self.ranges.get(ring.range_of(token)) {
            Some(&index) => self.set(index),
            None => Replicas::NONE,
        }
    }
}

#[cfg(test)]
mod tests;
