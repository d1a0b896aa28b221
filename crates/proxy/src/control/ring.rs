//! Reads the members of the ring: `system.local` and `system.peers_v2` (or `system.peers`) into
//! nodes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
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
use super::ring_bounds::{self, TokenBounds};
use super::ring_identity::Members;
use super::tables::{self, Row};

/// Time for the advertised address of the control node to answer, before the contact address is
/// used instead.
const ADVERTISED_LIMIT: Duration = Duration::from_secs(2);

/// Nodes outside the ring whose numbers stay theirs. A node that another node does not know yet, or
/// that is away for a while, comes back with its number.
const ABSENT_MAX: usize = 1024;

/// The ring as one node describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// Nodes of the ring, in order of their numbers, all `up`: these tables do not say whether they
    /// are.
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
    /// Bounds that the ring exceeds, and what that means: nodes are left out, or have no tokens
    /// here.
    pub(super) excess: Vec<String>,
}

impl Ring {
    /// The node with this number.
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        let place = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        self.nodes.get(place)
    }
}

/// The schema versions of all nodes, as one node tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaVersions {
    /// Host id of the node asked.
    pub(super) asked: u128,
    /// Host ids, that of the node asked included, and versions. `None`: the version is not known.
    pub(super) nodes: BTreeMap<u128, Option<u128>>,
}

impl SchemaVersions {
    /// The versions of the node asked and of its peers. A remnant of a node at its former address
    /// may have an old version, and nobody can tell which row of the two is the remnant. So a node
    /// with two versions has none that is known.
    pub(super) fn new(
        asked: u128,
        own: Option<u128>,
        peers: impl IntoIterator<Item = (u128, Option<u128>)>,
    ) -> Self {
        let mut nodes = BTreeMap::new();
        for (host_id, version) in peers {
            let known = nodes.entry(host_id).or_insert(version);
            if *known != version {
                *known = None;
            }
        }
        // A remnant of the node asked says nothing about it.
        nodes.insert(asked, own);
        Self { asked, nodes }
    }
}

/// Numbers and addresses of the nodes of the ring, and of some that were in it before.
///
/// A number passes to another node once many nodes have left after its owner. Cores compare the
/// host ids of a number's owners, so that no link leads to the wrong one. A core's report about the
/// former owner that is still on its way then concerns the new one, which costs a probe. The
/// counters of a number go on under the address of its new owner.
#[derive(Debug, Default)]
pub(super) struct KnownNodes {
    ids: HashMap<u128, NodeId>,
    /// Host ids of nodes that have left the ring, in the order in which they left.
    absent: VecDeque<u128>,
    /// Nodes reached at another address than the one they advertise: host id -> (advertised,
    /// reachable).
    detours: HashMap<u128, (SocketAddr, SocketAddr)>,
}

impl KnownNodes {
    /// The number of a node that is in the ring; the same for the same host id, whatever its
    /// address. `None` when the ring uses all 65,536.
    fn id(&mut self, host_id: u128) -> Option<NodeId> {
        if let Some(id) = self.ids.get(&host_id) {
            return Some(*id);
        }
        let unused = u16::try_from(self.ids.len()).ok();
        let id = match unused.filter(|_| self.absent.len() <= ABSENT_MAX) {
            Some(number) => NodeId(number),
            None => self.forget_one()?,
        };
        self.ids.insert(host_id, id);
        Some(id)
    }

    /// Forgets the node that has been away for longest; returns its number.
    fn forget_one(&mut self) -> Option<NodeId> {
        let host_id = self.absent.pop_front()?;
        self.detours.remove(&host_id);
        self.ids.remove(&host_id)
    }

