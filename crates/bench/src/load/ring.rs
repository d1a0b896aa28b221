//! Reads the ring from the answers to the first connection, for a load that sends each query to a
//! replica of its key.

use std::net::{IpAddr, SocketAddr};

use shunt_topology::{Keyspace, Node, NodeId, Replication, RoutingTable, token::parse_tokens};
use shunt_wire::cql::message::{Reader, ResultMessage, Row, Rows};

/// The nodes and the replication, as far as read.
#[derive(Debug, Default)]
pub(super) struct RingView {
    nodes: Vec<Node>,
    partitioner: String,
    replication: Option<Replication>,
}

/// A row with access by column name.
struct Named<'a> {
    rows: &'a Rows<'a>,
    row: Row<'a>,
}

impl<'a> Named<'a> {
    fn bytes(&self, column: &str) -> Option<&'a [u8]> {
        self.row.get(self.rows.metadata.column_index(column)?)
    }

    fn text(&self, column: &str) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(column)?).ok()
    }

    fn uuid(&self, column: &str) -> Option<u128> {
        Some(u128::from_be_bytes(self.bytes(column)?.try_into().ok()?))
    }

    fn ip(&self, column: &str) -> Option<IpAddr> {
        let bytes = self.bytes(column)?;
        let ip = match <[u8; 4]>::try_from(bytes) {
            Ok(v4) => IpAddr::from(v4),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        };
        (!ip.is_unspecified()).then_some(ip)
    }

    fn port(&self, column: &str) -> Option<u16> {
        let port = i32::from_be_bytes(self.bytes(column)?.try_into().ok()?);
        u16::try_from(port).ok().filter(|&port| port > 0)
    }

    /// Returns the elements of a list or set of text; keys and values of a map in turn.
    fn texts(&self, column: &str, per_entry: usize) -> Vec<&'a str> {
        let read = |bytes| {
            let mut reader = Reader::new(bytes);
            let count = reader.count("count").ok()? * per_entry;
            (0..count).map(|_| std::str::from_utf8(reader.bytes("element").ok()??).ok()).collect()
        };
        self.bytes(column).and_then(read).unwrap_or_default()
    }
}

fn decode<'a>(version: u8, body: &'a [u8], table: &str) -> Result<Rows<'a>, String> {
    match ResultMessage::decode(version, body) {
        Ok(ResultMessage::Rows(rows)) => Ok(rows),
        Ok(_) => Err(format!("a SELECT of {table} was answered without rows")),
        Err(error) => Err(format!("the rows of {table}: {error}")),
    }
}

impl RingView {
    /// Reads the answer of `system.local` from the node at `reached`, and drops earlier knowledge.
    pub(super) fn take_local(
        &mut self,
        version: u8,
        body: &[u8],
        reached: SocketAddr,
    ) -> Result<(), String> {
        *self = Self::default();
        let rows = decode(version, body, "system.local")?;
        let row = rows.rows().next().and_then(Result::ok).ok_or("system.local is empty")?;
        let row = Named { rows: &rows, row };
        self.partitioner = row.text("partitioner").unwrap_or_default().to_owned();
        let ip = row.ip("rpc_address").unwrap_or(reached.ip());
        let address = SocketAddr::new(ip, row.port("rpc_port").unwrap_or(reached.port()));
        self.nodes.extend(self.node(&row, address));
        Ok(())
    }

    /// Reads the answer of `system.peers_v2` or `system.peers`. A peer without a port gets the port
    /// of the target on its IP address, or else that of the first target.
    pub(super) fn take_peers(
        &mut self,
        version: u8,
        body: &[u8],
        targets: &[SocketAddr],
    ) -> Result<(), String> {
        let rows = decode(version, body, "system.peers")?;
        for row in rows.rows() {
            let row = Named {
                rows: &rows,
                row: row.map_err(|error| format!("the rows of system.peers: {error}"))?,
            };
            let ip = row
                .ip("native_address")
                .or_else(|| row.ip("rpc_address"))
                .or_else(|| row.ip("peer"));
            let Some(ip) = ip else { continue };
            let near = targets.iter().find(|target| target.ip() == ip).or(targets.first());
            let port = row.port("native_port").or(near.map(SocketAddr::port)).unwrap_or_default();
            self.nodes.extend(self.node(&row, SocketAddr::new(ip, port)));
        }
        Ok(())
    }

    /// Reads the answer of `system_schema.keyspaces`.
    pub(super) fn take_replication(&mut self, version: u8, body: &[u8]) -> Result<(), String> {
        let rows = decode(version, body, "system_schema.keyspaces")?;
        let row = rows
            .rows()
            .next()
            .and_then(Result::ok)
            .ok_or("the keyspace is not in system_schema.keyspaces")?;
        let texts = Named { rows: &rows, row }.texts("replication", 2);
        let (pairs, _) = texts.as_chunks::<2>();
        self.replication = Some(Replication::parse(pairs.iter().map(|&[key, value]| (key, value))));
        Ok(())
    }

    /// Returns the node of a row; `None` while the node joins and its row is incomplete.
    fn node(&self, row: &Named<'_>, address: SocketAddr) -> Option<Node> {
        Some(Node {
            id: NodeId(u16::try_from(self.nodes.len()).ok()?),
            host_id: row.uuid("host_id")?,
            address,
            datacentre: row.text("data_center")?.to_owned(),
            rack: row.text("rack")?.to_owned(),
            tokens: parse_tokens(&self.partitioner, row.texts("tokens", 1)),
            up: true,
            release_version: row.text("release_version").unwrap_or_default().to_owned(),
        })
    }

    /// Returns the routing table of `keyspace`, and the node of each target.
    ///
    /// # Errors
    /// The ring has no token routing, a target is not a node of the ring, or a node that may hold
    /// keys is not a target.
    pub(super) fn route(
        self,
        keyspace: &str,
        targets: &[SocketAddr],
    ) -> Result<(RoutingTable, Vec<NodeId>), String> {
        let replication = self.replication.unwrap_or(Replication::Unknown);
        if matches!(replication, Replication::Local | Replication::Unknown)
            || self.nodes.iter().all(|node| node.tokens.is_empty())
        {
            return Err(format!(
                "--token-aware: keys have no replicas with {replication:?} of keyspace {keyspace} and partitioner {}",
                self.partitioner
            ));
        }
        let mut of_targets = Vec::new();
        for target in targets {
            let mut near = self.nodes.iter().filter(|node| node.address.ip() == target.ip());
            let exact = self.nodes.iter().find(|node| node.address == *target);
            let node = match (exact, near.next(), near.next()) {
                (Some(node), ..) | (None, Some(node), None) => node.id,
                _ => {
                    return Err(format!(
                        "--token-aware: target {target} is not a node of the ring"
                    ));
                }
            };
            if of_targets.contains(&node) {
                return Err(format!(
                    "--token-aware: target {target} is a node that is a target already"
                ));
            }
            of_targets.push(node);
        }
        let datacentre = &self.nodes[0].datacentre;
        let missing = self.nodes.iter().find(|node| {
            !node.tokens.is_empty()
                && node.datacentre == *datacentre
                && !of_targets.contains(&node.id)
        });
        if let Some(node) = missing {
            return Err(format!(
                "--token-aware: {} is in the ring but not a --target",
                node.address
            ));
        }
        let keyspaces = vec![Keyspace { name: keyspace.to_owned(), replication }];
        let datacentre = datacentre.clone();
        Ok((RoutingTable::build(self.nodes, keyspaces, Vec::new(), Some(&datacentre)), of_targets))
    }
}
