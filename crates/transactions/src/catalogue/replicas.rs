//! Whether enough nodes exist for the replicas of a keyspace.
//!
//! A committed transaction's writes are repeated until they are made, and its partitions stay
//! locked until then. In a keyspace with more replicas than nodes they would stay locked for good:
//! the record goes to the fleet's own keyspace and can be written, the rows cannot. Planning
//! therefore refuses such a keyspace. Nodes that are down count, since they come up again.

use shunt_fleet::Level;
use shunt_topology::schema::{Factor, Replication};
use shunt_topology::{Node, RoutingTable};

/// Explains why a quorum of a keyspace can never be reached; none if it can, or if that is unknown.
pub fn too_few(
    replication: &Replication,
    routing: &RoutingTable,
    level: Option<Level>,
) -> Option<String> {
    let nodes = routing.nodes();
    let of_datacentre = |name: &str| nodes.iter().filter(|node| node.datacentre == name).count();
    let (wanted, there, place) = match (replication, level) {
        (Replication::Simple(factor), _) => (usize::from(factor.all), nodes.len(), String::new()),
        (Replication::NetworkTopology(factors), Some(Level::LocalSerial)) => {
            let local = routing.local_datacentre().or_else(|| only_datacentre(nodes))?;
            let factor = factors
                .iter()
                .find(|(name, _)| name == local)
                .map_or(0, |(_, factor)| usize::from(factor.all));
            (factor, of_datacentre(local), format!(" in datacentre {local}"))
        }
        (Replication::NetworkTopology(factors), _) => {
            let all = |(_, factor): &(String, Factor)| usize::from(factor.all);
            let there = factors.iter().map(|one| all(one).min(of_datacentre(&one.0))).sum();
            (factors.iter().map(all).sum(), there, String::new())
        }
        _ => return None,
    };
    let (quorum, there) = (wanted / 2 + 1, there.min(wanted));
    (there < quorum && !nodes.is_empty()).then(|| {
        format!(
            "its keyspace has {wanted} replicas{place}, and there are nodes for {there}: a quorum is {quorum}, and what is committed could \
             never be made; lower its replication factor, or add nodes"
        )
    })
}

fn only_datacentre(nodes: &[Node]) -> Option<&str> {
    let first = nodes.first()?.datacentre.as_str();
    nodes.iter().all(|node| node.datacentre == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use shunt_topology::NodeId;

    use super::*;

    /// A ring with so many nodes in each of these datacentres, seen from the first.
    fn ring(datacentres: &[(&str, u16)]) -> RoutingTable {
        let names =
            datacentres.iter().flat_map(|(name, count)| (0..*count).map(|_| (*name).to_owned()));
        let nodes = (0u16..).zip(names).map(|(number, datacentre)| Node {
            id: NodeId(number),
            host_id: u128::from(number),
            address: ([127, 0, 0, 1], 9_000 + number).into(),
            datacentre,
            rack: "r".to_owned(),
            tokens: vec![i64::from(number)],
            // It comes up again.
            up: false,
            release_version: String::new(),
        });
        RoutingTable::build(
            nodes.collect(),
            Vec::new(),
            Vec::new(),
            datacentres.first().map(|(name, _)| *name),
        )
    }

    fn of(options: &[(&str, &str)]) -> Replication {
        Replication::parse(options.iter().copied())
    }

    #[test]
    fn a_keyspace_with_more_replicas_than_a_quorum_can_be_of_is_refused() {
        let simple = |factor| of(&[("class", "SimpleStrategy"), ("replication_factor", factor)]);
        let network = |a, b| of(&[("class", "NetworkTopologyStrategy"), ("a", a), ("b", b)]);
        let (serial, local) = (Some(Level::Serial), Some(Level::LocalSerial));
        for (replication, datacentres, level, is_refused) in [
            (simple("3"), &[("a", 1)][..], serial, true),
            (simple("3"), &[("a", 2)], serial, false),
            (simple("1"), &[("a", 1)], serial, false),
            (simple("5"), &[("a", 2)], None, true),
            (network("3", "3"), &[("a", 3)], serial, true),
            (network("3", "3"), &[("a", 3)], local, false),
            (network("3", "3"), &[("a", 3), ("b", 1)], serial, false),
            (network("0", "3"), &[("a", 3), ("b", 3)], local, true),
            (network("3", "1"), &[("a", 1), ("b", 1)], local, true),
            (of(&[("class", "EverywhereStrategy")]), &[("a", 1)], serial, false),
            (of(&[("class", "OurOwn")]), &[("a", 1)], serial, false),
            (simple("3"), &[], serial, false),
        ] {
            let why = too_few(&replication, &ring(datacentres), level);
            assert_eq!(
                why.is_some(),
                is_refused,
                "{replication:?} {datacentres:?} {level:?}: {why:?}"
            );
        }
        let why = too_few(&network("3", "1"), &ring(&[("a", 1)]), local).expect("refused");
        assert!(
            why.contains("3 replicas in datacentre a")
                && why.contains("nodes for 1: a quorum is 2"),
            "{why}"
        );
    }
}
