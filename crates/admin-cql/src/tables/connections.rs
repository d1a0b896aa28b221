//! Columns of the tables of single connections: clients, links and their pools, and failed logins.

use super::Column;
use super::admin::column;

/// Columns that Scylla's `system.clients` has too keep Scylla's names.
pub(super) const CLIENTS: &[Column] = &[
    column("address", "text", "/address", "address without the port; of a Unix socket, the user"),
    column("port", "int", "/port", "port; 0 for a Unix socket"),
    column("client_type", "text", "/client_type", "`cql`"),
    column("id", "text", "/id", "address and port, as in the log and for `shunt kick --id`"),
    column(
        "connection_stage",
        "text",
        "/stage",
        "ESTABLISHED, AUTHENTICATING, READY, or REFUSED beyond `clients_max`",
    ),
    column("username", "text", "/role", "role of the login"),
    column("identity", "text", "/identity", "identity of the client's certificate"),
    column("tls_identity", "text", "/certificate", "first name of the client's certificate"),
    column("application", "text", "/application", "application, as its driver names it"),
    column("driver_name", "text", "/driver", "name of the driver"),
    column("driver_version", "text", "/driver_version", "version of the driver"),
    column(
        "client_options",
        "map<text, text>",
        "/options",
        "options of STARTUP that the proxy keeps",
    ),
    column("keyspace_name", "text", "/keyspace", "keyspace in use"),
    column("protocol_version", "int", "/protocol_version", "3, 4 or 5; 0 before STARTUP"),
    column("ssl_enabled", "boolean", "/has_tls", "true with TLS"),
    column("ssl_protocol", "text", "/tls", "version of TLS"),
    column("ssl_cipher_suite", "text", "/cipher", "cipher suite of TLS"),
    column("shard_id", "int", "/core", "core that serves the client"),
    column("pool", "bigint", "/pool", "pool of its links on this core"),
    column("local_address", "text", "/local_address", "address that it connected to"),
    column("paused", "text", "/paused", "reason why the proxy does not read from it now"),
    column("in_flight", "bigint", "/in_flight", "queries in flight"),
    column("queries", "bigint", "/queries", "queries since it connected"),
    column(
        "queries_per_second",
        "bigint",
        "/queries_per_second",
        "queries per second, over the last two seconds",
    ),
    column("errors", "bigint", "/errors", "queries that ended with an error"),
    column("bytes_in", "bigint", "/bytes_in", "bytes of requests"),
    column("bytes_out", "bigint", "/bytes_out", "bytes of answers"),
    column("backlog_bytes", "bigint", "/backlog_bytes", "bytes that it has not taken yet"),
    column("p50_us", "bigint", "/p50_us", "median time of its last queries"),
    column("p99_us", "bigint", "/p99_us", "99th percentile of these times"),
];

pub(super) const LINKS: &[Column] = &[
    column("node", "text", "/node", "address and port of the node"),
    column("core", "int", "/core", "core that has the link"),
    column("link", "bigint", "/link", "number of the link on this core"),
    column("pool", "bigint", "/pool", "pool that shares the link"),
    column(
        "state",
        "text",
        "/state",
        "ready, full, retiring, or the step of opening: connecting, agent, options, startup, \
         login, identity, use",
    ),
    column(
        "purpose",
        "text",
        "/purpose",
        "`serves`, or the reason for opening it beside links that serve",
    ),
    column("layout", "text", "/layout", "envelopes, segments or aggregated"),
    column("protocol_version", "int", "/protocol_version", "3, 4 or 5"),
    column("tls", "text", "/tls", "version of TLS; null: clear text"),
    column("through_agent", "boolean", "/through_agent", "true if an agent relays it"),
    column("in_flight", "bigint", "/in_flight", "requests without an answer"),
    column("in_flight_max", "bigint", "/in_flight_max", "limit of `in_flight`"),
    column("timed_out", "bigint", "/timed_out", "requests in flight that have timed out"),
    column("clients_waiting", "bigint", "/clients_waiting", "clients that wait for room"),
    column("backlog_bytes", "bigint", "/backlog_bytes", "bytes that the node has not taken yet"),
    column("retained_bytes", "bigint", "/retained_bytes", "bytes kept for further attempts"),
    column("silent_ms", "bigint", "/silent_ms", "time since the node's last bytes"),
    column("ready_ms", "bigint", "/ready_ms", "time since it began to take queries"),
];

pub(super) const POOLS: &[Column] = &[
    column("core", "int", "/core", "core that has the pool"),
    column("pool", "bigint", "/pool", "number of the pool on this core"),
    column("role", "text", "/role", "role of the login"),
    column("identity", "text", "/identity", "identity of the clients' certificates"),
    column("keyspace_name", "text", "/keyspace", "keyspace in use"),
    column("protocol_version", "int", "/protocol_version", "3, 4 or 5"),
    column("compression", "text", "/compression", "compression of bodies, in versions 3 and 4"),
    column("own", "boolean", "/own", "true for the proxy's own statements"),
    column("clients", "bigint", "/clients", "clients of the pool"),
    column("clients_waiting", "bigint", "/clients_waiting", "clients that wait for a link"),
    column("links", "bigint", "/links", "links of the pool"),
    column("links_ready", "bigint", "/links_ready", "links among them that take queries"),
    column("login_accepted", "boolean", "/login_accepted", "false: no node has accepted the login"),
    column("idle_ms", "bigint", "/idle_ms", "time since its last client left"),
];

pub(super) const FAILED_LOGINS: &[Column] = &[
    column("role", "text", "/role", "role that the client claims; `none` if it claims none"),
    column("address", "text", "/address", "address of the client, without its port"),
    column(
        "reason",
        "text",
        "/reason",
        "`authentication`: a node refused it; `login_unchecked`: no node judged it in time; \
         `no_identity`: no identity matches the certificate",
    ),
    column("count", "bigint", "/count", "failed logins with this role, address and reason"),
    column("first_seen", "timestamp", "/first_unix_ms", "time of the first"),
    column("last_seen", "timestamp", "/last_unix_ms", "time of the last"),
    column("why", "text", "/why", "error of the last, mostly in a node's words"),
    column("client", "text", "/client", "address and port of the last"),
    column("identity", "text", "/identity", "identity of the client's certificate"),
    column("application", "text", "/application", "application, as its driver names it"),
    column("driver", "text", "/driver", "name of the driver"),
];