    /// Notes which nodes are in the ring now, before those that are new get numbers.
    fn note_members(&mut self, members: &HashSet<u128>) {
        self.absent.retain(|host_id| !members.contains(host_id));
        let absent: HashSet<u128> = self.absent.iter().copied().collect();
        let left = self.ids.keys().filter(|host_id| !members.contains(host_id));
        self.absent.extend(left.filter(|host_id| !absent.contains(host_id)));
        // A node without a number may have been asked too.
        let ids = &self.ids;
        self.detours.retain(|host_id, _| members.contains(host_id) || ids.contains_key(host_id));
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
/// `access`: the present way to reach a node, which may differ from the connection's.
pub(super) async fn read(
    connection: &mut Connection,
    known: &mut KnownNodes,
    node_port: u16,
    limit: Duration,
    access: &Access,
) -> Result<Ring, ControlError> {
    let rows =
        tables::read(connection, "SELECT * FROM system.local WHERE key = 'local'", limit).await?;
    let local = rows.first().ok_or(ControlError::Incomplete("a row in system.local"))?;
    let host_id =
        local.uuid("host_id").ok_or(ControlError::Incomplete("host_id in system.local"))?;
    let text = |column| local.text(column).unwrap_or_default().to_owned();
    let partitioner = text("partitioner");
    ring_bounds::check_own(local)?;
    let advertised = local_address(local, connection.address);
    note_detour(known, host_id, advertised, connection.address, access).await;

    let mut peers = usable(peers(connection, limit).await?, host_id, node_port);
    let too_many = ring_bounds::leave_out_excess(&mut peers);
    let tokens = TokenBounds::of(peers.iter().map(|peer| &peer.row).chain([local]));
    known.note_members(&peers.iter().map(|peer| peer.host_id).chain([host_id]).collect());
    let mut nodes = Vec::new();
    nodes.extend(node(local, advertised, &partitioner, known, &tokens));
    for Peer { row, address, .. } in &peers {
        nodes.extend(node(row, *address, &partitioner, known, &tokens));
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
        excess: too_many.into_iter().chain(tokens.excess()).collect(),
    })
}

/// Another node that has a host id and an address.
struct Peer {
    row: Row,
    host_id: u128,
    address: SocketAddr,
}

/// The nodes of these rows. A row without a host id or an address is of a node that is just
/// joining, or a remnant of one that has left. `asked`: the node that has these rows.
fn usable(rows: Vec<Row>, asked: u128, node_port: u16) -> Vec<Peer> {
    let peers = rows.into_iter().filter_map(|row| {
        let (host_id, address) = (row.uuid("host_id"), peer_address(&row, node_port));
        let (Some(host_id), Some(address)) = (host_id, address) else {
            debug!("a row of peers has no host id or no address yet, so it is left out");
            return None;
        };
        Some(Peer { row, host_id, address })
    });
    peers.filter(|peer| peer.host_id != asked).collect()
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

/// The host id of the node.
pub(super) async fn host_id(
    connection: &mut Connection,
    limit: Duration,
) -> Result<u128, ControlError> {
    let query = "SELECT host_id FROM system.local WHERE key = 'local'";
    let rows = tables::read(connection, query, limit).await?;
    let host_id = rows.first().and_then(|local| local.uuid("host_id"));
    host_id.ok_or(ControlError::Incomplete("host_id"))
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

/// Reads the schema versions of the node asked and of its peers. A row of a peer counts if
/// [`read`] takes it for a node.
pub(super) async fn schema_versions(
    connection: &mut Connection,
    limit: Duration,
) -> Result<SchemaVersions, ControlError> {
    let query = "SELECT host_id, schema_version FROM system.local WHERE key = 'local'";
    let rows = tables::read(connection, query, limit).await?;
    let local = rows.first().ok_or(ControlError::Incomplete("a row in system.local"))?;
    let asked = local.uuid("host_id").ok_or(ControlError::Incomplete("host_id in system.local"))?;
    let rows = peers(connection, limit).await?;
    // The ports of the peers do not matter here.
    let mut peers = usable(rows, asked, connection.address.port());
    ring_bounds::leave_out_excess(&mut peers);
    let peers = peers.iter().map(|peer| (peer.host_id, peer.row.uuid("schema_version")));
    Ok(SchemaVersions::new(asked, local.uuid("schema_version"), peers))
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
    access: &Access,
) {
    if advertised == reached || known.reachable(host_id, advertised) == reached {
        return;
    }
    let access = Access { limit: ADVERTISED_LIMIT, name: None, ..access.clone() };
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
    tokens: &TokenBounds,
) -> Option<Node> {
    let host_id = row.uuid("host_id")?;
    let datacentre = row.text("data_center")?.to_owned();
    Some(Node {
        id: known.id(host_id)?,
        host_id,
        address: known.reachable(host_id, advertised),
        datacentre,
        rack: row.text("rack")?.to_owned(),
        tokens: parse_tokens(partitioner, tokens.read(row)),
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

    #[test]
    fn a_node_has_one_schema_version_or_none_that_is_known() {
        fn of(peers: &[(u128, Option<u128>)]) -> Vec<(u128, Option<u128>)> {
            SchemaVersions::new(1, Some(7), peers.iter().copied()).nodes.into_iter().collect()
        }
        assert_eq!(of(&[(2, Some(8)), (2, Some(8))]), [(1, Some(7)), (2, Some(8))]);
        for rows in [[Some(8), Some(7), Some(7)], [Some(7), None, Some(7)], [None; 3]] {
            assert_eq!(of(&rows.map(|version| (2, version))), [(1, Some(7)), (2, None)]);
        }
        assert_eq!(of(&[(1, Some(6)), (1, None)]), [(1, Some(7))], "a remnant of the node asked");
    }

    /// Lets nodes join and leave one after another, next to those that stay; returns the numbers.
    fn joined(known: &mut KnownNodes, stay: &[u128], count: u128) -> HashSet<NodeId> {
        let mut used = HashSet::new();
        for host_id in 1_000..1_000 + count {
            let members = stay.iter().copied().chain([host_id]).collect();
            known.note_members(&members);
            used.insert(known.id(host_id).expect("a number"));
        }
        used
    }

    #[test]
    fn numbers_of_nodes_that_left_long_ago_are_given_to_others() {
        let mut known = KnownNodes::default();
        let (first, gone) = (known.id(7), known.id(9));
        let used = joined(&mut known, &[7], 5_000);
        assert!(used.len() <= ABSENT_MAX + 2, "{}", used.len());
        assert!(known.ids.len() <= ABSENT_MAX + 3 && known.absent.len() <= ABSENT_MAX + 1);
        assert_eq!(known.id(7), first);
        assert!(first.is_some_and(|first| !used.contains(&first)), "a member has lost its number");
        assert!(gone.is_some_and(|gone| used.contains(&gone)));
    }

    #[test]
    fn detours_are_forgotten_with_the_ring() {
        let mut known = KnownNodes::default();
        let address = SocketAddr::from(([10, 0, 0, 1], 9042));
        for host_id in 0..10 {
            known.detours.insert(host_id, (address, address));
            known.note_members(&HashSet::from([host_id]));
            assert_eq!(known.detours.len(), 1);
        }
    }

    #[test]
    fn a_node_that_comes_back_has_its_number_again() {
        let mut known = KnownNodes::default();
        let back = known.id(9);
        for _ in 0..2 {
            joined(&mut known, &[], ABSENT_MAX as u128 / 2);
            known.note_members(&HashSet::from([9]));
            assert_eq!(known.id(9), back);
        }
    }

    #[test]
    fn two_members_never_have_one_number() {
        let mut known = KnownNodes::default();
        for round in 0..60_u128 {
            // Every third round has nodes of earlier ones again.
            let first = if round % 3 == 2 { round * 100 } else { round * 300 };
            let members: HashSet<u128> = (first..first + 700).collect();
            known.note_members(&members);
            let numbers: HashSet<NodeId> =
                members.iter().filter_map(|host_id| known.id(*host_id)).collect();
            assert_eq!(numbers.len(), members.len(), "round {round}");
        }
    }
}
