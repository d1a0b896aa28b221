//! The strategies as a walk from each range, without regard to its cost: tests compare
//! [`crate::sweep`] with it.

use crate::node::NodeId;
use crate::places::Places;
use crate::schema::{Factor, Replication};

/// A strategy that walks from every range anew.
pub(crate) struct Walk<'a> {
    map: &'a Places,
    rule: Rule,
    found: Vec<NodeId>,
    full: Vec<NodeId>,
}

enum Rule {
    Simple { all: usize, full: usize },
    NetworkTopology(NetworkTopology),
    Everywhere,
    Off,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(replication: &Replication, map: &'a Places) -> Walk<'a> {
        let rule = match replication {
            Replication::Simple(factor) => {
                let effective = Effective::new(*factor, map.owners());
                Rule::Simple { all: effective.all, full: effective.full }
            }
            Replication::NetworkTopology(factors) => {
                Rule::NetworkTopology(NetworkTopology::new(factors, map))
            }
            Replication::Everywhere => Rule::Everywhere,
            Replication::Local | Replication::Unknown => Rule::Off,
        };
        Walk { map, rule, found: Vec::new(), full: Vec::new() }
    }

    /// Replicas of a range, whose owners `owners` yields from its own onwards; `None` without token
    /// routing.
    pub(crate) fn replicas(&mut self, owners: impl Iterator<Item = NodeId>) -> Option<&[NodeId]> {
        self.found.clear();
        self.full.clear();
        match &mut self.rule {
            Rule::Simple { all, full } => {
                take_distinct(owners, *all, &mut self.found);
                self.full.extend_from_slice(&self.found[..(*full).min(self.found.len())]);
            }
            Rule::Everywhere => {
                take_distinct(owners, self.map.owners(), &mut self.found);
                // One order for all ranges: all are equal, and one stored set is enough.
                self.found.sort_unstable();
                self.full.extend_from_slice(&self.found);
            }
            Rule::NetworkTopology(rule) => {
                rule.place(owners, self.map, &mut self.found, &mut self.full)
            }
            Rule::Off => return None,
        }
        Some(&self.full)
    }
}

fn take_distinct(owners: impl Iterator<Item = NodeId>, count: usize, found: &mut Vec<NodeId>) {
    for node in owners {
        if found.len() == count {
            return;
        }
        if !found.contains(&node) {
            found.push(node);
        }
    }
}

/// A replication factor reduced to the existing nodes; missing nodes reduce the transient ones
/// first.
struct Effective {
    all: usize,
    full: usize,
}

impl Effective {
    fn new(factor: Factor, nodes: usize) -> Effective {
        let wanted = usize::from(factor.all);
        let all = wanted.min(nodes);
        let transient = usize::from(factor.transient).saturating_sub(wanted - all);
        Effective { all, full: all - transient }
    }
}

/// `NetworkTopologyStrategy.calculateNaturalReplicas` of Cassandra 4 and 5: walks the ring once. In
/// each datacentre it takes the first node of every rack, and further ones from racks already seen
/// to the extent that there are fewer racks than replicas.
struct NetworkTopology {
    /// State per datacentre of the map, at the start of a walk.
    wanted: Vec<Wanted>,
    left: Vec<Wanted>,
    racks_seen: Vec<bool>,
}

#[derive(Copy, Clone, Default)]
struct Wanted {
    replicas: usize,
    transient: usize,
    rack_repeats: usize,
}

impl NetworkTopology {
    fn new(factors: &[(String, Factor)], map: &Places) -> NetworkTopology {
        let wanted = map.datacentres().iter().map(|datacentre| {
            let Some((_, factor)) = factors.iter().find(|(name, _)| *name == datacentre.name)
            else {
                return Wanted::default();
            };
            let effective = Effective::new(*factor, datacentre.nodes);
            Wanted {
                replicas: effective.all,
                transient: effective.all - effective.full,
                rack_repeats: usize::from(factor.all).saturating_sub(datacentre.racks),
            }
        });
        NetworkTopology {
            wanted: wanted.collect(),
            left: Vec::new(),
            racks_seen: vec![false; map.racks()],
        }
    }

    fn place(
        &mut self,
        owners: impl Iterator<Item = NodeId>,
        map: &Places,
        found: &mut Vec<NodeId>,
        full: &mut Vec<NodeId>,
    ) {
        self.left.clone_from(&self.wanted);
        self.racks_seen.fill(false);
        let mut unfilled = self.left.iter().filter(|wanted| wanted.replicas > 0).count();
        for node in owners {
            if unfilled == 0 {
                break;
            }
            let Some(place) = map.place(node) else {
                continue;
            };
            let left = &mut self.left[place.datacentre];
            if left.replicas == 0 || found.contains(&node) {
                continue;
            }
            if self.racks_seen[place.rack] {
                if left.rack_repeats == 0 {
                    continue;
                }
                left.rack_repeats -= 1;
            }
            self.racks_seen[place.rack] = true;
            found.push(node);
            if left.replicas > left.transient {
                full.push(node);
            }
            left.replicas -= 1;
            unfilled -= usize::from(left.replicas == 0);
        }
    }
}
