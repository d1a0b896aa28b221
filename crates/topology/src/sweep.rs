//! Cassandra's replication strategies for all ranges of a ring in one sweep.
//!
//! A range's replicas are the first nodes of a walk around the ring that the strategy takes. A walk
//! for each range would take as many steps as the ring has tokens whenever one node owns most of
//! them. The sweep goes around the ring backwards instead, and keeps the nodes and the racks of
//! each datacentre in the order in which a walk from the present range meets them: the owner of the
//! next range moves to the front. Each range then costs one step for each of its replicas.

use std::cmp::Reverse;

use crate::node::NodeId;
use crate::places::Places;
use crate::schema::Factor;

/// A sweep in progress.
pub(crate) struct Sweep<'a> {
    places: &'a Places,
    /// Nodes among which a factor chooses: those of a datacentre, by its number, or all.
    groups: Vec<Group>,
    /// True if the strategy tells datacentres and racks apart.
    is_by_rack: bool,
    /// Groups with replicas.
    wanted: Vec<usize>,
    nodes: Order,
    racks: Order,
    /// The node that a walk meets first in each rack.
    fronts: Vec<NodeId>,
    /// The sweep's time when it met a node last: walks meet the latest first.
    met: Vec<usize>,
    now: usize,
    last: Option<NodeId>,
    /// Replicas chosen last.
    pub(crate) found: Vec<NodeId>,
    /// Steps taken; the caller resets them.
    pub(crate) steps: usize,
}

/// The number of replicas to choose in a group.
#[derive(Copy, Clone, Default)]
struct Group {
    /// Replicas that keep their data. Transient ones come after them in a walk.
    full: usize,
    /// Replicas in racks that have one already.
    repeats: usize,
}

impl<'a> Sweep<'a> {
    pub(crate) fn simple(factor: Factor, places: &'a Places) -> Sweep<'a> {
        let full = full_replicas(factor, places.owners());
        Sweep::new(vec![Group { full, repeats: 0 }], false, places)
    }

    /// `NetworkTopologyStrategy.calculateNaturalReplicas` of Cassandra 4 and 5: takes in each
    /// datacentre the first node of every rack, and further ones from racks already seen to the
    /// extent that there are fewer racks than replicas. `factors` are in order of their
    /// datacentres' names.
    pub(crate) fn network_topology(factors: &[(String, Factor)], places: &'a Places) -> Sweep<'a> {
        let groups = places.datacentres().iter().map(|datacentre| {
            let first = factors.partition_point(|(name, _)| *name < datacentre.name);
            let Some((_, factor)) = factors.get(first).filter(|(name, _)| *name == datacentre.name)
            else {
                return Group::default();
            };
            Group {
                full: full_replicas(*factor, datacentre.nodes),
                repeats: usize::from(factor.all).saturating_sub(datacentre.racks),
            }
        });
        Sweep::new(groups.collect(), true, places)
    }

    fn new(groups: Vec<Group>, is_by_rack: bool, places: &'a Places) -> Sweep<'a> {
        Sweep {
            places,
            is_by_rack,
            wanted: (0..groups.len()).filter(|&group| groups[group].full > 0).collect(),
            nodes: Order::new(places.ids(), groups.len()),
            racks: Order::new(places.racks(), groups.len()),
            groups,
            fronts: vec![NodeId(0); places.racks()],
            met: vec![0; places.ids()],
            now: 0,
            last: None,
            found: Vec::new(),
            steps: places.ids() + places.racks() + places.datacentres().len(),
        }
    }

    /// Goes back by one range, to one of this owner. Returns whether its replicas differ from those
    /// of the range where the sweep was before.
    pub(crate) fn meet(&mut self, owner: NodeId) -> bool {
        self.steps += 1;
        let Some(place) = self.places.place(owner) else { return false };
        let group = if self.is_by_rack { place.datacentre } else { 0 };
        if self.groups[group].full == 0 || self.last == Some(owner) {
            return false;
        }
        self.last = Some(owner);
        self.now += 1;
        self.met[usize::from(owner.0)] = self.now;
        self.nodes.move_to_front(group, usize::from(owner.0));
        if self.is_by_rack {
            self.racks.move_to_front(group, place.rack);
            self.fronts[place.rack] = owner;
        }
        true
    }

    /// Finds the full replicas of the present range, in the order in which a walk meets them.
    pub(crate) fn choose(&mut self) {
        self.found.clear();
        for index in 0..self.wanted.len() {
            let group = self.wanted[index];
            self.choose_in(group, self.groups[group]);
        }
        self.steps += self.wanted.len() + self.found.len();
        if self.wanted.len() > 1 {
            self.found.sort_unstable_by_key(|node| Reverse(self.met[usize::from(node.0)]));
        }
    }

    fn choose_in(&mut self, group: usize, Group { full, mut repeats }: Group) {
        let mut nodes = self.nodes.members(group).map(|node| NodeId(node as u16));
        if !self.is_by_rack {
            self.found.extend(nodes.take(full));
            return;
        }
        let end = self.found.len() + full;
        // Racks without a replica: a walk meets racks in the order of their first nodes.
        let mut racks = self.racks.members(group);
        while repeats > 0 && self.found.len() < end {
            let Some(node) = nodes.next() else { break };
            if self.places.place(node).is_some_and(|place| self.fronts[place.rack] == node) {
                racks.next();
            } else {
                repeats -= 1;
            }
            self.found.push(node);
        }
        let left = end - self.found.len();
        self.found.extend(racks.take(left).map(|rack| self.fronts[rack]));
    }
}

/// A replication factor reduced to the existing nodes, without transient replicas; missing nodes
/// reduce the transient ones first.
fn full_replicas(factor: Factor, nodes: usize) -> usize {
    let wanted = usize::from(factor.all);
    let all = wanted.min(nodes);
    all - usize::from(factor.transient).saturating_sub(wanted - all)
}

/// Lists of numbers, one for each group, in which a number moves to the front in one step.
struct Order {
    /// The neighbours of a number in its list.
    neighbours: Vec<Neighbours>,
    /// First number of each list.
    firsts: Vec<u32>,
}

#[derive(Copy, Clone)]
struct Neighbours {
    before: u32,
    after: u32,
}

/// The end of a list.
const END: u32 = u32::MAX;

impl Order {
    fn new(numbers: usize, groups: usize) -> Order {
        let alone = Neighbours { before: END, after: END };
        Order { neighbours: vec![alone; numbers], firsts: vec![END; groups] }
    }

    /// Moves a number to the front of its group's list, where it may be already, or not yet.
    fn move_to_front(&mut self, group: usize, number: usize) {
        let first = self.firsts[group];
        if first as usize == number {
            return;
        }
        let Neighbours { before, after } = self.neighbours[number];
        if let Some(before) = self.neighbours.get_mut(before as usize) {
            before.after = after;
        }
        if let Some(after) = self.neighbours.get_mut(after as usize) {
            after.before = before;
        }
        if let Some(first) = self.neighbours.get_mut(first as usize) {
            first.before = number as u32;
        }
        self.neighbours[number] = Neighbours { before: END, after: first };
        self.firsts[group] = number as u32;
    }

    /// The numbers of a group from the front on.
    fn members(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        let present = |number: u32| (number != END).then_some(number);
        std::iter::successors(present(self.firsts[group]), move |&number| {
            present(self.neighbours[number as usize].after)
        })
        .map(|number| number as usize)
    }
}
