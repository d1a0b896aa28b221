//! Checks that the ring has the datacentre and the nodes that a new fleet needs. The check comes
//! before anything is created: a keyspace without replicas would stay behind, and the fleet's row
//! could not be written into it.

use std::collections::BTreeMap;

use shunt_proxy::control::client::{Client, Failed};
use shunt_wire::cql::message::{Consistency, error_code};

use super::Init;

/// The nodes of a ring, as one of them knows them.
#[derive(Debug, Default)]
struct Nodes {
    /// Datacentre of the node that answered.
    here: String,
    /// Number of nodes in each datacentre.
    counts: BTreeMap<String, usize>,
}

/// Checks that the ring has the datacentre, and at least as many nodes as replicas.
///
/// # Errors
/// The check fails; the message lists the ring's datacentres. Or the node did not answer.
pub(super) fn check(client: &mut Client, init: &Init) -> Result<(), Failed> {
    let nodes = read(client)?;
    let contact = client.address().to_string();
    nodes.have(init.datacentre.as_deref(), init.replicas, &contact).map_err(|message| Failed {
        code: Some(error_code::INVALID),
        message: format!("{message}. Nothing was created"),
    })
}

fn read(client: &mut Client) -> Result<Nodes, Failed> {
    let mut nodes = Nodes::default();
    for table in ["system.local", "system.peers"] {
        let rows = client.query(
            &format!("SELECT data_center FROM {table}"),
            &[],
            Consistency::ONE,
            None,
        )?;
        // A row without a datacentre is a remnant of a removed node.
        for name in (0..rows.rows.len()).filter_map(|row| rows.get(row, "data_center")) {
            let name = String::from_utf8_lossy(name).into_owned();
            if table == "system.local" {
                nodes.here.clone_from(&name);
            }
            *nodes.counts.entry(name).or_default() += 1;
        }
    }
    Ok(nodes)
}

impl Nodes {
    fn have(&self, datacentre: Option<&str>, replicas: u32, contact: &str) -> Result<(), String> {
        let wanted = usize::try_from(replicas).unwrap_or(usize::MAX);
        let Some(name) = datacentre else {
            let count = self.counts.values().sum::<usize>();
            if count < wanted {
                return Err(format!(
                    "the ring has {} for {wanted} replicas: give --replicas {count}",
                    of_nodes(count)
                ));
            }
            return Ok(());
        };
        let Some(&count) = self.counts.get(name) else {
            return Err(format!("there is no datacentre {name}: the ring has {}", self.list()));
        };
        if count < wanted {
            return Err(format!(
                "datacentre {name} has {} for {wanted} replicas: give --replicas {count}, or another datacentre; the ring has {}",
                of_nodes(count),
                self.list()
            ));
        }
        if self.here != name {
            return Err(format!(
                "{contact} is in datacentre {}, and cannot write for the fleet of datacentre {name} alone: \
                 --contact-points has to name nodes of {name}",
                self.here
            ));
        }
        Ok(())
    }

    fn list(&self) -> String {
        let each = self.counts.iter().map(|(name, count)| format!("{name} ({})", of_nodes(*count)));
        each.collect::<Vec<_>>().join(", ")
    }
}

fn of_nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

#[cfg(test)]
mod tests {
    use super::Nodes;

    fn have(datacentre: Option<&str>, replicas: u32) -> Result<(), String> {
        let counts = [("dc1", 3), ("dc2", 1)].map(|(name, count)| (name.to_owned(), count));
        let nodes = Nodes { here: "dc1".to_owned(), counts: counts.into() };
        nodes.have(datacentre, replicas, "10.0.0.1:9042")
    }

    #[test]
    fn one_node_for_each_replica_is_enough() {
        for (datacentre, replicas) in [(Some("dc1"), 1), (Some("dc1"), 3), (None, 4)] {
            assert_eq!(have(datacentre, replicas), Ok(()), "{datacentre:?} {replicas}");
        }
    }

    #[test]
    fn a_refusal_lists_the_rings_datacentres() {
        for (datacentre, replicas, says) in [
            (Some("dc3"), 1, &["no datacentre dc3", "dc1 (3 nodes), dc2 (1 node)"][..]),
            (Some("DC1"), 1, &["no datacentre DC1", "dc1 (3 nodes)"]),
            (Some("dc1"), 4, &["dc1 has 3 nodes for 4 replicas", "--replicas 3", "dc2 (1 node)"]),
            (Some("dc2"), 1, &["10.0.0.1:9042 is in datacentre dc1", "nodes of dc2"]),
            (None, 5, &["4 nodes for 5 replicas", "--replicas 4"]),
        ] {
            let error = have(datacentre, replicas).expect_err("it is not there");
            assert!(says.iter().all(|says| error.contains(says)), "{error}");
        }
    }
}
