//! A proxy as a row of `system.local`, `system.peers` or `system.peers_v2` shows it.
//!
//! A member of a fleet and the other members build its row here, so that they agree: the host id is
//! a function of the cluster's name and the member's address, and all values that are not the
//! member's own come from what all members know of the ring.

use std::net::{IpAddr, SocketAddr};

use shunt_topology::token;
use shunt_wire::cql::message::encode_result::native;
use shunt_wire::cql::message::put;

use crate::control::state::ClusterState;

/// A host that the proxy shows instead of nodes.
pub(super) struct Host<'a> {
    address: SocketAddr,
    id: [u8; 16],
    token: String,
    /// Common values of the fleet; `None`: this is the only proxy, and values that do not concern
    /// it come from the node.
    place: Option<Place<'a>>,
}

/// The values common to all members of a fleet.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    cluster_name: &'a str,
    partitioner: &'a str,
    datacentre: &'a str,
    rack: &'a str,
    /// Empty if unknown.
    release_version: &'a str,
    /// 0 if unknown.
    schema_version: u128,
}

impl<'a> Place<'a> {
    /// The local datacentre, and the first of its racks by name: neither the node that answers nor
    /// the one of the control connection matters.
    pub(super) fn of(cluster: &'a ClusterState) -> Self {
        let nodes = cluster.routing.nodes().iter();
        let local =
            nodes.filter(|node| node.datacentre == cluster.datacentre && !node.rack.is_empty());
        Self {
            cluster_name: &cluster.cluster_name,
            partitioner: &cluster.partitioner,
            datacentre: &cluster.datacentre,
            rack: local.map(|node| &*node.rack).min().unwrap_or(&cluster.rack),
            release_version: &cluster.release_version,
            schema_version: cluster.schema_version,
        }
    }
}

impl<'a> Host<'a> {
    /// The only proxy. One token makes it own the whole ring.
    pub(super) fn alone(cluster_name: &str, address: SocketAddr) -> Self {
        Self { address, id: host_id(cluster_name, address), token: "0".to_owned(), place: None }
    }

    /// A member of a fleet.
    pub(super) fn member(place: Place<'a>, address: SocketAddr) -> Self {
        let token = own_token(place.partitioner, place.cluster_name, address);
        Self { address, id: host_id(place.cluster_name, address), token, place: Some(place) }
    }

    /// The address at which clients reach it.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The host's only token, in the partitioner's notation.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The host's port, for a table without ports.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The host's value of a column of that type; `None` if it has none, or the column has another
    /// type.
    pub(super) fn value(&self, column: &str, cql_type: Option<&[u8]>) -> Option<Vec<u8>> {
        let (own_type, value) = self.typed_value(column)?;
        cql_type.is_none_or(|found| found == own_type).then_some(value)
    }

    /// The host's value of a column, with the type.
    pub(super) fn typed_value(&self, column: &str) -> Option<(&'static [u8], Vec<u8>)> {
        Some(match column {
            "rpc_address" | "broadcast_address" | "listen_address" => self.inet(),
            // Several members may share an IP address: the keys of `system.peers_v2` must differ.
            "peer_port" | "preferred_port" | "broadcast_port" | "listen_port" | "rpc_port"
            | "native_port" => self.int_port(),
            "host_id" => (native::UUID, self.id.to_vec()),
            "tokens" => {
                let mut set = Vec::new();
                put::int(&mut set, 1);
                put::bytes(&mut set, Some(self.token.as_bytes()));
                (native::SET_OF_TEXT, set)
            }
            _ => return self.value_of_member(&self.place?, column),
        })
    }

    /// Columns that only members of a fleet have a value for.
    fn value_of_member(&self, place: &Place<'a>, column: &str) -> Option<(&'static [u8], Vec<u8>)> {
        let text = |text: &str| (native::TEXT, text.as_bytes().to_vec());
        Some(match column {
            "peer" | "preferred_ip" | "native_address" => self.inet(),
            "data_center" => text(place.datacentre),
            "rack" => text(place.rack),
            "release_version" if !place.release_version.is_empty() => text(place.release_version),
            "schema_version" if place.schema_version != 0 => {
                (native::UUID, place.schema_version.to_be_bytes().to_vec())
            }
            _ => return None,
        })
    }

    fn inet(&self) -> (&'static [u8], Vec<u8>) {
        match self.address.ip() {
            IpAddr::V4(ip) => (native::INET, ip.octets().to_vec()),
            IpAddr::V6(ip) => (native::INET, ip.octets().to_vec()),
        }
    }

