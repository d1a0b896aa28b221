//! Queries of the Python driver (3.29), the Java driver (4.19), gocql (1.7 and 2.1) and the Rust
//! driver `scylla` (1.9) on these tables, in their words, and the values each needs in a row to
//! accept it as a host.

use shunt_wire::cql::message::encode_result::{PreparedSpec, prepared};
use shunt_wire::cql::message::{Value, ValueList};
use shunt_wire::cql::statement::classify;

use super::*;

/// The queries for all rows, with the table that they read.
const ALL: [(SystemTable, &str); 9] = [
    // Java, gocql, Python. The Java driver looks for agreement of the schema in `peers` even where
    // there is `peers_v2`.
    (SystemTable::PeersV2, "SELECT * FROM system.peers_v2"),
    (SystemTable::Peers, "SELECT * FROM system.peers"),
    // Python.
    (
        SystemTable::Peers,
        "SELECT host_id, peer, data_center, rack, rpc_address, rpc_address, release_version, schema_version \
         FROM system.peers",
    ),
    (SystemTable::Peers, "SELECT peer, host_id, rpc_address, schema_version FROM system.peers"),
    (
        SystemTable::PeersV2,
        "SELECT host_id, peer, peer_port, data_center, rack, native_address, native_port, release_version, \
         schema_version FROM system.peers_v2",
    ),
    (
        SystemTable::PeersV2,
        "SELECT host_id, peer, peer_port, native_address, native_port, schema_version FROM system.peers_v2",
    ),
    // Rust, and its earlier releases.
    (
        SystemTable::Peers,
        "SELECT host_id, rpc_address, data_center, rack, tokens FROM system.peers",
    ),
    (
        SystemTable::Peers,
        "select host_id, rpc_address, data_center, rack, tokens from system.peers",
    ),
    // Drivers for C++ and PHP.
    (SystemTable::Peers, "SELECT peer, rpc_address FROM system.peers"),
];

/// The columns of the result, as a node would report them.
fn columns_of(table: SystemTable, text: &str) -> Vec<Specification<'static>> {
    let all = if table == SystemTable::PeersV2 { PEERS_V2 } else { PEERS };
    let asked: Vec<String> =
        classify(text).selection().split(',').map(|name| name.trim().to_owned()).collect();
    if asked == ["*"] {
        return all.to_vec();
    }
    let column = |name: &String| {
        *all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}"))
    };
    asked.iter().map(column).collect()
}

/// The value that proxy `number` must be shown with.
fn expected(number: u8, column: &str) -> Vec<u8> {
    let cluster = cluster();
    let host = Host::member(Place::of(&cluster), ([10, 0, 0, number], 9042).into());
    match column {
        "peer" | "rpc_address" | "native_address" | "preferred_ip" => vec![10, 0, 0, number],
        "peer_port" | "native_port" | "preferred_port" => 9042i32.to_be_bytes().to_vec(),
        "data_center" => b"dc1".to_vec(),
        "rack" => b"r2".to_vec(),
        "release_version" => b"5.0.2".to_vec(),
        "schema_version" => 0x5cu128.to_be_bytes().to_vec(),
        "host_id" | "tokens" => host.value(column, None).expect(column),
        other => panic!("{other}"),
    }
}

