//! Consistency levels. A node has one copy of everything; it refuses the levels that Cassandra
//! would refuse on a ring of as many nodes: those invalid for the statement, and those that need
//! more replicas than there are nodes.

use shunt_wire::cql::message::Consistency;

use super::Executor;
use crate::cluster::ClusterInfo;
use crate::error::CqlError;
use crate::schema::{Keyspace, Table};
use crate::statement::mutation::MutationPlan;

/// Replicas requested by a keyspace: everywhere, and in the nodes' datacentre.
fn factors(keyspace: &Keyspace, datacentre: &str) -> (u32, u32) {
    // With transient replicas, as in "3/1", the first number is the total.
    let number = |text: &String| {
        text.split('/').next().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0)
    };
    let class = keyspace
        .replication
        .get("class")
        .map_or("", |class| class.rsplit('.').next().unwrap_or_default());
    let given = |name: &str| keyspace.replication.get(name).map(number);
    match class {
        "SimpleStrategy" => {
            let factor = given("replication_factor").unwrap_or(1);
            (factor, factor)
        }
        "NetworkTopologyStrategy" => {
            let others = keyspace
                .replication
                .iter()
                .filter(|(name, _)| *name != "class" && *name != datacentre);
            // A factor without a datacentre applies to each, and there is one.
            let elsewhere: u32 = others
                .filter(|(name, _)| *name != "replication_factor")
                .map(|(_, n)| number(n))
                .sum();
            let here = given(datacentre).or(given("replication_factor")).unwrap_or(0);
            (here + elsewhere, here)
        }
        _ => (1, 1),
    }
}

/// Refuses a level that a ring of these nodes could not meet for this keyspace.
pub(super) fn check(
    keyspace: &Keyspace,
    info: &ClusterInfo,
    consistency: Consistency,
) -> Result<(), CqlError> {
    let (all, here) = factors(keyspace, &info.datacentre);
    let quorum = |replicas: u32| replicas / 2 + 1;
    let required = match consistency {
        Consistency::ANY => return Ok(()),
        Consistency::TWO => 2,
        Consistency::THREE => 3,
        Consistency::QUORUM | Consistency::SERIAL => quorum(all),
        Consistency::ALL => all,
        Consistency::LOCAL_QUORUM | Consistency::EACH_QUORUM | Consistency::LOCAL_SERIAL => {
            quorum(here)
        }
        _ => 1,
    };
    let alive = here.min(u32::try_from(info.nodes.len()).unwrap_or(u32::MAX));
    if required <= alive {
        Ok(())
    } else {
        Err(CqlError::Unavailable { consistency, required, alive })
    }
}

/// Refuses a level that is invalid for an unconditional write.
fn check_plain(table: &Table, consistency: Consistency) -> Result<(), CqlError> {
    match (table.is_counter, consistency) {
        (true, Consistency::ANY) => {
            let message = format!(
                "Consistency level ANY is not yet supported for counter table {}",
                table.name
            );
            Err(CqlError::Invalid(message))
        }
        (true, Consistency::SERIAL | Consistency::LOCAL_SERIAL) => {
            Err(CqlError::invalid("Counter operations are inherently non-serializable"))
        }
        (false, Consistency::SERIAL | Consistency::LOCAL_SERIAL) => {
            Err(CqlError::invalid("You must use conditional updates for serializable writes"))
        }
        _ => Ok(()),
    }
}

/// Refuses levels that are invalid for a conditional statement: the serial level, and that of the
/// write.
fn check_conditional(
    keyspace: &Keyspace,
    serial: Consistency,
    commit: Consistency,
) -> Result<(), CqlError> {
    if !matches!(serial, Consistency::SERIAL | Consistency::LOCAL_SERIAL) {
        let message =
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL";
        return Err(CqlError::invalid(message));
    }
    let class = keyspace.replication.get("class").map_or("", String::as_str);
    match commit {
        Consistency::SERIAL | Consistency::LOCAL_SERIAL => Err(CqlError::Invalid(format!(
            "{commit} is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it is \
             accepted but I don't care how many replicas commit it for non-SERIAL reads\""
        ))),
        Consistency::EACH_QUORUM if !class.ends_with(".NetworkTopologyStrategy") => {
            Err(CqlError::Invalid(format!(
                "consistency level {commit} not compatible with replication strategy ({class})"
            )))
        }
        _ => Ok(()),
    }
}

