//! Reads the members of the ring: `system.local` and `system.peers_v2` (or `system.peers`) into
//! nodes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use shunt_topology::token::parse_tokens;
use shunt_topology::{Node, NodeId};
use shunt_wire::cql::message::error_code;
use tracing::debug;

use super::access::Access;
use super::connection::Connection;
use super::error::ControlError;
use super::handshake;
use super::ring_identity::Members;
use super::tables::{self, Row};

/// Time for the advertised address of the control node to answer, before the contact address is
/// used instead.
const ADVERTISED_LIMIT: Duration = Duration::from_secs(2);

/// The ring as one node describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// Nodes of the ring, all `up`: these tables do not say whether they are.
    pub(super) nodes: Vec<Node>,
    /// Host id of the node asked.
    pub(super) control_host_id: u128,
    pub(super) cluster_name: String,
    pub(super) release_version: String,
    pub(super) cql_version: String,
    pub(super) partitioner: String,
    pub(super) datacentre: String,
    pub(super) rack: String,
    pub(super) schema_version: u128,
}

/// Numbers and addresses of nodes, remembered for the life of the process.
#[derive(Debug, Default)]
pub(super) struct KnownNodes {
    ids: HashMap<u128, NodeId>,
    /// Nodes reached at another address than the one they advertise: host id -> (advertised,
    /// reachable).
    detours: HashMap<u128, (SocketAddr, SocketAddr)>,
}

impl KnownNodes {
    /// The number of a node; the same for the same host id, whatever its address. `None` when all
    /// 65,536 are used.
    fn id(&mut self, host_id: u128) -> Option<NodeId> {
        if let Some(id) = self.ids.get(&host_id) {
            return Some(*id);
        }
        let id = NodeId(u16::try_from(self.ids.len()).ok()?);
        self.ids.insert(host_id, id);
        Some(id)
    }

    /// The address at which to reach a node that advertises `advertised`.
    fn reachable(&self, host_id: u128, advertised: SocketAddr) -> SocketAddr {
        match self.detours.get(&host_id) {
            Some((known, reachable)) if *known == advertised => *reachable,
            _ => advertised,
        }
    }

    /// Host id of an event's node. Events carry the advertised address; some servers send another
    /// port than their tables have, so the only node at that IP address is accepted.
    pub(super) fn find(&self, nodes: &[Node], event: SocketAddr) -> Option<u128> {
        let exact = nodes.iter().find(|node| self.reachable(node.host_id, event) == node.address);
        let mut near = nodes.iter().filter(|node| node.address.ip() == event.ip());
        match (exact, near.next(), near.next()) {
            (Some(node), ..) | (None, Some(node), None) => Some(node.host_id),
            _ => None,
        }
    }
}

/// Reads the ring from the peer. `node_port`: the CQL port of peers that do not publish theirs.
pub(super) async fn read(
    connection: &mut Connection,
    known: &mut KnownNodes,
    node_port: u16,
    limit: Duration,
) -> Result<Ring, ControlError> {
    let rows =
        tables::read(connection, "SELECT * FROM system.local WHERE key = 'local'", limit).await?;
    let local = rows.first().ok_or(ControlError::Incomplete("a row in system.local"))?;
    let host_id =
        local.uuid("host_id").ok_or(ControlError::Incomplete("host_id in system.local"))?;
    let text = |column| local.text(column).unwrap_or_default().to_owned();
    let partitioner = text("partitioner");
    let advertised = local_address(local, connection.address);
    note_detour(known, host_id, advertised, connection.address, connection.access.clone()).await;

    let mut nodes = Vec::new();
    nodes.extend(node(local, advertised, &partitioner, known));
    for row in peers(connection, limit).await? {
        let Some(address) = peer_address(&row, node_port) else {
            debug!("a row of peers has no address yet, so it is left out");
            continue;
        };
        let peer = node(&row, address, &partitioner, known);
        nodes.extend(peer.filter(|peer| peer.host_id != host_id));
    }
    nodes.sort_by_key(|node| node.id);
    Ok(Ring {
        nodes,
        control_host_id: host_id,
        cluster_name: text("cluster_name"),
        release_version: text("release_version"),
        cql_version: text("cql_version"),
        datacentre: text("data_center"),
        rack: text("rack"),
        schema_version: local.uuid("schema_version").unwrap_or_default(),
        partitioner,
    })
}

/// Rows of `system.peers_v2`, or of `system.peers` with servers before Cassandra 4.0, which answer
/// INVALID.
async fn peers(connection: &mut Connection, limit: Duration) -> Result<Vec<Row>, ControlError> {
    match tables::read(connection, "SELECT * FROM system.peers_v2", limit).await {
        Err(ControlError::Node { code: error_code::INVALID, .. }) => {
            tables::read(connection, "SELECT * FROM system.peers", limit).await
        }
        outcome => outcome,
    }
}

