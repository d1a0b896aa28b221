//! Tables of every Cassandra, as the statements that create them: read by drivers and cqlsh.

/// Keyspace and its tables, each as CREATE TABLE with its columns as in Cassandra 5.0.
pub(super) const KEYSPACES: [(&str, &[&str]); 5] = [
    ("system", SYSTEM),
    ("system_schema", SYSTEM_SCHEMA),
    ("system_traces", SYSTEM_TRACES),
    ("system_views", &[]),
    ("system_virtual_schema", SYSTEM_VIRTUAL_SCHEMA),
];

const SYSTEM: &[&str] = &[
    "CREATE TABLE local (key text PRIMARY KEY, bootstrapped text, broadcast_address inet, broadcast_port int, \
     cluster_name text, cql_version text, data_center text, gossip_generation int, host_id uuid, \
     listen_address inet, listen_port int, native_protocol_version text, partitioner text, rack text, \
     release_version text, rpc_address inet, rpc_port int, schema_version uuid, tokens set<text>, \
     truncated_at map<uuid, blob>)",
    "CREATE TABLE peers (peer inet PRIMARY KEY, data_center text, host_id uuid, preferred_ip inet, rack text, \
     release_version text, rpc_address inet, schema_version uuid, tokens set<text>)",
    "CREATE TABLE peers_v2 (peer inet, peer_port int, data_center text, host_id uuid, native_address inet, \
     native_port int, preferred_ip inet, preferred_port int, rack text, release_version text, schema_version uuid, \
     tokens set<text>, PRIMARY KEY (peer, peer_port))",
    "CREATE TABLE size_estimates (keyspace_name text, table_name text, range_start text, range_end text, \
     mean_partition_size bigint, partitions_count bigint, \
     PRIMARY KEY (keyspace_name, table_name, range_start, range_end))",
    "CREATE TABLE built_views (keyspace_name text, view_name text, status_replicated boolean, \
     PRIMARY KEY (keyspace_name, view_name))",
    "CREATE TABLE \"IndexInfo\" (table_name text, index_name text, value blob, PRIMARY KEY (table_name, index_name))",
];

const SYSTEM_SCHEMA: &[&str] = &[
    "CREATE TABLE keyspaces (keyspace_name text PRIMARY KEY, durable_writes boolean, \
     replication frozen<map<text, text>>)",
    "CREATE TABLE tables (keyspace_name text, table_name text, additional_write_policy text, \
     allow_auto_snapshot boolean, bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, \
     comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>, crc_check_chance double, \
     dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, \
     flags frozen<set<text>>, gc_grace_seconds int, id uuid, incremental_backups boolean, max_index_interval int, \
     memtable text, memtable_flush_period_in_ms int, min_index_interval int, read_repair text, \
     read_repair_chance double, speculative_retry text, PRIMARY KEY (keyspace_name, table_name))",
    "CREATE TABLE columns (keyspace_name text, table_name text, column_name text, clustering_order text, \
     column_name_bytes blob, kind text, position int, type text, \
     PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE column_masks (keyspace_name text, table_name text, column_name text, \
     function_argument_nulls frozen<list<boolean>>, function_argument_types frozen<list<text>>, \
     function_argument_values frozen<list<text>>, function_keyspace text, function_name text, \
     PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE dropped_columns (keyspace_name text, table_name text, column_name text, dropped_time timestamp, \
     kind text, type text, PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE triggers (keyspace_name text, table_name text, trigger_name text, \
     options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, trigger_name))",
    "CREATE TABLE views (keyspace_name text, view_name text, additional_write_policy text, \
     allow_auto_snapshot boolean, base_table_id uuid, base_table_name text, bloom_filter_fp_chance double, \
     caching frozen<map<text, text>>, cdc boolean, comment text, compaction frozen<map<text, text>>, \
     compression frozen<map<text, text>>, crc_check_chance double, dclocal_read_repair_chance double, \
     default_time_to_live int, extensions frozen<map<text, blob>>, gc_grace_seconds int, id uuid, \
     include_all_columns boolean, incremental_backups boolean, max_index_interval int, memtable text, \
     memtable_flush_period_in_ms int, min_index_interval int, read_repair text, read_repair_chance double, \
     speculative_retry text, where_clause text, PRIMARY KEY (keyspace_name, view_name))",
    "CREATE TABLE indexes (keyspace_name text, table_name text, index_name text, kind text, \
     options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, index_name))",
    "CREATE TABLE types (keyspace_name text, type_name text, field_names frozen<list<text>>, \
     field_types frozen<list<text>>, PRIMARY KEY (keyspace_name, type_name))",
    "CREATE TABLE functions (keyspace_name text, function_name text, argument_types frozen<list<text>>, \
     argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text, return_type text, \
     PRIMARY KEY (keyspace_name, function_name, argument_types))",
    "CREATE TABLE aggregates (keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, \
     final_func text, initcond text, return_type text, state_func text, state_type text, \
     PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
];

const SYSTEM_TRACES: &[&str] = &[
    "CREATE TABLE sessions (session_id uuid PRIMARY KEY, client inet, command text, coordinator inet, \
     coordinator_port int, duration int, parameters map<text, text>, request text, started_at timestamp) \
     WITH comment = 'tracing sessions' AND gc_grace_seconds = 0",
    "CREATE TABLE events (session_id uuid, event_id timeuuid, activity text, source inet, source_elapsed int, \
     source_port int, thread text, PRIMARY KEY (session_id, event_id)) \
     WITH comment = 'tracing events' AND gc_grace_seconds = 0",
];

const SYSTEM_VIRTUAL_SCHEMA: &[&str] = &[
    "CREATE TABLE keyspaces (keyspace_name text PRIMARY KEY)",
    "CREATE TABLE tables (keyspace_name text, table_name text, comment text, PRIMARY KEY (keyspace_name, table_name))",
    "CREATE TABLE columns (keyspace_name text, table_name text, column_name text, clustering_order text, \
     column_name_bytes blob, kind text, position int, type text, \
     PRIMARY KEY (keyspace_name, table_name, column_name))",
];
