//! Decides whether a node belongs to the known ring: its addresses may have passed to another ring,
//! and contact points may be of two rings.
//!
//! Nodes of one ring must never be mistaken for those of another, because queries and logins would
//! go to the new owner of the addresses. A ring is the same if its cluster has the same name (which
//! many rings share that were set up alike) and at least one of its nodes, by host id, was seen
//! before. A ring that was rebuilt from nothing is another one; a proxy that has known the old one
//! must restart for it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;

use super::access::Access;
use super::connection::Connection;
use super::error::{Attempt, ControlError};
use super::handshake;
use super::ring::{self, Ring};

/// Shortest deadline for a node to identify itself.
const STEP_MIN: Duration = Duration::from_secs(10);

/// The marks that tell a ring from others.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) cluster_name: String,
    pub(super) host_ids: HashSet<u128>,
}

impl Members {
    pub(super) fn of(ring: &Ring) -> Self {
        let host_ids =
            ring.nodes.iter().map(|node| node.host_id).chain([ring.control_host_id]).collect();
        Self { cluster_name: ring.cluster_name.clone(), host_ids }
    }

    /// Asks the peer for the nodes that it knows; [`ControlError::Stranger`] if it belongs to
    /// another ring.
    pub(super) async fn admit(
        &self,
        connection: &mut Connection,
        limit: Duration,
    ) -> Result<(), ControlError> {
        let found = ring::members(connection, limit.max(STEP_MIN)).await?;
        if found.cluster_name != self.cluster_name {
            let (found, own) = (found.cluster_name, &self.cluster_name);
            return Err(ControlError::Stranger(format!(
                "it belongs to another ring: cluster {found:?} instead of {own:?}"
            )));
        }
        if found.host_ids.is_disjoint(&self.host_ids) {
            let why = "it belongs to another ring with the same name: it shows none of the known \
            nodes (if the ring was rebuilt, restart the proxy)";
            return Err(ControlError::Stranger(why.to_owned()));
        }
        Ok(())
    }
}

/// Asks the nodes at contact points that are not in the ring's list, as far as they answer within
/// twice the deadline of a step. An error means that one belongs to another ring.
pub(super) async fn check_contact_points(
    access: &Access,
    ring: &Ring,
    reached: SocketAddr,
    resolved: &[(String, Result<Vec<SocketAddr>, String>)],
) -> Result<(), ControlError> {
    let listed: HashSet<SocketAddr> =
        ring.nodes.iter().map(|node| node.address).chain([reached]).collect();
    let addresses: HashSet<SocketAddr> =
        resolved.iter().flat_map(|(_, found)| found.iter().flatten()).copied().collect();
    let mut asked = JoinSet::new();
    for address in addresses.difference(&listed).copied() {
        let (members, access) = (Members::of(ring), access.clone());
        asked.spawn(async move {
            let answer = async {
                let mut session = handshake::connect(address, &access).await?;
                members.admit(&mut session.connection, access.limit).await
            };
            let in_time = timeout(access.limit.max(STEP_MIN).saturating_mul(2), answer).await;
            (address, in_time.unwrap_or(Err(ControlError::TimedOut("the question for its ring"))))
        });
    }
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((address, Err(error @ ControlError::Stranger(_)))) => {
                let why = format!(
                    "the contact point {address} and the node at {reached}, which was reached first"
                );
                return Err(ControlError::Unfit(format!(
                    "{why}, are not of one ring: {error}; give contact points of one ring only"
                )));
            }
            Ok((address, Err(error))) => {
                let attempt = Attempt { address, error };
                warn!(%attempt, "a contact point that is not in the ring's list of nodes did not \
                say which ring it belongs to");
            }
            Ok((_, Ok(()))) | Err(_) => {}
        }
    }
    Ok(())
}
