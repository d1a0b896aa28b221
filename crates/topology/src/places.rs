//! Datacentre and rack of each token-owning node, as small numbers.

use std::collections::HashMap;

use crate::node::{Node, NodeId};

/// Places of the token-owning nodes.
#[derive(Debug)]
pub(crate) struct Places {
    /// By node id.
    places: Vec<Option<Place>>,
    datacentres: Vec<Datacentre>,
    racks: usize,
    owners: usize,
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

/// Datacentre and rack of a node; racks of different datacentres have different numbers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    pub(crate) datacentre: usize,
    pub(crate) rack: usize,
}

/// A datacentre, with its number of token-owning nodes and of their racks.
#[derive(Debug)]
pub(crate) struct Datacentre {
    pub(crate) name: String,
    pub(crate) nodes: usize,
    pub(crate) racks: usize,
}

impl Places {
    /// Omits nodes without tokens, like Cassandra: a joining node must not change the replicas of
    /// the others.
    pub(crate) fn new(nodes: &[Node], local_datacentre: Option<&str>) -> Places {
        let ids = nodes.iter().map(|node| usize::from(node.id.0) + 1).max().unwrap_or(0);
        let mut places = Places {
            places: vec![None; ids],
            datacentres: Vec::new(),
            racks: 0,
            owners: 0,
            local: Local::All,
        };
        let (mut datacentres, mut racks) = (HashMap::new(), HashMap::new());
        for node in nodes.iter().filter(|node| !node.tokens.is_empty()) {
            let datacentre = *datacentres.entry(&*node.datacentre).or_insert_with(|| {
                let name = node.datacentre.clone();
                places.datacentres.push(Datacentre { name, nodes: 0, racks: 0 });
                places.datacentres.len() - 1
            });
            let known = &mut places.datacentres[datacentre];
            known.nodes += 1;
            let rack = *racks.entry((datacentre, &*node.rack)).or_insert_with(|| {
                known.racks += 1;
                places.racks += 1;
                places.racks - 1
            });
            places.owners += 1;
            places.places[usize::from(node.id.0)] = Some(Place { datacentre, rack });
        }
        if let Some(local) = local_datacentre {
            let found = datacentres.get(local).copied();
            places.local = found.map_or(Local::None, Local::Datacentre);
        }
        places
    }

    /// The place of a node; `None` if it owns no token.
    #[inline]
    pub(crate) fn place(&self, node: NodeId) -> Option<Place> {
        *self.places.get(usize::from(node.0))?
    }

    pub(crate) fn is_local(&self, node: NodeId) -> bool {
        match self.local {
            Local::All => true,
            Local::None => false,
            Local::Datacentre(local) => {
                self.place(node).is_some_and(|place| place.datacentre == local)
            }
        }
    }

    /// Datacentres, by number.
    pub(crate) fn datacentres(&self) -> &[Datacentre] {
        &self.datacentres
    }

    /// Number of racks of all datacentres.
    pub(crate) fn racks(&self) -> usize {
        self.racks
    }

    /// Number of nodes with tokens.
    pub(crate) fn owners(&self) -> usize {
        self.owners
    }

    /// One more than the highest number of a node.
    pub(crate) fn ids(&self) -> usize {
        self.places.len()
    }
}
