//! Tables that drivers and cqlsh read when they connect, with the columns that they ask for.

use super::{Column, Source, Table};

/// A column whose name is its place in the row.
macro_rules! columns {
    ($($name:ident $cql:literal),+ $(,)?) => {
        &[$(Column {
            name: stringify!($name),
            cql: $cql,
            field: concat!("/", stringify!($name)),
            meaning: "",
        }),+]
    };
}

const fn table(
    (keyspace, name): (&'static str, &'static str),
    (partition_columns, clustering_columns): (usize, usize),
    columns: &'static [Column],
) -> Table {
    Table {
        keyspace,
        name,
        subject: "",
        partition_columns,
        clustering_columns,
        source: Source::Own,
        columns,
    }
}

const OF_COLUMN: &[Column] = columns![
    keyspace_name "text", table_name "text", column_name "text", clustering_order "text",
    column_name_bytes "blob", kind "text", position "int", type "text",
];

const PEERS_V2: &[Column] = columns![
    peer "inet", peer_port "int", data_center "text", host_id "uuid", native_address "inet",
    native_port "int", preferred_ip "inet", preferred_port "int", rack "text",
    release_version "text", schema_version "uuid", tokens "set<text>",
];

pub(super) static SYSTEM_TABLES: &[Table] = &[
    table(
        ("system", "local"),
        (1, 0),
        columns![
            key "text", bootstrapped "text", broadcast_address "inet", broadcast_port "int",
            cluster_name "text", cql_version "text", data_center "text", gossip_generation "int",
            host_id "uuid", listen_address "inet", listen_port "int",
            native_protocol_version "text", partitioner "text", rack "text",
            release_version "text", rpc_address "inet", rpc_port "int", schema_version "uuid",
            tokens "set<text>", truncated_at "map<uuid, blob>",
        ],
    ),
    table(
        ("system", "peers"),
        (1, 0),
        columns![
            peer "inet", data_center "text", host_id "uuid", preferred_ip "inet", rack "text",
            release_version "text", rpc_address "inet", schema_version "uuid", tokens "set<text>",
        ],
    ),
    table(("system", "peers_v2"), (1, 1), PEERS_V2),
    table(
        ("system_schema", "keyspaces"),
        (1, 0),
        columns![
            keyspace_name "text", durable_writes "boolean",
            replication "frozen<map<text, text>>",
        ],
    ),
    table(
        ("system_schema", "tables"),
        (1, 1),
        columns![
            keyspace_name "text", table_name "text", bloom_filter_fp_chance "double",
            caching "frozen<map<text, text>>", comment "text",
            compaction "frozen<map<text, text>>", compression "frozen<map<text, text>>",
            crc_check_chance "double", dclocal_read_repair_chance "double",
            default_time_to_live "int", extensions "frozen<map<text, blob>>",
            flags "frozen<set<text>>", gc_grace_seconds "int", id "uuid",
            max_index_interval "int", memtable_flush_period_in_ms "int",
            min_index_interval "int", read_repair_chance "double", speculative_retry "text",
        ],
    ),
    table(("system_schema", "columns"), (1, 2), OF_COLUMN),
    table(
        ("system_schema", "dropped_columns"),
        (1, 2),
        columns![
            keyspace_name "text", table_name "text", column_name "text",
            dropped_time "timestamp", kind "text", type "text",
        ],
    ),
    table(
        ("system_schema", "triggers"),
        (1, 2),
        columns![
            keyspace_name "text", table_name "text", trigger_name "text",
            options "frozen<map<text, text>>",
        ],
    ),
    table(
        ("system_schema", "views"),
        (1, 1),
        columns![
            keyspace_name "text", view_name "text", base_table_id "uuid", base_table_name "text",
            include_all_columns "boolean", where_clause "text",
        ],
    ),
    table(
        ("system_schema", "indexes"),
        (1, 2),
        columns![
            keyspace_name "text", table_name "text", index_name "text", kind "text",
            options "frozen<map<text, text>>",
        ],
    ),
    table(
        ("system_schema", "types"),
        (1, 1),
        columns![
            keyspace_name "text", type_name "text", field_names "frozen<list<text>>",
            field_types "frozen<list<text>>",
        ],
    ),
    table(
        ("system_schema", "functions"),
        (1, 2),
        columns![
            keyspace_name "text", function_name "text", argument_types "frozen<list<text>>",
            argument_names "frozen<list<text>>", body "text", called_on_null_input "boolean",
            language "text", return_type "text",
        ],
    ),
    table(
        ("system_schema", "aggregates"),
        (1, 2),
        columns![
            keyspace_name "text", aggregate_name "text", argument_types "frozen<list<text>>",
            final_func "text", initcond "text", return_type "text", state_func "text",
            state_type "text",
        ],
    ),
    table(("system_virtual_schema", "keyspaces"), (1, 0), columns![keyspace_name "text"]),
    table(
        ("system_virtual_schema", "tables"),
        (1, 1),
        columns![keyspace_name "text", table_name "text", comment "text"],
    ),
    table(("system_virtual_schema", "columns"), (1, 2), OF_COLUMN),
];
