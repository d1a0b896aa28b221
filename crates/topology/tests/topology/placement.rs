//! Placement compared with the strategies as documented, written without regard to speed.

use std::collections::BTreeSet;

use proptest::prelude::*;
use shunt_topology::schema::Factor;
use shunt_topology::{Node, Replication, Token};

use crate::cluster;

/// Owners of all tokens in ring order, from the owner of `token` onwards.
fn walk(nodes: &[Node], token: Token) -> Vec<&Node> {
    let mut ring: Vec<(i64, &Node)> =
        nodes.iter().flat_map(|node| node.tokens.iter().map(move |&token| (token, node))).collect();
    ring.sort_by_key(|(token, node)| (*token, node.id));
    ring.dedup_by_key(|(token, _)| *token);
    let first = ring.iter().position(|(end, _)| *end >= token.0).unwrap_or(0);
    ring.rotate_left(first);
    ring.into_iter().map(|(_, node)| node).collect()
}

fn simple(nodes: &[Node], token: Token, factor: usize) -> BTreeSet<u16> {
    let mut found = BTreeSet::new();
    for node in walk(nodes, token) {
        if found.len() < factor {
            found.insert(node.id.0);
        }
    }
    found
}

/// "Place replicas in distinct racks; when every rack has one, go back for the nodes skipped":
/// Cassandra 2's algorithm, which differs in form from later versions but must choose the same
/// nodes.
fn network_topology(nodes: &[Node], token: Token, factors: &[(String, usize)]) -> BTreeSet<u16> {
    let mut all = BTreeSet::new();
    for (datacentre, factor) in factors {
        let here: Vec<&Node> = nodes.iter().filter(|node| node.datacentre == *datacentre).collect();
        let racks: BTreeSet<&str> =
            here.iter().filter(|node| !node.tokens.is_empty()).map(|node| &*node.rack).collect();
        let (mut found, mut seen, mut skipped) = (Vec::new(), BTreeSet::new(), Vec::new());
        for node in walk(nodes, token).into_iter().filter(|node| node.datacentre == *datacentre) {
            if found.len() == *factor || found.contains(&node.id.0) {
                continue;
            }
            if seen.len() == racks.len() {
                found.push(node.id.0);
            } else if !seen.insert(&*node.rack) {
                skipped.push(node.id.0);
            } else {
                found.push(node.id.0);
                if seen.len() == racks.len() {
                    for skipped in skipped.drain(..) {
                        if found.len() < *factor && !found.contains(&skipped) {
                            found.push(skipped);
                        }
                    }
                }
            }
        }
        all.extend(found);
    }
    all
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    // Few possible tokens, so that some are claimed twice and some nodes have none.
    let place = (0..3u8, 0..4u8, prop::collection::vec(-100i64..100, 0..6));
    prop::collection::vec(place, 0..14).prop_map(|places| {
        let nodes = places.iter().enumerate().map(|(id, (datacentre, rack, tokens))| {
            cluster::node(id as u16 * 3, &format!("dc{datacentre}"), &format!("r{rack}"), tokens)
        });
        // Only owners of tokens count; nodes that lost theirs to a double claim are not the point
        // here.
        nodes.collect()
    })
}

/// Every node has its own token, or none at all.
fn all_owners(nodes: &[Node]) -> bool {
    let owners: BTreeSet<u16> = walk(nodes, Token(0)).iter().map(|node| node.id.0).collect();
    nodes.iter().all(|node| node.tokens.is_empty() || owners.contains(&node.id.0))
}

fn factor(all: usize) -> Factor {
    Factor { all: all as u16, transient: 0 }
}

proptest! {
    #[test]
    fn placement_is_as_documented(
        nodes in nodes().prop_filter("owners", |nodes| all_owners(nodes)),
        factors in prop::collection::vec(0usize..6, 3),
        tokens in prop::collection::vec(-120i64..120, 20),
    ) {
        let by_name: Vec<(String, usize)> =
            factors.iter().enumerate().map(|(dc, factor)| (format!("dc{dc}"), *factor)).collect();
        let setting = by_name.iter().map(|(name, all)| (name.clone(), factor(*all))).collect();
        let by_rack = cluster::table(nodes.clone(), Replication::NetworkTopology(setting), Some("dc1"));
        let in_a_row = cluster::table(nodes.clone(), Replication::Simple(factor(factors[0])), Some("dc1"));
        let ks = by_rack.keyspace("ks").expect("the keyspace");
        for token in tokens.into_iter().map(Token) {
            let found = by_rack.replicas(ks, token);
            let set: BTreeSet<u16> = found.nodes.iter().map(|node| node.0).collect();
            prop_assert_eq!(set.len(), found.nodes.len(), "a node twice");
            prop_assert_eq!(set, network_topology(&nodes, token, &by_name));
            let found = in_a_row.replicas(ks, token);
            let set: BTreeSet<u16> = found.nodes.iter().map(|node| node.0).collect();
            prop_assert_eq!(set.len(), found.nodes.len(), "a node twice");
            prop_assert_eq!(set, simple(&nodes, token, factors[0]));
        }
    }

    #[test]
    fn local_replicas_come_first(nodes in nodes(), all in 0usize..8, token: i64) {
        let table = cluster::table(nodes.clone(), Replication::Simple(factor(all)), Some("dc1"));
        let found = table.replicas(table.keyspace("ks").expect("the keyspace"), Token(token));
        let is_local = |id| table.node(id).is_some_and(|node| node.datacentre == "dc1");
        prop_assert!(found.nodes[..found.local].iter().all(|id| is_local(*id)));
        prop_assert!(!found.nodes[found.local..].iter().any(|id| is_local(*id)));
        prop_assert!(table.local_nodes().iter().all(|id| is_local(*id)));
        prop_assert_eq!(table.local_nodes().len(), nodes.iter().filter(|node| node.datacentre == "dc1").count());
    }
}