    fn int_port(&self) -> (&'static [u8], Vec<u8>) {
        (native::INT, i32::from(self.address.port()).to_be_bytes().to_vec())
    }
}

/// A host id that stays the same as long as cluster and address do, on every core and after every
/// restart.
fn host_id(cluster_name: &str, address: SocketAddr) -> [u8; 16] {
    let seed = format!("shunt proxy of {cluster_name} at {address}");
    let (high, low) =
        (token::token(seed.as_bytes()).0, token::token(format!("{seed} ").as_bytes()).0);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    // RFC 9562, section 5.8: version 8 (custom), variant 10.
    id[6] = (id[6] & 0x0f) | 0x80;
    id[8] = (id[8] & 0x3f) | 0x80;
    id
}

/// A member's token in the partitioner's notation; it stays the same whoever else joins or leaves.
fn own_token(partitioner: &str, cluster_name: &str, address: SocketAddr) -> String {
    let half = |salt: &str| {
        token::token(format!("token{salt} of {cluster_name} at {address}").as_bytes()).0
    };
    let unsigned = (half("").cast_unsigned(), half(" ").cast_unsigned());
    match partitioner.rsplit('.').next() {
        // The range is 0 to 2^127.
        Some("RandomPartitioner") => {
            ((u128::from(unsigned.0) << 63) ^ u128::from(unsigned.1 >> 1)).to_string()
        }
        Some("ByteOrderedPartitioner" | "OrderPreservingPartitioner") => {
            format!("{:016x}", unsigned.0)
        }
        _ => half("").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PLACE: Place<'static> = Place {
        cluster_name: "ring",
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner",
        datacentre: "dc1",
        rack: "r1",
        release_version: "5.0.2",
        schema_version: 7,
    };

    fn address(number: u16) -> SocketAddr {
        ([10, 0, (number >> 8) as u8, number as u8], 9042).into()
    }

    /// Clients identify hosts by their ids, and keep them over an upgrade of the proxy.
    #[test]
    fn host_ids_are_those_of_earlier_releases() {
        let id = |cluster: &str, at: &str| {
            let id = host_id(cluster, at.parse().expect("address"));
            format!("{:032x}", u128::from_be_bytes(id))
        };
        assert_eq!(id("Test Cluster", "127.0.0.1:9042"), "0013464493c3872f9f7710aa243407ac");
        assert_eq!(id("ring", "[2001:db8::1]:9142"), "86c1f7eef88788a39142070c824ed33c");
    }

    #[test]
    fn each_member_has_its_own_token_whatever_the_partitioner() {
        for partitioner in
            ["Murmur3Partitioner", "RandomPartitioner", "ByteOrderedPartitioner", "a.b.Local"]
        {
            let partitioner = format!("org.apache.cassandra.dht.{partitioner}");
            let tokens: HashSet<String> =
                (0..2_000).map(|number| own_token(&partitioner, "ring", address(number))).collect();
            assert_eq!(tokens.len(), 2_000);
            for token in tokens {
                match partitioner.rsplit('.').next() {
                    Some("RandomPartitioner") => {
                        assert!(token.parse::<u128>().expect("number") < 1 << 127)
                    }
                    Some("ByteOrderedPartitioner") => {
                        assert!(token.len() == 16 && u64::from_str_radix(&token, 16).is_ok())
                    }
                    _ => assert_eq!(token.parse::<i64>().expect("number").to_string(), token),
                }
            }
        }
    }

    #[test]
    fn a_member_alone_in_its_fleet_keeps_its_host_id() {
        let (alone, member) = (Host::alone("ring", address(1)), Host::member(PLACE, address(1)));
        assert_eq!(alone.value("host_id", None), member.value("host_id", None));
        assert_ne!(alone.value("tokens", None), member.value("tokens", None));
    }

    #[test]
    fn unknown_columns_have_no_value() {
        let unknown = Place { release_version: "", schema_version: 0, ..PLACE };
        let (known, unknown) = (Host::member(PLACE, address(1)), Host::member(unknown, address(1)));
        for column in ["release_version", "schema_version"] {
            assert!(
                known.value(column, None).is_some() && unknown.value(column, None).is_none(),
                "{column}"
            );
        }
        assert_eq!(known.value("graph", None), None);
        assert_eq!(known.value("rack", Some(native::BLOB)), None, "a function's alias");
        assert_eq!(Host::alone("ring", address(1)).value("rack", None), None);
    }
}
