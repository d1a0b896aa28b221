//! The options of the proxy, each declared once, and the configuration that the running proxy has:
//! plain values, all defaults filled in.
//!
//! The list below is all that there is of an option: its field in [`Config`], its flag with the
//! help, its key in the file, its default, its range, whether a reload takes it over, and its row
//! in `docs/configuration.md` come from there. How a file and flags are read is the binary's
//! business (`crates/shunt/src/settings`). Cores hold an `Arc<Config>` and get a new one by
//! `CoreMail::Reload`.

mod kinds;
mod address;
mod member;
mod values;
mod option;
mod validate;

pub use address::{
    ADMIN_PORT, Admin, AdminAddress, Advertise, CQL_PORT, LOCKS_HTTP_PORT, Listen, LocksHttp,
    split_host_port,
};
pub use kinds::{Bytes, Kind, List, Micros, Millis, Readable, Written};
pub use option::{Allowed, Change, ConfigOption, DefaultText, Reloaded};
pub use validate::Problem;
pub(crate) use validate::reaches;
pub use values::{Aggregate, Commit, Credentials, Handover, LogFormat, Multiget, Secret, Window};

use std::net::SocketAddr;
use std::path::PathBuf;

use shunt_reactor::IoChoice;

use Allowed::{Form, Numbers, WordOr};
use option::{MaybeNumber, default_value, options};

/// Stream ids of one connection (protocol v3 to v5, section 2.3: a signed 16-bit number, negative
/// ones are events).
pub const STREAMS_MAX: u32 = 32_768;
/// Largest message body the protocol specifications allow (section 2.5: 256 MB).
pub const FRAME_BYTES_LIMIT: u32 = 256 * 1024 * 1024;
/// Longest time that makes sense anywhere in the configuration: a day.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Shortest deadline of others, in milliseconds: with less nothing would ever be done.
const PATIENCE_MS_MIN: u64 = 10;