fn all_expected(columns: &[Specification<'_>], numbers: &[u8]) -> Shown {
    let row = |number: &u8| columns.iter().map(|(name, _)| Some(expected(*number, name))).collect();
    numbers.iter().map(row).collect()
}

#[test]
fn every_list_of_columns_is_answered_with_a_row_for_each_other_member() {
    for (table, text) in ALL {
        let columns = columns_of(table, text);
        let mut read = Read::new(table, text, &columns);
        let rows = all_expected(&columns, &[2, 3]);
        assert_eq!(read.rows(), rows, "{text}");
        // None of these is one of the node's own peers.
        let of_node: Vec<Option<&[u8]>> =
            columns.iter().flat_map(|_| [Some(&b"node"[..]), None]).collect();
        read.answer = answer(&columns, &of_node);
        assert_eq!(read.rows(), rows, "{text}");
    }
}

#[test]
fn prepared_and_without_metadata_the_rows_are_the_same() {
    for (table, text) in ALL {
        let columns = columns_of(table, text);
        let mut read = Read::new(table, text, &columns);
        let with_metadata = read.rows();
        let spec = PreparedSpec {
            id: b"id",
            result_metadata_id: b"meta",
            keyspace: "system",
            table: "peers",
            bind: &[],
            partition_key: &[],
            result: &columns,
        };
        let mut body = Vec::new();
        prepared(&mut body, 4, &spec);
        let Ok(ResultMessage::Prepared(learned)) = ResultMessage::decode(4, &body) else {
            panic!("not prepared")
        };
        let parsed = classify(text);
        let statement =
            crate::prepared::PreparedStatement::learn(text, &parsed, None, false, &learned, None);
        read.known = statement.result_columns.to_vec();
        read.answer.clear();
        RowsWriter::without_metadata(&mut read.answer, columns.len()).finish();
        assert_eq!(read.rows(), with_metadata, "{text}");
        // If the columns are unknown too, no value has a place.
        read.known.clear();
        assert_eq!(read.rows(), Shown::new(), "{text}");
    }
}

/// `PeerRowValidator` of the Java driver, `isValidPeer` of gocql and `_is_valid_peer` of the Python
/// driver.
#[test]
fn no_driver_finds_a_row_to_be_incomplete() {
    for (table, text, address) in [
        (SystemTable::Peers, "SELECT * FROM system.peers", &["rpc_address"][..]),
        (SystemTable::PeersV2, "SELECT * FROM system.peers_v2", &["native_address", "native_port"]),
    ] {
        let columns = columns_of(table, text);
        for row in Read::new(table, text, &columns).rows() {
            for name in
                ["host_id", "data_center", "rack", "tokens", "schema_version"].iter().chain(address)
            {
                let index = columns.iter().position(|(column, _)| column == name).expect(name);
                assert!(
                    row[index].as_ref().is_some_and(|value| !value.is_empty()),
                    "{name} in {text}"
                );
            }
        }
    }
}

#[test]
fn one_peer_is_asked_for_by_address_with_bind_values_of_any_kind() {
    // Java: values by name. gocql before 1.0: by position.
    for (number, rows) in [(2, &[2u8][..]), (3, &[3]), (1, &[]), (9, &[])] {
        for (text, table) in [
            ("SELECT * FROM system.peers WHERE peer = :address", SystemTable::Peers),
            (
                "SELECT * FROM system.peers_v2 WHERE peer = :address and peer_port = :port",
                SystemTable::PeersV2,
            ),
            ("SELECT * FROM system.peers WHERE peer=?", SystemTable::Peers),
        ] {
            let columns = columns_of(table, text);
            let mut read = Read::new(table, text, &columns);
            let (ip, port) = ([10, 0, 0, number], 9042i32.to_be_bytes());
            let by_name = text.contains(':');
            let mut values = if by_name { ValueList::named(4) } else { ValueList::positional(4) };
            if by_name {
                values
                    .push_named("port", Value::Bytes(&port))
                    .push_named("address", Value::Bytes(&ip));
            } else {
                values.push(Value::Bytes(&ip));
            }
            read.values = values.values();
            assert_eq!(read.rows(), all_expected(&columns, rows), "{text} of {number}");
        }
    }
}

#[test]
fn the_port_belongs_to_the_peer_that_is_asked_for() {
    let text = "SELECT * FROM system.peers_v2 WHERE peer = :address and peer_port = :port";
    let mut read = Read::new(SystemTable::PeersV2, text, PEERS_V2);
    let mut values = ValueList::named(4);
    let port = 7000i32.to_be_bytes();
    values
        .push_named("address", Value::Bytes(&[10, 0, 0, 2]))
        .push_named("port", Value::Bytes(&port));
    read.values = values.values();
    assert_eq!(read.rows(), Shown::new());
}
