//! Every option of the proxy, once: the same struct is filled from the command line (clap) and from the file (serde),
//! so the two cannot drift apart. Flags are the keys with `-` for `_`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser};
use serde::Deserialize;
use shunt_proxy::config::{ADMIN_PORT, Aggregate, CQL_PORT, LogFormat, Window};
use shunt_reactor::IoChoice;

use super::values::{Bytes, Faults, Given, Kind, Micros, Millis, Password, list};

/// The options that were given; everything may be left out.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// Addresses for clients [default: 127.0.0.1:9042]
    #[arg(long, value_name = "ADDR", value_delimiter = ',', help_heading = "Addresses")]
    #[serde(deserialize_with = "list")]
    pub(crate) listen: Option<Vec<Given<Listen>>>,
    /// Nodes to ask for the ring, any of them will do: HOST or HOST:PORT
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = "Addresses")]
    #[serde(deserialize_with = "list")]
    pub(crate) contact_points: Option<Vec<Given<String>>>,
    /// Address of metrics, health and status, or `off` [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR", help_heading = "Addresses")]
    pub(crate) admin: Option<Given<Admin>>,
    /// Address that drivers are told [default: the one they connected to]
    #[arg(long, value_name = "ADDR", help_heading = "Addresses")]
    pub(crate) advertise: Option<Given<Advertise>>,
    /// CQL port of nodes older than Cassandra 4.0, which do not tell theirs [default: that of the contact point]
    #[arg(long, value_name = "PORT", help_heading = "Addresses")]
    pub(crate) node_port: Option<Given<u16>>,

    /// Datacentre whose nodes are used, and no others' [default: that of the contact points]
    #[arg(long, value_name = "NAME", help_heading = "Ring")]
    pub(crate) local_datacentre: Option<Given<String>>,
    /// Role for the proxy's own connection to the ring; clients always log in with theirs
    #[arg(long, value_name = "ROLE", help_heading = "Ring")]
    pub(crate) username: Option<Given<String>>,
    /// Its password; shows in the list of processes, so prefer --password-file
    #[arg(long, value_name = "TEXT", help_heading = "Ring")]
    pub(crate) password: Option<Given<Password>>,
    /// File with its password in the first line
    #[arg(long, value_name = "FILE", help_heading = "Ring")]
    pub(crate) password_file: Option<Given<PathBuf>>,
    /// How often topology and schema are read without a cause [default: 60000]
    #[arg(long, value_name = "MS", help_heading = "Ring")]
    pub(crate) refresh_interval_ms: Option<Given<Millis>>,
    /// End with code 4 if no contact point answers in this time; 0 = keep trying [default: 0]
    #[arg(long, value_name = "MS", help_heading = "Ring")]
    pub(crate) require_ring_ms: Option<Given<Millis>>,

    /// Event loops, one thread each [default: half of the CPUs, 1 to 8]
    #[arg(long, value_name = "N", help_heading = "Event loop")]
    pub(crate) cores: Option<Given<usize>>,
    /// I/O driver: auto, epoll or uring [default: auto]
    #[arg(long, value_name = "DRIVER", help_heading = "Event loop")]
    pub(crate) io: Option<Given<IoChoice>>,
    /// How long to wait for more queries before handling those that came: microseconds, or `auto` [default: 0]
    #[arg(long, value_name = "US", help_heading = "Event loop")]
    pub(crate) window_us: Option<Given<WindowUs>>,
    /// How long queries may wait to share a frame while the node has not answered others; 0 = not [default: 100]
    #[arg(long, value_name = "US", help_heading = "Event loop")]
    pub(crate) gather_us: Option<Given<Micros>>,
    /// Aggregated frames to nodes that offer them: auto or off [default: auto]
    #[arg(long, value_name = "WHEN", help_heading = "Event loop")]
    pub(crate) aggregate: Option<Given<AggregateUse>>,

    /// Deadline of a query [default: 12000]
    #[arg(long, value_name = "MS", help_heading = "Times")]
    pub(crate) query_timeout_ms: Option<Given<Millis>>,
    /// Deadline of connecting to a node [default: 5000]
    #[arg(long, value_name = "MS", help_heading = "Times")]
    pub(crate) connect_timeout_ms: Option<Given<Millis>>,
    /// How long SIGTERM waits for queries in flight [default: 30000]
    #[arg(long, value_name = "MS", help_heading = "Times")]
    pub(crate) drain_timeout_ms: Option<Given<Millis>>,
    /// How long a client may take to log in [default: 10000]
    #[arg(long, value_name = "MS", help_heading = "Times")]
    pub(crate) handshake_timeout_ms: Option<Given<Millis>>,
    /// Idle time after which a link to a node is probed [default: 30000]
    #[arg(long, value_name = "MS", help_heading = "Times")]
    pub(crate) heartbeat_interval_ms: Option<Given<Millis>>,
    /// How long a role's successful login is remembered [default: 2000]
    #[arg(long, value_name = "MS", help_heading = "Times")]
    pub(crate) auth_cache_ms: Option<Given<Millis>>,

    /// Clients; more are refused [default: 60000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) clients_max: Option<Given<usize>>,
    /// Links per core, node and pool of clients that may share [default: 1]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) links_per_node: Option<Given<usize>>,
    /// Queries in flight on one link [default: 16384]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) in_flight_max: Option<Given<u32>>,
    /// Largest answer of a node; requests are also bound by 16 MiB [default: 268435456]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) frame_bytes_max: Option<Given<Bytes>>,
    /// Replies a client may leave untaken before it is no longer read [default: 1048576]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) client_backlog_bytes: Option<Given<Bytes>>,
    /// Replies not taken and requests not complete of all clients; beyond it the one with the most is closed [default: 1073741824]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) clients_bytes_max: Option<Given<Bytes>>,

    /// error, warn, info, debug, trace, or `tracing` directives [default: info]
    #[arg(long, value_name = "LEVEL", help_heading = "Logs")]
    pub(crate) log: Option<Given<String>>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Logs")]
    pub(crate) log_format: Option<Given<Format>>,
}

