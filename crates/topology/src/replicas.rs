//! Replicas of ranges: Cassandra's replication strategies, evaluated once per snapshot.
//!
//! For each distinct replication setting a [`Placement`] holds, for every range of the ring, an
//! index into a list of distinct replica sets. A look-up is then one binary search and two loads.

use std::collections::HashMap;

use crate::node::{Node, NodeId};
use crate::ring::Ring;
use crate::schema::{Factor, Replication};
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
    pub(crate) fn new(replication: &Replication, ring: &Ring, map: &Map) -> Placement {
        let mut placement = Placement::default();
        let mut strategy = Strategy::new(replication, map);
        let mut known = HashMap::new();
        for range in 0..ring.len() {
            let Some(found) = strategy.replicas(ring.walk(range)) else {
                break;
            };
            let index =
                *known.entry(found.to_vec()).or_insert_with_key(|found| placement.add(found, map));
            placement.ranges.push(index);
        }
        placement
    }

    /// Stores a replica set, local ones first, otherwise in the given order.
    fn add(&mut self, found: &[NodeId], map: &Map) -> u32 {
        let start = self.nodes.len();
        self.nodes.extend(found.iter().filter(|&&node| map.is_local(node)));
        let local = self.nodes.len() - start;
        self.nodes.extend(found.iter().filter(|&&node| !map.is_local(node)));
        self.sets.push(Set {
            start: start as u32,
            length: found.len() as u16,
            local: local as u16,
        });
        self.sets.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn replicas(&self, ring: &Ring, token: Token) -> Replicas<'_> {
        let Some(&index) = self.ranges.get(ring.range_of(token)) else {
            return Replicas::NONE;
        };
        let set = self.sets[index as usize];
        let start = set.start as usize;
        Replicas {
            nodes: &self.nodes[start..start + usize::from(set.length)],
            local: usize::from(set.local),
        }
    }
}

/// Datacentre and rack of each token-owning node, as small numbers.
#[derive(Debug)]
pub(crate) struct Map {
    places: HashMap<NodeId, Place>,
    datacentres: Vec<Datacentre>,
    racks: usize,
    local: Local,
}

/// Preferred nodes.
#[derive(Copy, Clone, Debug)]
enum Local {
    All,
    /// A datacentre without token-owning nodes.
    None,
    Datacentre(usize),
}

#[derive(Copy, Clone, Debug)]
struct Place {
    datacentre: usize,
    rack: usize,
}

#[derive(Debug)]
struct Datacentre {
    name: String,
    nodes: usize,
    racks: Vec<(String, usize)>,
}

impl Map {
    /// Omits nodes without tokens, like Cassandra: a joining node must not change the replicas of
    /// the others.
    pub(crate) fn new(nodes: &[Node], local_datacentre: Option<&str>) -> Map {
        let mut map =
            Map { places: HashMap::new(), datacentres: Vec::new(), racks: 0, local: Local::All };
        for node in nodes.iter().filter(|node| !node.tokens.is_empty()) {
            let place = map.place(&node.datacentre, &node.rack);
            map.places.insert(node.id, place);
        }
        if let Some(local) = local_datacentre {
            let found = map.datacentres.iter().position(|datacentre| datacentre.name == local);
            map.local = found.map_or(Local::None, Local::Datacentre);
        }
        map
    }

    fn place(&mut self, name: &str, rack: &str) -> Place {
        let datacentre =
            self.datacentres.iter().position(|known| known.name == name).unwrap_or_else(|| {
                self.datacentres.push(Datacentre {
                    name: name.to_owned(),
                    nodes: 0,
                    racks: Vec::new(),
                });
                self.datacentres.len() - 1
            });
        let known = &mut self.datacentres[datacentre];
        known.nodes += 1;
        if let Some((_, rack)) = known.racks.iter().find(|(name, _)| name == rack) {
            return Place { datacentre, rack: *rack };
        }
        known.racks.push((rack.to_owned(), self.racks));
        self.racks += 1;
        Place { datacentre, rack: self.racks - 1 }
    }

    fn is_local(&self, node: NodeId) -> bool {
        match self.local {
            Local::All => true,
            Local::None => false,
            Local::Datacentre(local) => {
                self.places.get(&node).is_some_and(|place| place.datacentre == local)
            }
        }
    }
}

/// A strategy in progress; reuses its scratch memory for every range.
struct Strategy<'a> {
    map: &'a Map,
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

impl<'a> Strategy<'a> {
    fn new(replication: &Replication, map: &'a Map) -> Strategy<'a> {
        let rule = match replication {
            Replication::Simple(factor) => {
                let effective = Effective::new(*factor, map.places.len());
                Rule::Simple { all: effective.all, full: effective.full }
            }
            Replication::NetworkTopology(factors) => {
                Rule::NetworkTopology(NetworkTopology::new(factors, map))
            }
            Replication::Everywhere => Rule::Everywhere,
            Replication::Local | Replication::Unknown => Rule::Off,
        };
        Strategy { map, rule, found: Vec::new(), full: Vec::new() }
    }

    /// Replicas of a range, whose owners `owners` yields from its own onwards; `None` without token
    /// routing.
    fn replicas(&mut self, owners: impl Iterator<Item = NodeId>) -> Option<&[NodeId]> {
        self.found.clear();
        self.full.clear();
        match &mut self.rule {
            Rule::Simple { all, full } => {
                take_distinct(owners, *all, &mut self.found);
                self.full.extend_from_slice(&self.found[..(*full).min(self.found.len())]);
            }
            Rule::Everywhere => {
                take_distinct(owners, self.map.places.len(), &mut self.found);
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
    fn new(factors: &[(String, Factor)], map: &Map) -> NetworkTopology {
        let wanted = map.datacentres.iter().map(|datacentre| {
            let Some((_, factor)) = factors.iter().find(|(name, _)| *name == datacentre.name)
            else {
                return Wanted::default();
            };
            let effective = Effective::new(*factor, datacentre.nodes);
            Wanted {
                replicas: effective.all,
                transient: effective.all - effective.full,
                rack_repeats: usize::from(factor.all).saturating_sub(datacentre.racks.len()),
            }
        });
        NetworkTopology {
            wanted: wanted.collect(),
            left: Vec::new(),
            racks_seen: vec![false; map.racks],
        }
    }

    fn place(
        &mut self,
        owners: impl Iterator<Item = NodeId>,
        map: &Map,
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
            let Some(place) = map.places.get(&node) else {
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
