//! The rows that drivers read: without a fleet, in one, with every list of columns that the common
//! drivers ask for, and from nodes that answer garbage.

mod drivers;
mod expressions;
mod hostile;
mod selections;

use std::sync::Arc;

use shunt_topology::{Node, NodeId, RoutingTable};
use shunt_wire::cql::message::encode_result::native::{BIGINT, INET, INT, SET_OF_TEXT, TEXT, UUID};
use shunt_wire::cql::message::encode_result::{Column as Specification, RowsWriter};
use shunt_wire::cql::message::{ResultMessage, Row, Values};

use super::*;
use crate::fleet::roster::Member;

/// Columns of `system.local` of Cassandra 5.0 that drivers look at.
const LOCAL: &[Specification<'static>] = &[
    ("key", TEXT),
    ("broadcast_address", INET),
    ("broadcast_port", INT),
    ("cluster_name", TEXT),
    ("data_center", TEXT),
    ("host_id", UUID),
    ("listen_address", INET),
    ("listen_port", INT),
    ("partitioner", TEXT),
    ("rack", TEXT),
    ("release_version", TEXT),
    ("rpc_address", INET),
    ("rpc_port", INT),
    ("schema_version", UUID),
    ("tokens", SET_OF_TEXT),
];
/// The columns of `system.peers`.
const PEERS: &[Specification<'static>] = &[
    ("peer", INET),
    ("data_center", TEXT),
    ("host_id", UUID),
    ("preferred_ip", INET),
    ("rack", TEXT),
    ("release_version", TEXT),
    ("rpc_address", INET),
    ("schema_version", UUID),
    ("tokens", SET_OF_TEXT),
];
/// The columns of `system.peers_v2`.
const PEERS_V2: &[Specification<'static>] = &[
    ("peer", INET),
    ("peer_port", INT),
    ("data_center", TEXT),
    ("host_id", UUID),
    ("native_address", INET),
    ("native_port", INT),
    ("preferred_ip", INET),
    ("preferred_port", INT),
    ("rack", TEXT),
    ("release_version", TEXT),
    ("schema_version", UUID),
    ("tokens", SET_OF_TEXT),
];

/// The rows of a result, with the raw values.
type Shown = Vec<Vec<Option<Vec<u8>>>>;

fn rows_in(version: u8, body: &[u8]) -> Shown {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, body) else {
        panic!("no rows: {body:x?}")
    };
    let values = |row: Row<'_>| row.values().map(|value| value.map(<[u8]>::to_vec)).collect();
    rows.rows().map(|row| values(row.expect("row"))).collect()
}