/// The name of the node's cluster, and the host ids of all nodes that it knows, itself included.
pub(super) async fn members(
    connection: &mut Connection,
    limit: Duration,
) -> Result<Members, ControlError> {
    let query = "SELECT host_id, cluster_name FROM system.local WHERE key = 'local'";
    let mut rows = tables::read(connection, query, limit).await?;
    let local = rows.first().ok_or(ControlError::Incomplete("a row in system.local"))?;
    let cluster_name =
        local.text("cluster_name").ok_or(ControlError::Incomplete("cluster_name"))?.to_owned();
    rows.extend(peers(connection, limit).await?);
    Ok(Members {
        cluster_name,
        host_ids: rows.iter().filter_map(|row| row.uuid("host_id")).collect(),
    })
}

/// Schema versions of the node asked and of its peers, with their host ids.
pub(super) async fn schema_versions(
    connection: &mut Connection,
    limit: Duration,
) -> Result<Vec<(u128, u128)>, ControlError> {
    let query = "SELECT host_id, schema_version FROM system.local WHERE key = 'local'";
    let mut rows = tables::read(connection, query, limit).await?;
    rows.extend(peers(connection, limit).await?);
    Ok(rows
        .iter()
        .filter_map(|row| Some((row.uuid("host_id")?, row.uuid("schema_version")?)))
        .collect())
}

/// The address at which the peer says that it takes CQL connections, else the address that reached
/// it.
fn local_address(local: &Row, reached: SocketAddr) -> SocketAddr {
    let ip = specified(local.address("rpc_address")).unwrap_or(reached.ip());
    SocketAddr::new(ip, local.port("rpc_port").unwrap_or(reached.port()))
}

/// The address at which another node takes CQL connections. A wildcard stands for its address for
/// other nodes.
fn peer_address(peer: &Row, node_port: u16) -> Option<SocketAddr> {
    let native = peer.address("native_address").or_else(|| peer.address("rpc_address"));
    let ip = specified(native).or_else(|| specified(peer.address("peer")))?;
    Some(SocketAddr::new(ip, peer.port("native_port").unwrap_or(node_port)))
}

fn specified(address: Option<IpAddr>) -> Option<IpAddr> {
    address.filter(|ip| !ip.is_unspecified())
}

/// Tries the advertised address. A node that was reached at another one (port forwarding,
/// containers) may not be reachable at the advertised one; a node behind a balanced address must be
/// used by its own.
async fn note_detour(
    known: &mut KnownNodes,
    host_id: u128,
    advertised: SocketAddr,
    reached: SocketAddr,
    access: Access,
) {
    if advertised == reached || known.reachable(host_id, advertised) == reached {
        return;
    }
    let access = Access { limit: ADVERTISED_LIMIT, name: None, ..access };
    match handshake::probe(advertised, &access).await {
        Ok(()) => known.detours.remove(&host_id),
        Err(error) => {
            debug!(%advertised, %reached, %error, "the node does not answer at its announced \
            address, so the proxy uses the address where it was reached");
            known.detours.insert(host_id, (advertised, reached))
        }
    };
}

/// A node from its row; `None` while the row is incomplete, as for a node that is just joining.
fn node(
    row: &Row,
    advertised: SocketAddr,
    partitioner: &str,
    known: &mut KnownNodes,
) -> Option<Node> {
    let host_id = row.uuid("host_id")?;
    let datacentre = row.text("data_center")?.to_owned();
    Some(Node {
        id: known.id(host_id)?,
        host_id,
        address: known.reachable(host_id, advertised),
        datacentre,
        rack: row.text("rack")?.to_owned(),
        tokens: parse_tokens(partitioner, row.texts("tokens")),
        up: true,
        release_version: row.text("release_version").unwrap_or_default().to_owned(),
    })
}

/// Highest protocol version of a server of this release: v5 since 4.0, v4 since 2.2, v3 since 2.1.
/// `None` for an unknown version.
pub(super) fn protocol_version_max(release_version: &str) -> Option<u8> {
    let mut numbers =
        release_version.split(['.', '-', '+', '~']).map_while(|part| part.parse::<u32>().ok());
    Some(match (numbers.next()?, numbers.next().unwrap_or_default()) {
        (4.., _) => 5,
        (3, _) | (2, 2..) => 4,
        _ => 3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_their_protocol_versions() {
        assert_eq!(protocol_version_max("5.0.9"), Some(5));
        assert_eq!(protocol_version_max("4.0-rc1"), Some(5));
        assert_eq!(protocol_version_max("3.11.19"), Some(4));
        assert_eq!(protocol_version_max("2.2"), Some(4));
        assert_eq!(protocol_version_max("2.1.22"), Some(3));
        assert_eq!(protocol_version_max("trunk"), None);
    }

    #[test]
    fn a_node_keeps_its_number() {
        let mut known = KnownNodes::default();
        assert_eq!(
            (known.id(7), known.id(9), known.id(7)),
            (Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(0)))
        );
    }
}
