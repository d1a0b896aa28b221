//! Keyspaces whose statements rules leave alone.

/// Keyspaces of Cassandra and ScyllaDB themselves.
pub(super) const SYSTEM_KEYSPACES: [&str; 11] = [
    "system",
    "system_accord",
    "system_auth",
    "system_cluster_metadata",
    "system_distributed",
    "system_distributed_everywhere",
    "system_metrics",
    "system_schema",
    "system_traces",
    "system_views",
    "system_virtual_schema",
];
/// Keyspaces of the proxies.
pub(super) const OWN_KEYSPACES: [&str; 3] =
    [shunt_fleet::schema::LOCKS_KEYSPACE, shunt_fleet::schema::META_KEYSPACE, "shunt_admin"];

/// True for a keyspace whose statements match no rule.
pub(crate) fn is_of_the_system(name: &str) -> bool {
    SYSTEM_KEYSPACES.contains(&name)
}