/// A node's answer with these columns and values.
fn answer(columns: &[Specification<'_>], values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = RowsWriter::new(&mut body, "system", "peers", columns);
    for value in values {
        writer.value(*value);
    }
    writer.finish();
    body
}

/// A ring of two nodes in two racks, and one in another datacentre.
fn cluster() -> ClusterState {
    let node = |number: u8, datacentre: &str, rack: &str| Node {
        id: NodeId(number.into()),
        host_id: number.into(),
        address: ([10, 9, 0, number], 9042).into(),
        datacentre: datacentre.to_owned(),
        rack: rack.to_owned(),
        tokens: vec![i64::from(number)],
        up: true,
        release_version: "5.0.2".to_owned(),
    };
    let nodes = vec![node(1, "dc1", "r3"), node(2, "dc1", "r2"), node(3, "dc2", "r1")];
    ClusterState {
        drained: Vec::new(),
        modes: None,
        generation: 1,
        routing: Arc::new(RoutingTable::build(nodes, Vec::new(), Vec::new(), Some("dc1"))),
        protocol_version_max: 5,
        authenticator: None,
        cluster_name: "ring".to_owned(),
        release_version: "5.0.2".to_owned(),
        cql_version: "3.4.7".to_owned(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        compressions: Vec::new(),
        datacentre: "dc1".to_owned(),
        rack: "r3".to_owned(),
        schema_version: 0x5c,
    }
}

/// The proxies at 10.0.0.1 to 10.0.0.3, seen from the one with this number.
fn fleet(own: u8) -> Fleet {
    let member =
        |number| Member { address: ([10, 0, 0, number], 9042).into(), incarnation: [number; 16] };
    Fleet::new((1..=3).map(member).collect(), usize::from(own) - 1).expect("a fleet")
}

/// A read of one of the tables, and what a node answers to it.
struct Read<'a> {
    table: SystemTable,
    text: &'a str,
    values: Values<'a>,
    answer: Vec<u8>,
    known: Vec<ResultColumn>,
}

impl<'a> Read<'a> {
    /// A read that a node has no rows for.
    fn new(table: SystemTable, text: &'a str, columns: &[Specification<'_>]) -> Read<'a> {
        Read {
            table,
            text,
            values: Values::default(),
            answer: answer(columns, &[]),
            known: Vec::new(),
        }
    }

    fn found(&self) -> Found<'_> {
        Found { table: self.table, version: 4, flags: 0, body: &self.answer, known: &self.known }
    }

    fn in_fleet(&self, fleet: &Fleet) -> Result<Option<Vec<u8>>, Fault> {
        let asked = Asked::new(self.text, self.values);
        show_fleet(&self.found(), fleet, &cluster(), Some(&asked), 1 << 20)
    }

    /// Rows that proxy 1 of the fleet shows.
    fn rows(&self) -> Shown {
        let shown =
            self.in_fleet(&fleet(1)).unwrap_or_else(|fault| panic!("{}: {fault:?}", self.text));
        rows_in(4, &shown.expect("rows"))
    }
}

/// The rows of a result with one row of these columns, types and values, as the proxy shows them
/// without a fleet.
fn shown_alone(table: SystemTable, columns: &[(&str, &[u8], &[u8])]) -> Shown {
    let named: Vec<_> = columns.iter().map(|(name, cql_type, _)| (*name, *cql_type)).collect();
    let values: Vec<_> = columns.iter().map(|(_, _, value)| Some(*value)).collect();
    let body = answer(&named, &values);
    let host = Host::alone("ring", "127.0.0.1:9042".parse().expect("address"));
    let found = Found { table, version: 4, flags: 0, body: &body, known: &[] };
    let asked = Asked::new("SELECT * FROM system.local", Values::default());
    rows_in(4, &show_alone(&found, &host, Some(&asked)).expect("shown").expect("rows"))
}

fn alone() -> Host<'static> {
    Host::alone("ring", "127.0.0.1:9042".parse().expect("address"))
}

#[test]
fn without_a_fleet_there_are_no_peers_and_their_number_is_0() {
    for table in [SystemTable::Peers, SystemTable::PeersV2] {
        assert!(shown_alone(table, &[("peer", INET, &[127, 0, 0, 2])]).is_empty());
        assert_eq!(
            shown_alone(table, &[("count", BIGINT, &2i64.to_be_bytes())]),
            [[Some(vec![0; 8])]]
        );
    }
}

#[test]
fn a_column_with_the_name_of_another_keeps_its_value() {
    let id =
        shown_alone(SystemTable::Local, &[("host_id", UUID, &[1; 16]), ("host_id", TEXT, b"name")]);
    assert_eq!(id, [[alone().value("host_id", None), Some(b"name".to_vec())]]);
}

#[test]
fn without_a_fleet_only_what_is_about_the_proxy_differs_from_the_node() {
    let values: Vec<Vec<u8>> = (1..=LOCAL.len() as u8).map(|number| vec![number]).collect();
    let columns: Vec<_> = LOCAL
        .iter()
        .zip(&values)
        .map(|((name, cql_type), value)| (*name, *cql_type, &**value))
        .collect();
    let shown = shown_alone(SystemTable::Local, &columns);
    for (index, (name, ..)) in columns.iter().enumerate() {
        let own = [
            "rpc_address",
            "rpc_port",
            "broadcast_address",
            "broadcast_port",
            "listen_address",
            "listen_port",
            "host_id",
            "tokens",
        ]
        .contains(name);
        assert_eq!(shown[0][index].as_ref() != Some(&values[index]), own, "{name}");
    }
    assert_eq!(shown[0][14], Some([&[0, 0, 0, 1, 0, 0, 0, 1][..], b"0"].concat()));
}

