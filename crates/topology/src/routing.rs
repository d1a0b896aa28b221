//! Snapshot that every core uses for routing.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::num::NonZeroU32;

use shunt_wire::cql::statement::Identifier;

use crate::budget::Budget;
use crate::node::{Node, NodeId};
use crate::places::Places;
use crate::replicas::{Placement, Replicas};
use crate::ring::Ring;
use crate::schema::{Keyspace, Replication, Table};
use crate::token::Token;

/// A keyspace of one snapshot, valid only with its [`RoutingTable`]. Counts from 1, so that an
/// option of it takes no more room: one lies in the plan of each query in flight.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct KeyspaceIndex(NonZeroU32);

/// Routing data as of one moment. Immutable; replaced as a whole when the ring or its schema
/// changes. Look-ups do not allocate and take logarithmic time.
#[derive(Debug)]
pub struct RoutingTable {
    nodes: Vec<Node>,
    /// Node number -> position in `nodes`.
    positions: Vec<Option<u16>>,
    local_nodes: Vec<NodeId>,
    local_datacentre: Option<String>,
    ring: Ring,
    placements: Vec<Placement>,
    /// Sorted by name.
    keyspaces: Vec<KeyspaceEntry>,
    /// Sorted by keyspace, then name.
    tables: Vec<Table>,
}

#[derive(Debug)]
struct KeyspaceEntry {
    keyspace: Keyspace,
    /// Index into the placements; `None` if its placement exceeds the budget.
    placement: Option<usize>,
}

impl RoutingTable {
    /// Evaluates the replicas of every range for each distinct replication setting, as far as the
    /// budget for time and memory goes: keyspaces beyond it ([`RoutingTable::unplaced`]) have no
    /// known replicas. Settings with many tables for their cost come first: a keyspace that few use
    /// takes token routing from no keyspace that many use.
    ///
    /// `local_datacentre` selects the nodes to use. If no node has this name, none is used: the
    /// proxy must never use a datacentre that the operator did not name. With `None` all nodes are
    /// equal. Node numbers must be distinct; of two nodes with one number the first wins.
    #[must_use]
    pub fn build(
        nodes: Vec<Node>,
        keyspaces: Vec<Keyspace>,
        tables: Vec<Table>,
        local_datacentre: Option<&str>,
    ) -> RoutingTable {
        let (nodes, positions) = index_nodes(nodes);
        let is_local = |node: &&Node| local_datacentre.is_none_or(|name| node.datacentre == name);
        let local_nodes = nodes.iter().filter(is_local).map(|node| node.id).collect();
        let ring = Ring::new(&nodes);
        let places = Places::new(&nodes, local_datacentre);
        let (keyspaces, placements) =
            place_keyspaces(keyspaces, &tables, &ring, &places, &mut Budget::default());
        let mut tables = tables;
        tables.sort_by(|a, b| (&a.keyspace, &a.name).cmp(&(&b.keyspace, &b.name)));
        let local_datacentre = local_datacentre.map(str::to_owned);
        RoutingTable {
            nodes,
            positions,
            local_nodes,
            local_datacentre,
            ring,
            placements,
            keyspaces,
            tables,
        }
    }

    /// The nodes in order of their numbers.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this number, unless it has left the ring.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        let position = (*self.positions.get(usize::from(id.0))?)?;
        self.nodes.get(usize::from(position))
    }

    /// Candidates for a query that may go anywhere: the local datacentre's nodes, in order of their
    /// numbers.
    #[must_use]
    pub fn local_nodes(&self) -> &[NodeId] {
        &self.local_nodes
    }

    /// The local datacentre, if one was named.
    #[must_use]
    pub fn local_datacentre(&self) -> Option<&str> {
        self.local_datacentre.as_deref()
    }

    /// Keyspace by its stored (case-sensitive) name.
    #[must_use]
    pub fn keyspace(&self, name: &str) -> Option<KeyspaceIndex> {
        self.resolve_keyspace(&Identifier::exact(name))
    }

    /// Keyspace by its name as written in a statement.
    #[must_use]
    pub fn resolve_keyspace(&self, name: &Identifier<'_>) -> Option<KeyspaceIndex> {
        let position = self
            .keyspaces
            .binary_search_by(|entry| name.compare(&entry.keyspace.name).reverse())
            .ok()?;
        NonZeroU32::new(position as u32 + 1).map(KeyspaceIndex)
    }

    /// The keyspaces in order of name.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.keyspaces.iter().map(|entry| &entry.keyspace)
    }

    /// Table by its stored (case-sensitive) names.
    #[must_use]
    pub fn table(&self, keyspace: &str, table: &str) -> Option<&Table> {
        self.resolve_table(&Identifier::exact(keyspace), &Identifier::exact(table))
    }

    /// Table by its names as written in a statement; for a session's keyspace use
    /// [`Identifier::exact`].
    #[must_use]
    pub fn resolve_table(
        &self,
        keyspace: &Identifier<'_>,
        table: &Identifier<'_>,
    ) -> Option<&Table> {
        let position = self.tables.binary_search_by(|known| {
            let order = keyspace.compare(&known.keyspace).reverse();
            if order == Ordering::Equal { table.compare(&known.name).reverse() } else { order }
        });
        self.tables.get(position.ok()?)
    }

    /// Replicas of a token in this keyspace, in order of preference.
    #[must_use]
    #[inline]
    pub fn replicas(&self, keyspace: KeyspaceIndex, token: Token) -> Replicas<'_> {
        let Some(entry) = self.keyspaces.get(keyspace.0.get() as usize - 1) else {
            return Replicas::NONE;
        };
        let placement = entry.placement.and_then(|placement| self.placements.get(placement));
        placement.map_or(Replicas::NONE, |placement| placement.replicas(&self.ring, token))
    }

    /// Keyspaces whose replicas would have taken too much time or memory to evaluate, in order of
    /// name. Their queries may go to any node.
    pub fn unplaced(&self) -> impl Iterator<Item = &Keyspace> {
        let beyond = self.keyspaces.iter().filter(|entry| entry.placement.is_none());
        beyond.map(|entry| &entry.keyspace)
    }
}

