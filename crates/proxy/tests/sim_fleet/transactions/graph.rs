//! A graph of transactions, and the simplest cycle in it, if it has one.

use std::collections::VecDeque;

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    WriteWrite,
    WriteRead,
    ReadWrite,
    RealTime,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::WriteWrite => "-ww->",
            Kind::WriteRead => "-wr->",
            Kind::ReadWrite => "-rw->",
            Kind::RealTime => "-rt->",
        }
    }
}

/// One edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
}

/// The graph.
pub struct Graph {
    out: Vec<Vec<(usize, Kind)>>,
    edges: usize,
}

/// Edge kinds for the search of a cycle, the simplest first, and whether one more `rw` is required.
const LOOKS: [(&[Kind], bool); 8] = {
    use Kind::{ReadWrite, RealTime, WriteRead, WriteWrite};
    [
        (&[WriteWrite], false),
        (&[WriteWrite, WriteRead], false),
        (&[WriteWrite, WriteRead], true),
        (&[WriteWrite, WriteRead, ReadWrite], false),
        (&[WriteWrite, RealTime], false),
        (&[WriteWrite, WriteRead, RealTime], false),
        (&[WriteWrite, WriteRead, RealTime], true),
        (&[WriteWrite, WriteRead, ReadWrite, RealTime], false),
    ]
};

impl Graph {
    /// A graph of this many nodes without edges.
    pub fn new(nodes: usize) -> Graph {
        Graph { out: vec![Vec::new(); nodes], edges: 0 }
    }

    /// Adds a node.
    pub fn link(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }

    /// Adds an edge; one from a node to itself means nothing.
    pub fn add(&mut self, from: usize, to: usize, kind: Kind) {
        if from != to {
            self.out[from].push((to, kind));
            self.edges += 1;
        }
    }

    pub fn edges(&self) -> usize {
        self.edges
    }

    /// The simplest cycle.
    pub fn cycle(&self) -> Option<Vec<Edge>> {
        // Linear time finds whether one exists; the search for the simplest follows only then.
        let all = self.components(&|_| true);
        if all.count == self.out.len() {
            return None;
        }
        LOOKS.iter().find_map(|(kinds, one_more)| self.cycle_of(kinds, *one_more, &all))
    }

    /// A cycle of these kinds, and of one more `rw` if required.
    fn cycle_of(&self, kinds: &[Kind], one_more: bool, all: &Components) -> Option<Vec<Edge>> {
        let is_of = |kind: Kind| kinds.contains(&kind);
        if !one_more {
            let found = self.components(&is_of);
            let (from, to, kind) = self
                .all_edges()
                .find(|(from, to, kind)| is_of(*kind) && found.are_one(*from, *to))?;
            let mut cycle = self.path(to, from, &is_of)?;
            cycle.insert(0, Edge { from, to, kind });
            return Some(cycle);
        }
        let inner = self
            .all_edges()
            .filter(|(from, to, kind)| *kind == Kind::ReadWrite && all.are_one(*from, *to));
        for (from, to, kind) in inner.take(10_000) {
            if let Some(mut cycle) = self.path(to, from, &is_of) {
                cycle.insert(0, Edge { from, to, kind });
                return Some(cycle);
            }
        }
        None
    }

    fn all_edges(&self) -> impl Iterator<Item = (usize, usize, Kind)> {
        self.out
            .iter()
            .enumerate()
            .flat_map(|(from, out)| out.iter().map(move |(to, kind)| (from, *to, *kind)))
    }

    /// The shortest path over such edges.
    fn path(&self, from: usize, to: usize, is_of: &dyn Fn(Kind) -> bool) -> Option<Vec<Edge>> {
        let mut reached_by: Vec<Option<Edge>> = vec![None; self.out.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut path = Vec::new();
                let mut at = to;
                while at != from {
                    let edge = reached_by[at]?;
                    path.push(edge);
                    at = edge.from;
                }
                path.reverse();
                return Some(path);
            }
            for (next, kind) in self.out[node].iter().filter(|(_, kind)| is_of(*kind)) {
                if *next != from && reached_by[*next].is_none() {
                    reached_by[*next] = Some(Edge { from: node, to: *next, kind: *kind });
                    queue.push_back(*next);
                }
            }
        }
        None
    }

    /// Tarjan's algorithm, without recursion.
    fn components(&self, is_of: &dyn Fn(Kind) -> bool) -> Components {
        const UNSEEN: usize = usize::MAX;
        let count = self.out.len();
        let (mut index, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let (mut component, mut components) = (vec![UNSEEN; count], 0);
        let (mut stack, mut next_index) = (Vec::new(), 0);
        for root in 0..count {
            if index[root] != UNSEEN {
                continue;
            }
            let mut work = vec![(root, 0)];
            while let Some((node, edge)) = work.pop() {
                if edge == 0 {
                    (index[node], low[node]) = (next_index, next_index);
                    next_index += 1;
                    stack.push(node);
                }
                match self.out[node].get(edge) {
                    Some((next, kind)) => {
                        work.push((node, edge + 1));
                        if !is_of(*kind) {
                            continue;
                        }
                        if index[*next] == UNSEEN {
                            work.push((*next, 0));
                        } else if component[*next] == UNSEEN {
                            low[node] = low[node].min(index[*next]);
                        }
                    }
                    None => {
                        if low[node] == index[node] {
                            while let Some(member) = stack.pop() {
                                component[member] = components;
                                if member == node {
                                    break;
                                }
                            }
                            components += 1;
                        }
                        if let Some((parent, _)) = work.last() {
                            low[*parent] = low[*parent].min(low[node]);
                        }
                    }
                }
            }
        }
        Components { of: component, count: components }
    }
}

/// Sets of nodes that can be reached from each other.
struct Components {
    of: Vec<usize>,
    count: usize,
}

impl Components {
    fn are_one(&self, a: usize, b: usize) -> bool {
        self.of[a] == self.of[b]
    }
}
