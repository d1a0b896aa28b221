//! Rows of the tables by which drivers learn where they are and which tables there are.

use std::net::IpAddr;

use md5::{Digest as _, Md5};
use serde_json::{Value, json};

use crate::tables::{self, KEYSPACE, KEYSPACES, Table};

/// Version of Cassandra that clients see.
pub(crate) const RELEASE_VERSION: &str = "5.0.0";
/// Version of CQL that clients see.
pub(crate) const CQL_VERSION: &str = "3.4.7";
/// Partitioner that clients see.
pub(crate) const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";
/// Name of the cluster.
pub(crate) const CLUSTER: &str = "shunt admin";

/// The address at which a client has found this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// Rows of a system table.
pub(crate) fn rows(table: &Table, version: &str, identity: &Identity) -> Vec<Value> {
    match (table.keyspace, table.name) {
        ("system", "local") => vec![local(version, identity)],
        ("system_schema", "keyspaces") => shown_keyspaces().map(keyspace).collect(),
        ("system_schema", "tables") => shown_tables().map(table_row).collect(),
        ("system_schema", "columns") => shown_tables().flat_map(column_rows).collect(),
        _ => Vec::new(),
    }
}

fn local(version: &str, identity: &Identity) -> Value {
    let id = |name: &str| uuid(&format!("{name} {}:{}", identity.address, identity.port));
    json!({
        "key": "local",
        "bootstrapped": "COMPLETED",
        "broadcast_address": identity.address,
        "broadcast_port": identity.port,
        "cluster_name": CLUSTER,
        "cql_version": CQL_VERSION,
        "data_center": "admin",
        "host_id": id("host"),
        "listen_address": identity.address,
        "listen_port": identity.port,
        "native_protocol_version": "5",
        "partitioner": PARTITIONER,
        "rack": "admin",
        "release_version": RELEASE_VERSION,
        "rpc_address": identity.address,
        "rpc_port": identity.port,
        "schema_version": uuid(&format!("schema {version}")),
        "tokens": ["0"],
    })
}

/// Keyspaces with tables that `system_schema` shows.
fn shown_keyspaces() -> impl Iterator<Item = &'static str> {
    KEYSPACES.into_iter().filter(|name| tables::all().any(|table| table.keyspace == *name))
}

fn shown_tables() -> impl Iterator<Item = &'static Table> {
    tables::all()
}

fn keyspace(name: &str) -> Value {
    json!({
        "keyspace_name": name,
        "durable_writes": true,
        "replication": { "class": "org.apache.cassandra.locator.LocalStrategy" },
    })
}

fn table_row(table: &Table) -> Value {
    json!({
        "keyspace_name": table.keyspace,
        "table_name": table.name,
        "bloom_filter_fp_chance": 0.01,
        "caching": { "keys": "NONE", "rows_per_partition": "NONE" },
        "comment": table.subject,
        "compaction": { "class": "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy" },
        "compression": {},
        "crc_check_chance": 1.0,
        "dclocal_read_repair_chance": 0.0,
        "default_time_to_live": 0,
        "extensions": {},
        "flags": ["compound"],
        "gc_grace_seconds": 0,
        "id": uuid(&format!("{}.{}", table.keyspace, table.name)),
        "max_index_interval": 2048,
        "memtable_flush_period_in_ms": 0,
        "min_index_interval": 128,
        "read_repair_chance": 0.0,
        "speculative_retry": "NONE",
    })
}

fn column_rows(table: &'static Table) -> impl Iterator<Item = Value> {
    table.columns.iter().enumerate().map(|(position, column)| {
        let (kind, position) = table.key_part(position);
        let name = column.name.bytes();
        json!({
            "keyspace_name": table.keyspace,
            "table_name": table.name,
            "column_name": column.name,
            "clustering_order": if kind == "clustering" { "asc" } else { "none" },
            "column_name_bytes": name.fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
            "kind": kind,
            "position": position,
            "type": column.cql,
        })
    })
}

/// The statement that would create a table, as DESCRIBE shows it.
pub(crate) fn create_table(table: &Table) -> String {
    let columns = table.columns.iter().map(|column| format!("    {} {}", column.name, column.cql));
    let names = |from: usize, count: usize| {
        let names = table.columns.iter().skip(from).take(count).map(|column| column.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (partition, clustering) = (table.partition_columns, table.clustering_columns);
    let key = match (partition, clustering) {
        (1, 0) => names(0, 1),
        (1, _) => format!("{}, {}", names(0, 1), names(1, clustering)),
        (_, 0) => format!("({})", names(0, partition)),
        _ => format!("({}), {}", names(0, partition), names(partition, clustering)),
    };
    let comment = shunt_language::ast::quoted_string(table.subject);
    format!(
        "/*\nWarning: Table {keyspace}.{name} cannot be created with CQL.\n\
         Structure, for reference:\nVIRTUAL TABLE {keyspace}.{name} (\n{columns},\n    \
         PRIMARY KEY ({key})\n) WITH comment = {comment};\n*/",
        keyspace = table.keyspace,
        name = table.name,
        columns = columns.collect::<Vec<_>>().join(",\n"),
    )
}

/// The statement that would create a keyspace, as DESCRIBE shows it.
pub(crate) fn create_keyspace(name: &str) -> String {
    format!(
        "/*\nWarning: Keyspace {name} cannot be created with CQL.\n\
         Structure, for reference:\nVIRTUAL KEYSPACE {name};\n*/"
    )
}

/// True if DESCRIBE shows a keyspace among others.
pub(crate) fn is_admin(keyspace: &str) -> bool {
    keyspace == KEYSPACE
}

/// A UUID that is always the same for a name (RFC 9562, version 3).
fn uuid(name: &str) -> String {
    let mut bytes: [u8; 16] = Md5::digest(name.as_bytes()).into();
    bytes[6] = bytes[6] & 0x0F | 0x30;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    parts.map(|(from, to)| hex.get(from..to).unwrap_or_default()).join("-")
}
