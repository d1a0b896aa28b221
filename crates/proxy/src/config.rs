//! The configuration as the running proxy uses it: plain values, all defaults filled in.
//!
//! How a file and flags become a [`Config`] is the binary's business (`crates/shunt`). Cores hold an `Arc<Config>` and
//! get a new one by `CoreMail::Reload`.

mod validate;

pub use validate::{Problem, split_host_port};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use shunt_reactor::IoChoice;

/// Port of the CQL native protocol.
pub const CQL_PORT: u16 = 9042;
/// Port of the admin interface.
pub const ADMIN_PORT: u16 = 9180;
/// Stream ids of one connection (protocol v3 to v5, section 2.3: a signed 16-bit number, negative ones are events).
pub const STREAMS_MAX: u32 = 32_768;
/// Largest message body the protocol specifications allow (section 2.5: 256 MB).
pub const FRAME_BYTES_LIMIT: u32 = 256 * 1024 * 1024;

/// All settings, validated by [`Config::problems`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses clients connect to.
    pub listen: Vec<SocketAddr>,
    /// Nodes asked first for the ring: `host`, `host:port`, `[v6]:port`; names are resolved at every attempt.
    pub contact_points: Vec<String>,
    /// Datacentre whose nodes are used, and no others'; `None`: that of the contact points.
    pub local_datacentre: Option<String>,
    /// Event loops, one thread each; at least 1.
    pub cores: usize,
    /// I/O driver of the event loops.
    pub io: IoChoice,
    /// Address of metrics, health and status; `None` switches it off.
    pub admin: Option<SocketAddr>,
    /// How long a turn of the loop waits for more work.
    pub window: Window,
    /// How long queries to a node may wait for others while it has not answered a frame, microseconds; 0: not at all.
    pub gather_us: u64,
    /// Login of the control connection; clients always use their own.
    pub credentials: Option<Credentials>,
    /// Deadline of one query at the proxy.
    pub query_timeout_ms: u64,
    /// Deadline of connecting and handshaking with a node.
    pub connect_timeout_ms: u64,
    /// How long SIGTERM waits for queries in flight.
    pub drain_timeout_ms: u64,
    /// How long a client may take from connecting to READY.
    pub handshake_timeout_ms: u64,
    /// Clients of the whole process; more are refused.
    pub clients_max: usize,
    /// Links per core, node and pool.
    pub links_per_node: usize,
    /// Queries in flight on one link; at most [`STREAMS_MAX`].
    pub in_flight_max: u32,
    /// Largest message body accepted from a client or node.
    pub frame_bytes_max: u32,
    /// Reply bytes a client may leave untaken before the proxy stops reading from it.
    pub client_backlog_bytes: usize,
    /// Bytes of all clients together: replies not taken, requests not complete. Each core has its share, and room for one
    /// largest answer; beyond it the client with the most is closed.
    pub clients_bytes_max: usize,
    /// Idle time after which a link is probed by OPTIONS.
    pub heartbeat_interval_ms: u64,
    /// CQL port of nodes that do not tell theirs (`system.peers_v2.native_port`, from Cassandra 4.0); `None`: the port
    /// of the contact point in use.
    pub node_port: Option<u16>,
    /// Address drivers see in `system.local`; `None`: the one the client connected to. Port 0: the port connected to.
    pub advertise: Option<SocketAddr>,
    /// How long a successful login of a role is remembered.
    pub auth_cache_ms: u64,
    /// Use of aggregated frames: with nodes that offer them, or never.
    pub aggregate: Aggregate,
    /// How often topology and schema are read again without a cause.
    pub refresh_interval_ms: u64,
    /// Fail the start when no contact point answered within this time; 0: keep trying for ever.
    pub require_ring_ms: u64,
    /// Log filter: a level, or `tracing` directives such as `info,shunt_proxy::control=debug`.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
}

impl Config {
    /// `new` as far as a running proxy can take it over: keys that only a restart can change keep their present value.
    /// Also names the keys that changed, and those among them that wait for the restart.
    pub fn reloaded(&self, new: &Config) -> Reloaded {
        let mut config = new.clone();
        let mut waiting = Vec::new();
        macro_rules! keep {
            ($($key:ident),+) => {$(
                if self.$key != new.$key {
                    config.$key = self.$key.clone();
                    waiting.push(stringify!($key));
                }
            )+};
        }
        keep!(listen, cores, io, admin, log_format, links_per_node, in_flight_max, aggregate, require_ring_ms);
        let mut changed = Vec::new();
        macro_rules! compare {
            ($($key:ident),+ $(,)?) => {$(
                if self.$key != config.$key {
                    changed.push(file_key(stringify!($key)));
                }
            )+};
        }
        compare!(
            contact_points,
            local_datacentre,
            window,
            gather_us,
            credentials,
            query_timeout_ms,
            connect_timeout_ms,
            drain_timeout_ms,
            handshake_timeout_ms,
            clients_max,
            frame_bytes_max,
            client_backlog_bytes,
            clients_bytes_max,
            heartbeat_interval_ms,
            node_port,
            advertise,
            auth_cache_ms,
            refresh_interval_ms,
            log,
        );
        Reloaded { config, changed, waiting }
    }
}

/// The key of a field in the file, where they differ.
fn file_key(field: &'static str) -> &'static str {
    match field {
        "window" => "window_us",
        "credentials" => "username",
        same => same,
    }
}

/// The result of [`Config::reloaded`].
#[derive(Debug)]
pub struct Reloaded {
    /// The configuration to go on with.
    pub config: Config,
    /// Keys whose new value takes effect now.
    pub changed: Vec<&'static str>,
    /// Keys whose new value needs a restart.
    pub waiting: Vec<&'static str>,
}

impl Default for Config {
    fn default() -> Self {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            listen: vec![SocketAddr::new(loopback, CQL_PORT)],
            contact_points: Vec::new(),
            local_datacentre: None,
            cores: 1,
            io: IoChoice::Auto,
            admin: Some(SocketAddr::new(loopback, ADMIN_PORT)),
            window: Window::Fixed { us: 0 },
            gather_us: 100,
            credentials: None,
            query_timeout_ms: 12_000,
            connect_timeout_ms: 5_000,
            drain_timeout_ms: 30_000,
            handshake_timeout_ms: 10_000,
            clients_max: 60_000,
            links_per_node: 1,
            in_flight_max: 16_384,
            frame_bytes_max: FRAME_BYTES_LIMIT,
            client_backlog_bytes: 1024 * 1024,
            clients_bytes_max: 1024 * 1024 * 1024,
            heartbeat_interval_ms: 30_000,
            node_port: None,
            advertise: None,
            auth_cache_ms: 2_000,
            aggregate: Aggregate::Auto,
            refresh_interval_ms: 60_000,
            require_ring_ms: 0,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

/// How long a turn of the event loop is delayed to gather more work (`docs/internals/reactor.md`, "the window").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Follows the load.
    Auto,
    /// Always this long; 0 switches the delay off.
    Fixed {
        /// Microseconds.
        us: u64,
    },
}

/// Use of aggregated frames (opcode 0x64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// With nodes whose SUPPORTED offers them.
    Auto,
    /// Never.
    Off,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One readable line per event.
    Text,
    /// One JSON object per event.
    Json,
}

/// A login, for SASL PLAIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Role name.
    pub username: String,
    /// Its password.
    pub password: Secret,
}

/// A string that never shows in logs or dumps.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"***\"")
    }
}
