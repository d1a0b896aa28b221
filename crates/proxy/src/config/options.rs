//! The list of the proxy's options: the fields of [`Config`].

use std::net::SocketAddr;
use std::path::PathBuf;

use shunt_otlp::Endpoint;
use shunt_reactor::IoChoice;
use shunt_tls::{ClientAuth, Verify};

use super::address::{Admin, AdminAddress, Advertise, HttpAddress, Listeners, LocksHttp};
use super::bounds::*;
use super::collector::Collector;
use super::identity::{self, Identities};
use super::kinds::{Bytes, List, Micros, Millis, Readable};
use super::network::Network;
use super::option::Allowed::{Form, Numbers, Tables, WordOr};
use super::option::{
    AsText, Change, ConfigOption, DefaultText, MaybeNumber, default_value, options,
};
use super::rule::{self, RuleList};
use super::tenant::{self, TenantList};
use super::unix::{AdminCql, ListenAddress, Mode, Owner};
use super::values::{
    Aggregate, Commit, Handover, Hedge, LogFormat, Multiget, Secret, Switch, Tls, Window,
    default_cores,
};
use crate::limits;

options! {
    section "Addresses";
    /// Addresses that clients connect to
    listen: Listeners {
        kind: List<ListenAddress>, value: "ADDR", default: "127.0.0.1:9042",
        allowed: Form("addresses", "127.0.0.2:9142,unix:/run/shunt/cql.sock"), change: AfterRestart,
        manual: "Several with commas, in the file as a list. `unix:/run/shunt/cql.sock` is a [Unix socket](listeners.md#unix-sockets), beside at least one address",
    }
    /// Permissions of Unix sockets; clients need the right to write
    unix_mode: Mode {
        kind: Mode, value: "OCTAL", default: "0660",
        allowed: Form("octal number", "0666"), change: AfterRestart,
    }
    /// Owner of Unix sockets, USER:GROUP, USER or :GROUP, by name or number
    unix_owner: Owner {
        kind: Owner, value: "OWNER", default: Owner::default() => "that of the process",
        allowed: Form("user and group", ":apps"), change: AfterRestart,
    }
    /// Nodes that describe the ring, HOST or HOST:PORT; one reachable is enough
    contact_points: Vec<String> {
        kind: List<String>, value: "HOST", default: Vec::new() => "",
        allowed: Form("hosts", "10.0.0.1,10.0.0.2:9043"), change: OnReload,
        manual: "Required. The proxy looks names up at every attempt",
    }
    /// Address of metrics, health and status, or `off`
    admin: Option<AdminAddress> {
        kind: Admin, value: "ADDR", default: "127.0.0.1:9180",
        allowed: Form("address, `unix:PATH` or `off`", "127.0.0.1:9999"), change: AfterRestart,
        manual: "Others read the pages unless [TLS and a token](tls-http.md) guard them. List accepted host names after it, and a [Unix socket](listeners.md#a-unix-socket-for-the-admin-pages): `10.0.9.1:9180,proxy.example,unix:/run/shunt/admin.sock`",
    }
    /// Address of the admin pages as CQL tables, or `off`
    admin_cql: Option<ListenAddress> {
        kind: AdminCql, value: "ADDR", default: "off",
        allowed: Form("address, `unix:PATH` or `off`", "127.0.0.1:9181"), change: AfterRestart,
        manual: "Tables for [cqlsh and drivers](admin-cql.md). The passwords are the tokens of `--admin-token-file`. Without that file, the proxy accepts only an address of this host or a Unix socket",
    }
    /// Address that drivers see for this proxy
    advertise: Option<SocketAddr> {
        kind: Advertise, value: "ADDR", default: None => "the address of the connection",
        allowed: Form("address", "192.0.2.1:9042"), change: OnReload,
        manual: "`system.local` shows it. Port 0 or none: the port of the connection",
    }
    /// Addresses of balancers whose connections begin with a PROXY header, which names the client
    proxy_protocol_from: Vec<Network> {
        kind: List<Network>, value: "ADDR", default: Vec::new() => "",
        allowed: Form("addresses, networks", "10.0.8.7,10.0.8.128/25"), change: AfterRestart,
        manual: "Versions 1 and 2. These addresses can give any client's address. [Set-up](listeners.md)",
    }
    /// CQL port of nodes before Cassandra 4.0, which do not publish theirs
    node_port: Option<u16> {
        kind: u16, value: "PORT", default: None => "that of the contact point",
        allowed: Form("1 to 65535", "9043"), change: OnReload,
    }

    section "TLS";
    /// TLS with clients: off, optional or required
    tls: Tls {
        kind: Tls, value: "WHEN", default: "off",
        allowed: Form("`off`, `optional`, `required`", "optional"), change: AfterRestart,
        manual: "`optional` serves TLS and clear text on the same port. Connections to nodes have [options of their own](tls-to-nodes.md#to-nodes). [Set-up](tls.md)",
    }
    /// Certificate of this proxy and its intermediate certificates (PEM)
    tls_certificate: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/tls.crt"), change: OnReload,
        manual: "The proxy reads the files of this section again on a reload, and every minute",
    }
    /// Private key of that certificate (PEM)
    tls_key: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/tls.key"), change: OnReload,
        manual: "Keep it readable by its owner alone",
    }
    /// Certificates of the authorities that sign clients' certificates (PEM)
    tls_client_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/clients-ca.crt"), change: OnReload,
    }
    /// Certificates of clients: none, optional or required
    tls_client_auth: ClientAuth {
        kind: ClientAuth, value: "WHEN", default: "none",
        allowed: Form("`none`, `optional`, `required`", "required"), change: OnReload,
        manual: "Needs `tls_client_ca`. A certificate that a client shows is always verified. It replaces the login of the clients of an [identity](identities.md) alone",
    }
    /// File with the keys of session tickets, which the proxies of a fleet share
    tls_ticket_keys: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "keys of the process alone",
        allowed: Form("path", "/etc/shunt/ticket-keys"), change: OnReload,
        manual: "With it, clients resume sessions at another proxy and after a restart. [Its lines](tls.md#resume-sessions-at-every-proxy)",
    }
    /// Threads for TLS handshakes
    tls_threads: usize {
        kind: usize, value: "N", default: "1", allowed: Numbers(1, 64), change: AfterRestart,
        manual: "More than one helps where thousands of clients connect at once",
    }

    section "TLS to nodes";
    /// TLS to nodes: off or on
    node_tls: Switch {
        kind: Switch, value: "WHEN", default: "off",
        allowed: Form("`off`, `on`", "on"), change: AfterRestart,
        manual: "For links and for the control connection. [Set-up](tls-to-nodes.md#to-nodes)",
    }
    /// Certificates of the authorities that sign nodes' certificates (PEM)
    node_tls_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "those of the system",
        allowed: Form("path", "/etc/shunt/nodes-ca.crt"), change: OnReload,
        manual: "The proxy reads the files of this section again on a reload, and every minute",
    }
    /// Certificate for nodes that require one (PEM)
    node_tls_certificate: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/node-client.crt"), change: OnReload,
    }
    /// Private key of that certificate (PEM)
    node_tls_key: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/node-client.key"), change: OnReload,
        manual: "Keep it readable by its owner alone",
    }
    /// Proof that a node's certificate must give: full, ca or none
    node_tls_verify: Verify {
        kind: Verify, value: "HOW", default: "full",
        allowed: Form("`full`, `ca`, `none`", "ca"), change: OnReload,
        manual: "`full`: of an authority, and for the node's address. `ca`: of an authority. `none`: anyone on the way can read and change everything",
    }
    /// Name that every node's certificate has, in place of the node's address
    node_tls_name: Option<String> {
        kind: String, value: "NAME", default: None => "the address of each node",
        allowed: Form("name", "cassandra.example"), change: OnReload,
    }

    section "HTTPS";
    /// Certificate of the admin pages and its intermediate certificates (PEM); switches TLS on
    admin_tls_certificate: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/tls.crt"), change: AfterRestart,
        manual: "May be the file of `tls_certificate`. The proxy reads the files of this section again on a reload, and every minute. [Set-up](tls-http.md)",
    }
    /// Private key of that certificate (PEM)
    admin_tls_key: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/tls.key"), change: AfterRestart,
        manual: "Keep it readable by its owner alone",
    }
    /// Certificates of the authorities that sign certificates for the admin pages' clients (PEM)
    admin_tls_client_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/operators-ca.crt"), change: AfterRestart,
        manual: "Each client then needs a certificate, health checks too",
    }
    /// File with the tokens that the admin pages and changes ask for, one on each line
    admin_token_file: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/admin-token"), change: AfterRestart,
        manual: "Clients send `Authorization: Bearer TOKEN`. `/healthz` and `/readyz` stay open. A token also allows [closing clients, draining nodes, reloads and changes of options](operate.md#what-may-change-a-proxy). Keep it readable by its owner alone",
    }
    /// Certificate of locks over HTTP and its intermediate certificates (PEM); switches TLS on
    locks_http_tls_certificate: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/tls.crt"), change: AfterRestart,
    }
    /// Private key of that certificate (PEM)
    locks_http_tls_key: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/tls.key"), change: AfterRestart,
        manual: "Keep it readable by its owner alone",
    }
    /// Certificates of the authorities that sign certificates for clients of locks over HTTP (PEM)
    locks_http_tls_client_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/clients-ca.crt"), change: AfterRestart,
        manual: "Each client then needs a certificate, and its login as before",
    }

    section "Ring";
    /// Datacentre of the nodes to use
    local_datacentre: Option<String> {
        kind: String, value: "NAME", default: None => "that of the contact points",
        allowed: Form("name", "dc1"), change: OnReload,
        manual: "Set it. A fleet's proxy keeps it until a restart. [Which one](deploying.md#which-ring-which-datacentre)",
    }
    /// Role of the proxy's own connection to the ring; clients log in with their own
    username: Option<String> {
        kind: String, value: "ROLE", default: None => "",
        allowed: Form("name", "shunt"), change: OnReload,
    }
    /// Password of that role; visible in the process list, so prefer --password-file
    password: Option<Secret> {
        kind: Secret, value: "TEXT", default: None => "",
        allowed: Form("text", "..."), change: OnReload,
    }
    /// File with the password of that role in its first line
    password_file: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/run/credentials/shunt.service/ring-password"), change: OnReload,
        manual: "Not together with `--password`",
    }
    /// Interval between two reads of topology and schema
    refresh_interval_ms: u64 {
        kind: Millis, value: "MS", default: "60000",
        allowed: Numbers(100, DAY_MS), change: OnReload,
    }
    /// Time for a contact point to answer before the process ends with code 4; 0 keeps trying
    require_ring_ms: u64 {
        kind: Millis, value: "MS", default: "0", allowed: Numbers(0, DAY_MS), change: AfterRestart,
    }

    section "Event loop";
    /// Event loops, one thread each
    cores: usize {
        kind: usize, value: "N", default: default_cores() => "half of the CPUs, 1 to 8",
        allowed: Numbers(1, 1024), change: AfterRestart,
    }
    /// I/O driver: auto, epoll or uring
    io: IoChoice {
        kind: IoChoice, value: "DRIVER", default: "auto",
        allowed: Form("`auto`, `epoll`, `uring`", "epoll"), change: AfterRestart,
        manual: "`auto` is epoll. Without io_uring in the kernel the proxy uses epoll, and the log says so",
    }
    /// Time a turn waits for more queries before it handles those it has, or `auto`
    window_us: Window {
        kind: Window, value: "US", default: "0",
        allowed: WordOr("auto", 0, 100_000), change: OnReload,
    }
    /// Longest time queries wait to share a frame while a node has other work; 0 disables
    gather_us: u64 {
        kind: Micros, value: "US", default: "100", allowed: Numbers(0, 100_000), change: OnReload,
        manual: "Only aggregated frames use it. [Why](internals/frames.md#when-a-frame-waits)",
    }
    /// Aggregated frames to nodes that offer them: auto or off
    aggregate: Aggregate {
        kind: Aggregate, value: "WHEN", default: "auto",
        allowed: Form("`auto`, `off`", "off"), change: AfterRestart,
    }

    section "IN queries";
    /// Split prepared SELECTs with IN on the partition key: off or split
    multiget: Multiget {
        kind: Multiget, value: "HOW", default: "off",
        allowed: Form("`off`, `split`", "split"), change: AfterRestart,
        manual: "Guardrails of the nodes on the number of keys then see the parts. [Which queries](multiget.md)",
    }
    /// Most keys of an IN that the proxy splits; a longer IN goes whole
    multiget_keys_max: usize {
        kind: usize, value: "N", default: "128", allowed: Numbers(2, 10_000), change: OnReload,
    }

    section "Hand-over";
    /// Send large answers from nodes' hosts over the clients' own connections: off or auto
    handover: Handover {
        kind: Handover, value: "WHEN", default: "off",
        allowed: Form("`off`, `auto`", "auto"), change: AfterRestart,
        manual: "Needs an agent on each node's host, and a key; turns aggregated frames off. [Set-up](hand-over.md#cql)",
    }
    /// Size of the smallest answer that is handed over
    handover_threshold: u32 {
        kind: Bytes, value: "BYTES", default: "262144",
        allowed: Numbers(1024, FRAME_BYTES_LIMIT as u64), change: AfterRestart,
    }
    /// Port of the agents at their nodes' addresses
    handover_agent_port: u16 {
        kind: u16, value: "PORT", default: "7001",
        allowed: Numbers(1, 65_535), change: AfterRestart,
    }
    /// File with the key that proxies and agents share
    handover_key_file: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/key"), change: AfterRestart,
        manual: "16 to 4096 bytes, readable by its owner alone",
    }
    /// TLS to agents, all of which must have it: off or on
    handover_tls: Switch {
        kind: Switch, value: "WHEN", default: "off",
        allowed: Form("`off`, `on`", "on"), change: AfterRestart,
        manual: "For links and for the control connections. [Set-up](tls-http.md#proxies-and-agents)",
    }
    /// Certificates of the authorities that sign agents' certificates (PEM)
    handover_tls_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "those of the system",
        allowed: Form("path", "/etc/shunt/agents-ca.crt"), change: OnReload,
        manual: "The proxy reads the files of TLS to agents again on a reload, and every minute",
    }
    /// Certificate for agents that require one (PEM)
    handover_tls_certificate: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/agent-client.crt"), change: OnReload,
    }
    /// Private key of that certificate (PEM)
    handover_tls_key: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/agent-client.key"), change: OnReload,
        manual: "Keep it readable by its owner alone",
    }
    /// Name that every agent's certificate has, in place of the address of its node
    handover_tls_name: Option<String> {
        kind: String, value: "NAME", default: None => "the address of each agent",
        allowed: Form("name", "agents.example"), change: OnReload,
    }
    /// Name of this proxy for the agents; each proxy needs its own
    handover_name: Option<String> {
        kind: String, value: "NAME", default: None => "the host's name",
        allowed: Form("name", "proxy-1"), change: AfterRestart,
    }
    /// Directory where `shunt switch load --role dispatcher` pinned the kernel's tables
    handover_pins: PathBuf {
        kind: PathBuf, value: "DIR", default: "/sys/fs/bpf/shunt",
        allowed: Form("path", "/sys/fs/bpf/mine"), change: AfterRestart,
    }

    section "Times";
    /// Deadline of a query
    query_timeout_ms: u64 {
        kind: Millis, value: "MS", default: "12000",
        allowed: Numbers(PATIENCE_MS_MIN, DAY_MS), change: OnReload,
        manual: "Retries are included",
    }
    /// Deadline of connecting to a node
    connect_timeout_ms: u64 {
        kind: Millis, value: "MS", default: "5000",
        allowed: Numbers(PATIENCE_MS_MIN, DAY_MS), change: OnReload,
        manual: "Logging in is included",
    }
    /// Longest time SIGTERM waits for queries in flight
    drain_timeout_ms: u64 {
        kind: Millis, value: "MS", default: "30000", allowed: Numbers(0, DAY_MS), change: OnReload,
        manual: "This time begins after `drain_delay_ms` and `drain_close_ms`",
    }
    /// Time in which a draining proxy answers 503 at `/readyz` and still takes clients
    drain_delay_ms: u64 {
        kind: Millis, value: "MS", default: "0", allowed: Numbers(0, DAY_MS), change: OnReload,
        manual: "Set more than a balancer's health checks take to fail. [Drain](upgrading.md)",
    }
    /// Time over which a draining proxy closes idle clients, one after the other
    drain_close_ms: u64 {
        kind: Millis, value: "MS", default: "1000", allowed: Numbers(0, DAY_MS), change: OnReload,
    }
    /// Deadline of a client's login
    handshake_timeout_ms: u64 {
        kind: Millis, value: "MS", default: "10000",
        allowed: Numbers(PATIENCE_MS_MIN, DAY_MS), change: OnReload,
        manual: "It runs from the connection to READY. With TLS, it runs from the end of the TLS handshake, whose own deadline is the value at the start of the proxy",
    }
    /// Idle time before the proxy probes a link to a node
    heartbeat_interval_ms: u64 {
        kind: Millis, value: "MS", default: "30000",
        allowed: Numbers(100, DAY_MS), change: OnReload,
    }
    /// Silence of a node with queries in flight after which the proxy gives up its link
    node_silence_ms: u64 {
        kind: Millis, value: "MS", default: "5000",
        allowed: Numbers(limits::NODE_SILENCE_MS_MIN, DAY_MS), change: OnReload,
        manual: "A client that waits as long for a link, or for room on one, gets Overloaded. For nodes that pause longer, raise this option and `query_timeout_ms`",
    }
    /// Time the proxy trusts a successful login of a role
    auth_cache_ms: u64 {
        kind: Millis, value: "MS", default: "2000", allowed: Numbers(0, DAY_MS), change: OnReload,
        manual: "Further clients with the same password log in without asking a node. The time also holds for a role's right to use locks",
    }

    section "Slow nodes";
    /// Multiple of the other nodes' median time that makes a node an outlier; 0 disables
    outlier_latency_factor: u32 {
        kind: u32, value: "N", default: "4", allowed: Numbers(0, 1000), change: OnReload,
        manual: "A node must also be 5 ms slower. An outlier gets fewer queries; see [slow nodes](slow-nodes.md)",
    }
    /// Percentage of failed queries that makes a node an outlier; 0 disables
    outlier_errors_percent: u32 {
        kind: u32, value: "N", default: "50", allowed: Numbers(0, 100), change: OnReload,
    }
    /// Interval between two judgements of the nodes
    outlier_interval_ms: u64 {
        kind: Millis, value: "MS", default: "10000",
        allowed: Numbers(1000, DAY_MS), change: OnReload,
    }
    /// Time for which an outlier gets only queries that no other node can take
    outlier_hold_ms: u64 {
        kind: Millis, value: "MS", default: "30000",
        allowed: Numbers(1000, DAY_MS), change: OnReload,
        manual: "The second time lasts twice as long, the third three times, up to ten times",
    }
    /// Time in which the share of a node that comes back grows to the whole; 0 disables
    slow_start_ms: u64 {
        kind: Millis, value: "MS", default: "30000", allowed: Numbers(0, DAY_MS), change: OnReload,
    }
    /// Time after which a read of one key goes to another replica too: off, p99, or a fixed time
    hedge: Hedge {
        kind: Hedge, value: "WHEN", default: "off",
        allowed: Form("`off`, `p99`, 1ms to 1m", "p99"), change: OnReload,
        manual: "`p99` is the time that one read in a hundred exceeds; see [hedged reads](slow-nodes.md#hedged-reads)",
    }
    /// Largest percentage of reads that go to another replica too
    hedge_share_max: u32 {
        kind: u32, value: "N", default: "2", allowed: Numbers(1, 100), change: OnReload,
    }

    section "Limits";
    /// Most clients; the proxy refuses any beyond
    clients_max: usize {
        kind: usize, value: "N", default: "60000",
        allowed: Numbers(1, 10_000_000), change: OnReload,
        manual: "The limit holds for the process; each core has an even share",
    }
    /// Links per core, node and pool of clients
    links_per_node: usize {
        kind: usize, value: "N", default: "1", allowed: Numbers(1, 64), change: AfterRestart,
        manual: "More than one helps where a node's thread for one connection is the limit",
    }
    /// Most queries in flight on one link
    in_flight_max: u32 {
        kind: u32, value: "N", default: "16384",
        allowed: Numbers(1, STREAMS_MAX as u64), change: AfterRestart,
        manual: "A link has 32,767 stream ids",
    }
    /// Largest answer of a node; a request may have 16 MiB at most
    frame_bytes_max: u32 {
        kind: Bytes, value: "BYTES", default: "268435456",
        allowed: Numbers(4096, FRAME_BYTES_LIMIT as u64), change: OnReload,
    }
    /// Unread replies of one client at which the proxy stops reading from it
    client_backlog_bytes: usize {
        kind: Bytes, value: "BYTES", default: "1048576",
        allowed: Numbers(65_536, 1 << 32), change: OnReload,
    }
    /// Unread replies and incomplete requests of all clients; beyond it the largest is closed
    clients_bytes_max: usize {
        kind: Bytes, value: "BYTES", default: "1073741824",
        allowed: Numbers(1 << 20, 1 << 40), change: OnReload,
        manual: "At least `client_backlog_bytes`. Each core has a share of at least `frame_bytes_max` and `client_backlog_bytes`. Clients that have not logged in have a sixteenth of it, and what the others leave. The log names the client that was closed",
    }

    section "Locks and fleet";
    /// Fleet to join, created by `shunt fleet init`; locks and transactions need one
    fleet: Option<String> {
        kind: String, value: "NAME", default: None => "",
        allowed: Form("name", "main"), change: AfterRestart,
    }
    /// Fewest replicas of `shunt_meta` with which the proxy joins the fleet
    fleet_replicas_min: u32 {
        kind: u32, value: "N", default: "3", allowed: Numbers(1, 1000), change: AfterRestart,
        manual: "With fewer than 3, a lost node stops all locks, or two clients get the same lock. Lower it for trials only",
    }
    /// File that lets a restarted proxy prove that its former process ended
    fleet_state: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/run/shunt/fleet"), change: AfterRestart,
        manual: "The proxy then serves its locks again at once, not after the lease. Each proxy needs another file, on this host, that outlives the process",
    }
    /// TLS to the other proxies of the fleet: off or on
    fleet_tls: Switch {
        kind: Switch, value: "WHEN", default: "off",
        allowed: Form("`off`, `on`", "on"), change: AfterRestart,
        manual: "Switch it on once every proxy has `tls`; see [the proxies of a fleet](tls-to-nodes.md#the-proxies-of-a-fleet)",
    }
    /// Certificates of the authorities that sign the certificates of the fleet's proxies (PEM)
    fleet_tls_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "those of the system",
        allowed: Form("path", "/etc/shunt/ca.crt"), change: OnReload,
    }
    /// Name that the certificates of all proxies of the fleet have, in place of each one's address
    fleet_tls_name: Option<String> {
        kind: String, value: "NAME", default: None => "the address of each proxy",
        allowed: Form("name", "shunt.example"), change: OnReload,
        manual: "Whoever has a certificate with this name can pose as any proxy of the fleet",
    }
    /// Longest time a request waits for a lock
    lock_wait_max_ms: u64 {
        kind: Millis, value: "MS", default: "1500", allowed: Numbers(0, 600_000), change: OnReload,
        manual: "Most drivers give a request up after 2 to 12 s",
    }
    /// Age at which the proxy deletes rows of free durable locks; 0 keeps them
    lock_rows_kept_ms: u64 {
        kind: Millis, value: "MS", default: "3600000",
        allowed: Numbers(0, 31_536_000_000), change: OnReload,
        manual: "A released lock leaves a row, so that its former holder stays out. The fleet deletes it while every replica is up; see [Rows in Cassandra](fleet.md#rows-in-cassandra)",
    }
    /// Proof that this proxy still owns a shard when it commits: lease or lwt
    transaction_commit: Commit {
        kind: Commit, value: "HOW", default: "lease",
        allowed: Form("`lease`, `lwt`", "lwt"), change: AfterRestart,
        manual: "`lease` relies on the rate of the clock. `lwt` asks Cassandra each time, [whatever clocks say](transactions.md#without-clocks)",
    }
    /// Address of locks over HTTP, or `off`
    locks_http: Option<HttpAddress> {
        kind: LocksHttp, value: "ADDR", default: "off",
        allowed: Form("address or `off`", "127.0.0.1:9190"), change: AfterRestart,
        manual: "Needs `--fleet`. Without [TLS](tls-http.md#locks-over-http) logins travel in clear text. List accepted host names after it, as with `--admin`. [Requests](locks.md#over-http)",
    }

    section "Logs";
    /// Level: error, warn, info, debug or trace; or directives, such as `info,shunt_proxy=debug`
    log: String {
        kind: String, value: "LEVEL", default: "info",
        allowed: Form("level or directives", "debug"), change: OnReload,
        manual: "`off` is a level too. A directive is a level, or `MODULE=LEVEL`",
    }
    /// Format: text or json
    log_format: LogFormat {
        kind: LogFormat, value: "FORMAT", default: "text",
        allowed: Form("`text`, `json`", "json"), change: AfterRestart,
        manual: "One line or one JSON object per event",
    }
    /// Time after which a query is logged as slow; 0 disables
    slow_query_ms: u64 {
        kind: Millis, value: "MS", default: "500", allowed: Numbers(0, DAY_MS), change: OnReload,
        manual: "The line names the node, the client and the table; see [slow queries](slow-queries.md). Time-outs and failures of nodes are logged too",
    }
    /// Show values in slow queries and hot keys: off or on
    log_values: Switch {
        kind: Switch, value: "WHEN", default: "off",
        allowed: Form("`off`, `on`", "on"), change: OnReload,
        manual: "Values may be personal data. Bound values never appear in slow queries; [hot keys](digests.md#hot-keys) do show bound partition keys",
    }
    /// Count queries, errors and times by statement: on or off
    digests: Switch {
        kind: Switch, value: "WHEN", default: "on",
        allowed: Form("`off`, `on`", "off"), change: OnReload,
        manual: "See [digests](digests.md)",
    }
    /// Sample one query in N for hot keys; 0 turns them off
    hot_keys_sample: u32 {
        kind: u32, value: "N", default: "64", allowed: Numbers(0, 1_000_000), change: OnReload,
        manual: "See [hot keys](digests.md#hot-keys)",
    }

    section "Traces";
    /// URL of the OpenTelemetry collector for spans of traced requests, or `off`
    otlp_endpoint: Option<Endpoint> {
        kind: Collector, value: "URL", default: "off",
        allowed: Form("URL or `off`", "http://127.0.0.1:4318"), change: OnReload,
        manual: "OTLP over HTTP; spans go to `/v1/traces` below it. See [traces](tracing.md)",
    }
    /// File with headers for the collector, one `Name: value` on each line
    otlp_headers_file: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "",
        allowed: Form("path", "/etc/shunt/otlp-headers"), change: OnReload,
        manual: "Read for each request. Keep it readable by its owner alone",
    }
    /// Certificates of the authorities that sign the collector's certificate (PEM)
    otlp_ca: Option<PathBuf> {
        kind: PathBuf, value: "FILE", default: None => "those of the system",
        allowed: Form("path", "/etc/shunt/collector-ca.crt"), change: OnReload,
        manual: "For `https`. Read at the start and when a reload changes an option",
    }
    /// Name of this proxy's service in spans (`service.name`)
    otlp_service_name: String {
        kind: String, value: "NAME", default: "shunt",
        allowed: Form("name", "shunt-orders"), change: OnReload,
    }

    // The last sections: in a file, options behind a table would belong to it.
    section "Identities";
    /// Logins with nodes of clients that a certificate identifies
    identity: Identities {
        kind: Identities, value: "TABLE", default: Identities::default() => "",
        allowed: Tables("tables `[[identity]]` at the end", &identity::EXAMPLE), change: OnReload,
        manual: "In the file alone. Needs `tls_client_ca`. The proxy reads the files named there again on a reload, and every minute. [Set-up](identities.md)",
    }
    section "Tenants and rules";
    /// Groups of clients with limits of their own
    tenant: TenantList {
        kind: TenantList, value: "TABLE", default: TenantList::default() => "",
        allowed: Tables("tables `[[tenant]]` at the end", &tenant::EXAMPLE), change: OnReload,
        manual: "In the file alone. A client belongs to the first one that it matches. [Keys and limits](tenants.md)",
    }
    /// Statements that are refused, or treated in another way
    rule: RuleList {
        kind: RuleList, value: "TABLE", default: RuleList::default() => "",
        allowed: Tables("tables `[[rule]]` at the end", &rule::EXAMPLE), change: OnReload,
        manual: "In the file alone. The first one that has an action decides it. [Matches and actions](rules.md)",
    }
}