// An option is its field, with what the help says of it as comment, and
//   kind:     how a value is read; for the unit, `Millis`, `Micros` or `Bytes`
//   value:    what stands for the value in the help
//   default:  the text that one would give, or a value and words for it
//   allowed:  `Numbers`, which are checked; or a form and an example
//   change:   `OnReload`, or `AfterRestart`: a reload keeps the old value and says so
//   manual:   what docs/configuration.md says beyond the help
// Rules between options are in `config/validate.rs`. After a change run
//   UPDATE_DOCS=1 cargo test -p shunt the_manual
options! {
    section "Addresses";

    /// Addresses for clients
    listen: Vec<SocketAddr> {
        kind: List<Listen>,
        value: "ADDR",
        default: "127.0.0.1:9042",
        allowed: Form("addresses", "127.0.0.2:9142,[::1]:9142"),
        change: AfterRestart,
        manual: "Several with commas, in the file as a list",
    }
    /// Nodes to ask for the ring, any of them will do: HOST or HOST:PORT
    contact_points: Vec<String> {
        kind: List<String>,
        value: "HOST",
        default: Vec::new() => "",
        allowed: Form("hosts", "10.0.0.1,10.0.0.2:9043"),
        change: OnReload,
        manual: "Required. Names are looked up at every attempt",
    }
    /// Address of metrics, health and status, or `off`
    admin: Option<AdminAddress> {
        kind: Admin,
        value: "ADDR",
        default: "127.0.0.1:9180",
        allowed: Form("address or `off`", "127.0.0.1:9999"),
        change: AfterRestart,
        manual: "There is no login: keep it off public networks. List accepted host names after it: `10.0.9.1:9180,proxy.example`",
    }
    /// Address that drivers are told
    advertise: Option<SocketAddr> {
        kind: Advertise,
        value: "ADDR",
        default: None => "the one they connected to",
        allowed: Form("address", "192.0.2.1:9042"),
        change: OnReload,
        manual: "It is in `system.local`. Port 0 or none: the port they connected to",
    }
    /// CQL port of nodes older than Cassandra 4.0, which do not tell theirs
    node_port: Option<u16> {
        kind: u16,
        value: "PORT",
        default: None => "that of the contact point",
        allowed: Form("1 to 65535", "9043"),
        change: OnReload,
        manual: "",
    }

    section "Ring";

    /// Datacentre whose nodes are used, and no others'
    local_datacentre: Option<String> {
        kind: String,
        value: "NAME",
        default: None => "that of the contact points",
        allowed: Form("name", "dc1"),
        change: OnReload,
        manual: "Set it. [Which one](deploying.md#which-ring-which-datacentre)",
    }
    /// Role for the proxy's own connection to the ring; clients always log in with theirs
    username: Option<String> {
        kind: String,
        value: "ROLE",
        default: None => "",
        allowed: Form("name", "shunt"),
        change: OnReload,
        manual: "",
    }
    /// Its password; shows in the list of processes, so prefer --password-file
    password: Option<Secret> {
        kind: Secret,
        value: "TEXT",
        default: None => "",
        allowed: Form("text", "..."),
        change: OnReload,
        manual: "",
    }
    /// File with its password in the first line
    password_file: Option<PathBuf> {
        kind: PathBuf,
        value: "FILE",
        default: None => "",
        allowed: Form("path", "/run/credentials/shunt.service/ring-password"),
        change: OnReload,
        manual: "Not together with `--password`",
    }
    /// How often topology and schema are read without a cause
    refresh_interval_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "60000",
        allowed: Numbers(100, DAY_MS),
        change: OnReload,
        manual: "",
    }
    /// End with code 4 if no contact point answers in this time; 0 = keep trying
    require_ring_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "0",
        allowed: Numbers(0, DAY_MS),
        change: AfterRestart,
        manual: "",
    }

    section "Event loop";

    /// Event loops, one thread each
    cores: usize {
        kind: usize,
        value: "N",
        default: default_cores() => "half of the CPUs, 1 to 8",
        allowed: Numbers(1, 1024),
        change: AfterRestart,
        manual: "",
    }
    /// I/O driver: auto, epoll or uring
    io: IoChoice {
        kind: IoChoice,
        value: "DRIVER",
        default: "auto",
        allowed: Form("`auto`, `epoll`, `uring`", "epoll"),
        change: AfterRestart,
        manual: "`auto` is epoll. Where io_uring is not to be had, epoll is used and the log says so",
    }
    /// How long to wait for more queries before handling those that came: microseconds, or `auto`
    window_us: Window {
        kind: Window,
        value: "US",
        default: "0",
        allowed: WordOr("auto", 0, 100_000),
        change: OnReload,
        manual: "",
    }
    /// How long queries may wait to share a frame while the node has not answered others; 0 = not
    gather_us: u64 {
        kind: Micros,
        value: "US",
        default: "100",
        allowed: Numbers(0, 100_000),
        change: OnReload,
        manual: "It matters for aggregated frames only. [Why](architecture.md#when-a-frame-waits)",
    }
    /// Aggregated frames to nodes that offer them: auto or off
    aggregate: Aggregate {
        kind: Aggregate,
        value: "WHEN",
        default: "auto",
        allowed: Form("`auto`, `off`", "off"),
        change: AfterRestart,
        manual: "",
    }

    section "IN queries";

    /// Whether prepared SELECTs with IN on the partition key are asked in parts: off or split
    multiget: Multiget {
        kind: Multiget,
        value: "HOW",
        default: "off",
        allowed: Form("`off`, `split`", "split"),
        change: AfterRestart,
        manual: "Guardrails of the nodes on the number of keys then see the parts. [What is split](multiget.md)",
    }
    /// Keys of an IN that is split; one with more goes whole
    multiget_keys_max: usize {
        kind: usize,
        value: "N",
        default: "128",
        allowed: Numbers(2, 10_000),
        change: OnReload,
        manual: "",
    }

    section "Hand-over";

    /// Whether large answers go from nodes' hosts to clients, over the clients' own connections:
    /// off or auto
    handover: Handover {
        kind: Handover,
        value: "WHEN",
        default: "off",
        allowed: Form("`off`, `auto`", "auto"),
        change: AfterRestart,
        manual: "It takes an agent on each node's host, and a key; aggregated frames are not used then. [What it takes](hand-over.md#cql)",
    }
    /// Answers of so many bytes are handed over
    handover_threshold: u32 {
        kind: Bytes,
        value: "BYTES",
        default: "262144",
        allowed: Numbers(1024, FRAME_BYTES_LIMIT as u64),
        change: AfterRestart,
        manual: "",
    }
    /// Port of the agents, each at its node's address
    handover_agent_port: u16 {
        kind: u16,
        value: "PORT",
        default: "7001",
        allowed: Numbers(1, 65_535),
        change: AfterRestart,
        manual: "",
    }
    /// File with the key that proxies and agents share
    handover_key_file: Option<PathBuf> {
        kind: PathBuf,
        value: "FILE",
        default: None => "",
        allowed: Form("path", "/etc/shunt/key"),
        change: AfterRestart,
        manual: "16 to 4096 bytes, readable by its owner alone",
    }
    /// Who this proxy is to the agents; each needs a name of its own
    handover_name: Option<String> {
        kind: String,
        value: "NAME",
        default: None => "the host's name",
        allowed: Form("name", "proxy-1"),
        change: AfterRestart,
        manual: "",
    }
    /// Where `shunt switch load --role dispatcher` has pinned the tables of the kernel
    handover_pins: PathBuf {
        kind: PathBuf,
        value: "DIR",
        default: "/sys/fs/bpf/shunt",
        allowed: Form("path", "/sys/fs/bpf/mine"),
        change: AfterRestart,
        manual: "",
    }

    section "Times";

    /// Deadline of a query
    query_timeout_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "12000",
        allowed: Numbers(PATIENCE_MS_MIN, DAY_MS),
        change: OnReload,
        manual: "Retries are included",
    }
    /// Deadline of connecting to a node
    connect_timeout_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "5000",
        allowed: Numbers(PATIENCE_MS_MIN, DAY_MS),
        change: OnReload,
        manual: "Logging in is included",
    }
    /// How long SIGTERM waits for queries in flight
    drain_timeout_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "30000",
        allowed: Numbers(0, DAY_MS),
        change: OnReload,
        manual: "",
    }
    /// How long a client may take to log in
    handshake_timeout_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "10000",
        allowed: Numbers(PATIENCE_MS_MIN, DAY_MS),
        change: OnReload,
        manual: "It counts from connecting to READY",
    }
    /// Idle time after which a link to a node is probed
    heartbeat_interval_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "30000",
        allowed: Numbers(100, DAY_MS),
        change: OnReload,
        manual: "",
    }
    /// How long a role's successful login is remembered
    auth_cache_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "2000",
        allowed: Numbers(0, DAY_MS),
        change: OnReload,
        manual: "It is believed for further clients that send the same; so long counts, too, what a node said of a role's right to use locks",
    }

    section "Limits";

    /// Clients; more are refused
    clients_max: usize {
        kind: usize,
        value: "N",
        default: "60000",
        allowed: Numbers(1, 10_000_000),
        change: OnReload,
        manual: "They are of the whole process, and shared out evenly to the cores",
    }
    /// Links per core, node and pool of clients that may share
    links_per_node: usize {
        kind: usize,
        value: "N",
        default: "1",
        allowed: Numbers(1, 64),
        change: AfterRestart,
        manual: "More than one helps when a node's one event loop thread per connection is the limit",
    }
    /// Queries in flight on one link
    in_flight_max: u32 {
        kind: u32,
        value: "N",
        default: "16384",
        allowed: Numbers(1, STREAMS_MAX as u64),
        change: AfterRestart,
        manual: "A link has 32,767 stream ids",
    }
    /// Largest answer of a node; requests are also bound by 16 MiB
    frame_bytes_max: u32 {
        kind: Bytes,
        value: "BYTES",
        default: "268435456",
        allowed: Numbers(4096, FRAME_BYTES_LIMIT as u64),
        change: OnReload,
        manual: "",
    }
    /// Replies a client may leave untaken before it is no longer read
    client_backlog_bytes: usize {
        kind: Bytes,
        value: "BYTES",
        default: "1048576",
        allowed: Numbers(65_536, 1 << 32),
        change: OnReload,
        manual: "",
    }
    /// Replies not taken and requests not complete of all clients; beyond it the one with the most
    /// is closed
    clients_bytes_max: usize {
        kind: Bytes,
        value: "BYTES",
        default: "1073741824",
        allowed: Numbers(1 << 20, 1 << 40),
        change: OnReload,
        manual: "At least `client_backlog_bytes`. Each core has its share, which is at least `frame_bytes_max` and `client_backlog_bytes`. The log says who was closed",
    }

    section "Locks and fleet";

    /// Fleet of proxies to be a member of, made by `shunt fleet init`; without one there are no
    /// locks
    fleet: Option<String> {
        kind: String,
        value: "NAME",
        default: None => "",
        allowed: Form("name", "main"),
        change: AfterRestart,
        manual: "",
    }
    /// Least replicas of `shunt_meta` to be a member with
    fleet_replicas_min: u32 {
        kind: u32,
        value: "N",
        default: "3",
        allowed: Numbers(1, 1000),
        change: AfterRestart,
        manual: "With fewer than 3 a lost node stops all locks, or lets them be granted twice. Lower it for trials only",
    }
    /// File by which a restarted proxy proves that its former process has ended
    fleet_state: Option<PathBuf> {
        kind: PathBuf,
        value: "FILE",
        default: None => "",
        allowed: Form("path", "/run/shunt/fleet"),
        change: AfterRestart,
        manual: "Its locks are then served again at once, and not after the lease. Each proxy needs a file of its own, on this host, that lasts from one process to the next",
    }
    /// Longest time that a request may wait for a lock
    lock_wait_max_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "1500",
        allowed: Numbers(0, 600_000),
        change: OnReload,
        manual: "Drivers give a request up after some seconds, most of them after 2 to 12",
    }
    /// After so long rows of durable locks that nobody holds are deleted; 0: never
    lock_rows_kept_ms: u64 {
        kind: Millis,
        value: "MS",
        default: "3600000",
        allowed: Numbers(0, 31_536_000_000),
        change: OnReload,
        manual: "A released lock leaves a row, so that its holder does not come back. It is deleted when every replica is up; see [Rows in Cassandra](fleet.md#rows-in-cassandra)",
    }
    /// lease or lwt: by what a proxy knows that transactions are still its own
    transaction_commit: Commit {
        kind: Commit,
        value: "HOW",
        default: "lease",
        allowed: Form("`lease`, `lwt`", "lwt"),
        change: AfterRestart,
        manual: "`lease`: by its clock, whose rate must be right. `lwt`: by asking Cassandra each time, [whatever clocks say](transactions.md#without-clocks)",
    }
    /// Address of locks over HTTP, or `off`
    locks_http: Option<SocketAddr> {
        kind: LocksHttp,
        value: "ADDR",
        default: "off",
        allowed: Form("address or `off`", "127.0.0.1:9190"),
        change: AfterRestart,
        manual: "Needs `--fleet`. Logins travel in clear text, so keep it off networks that you do not trust. [What it answers](locks.md#over-http)",
    }

    section "Logs";

    /// error, warn, info, debug, trace, or `tracing` directives
    log: String {
        kind: String,
        value: "LEVEL",
        default: "info",
        allowed: Form("level or directives", "debug"),
        change: OnReload,
        manual: "`off` is a level too; directives are such as `info,shunt_proxy::control=debug`",
    }
    /// text or json
    log_format: LogFormat {
        kind: LogFormat,
        value: "FORMAT",
        default: "text",
        allowed: Form("`text`, `json`", "json"),
        change: AfterRestart,
        manual: "One line or one JSON object per event",
    }
}

/// Fewer, busier loops aggregate better, and the nodes need CPUs as well.
pub fn default_cores() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 8)
}

impl Config {
    /// Login of the control connection; clients always use their own.
    pub fn credentials(&self) -> Option<Credentials> {
        let (username, password) = self.username.clone().zip(self.password.clone())?;
        Some(Credentials { username, password })
    }
}
