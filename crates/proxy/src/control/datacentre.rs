//! The local datacentre: the configured one, else that of the contact points.
//!
//! It is decided once, before any core hears of the ring, and only from facts common to every proxy
//! with the same configuration: the contact points as addresses and the ring's own list of nodes,
//! never from which node answered, or answered first. An ambiguous choice is refused. Queries must
//! never go to a datacentre that nobody chose; if the local one has no nodes (any more), no node is
//! used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use shunt_topology::Node;

/// A contact point with its addresses, or with the reason why it has none.
pub(crate) type Resolved = (String, Result<Vec<SocketAddr>, String>);

/// The local datacentre of a ring of these nodes, or the reason why there is none.
pub(crate) fn choose(
    configured: Option<&str>,
    nodes: &[Node],
    resolved: &[Resolved],
) -> Result<String, String> {
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.datacentre.as_str()).collect();
    match (configured, names.first()) {
        (Some(name), _) if names.contains(name) => return Ok(name.to_owned()),
        (Some(name), _) => {
            return Err(format!(
                "local_datacentre {name:?} is not a datacentre of the ring, which has {}",
                list(nodes)
            ));
        }
        (None, Some(only)) if names.len() == 1 => return Ok((*only).to_owned()),
        (None, _) => {}
    }
    let several = format!("the ring has several datacentres ({})", list(nodes));
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, addresses) in resolved {
        let addresses = addresses.as_ref().map_err(|why| {
            format!(
                "{several}, and the datacentre of the contact point {name} is unknown, \
            because {why}: set local_datacentre"
            )
        })?;
        for datacentre in addresses
            .iter()
            .filter_map(|address| datacentre_of(*address, nodes))
            .collect::<BTreeSet<_>>()
        {
            found.entry(datacentre).or_default().push(name);
        }
    }
    let mut places =
        found.iter().map(|(datacentre, names)| format!("{} in {datacentre}", names.join(", ")));
    match found.first_key_value() {
        Some((only, _)) if found.len() == 1 => Ok((*only).to_owned()),
        Some(_) => {
            let places: Vec<String> = places.by_ref().collect();
            Err(format!(
                "{several}, and the contact points lie in more than one ({}): set local_datacentre",
                places.join("; ")
            ))
        }
        None => Err(format!(
            "{several}, and no contact point is one of the addresses that its nodes have: set local_datacentre"
        )),
    }
}

/// The datacentre of the node with this address, or of all nodes that share the IP address, as
/// behind forwarded ports.
fn datacentre_of(address: SocketAddr, nodes: &[Node]) -> Option<&str> {
    if let Some(node) = nodes.iter().find(|node| node.address == address) {
        return Some(&node.datacentre);
    }
    let mut near = nodes
        .iter()
        .filter(|node| node.address.ip() == address.ip())
        .map(|node| node.datacentre.as_str());
    let first = near.next()?;
    near.all(|other| other == first).then_some(first)
}

/// The existing datacentres, for messages.
pub(crate) fn list(nodes: &[Node]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.iter().for_each(|node| *counts.entry(&node.datacentre).or_default() += 1);
    let shown = |(name, count): (&str, usize)| {
        format!("{name} ({count} {})", if count == 1 { "node" } else { "nodes" })
    };
    counts.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}