/// Calls a macro with the names of all options; [`Options::over`] fails to compile when one is missing here.
macro_rules! for_all_options {
    ($call:ident) => {
        $call!(
            listen,
            contact_points,
            admin,
            advertise,
            node_port,
            local_datacentre,
            username,
            password,
            password_file,
            refresh_interval_ms,
            require_ring_ms,
            cores,
            io,
            window_us,
            gather_us,
            aggregate,
            query_timeout_ms,
            connect_timeout_ms,
            drain_timeout_ms,
            handshake_timeout_ms,
            heartbeat_interval_ms,
            auth_cache_ms,
            clients_max,
            links_per_node,
            in_flight_max,
            frame_bytes_max,
            client_backlog_bytes,
            clients_bytes_max,
            log,
            log_format
        )
    };
}

impl Options {
    /// `self` where it says something, else `below`.
    pub(crate) fn over(self, below: Self) -> Self {
        macro_rules! overlay {
            ($($key:ident),+) => { Self { $($key: self.$key.or(below.$key)),+ } };
        }
        for_all_options!(overlay)
    }

    /// The keys that say something.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let mut given = Vec::new();
        macro_rules! collect {
            ($($key:ident),+) => {$( if self.$key.is_some() { given.push(stringify!($key)); } )+};
        }
        for_all_options!(collect);
        given
    }

    /// All keys there are, as the command line knows them.
    pub(crate) fn keys() -> Vec<String> {
        /// A command that has nothing but the options.
        #[derive(Parser)]
        struct Bare {
            #[command(flatten)]
            _options: Options,
        }
        Bare::command().get_arguments().map(|argument| argument.get_id().to_string()).collect()
    }
}

impl Options {
    /// The faults of the values that were given: key and message.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        macro_rules! gather {
            ($($key:ident),+) => {$(
                let found = self.$key.iter().flat_map(Faults::faults);
                faults.extend(found.map(|message| (stringify!($key), message)));
            )+};
        }
        for_all_options!(gather);
        faults
    }
}

/// An address to listen on: an IP address or local host name, with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), CQL_PORT))
    }
}

impl Kind for Listen {
    const EXPECTED: &'static str = "an address such as \"127.0.0.1:9042\"";

    fn from_text(text: &str) -> Result<Self, String> {
        address(text, CQL_PORT).map(Self)
    }
}

/// The admin address, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admin(pub(crate) Option<SocketAddr>);

impl Kind for Admin {
    const EXPECTED: &'static str = "an address such as \"127.0.0.1:9180\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self(None)) } else { address(text, ADMIN_PORT).map(|address| Self(Some(address))) }
    }
}

/// The address shown to drivers; port 0 stands for the port they connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertise(pub(crate) SocketAddr);

impl Kind for Advertise {
    const EXPECTED: &'static str = "an address such as \"192.0.2.1:9042\"";

    fn from_text(text: &str) -> Result<Self, String> {
        address(text, 0).map(Self)
    }
}

/// Reads `IP`, `IP:PORT`, `HOST` or `HOST:PORT`; a name is looked up at once.
///
/// # Errors
/// To be put behind the text.
fn address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default_port));
    }
    let (host, port) = shunt_proxy::config::split_host_port(text)?;
    let mut found = (host, port.unwrap_or(default_port))
        .to_socket_addrs()
        .map_err(|error| format!("is no IP address, and looking up the name failed: {error}"))?;
    found.next().ok_or_else(|| "has no address".to_owned())
}

/// The waiting window as written: microseconds or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowUs(pub(crate) Window);

impl Kind for WindowUs {
    const EXPECTED: &'static str = "\"auto\", a time such as \"100us\", or a number of microseconds";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(Window::Auto)),
            _ => Micros::from_text(text).map(|us| Self(Window::Fixed { us: us.0 })),
        }
    }

    fn from_number(number: i64) -> Option<Self> {
        Micros::from_number(number).map(|us| Self(Window::Fixed { us: us.0 }))
    }
}

/// Use of aggregated frames as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AggregateUse(pub(crate) Aggregate);

impl Kind for AggregateUse {
    const EXPECTED: &'static str = "\"auto\" or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(Aggregate::Auto)),
            "off" => Ok(Self(Aggregate::Off)),
            _ => Err(String::new()),
        }
    }
}

/// The log format as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format(pub(crate) LogFormat);

impl Kind for Format {
    const EXPECTED: &'static str = "\"text\" or \"json\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self(LogFormat::Text)),
            "json" => Ok(Self(LogFormat::Json)),
            _ => Err(String::new()),
        }
    }
}

impl Kind for IoChoice {
    const EXPECTED: &'static str = "\"auto\", \"epoll\" or \"uring\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| String::new())
    }
}
