//! `system` and `system_schema` of one stub node, which drivers and the proxy's control plane read
//! when they connect.
//!
//! The columns are those of Cassandra 5.0; of the tables' options, only those that drivers need are
//! present.

use shunt_wire::cql::message::encode_result::native::{
    BLOB, BOOLEAN, DOUBLE, INET, INT, LIST_OF_TEXT, MAP_OF_TEXT, MAP_OF_TEXT_TO_BLOB, SET_OF_TEXT,
    TEXT, UUID,
};

use crate::stub::{
    ring::{Ring, RingNode},
    table::{Column, Table},
    value::{Cell, boolean, double, inet, int, text, text_map, texts, uuid},
};

/// Keyspace of the bench table.
pub const KEYSPACE: &str = "bench";
/// The table `(k blob primary key, v blob)`.
pub const TABLE: &str = "kv";
/// Columns of the bench table.
pub const TABLE_COLUMNS: &[Column] = &[("k", BLOB), ("v", BLOB)];

const LOCAL: &[Column] = &[
    ("key", TEXT),
    ("bootstrapped", TEXT),
    ("broadcast_address", INET),
    ("broadcast_port", INT),
    ("cluster_name", TEXT),
    ("cql_version", TEXT),
    ("data_center", TEXT),
    ("gossip_generation", INT),
    ("host_id", UUID),
    ("listen_address", INET),
    ("listen_port", INT),
    ("native_protocol_version", TEXT),
    ("partitioner", TEXT),
    ("rack", TEXT),
    ("release_version", TEXT),
    ("rpc_address", INET),
    ("rpc_port", INT),
    ("schema_version", UUID),
    ("tokens", SET_OF_TEXT),
    ("truncated_at", MAP_OF_TEXT_TO_BLOB),
];
const PEERS: &[Column] = &[
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
const PEERS_V2: &[Column] = &[
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
const KEYSPACES: &[Column] =
    &[("keyspace_name", TEXT), ("durable_writes", BOOLEAN), ("replication", MAP_OF_TEXT)];
const TABLES: &[Column] = &[
    ("keyspace_name", TEXT),
    ("table_name", TEXT),
    ("additional_write_policy", TEXT),
    ("bloom_filter_fp_chance", DOUBLE),
    ("caching", MAP_OF_TEXT),
    ("cdc", BOOLEAN),
    ("comment", TEXT),
    ("compaction", MAP_OF_TEXT),
    ("compression", MAP_OF_TEXT),
    ("crc_check_chance", DOUBLE),
    ("dclocal_read_repair_chance", DOUBLE),
    ("default_time_to_live", INT),
    ("extensions", MAP_OF_TEXT_TO_BLOB),
    ("flags", SET_OF_TEXT),
    ("gc_grace_seconds", INT),
    ("id", UUID),
    ("max_index_interval", INT),
    ("memtable_flush_period_in_ms", INT),
    ("min_index_interval", INT),
    ("read_repair", TEXT),
    ("read_repair_chance", DOUBLE),
    ("speculative_retry", TEXT),
];
const COLUMNS: &[Column] = &[
    ("keyspace_name", TEXT),
    ("table_name", TEXT),
    ("column_name", TEXT),
    ("clustering_order", TEXT),
    ("column_name_bytes", BLOB),
    ("kind", TEXT),
    ("position", INT),
    ("type", TEXT),
];
const TYPES: &[Column] = &[
    ("keyspace_name", TEXT),
    ("type_name", TEXT),
    ("field_names", LIST_OF_TEXT),
    ("field_types", LIST_OF_TEXT),
];
const FUNCTIONS: &[Column] = &[
    ("keyspace_name", TEXT),
    ("function_name", TEXT),
    ("argument_types", LIST_OF_TEXT),
    ("argument_names", LIST_OF_TEXT),
    ("body", TEXT),
    ("called_on_null_input", BOOLEAN),
    ("language", TEXT),
    ("return_type", TEXT),
];
const AGGREGATES: &[Column] = &[
    ("keyspace_name", TEXT),
    ("aggregate_name", TEXT),
    ("argument_types", LIST_OF_TEXT),
    ("final_func", TEXT),
    ("initcond", TEXT),
    ("return_type", TEXT),
    ("state_func", TEXT),
    ("state_type", TEXT),
];
const INDEXES: &[Column] = &[
    ("keyspace_name", TEXT),
    ("table_name", TEXT),
    ("index_name", TEXT),
    ("kind", TEXT),
    ("options", MAP_OF_TEXT),
];
const TRIGGERS: &[Column] = &[
    ("keyspace_name", TEXT),
    ("table_name", TEXT),
    ("trigger_name", TEXT),
    ("options", MAP_OF_TEXT),
];
const VIEWS: &[Column] = &[
    ("keyspace_name", TEXT),
    ("view_name", TEXT),
    ("base_table_id", UUID),
    ("base_table_name", TEXT),
    ("include_all_columns", BOOLEAN),
    ("where_clause", TEXT),
];
const DROPPED_COLUMNS: &[Column] =
    &[("keyspace_name", TEXT), ("table_name", TEXT), ("column_name", TEXT), ("type", TEXT)];

/// Builds the system tables of node `node` of `ring`.
pub fn build(ring: &Ring, node: usize) -> Vec<Table> {
    let table = |keyspace, name, columns, rows| Table { keyspace, name, columns, rows };
    let empty = |name, columns| table("system_schema", name, columns, Vec::new());
    let peers = || {
        ring.nodes.iter().enumerate().filter(move |&(index, _)| index != node).map(|(_, peer)| peer)
    };
    vec![
        table(
            "system",
            "local",
            LOCAL,
            ring.nodes.get(node).map(|own| local_row(ring, own)).into_iter().collect(),
        ),
        table("system", "peers", PEERS, peers().map(|peer| peer_row(ring, peer)).collect()),
        table(
            "system",
            "peers_v2",
            PEERS_V2,
            peers().map(|peer| peer_v2_row(ring, peer)).collect(),
        ),
        table("system_schema", "keyspaces", KEYSPACES, keyspace_rows(ring)),
        table("system_schema", "tables", TABLES, vec![table_row()]),
        table("system_schema", "columns", COLUMNS, column_rows()),
        empty("types", TYPES),
        empty("functions", FUNCTIONS),
        empty("aggregates", AGGREGATES),
        empty("indexes", INDEXES),
        empty("triggers", TRIGGERS),
        empty("views", VIEWS),
        empty("dropped_columns", DROPPED_COLUMNS),
        table("system_virtual_schema", "keyspaces", &KEYSPACES[..1], Vec::new()),
        table("system_virtual_schema", "tables", &TABLES[..2], Vec::new()),
        table("system_virtual_schema", "columns", COLUMNS, Vec::new()),
    ]
}

fn tokens(node: &RingNode) -> Cell {
    texts(&node.tokens.iter().map(i64::to_string).collect::<Vec<_>>())
}

fn local_row(ring: &Ring, own: &RingNode) -> Vec<Cell> {
    vec![
        text("local"),
        text("COMPLETED"),
        inet(own.address.ip()),
        int(7000),
        text(&ring.cluster_name),
        text("3.4.7"),
        text(&own.datacentre),
        int(1),
        uuid(own.host_id),
        inet(own.address.ip()),
        int(7000),
        text("5"),
        text("org.apache.cassandra.dht.Murmur3Partitioner"),
        text(&own.rack),
        text(&ring.release_version),
        inet(own.address.ip()),
        int(i32::from(own.address.port())),
        uuid(ring.schema_version),
        tokens(own),
        None,
    ]
}

fn peer_row(ring: &Ring, peer: &RingNode) -> Vec<Cell> {
    vec![
        inet(peer.address.ip()),
        text(&peer.datacentre),
        uuid(peer.host_id),
        None,
        text(&peer.rack),
        text(&ring.release_version),
        inet(peer.address.ip()),
        uuid(ring.schema_version),
        tokens(peer),
    ]
}

fn peer_v2_row(ring: &Ring, peer: &RingNode) -> Vec<Cell> {
    vec![
        inet(peer.address.ip()),
        // Nodes on one address must still differ in their key (peer, peer_port).
        int(i32::from(peer.address.port() ^ 0x4000)),
        text(&peer.datacentre),
        uuid(peer.host_id),
        inet(peer.address.ip()),
        int(i32::from(peer.address.port())),
        None,
        None,
        text(&peer.rack),
        text(&ring.release_version),
        uuid(ring.schema_version),
        tokens(peer),
    ]
}

fn keyspace_rows(ring: &Ring) -> Vec<Vec<Cell>> {
    let local = text_map(&[("class", "org.apache.cassandra.locator.LocalStrategy")]);
    let factor = ring.replication.to_string();
    let simple = text_map(&[
        ("class", "org.apache.cassandra.locator.SimpleStrategy"),
        ("replication_factor", &factor),
    ]);
    vec![
        vec![text("system"), boolean(true), local.clone()],
        vec![text("system_schema"), boolean(true), local],
        vec![text(KEYSPACE), boolean(true), simple],
    ]
}

fn table_row() -> Vec<Cell> {
    vec![
        text(KEYSPACE),
        text(TABLE),
        text("99p"),
        double(0.01),
        text_map(&[("keys", "ALL"), ("rows_per_partition", "NONE")]),
        boolean(false),
        text(""),
        text_map(&[("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy")]),
        text_map(&[
            ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
            ("chunk_length_in_kb", "16"),
        ]),
        double(1.0),
        double(0.0),
        int(0),
        Some(0u32.to_be_bytes().to_vec()),
        texts(&["compound"]),
        int(864_000),
        uuid(0x5348_554e_5400_4000_8000_0000_006b_7600),
        int(2048),
        int(0),
        int(128),
        text("BLOCKING"),
        double(0.0),
        text("99p"),
    ]
}

fn column_rows() -> Vec<Vec<Cell>> {
    let row = |name: &str, kind: &str, position: i32| {
        let bytes = Some(name.as_bytes().to_vec());
        vec![
            text(KEYSPACE),
            text(TABLE),
            text(name),
            text("none"),
            bytes,
            text(kind),
            int(position),
            text("blob"),
        ]
    };
    vec![row("k", "partition_key", 0), row("v", "regular", -1)]
}

#[cfg(test)]
mod tests {
    use super::build;
    use crate::stub::ring::Ring;

    #[test]
    fn every_row_has_a_cell_per_column() {
        let ring = Ring::even(&[([127, 0, 0, 1], 9042).into(), ([127, 0, 0, 2], 9042).into()], 1);
        for table in build(&ring, 1) {
            assert!(
                table.rows.iter().all(|row| row.len() == table.columns.len()),
                "{}.{}",
                table.keyspace,
                table.name
            );
        }
    }

    #[test]
    fn peers_are_the_others() {
        let addresses: Vec<_> = (1..=3).map(|last| ([127, 0, 0, last], 9042).into()).collect();
        let tables = build(&Ring::even(&addresses, 1), 1);
        let peers = tables.iter().find(|table| table.name == "peers").expect("peers");
        let found: Vec<_> = peers.rows.iter().map(|row| row[0].clone().expect("key")).collect();
        assert_eq!(found, [vec![127, 0, 0, 1], vec![127, 0, 0, 3]]);
    }
}