fn index_nodes(mut nodes: Vec<Node>) -> (Vec<Node>, Vec<Option<u16>>) {
    nodes.sort_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    let mut positions = vec![None; nodes.last().map_or(0, |node| usize::from(node.id.0) + 1)];
    for (node, position) in nodes.iter().zip(0u16..=u16::MAX) {
        positions[usize::from(node.id.0)] = Some(position);
    }
    (nodes, positions)
}

/// Keyspaces with the same replication setting share one placement.
fn place_keyspaces(
    mut keyspaces: Vec<Keyspace>,
    tables: &[Table],
    ring: &Ring,
    places: &Places,
    budget: &mut Budget,
) -> (Vec<KeyspaceEntry>, Vec<Placement>) {
    keyspaces.sort_by(|a, b| a.name.cmp(&b.name));
    keyspaces.dedup_by(|later, first| later.name == first.name);
    let settings = settings_by_worth(&keyspaces, tables, places);
    let mut placements = Vec::new();
    let known: HashMap<Replication, Option<usize>> = settings
        .into_iter()
        .map(|setting| {
            let placed = Placement::new(setting, ring, places, budget);
            let placement = placed.map(|placement| {
                placements.push(placement);
                placements.len() - 1
            });
            (setting.clone(), placement)
        })
        .collect();
    let entries = keyspaces.into_iter().map(|keyspace| {
        let placement = known.get(&keyspace.replication).copied().flatten();
        KeyspaceEntry { keyspace, placement }
    });
    (entries.collect(), placements)
}

/// The distinct settings, those with most tables for the cost of their placement first. Settings
/// with as many for it are in order of their cost, then in their own order.
fn settings_by_worth<'k>(
    keyspaces: &'k [Keyspace],
    tables: &[Table],
    places: &Places,
) -> Vec<&'k Replication> {
    let mut tables_of: HashMap<&str, u64> = HashMap::new();
    for table in tables {
        *tables_of.entry(&table.keyspace).or_default() += 1;
    }
    let mut uses: HashMap<&Replication, u64> = HashMap::new();
    for keyspace in keyspaces {
        let tables = tables_of.get(&*keyspace.name).copied().unwrap_or_default();
        *uses.entry(&keyspace.replication).or_default() += tables;
    }
    let settings =
        uses.into_iter().map(|(setting, uses)| (uses, cost_of(setting, places), setting));
    let mut settings: Vec<(u64, u64, &Replication)> = settings.collect();
    settings.sort_unstable_by(|(uses, cost, setting), (others, theirs, other)| {
        let by_worth = others.saturating_mul(*cost).cmp(&uses.saturating_mul(*theirs));
        by_worth.then_with(|| (cost, setting).cmp(&(theirs, other)))
    });
    settings.into_iter().map(|(.., setting)| setting).collect()
}

/// Cost of a range's replicas under a setting: one for the range, and one for each replica that it
/// can have.
fn cost_of(setting: &Replication, places: &Places) -> u64 {
    let replicas = match setting {
        Replication::Simple(factor) => usize::from(factor.all).min(places.owners()),
        Replication::NetworkTopology(factors) => {
            let datacentres = places.datacentres().iter();
            let replicas = datacentres.map(|datacentre| {
                let first = factors.partition_point(|(name, _)| *name < datacentre.name);
                let factor = factors.get(first).filter(|(name, _)| *name == datacentre.name);
                factor.map_or(0, |(_, factor)| usize::from(factor.all).min(datacentre.nodes))
            });
            replicas.sum()
        }
        Replication::Everywhere | Replication::Local | Replication::Unknown => 0,
    };
    1 + replicas as u64
}

#[cfg(test)]
mod tests;