impl Executor {
    /// Checks the level of a statement that reads.
    pub(super) fn check_read_level(
        &self,
        keyspace: &str,
        consistency: Consistency,
    ) -> Result<(), CqlError> {
        if consistency == Consistency::ANY {
            return Err(CqlError::invalid("ANY ConsistencyLevel is only supported for writes"));
        }
        self.check_level(keyspace, consistency)
    }

    /// See [`check`].
    fn check_level(&self, keyspace: &str, consistency: Consistency) -> Result<(), CqlError> {
        // Nearly all statements.
        if matches!(consistency, Consistency::ONE | Consistency::LOCAL_ONE) {
            return Ok(());
        }
        let schema = self.shared.schema();
        schema
            .keyspace(keyspace)
            .map_or(Ok(()), |keyspace| check(keyspace, &self.shared.info, consistency))
    }

    /// Checks the level of a statement that writes; conditions have a separate level.
    pub(super) fn check_write_level(
        &self,
        plan: &MutationPlan,
        consistency: Consistency,
        serial: Option<Consistency>,
    ) -> Result<(), CqlError> {
        if !plan.is_conditional() {
            check_plain(&plan.table, consistency)?;
        }
        self.check_part_level(plan, consistency, serial)
    }

    /// The same for a statement in a batch. One without conditions may have any level there.
    pub(super) fn check_part_level(
        &self,
        plan: &MutationPlan,
        consistency: Consistency,
        serial: Option<Consistency>,
    ) -> Result<(), CqlError> {
        let keyspace = &plan.table.keyspace;
        if plan.is_conditional() {
            let serial = serial.unwrap_or(Consistency::SERIAL);
            let schema = self.shared.schema();
            schema
                .keyspace(keyspace)
                .map_or(Ok(()), |keyspace| check_conditional(keyspace, serial, consistency))?;
            self.check_level(keyspace, serial)?;
        }
        self.check_level(keyspace, consistency)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn a_level_needs_as_many_nodes_as_it_needs_replicas() {
        const SIMPLE: &str = "{'class': 'SimpleStrategy', 'replication_factor': 5}";
        const HERE: &str = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
        const ANYWHERE: &str = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}";
        const ELSEWHERE: &str =
            "{'class': 'NetworkTopologyStrategy', 'datacenter1': '3/1', 'asia': 3}";
        for (replication, nodes, consistency, refused) in [
            (SIMPLE, 1, Consistency::ANY, None),
            (SIMPLE, 1, Consistency::LOCAL_ONE, None),
            (SIMPLE, 1, Consistency::TWO, Some((2, 1))),
            (SIMPLE, 1, Consistency::QUORUM, Some((3, 1))),
            (SIMPLE, 3, Consistency::QUORUM, None),
            (SIMPLE, 3, Consistency::LOCAL_SERIAL, None),
            (SIMPLE, 3, Consistency::ALL, Some((5, 3))),
            (SIMPLE, 9, Consistency::ALL, None),
            (HERE, 1, Consistency::LOCAL_QUORUM, Some((2, 1))),
            (HERE, 3, Consistency::EACH_QUORUM, None),
            (ANYWHERE, 2, Consistency::THREE, Some((3, 2))),
            (ANYWHERE, 3, Consistency::ALL, None),
            (ELSEWHERE, 3, Consistency::QUORUM, Some((4, 3))),
            (ELSEWHERE, 3, Consistency::LOCAL_QUORUM, None),
        ] {
            let statement = format!("CREATE KEYSPACE k WITH replication = {replication}");
            let schema = crate::schema::tests::after(&Schema::empty(), &[statement]);
            let addresses: Vec<SocketAddr> =
                (0..nodes).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
            let outcome = check(
                schema.keyspace("k").unwrap(),
                &ClusterInfo::new("test", &addresses),
                consistency,
            );
            let expected = match refused {
                None => Ok(()),
                Some((required, alive)) => {
                    Err(CqlError::Unavailable { consistency, required, alive })
                }
            };
            assert_eq!(outcome, expected, "{replication} on {nodes} at {consistency}");
        }
    }
}