#[test]
fn a_member_shows_of_itself_what_the_others_show_of_it() {
    for number in 1..=3 {
        let node: Vec<Option<&[u8]>> = LOCAL.iter().map(|_| Some(&b"node"[..])).collect();
        let mut local = Read::new(SystemTable::Local, "SELECT * FROM system.local", LOCAL);
        local.answer = answer(LOCAL, &node);
        let local = rows_in(4, &local.in_fleet(&fleet(number)).expect("shown").expect("rows"));
        let local = |column: &str| {
            local[0][LOCAL.iter().position(|(name, _)| *name == column).expect(column)].clone()
        };
        for other in (1..=3).filter(|other| *other != number) {
            let peers = Read::new(SystemTable::PeersV2, "SELECT * FROM system.peers_v2", PEERS_V2);
            let peers = rows_in(4, &peers.in_fleet(&fleet(other)).expect("shown").expect("rows"));
            let row =
                peers.iter().find(|row| row[0] == Some(vec![10, 0, 0, number])).expect("a row");
            for (index, (column, _)) in PEERS_V2.iter().enumerate() {
                let own = match *column {
                    "peer" | "preferred_ip" => "broadcast_address",
                    "peer_port" | "preferred_port" => "broadcast_port",
                    "native_address" => "rpc_address",
                    "native_port" => "rpc_port",
                    same => same,
                };
                assert!(row[index].is_some(), "{column}");
                assert_eq!(row[index], local(own), "{column} of {number} as {other} shows it");
            }
        }
        for (column, expected) in [
            ("data_center", &b"dc1"[..]),
            ("rack", b"r2"),
            ("release_version", b"5.0.2"),
            ("cluster_name", b"node"),
        ] {
            assert_eq!(local(column).as_deref(), Some(expected), "{column}");
        }
    }
}

/// Drivers compare the version in `system.local` with those of the peers, and wait while they
/// differ.
#[test]
fn all_members_have_one_schema_version_whatever_the_node_says() {
    let text = "SELECT schema_version FROM system.local WHERE key='local'";
    let columns = [("schema_version", UUID)];
    let mut read = Read::new(SystemTable::Local, text, &columns);
    read.answer = answer(&columns, &[Some(&[9; 16])]);
    assert_eq!(read.rows(), [[Some(0x5cu128.to_be_bytes().to_vec())]]);
    // While the fleet's version is unknown, the node's is shown, and no peer has one.
    let unknown = ClusterState { schema_version: 0, ..cluster() };
    let shown = |read: &Read<'_>| {
        let asked = Asked::new(read.text, read.values);
        let shown = show_fleet(&read.found(), &fleet(1), &unknown, Some(&asked), 1 << 20);
        rows_in(4, &shown.expect("shown").expect("rows"))
    };
    assert_eq!(shown(&read), [[Some(vec![9; 16])]]);
    let peers = Read::new(SystemTable::Peers, "SELECT schema_version FROM system.peers", &columns);
    assert_eq!(shown(&peers), [[None], [None]]);
}

#[test]
fn a_table_without_ports_has_no_member_that_has_another_port() {
    let addresses = ["10.0.0.1:9042", "10.0.0.1:9043", "10.0.0.2:9042", "10.0.0.3:9043"];
    let member =
        |text: &str| Member { address: text.parse().expect("address"), incarnation: [1; 16] };
    let fleet = Fleet::new(addresses.map(member).to_vec(), 0).expect("a fleet");
    let shown = |table, columns| {
        let read = Read::new(table, "SELECT * FROM system.peers", columns);
        let rows = rows_in(4, &read.in_fleet(&fleet).expect("shown").expect("rows"));
        rows.into_iter().map(|row| row[0].clone().expect("a key")[3]).collect::<Vec<_>>()
    };
    assert_eq!(shown(SystemTable::Peers, PEERS), [2]);
    assert_eq!(shown(SystemTable::PeersV2, PEERS_V2), [1, 2, 3]);
}
