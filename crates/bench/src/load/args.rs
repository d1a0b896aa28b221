//! Arguments of `shunt bench load`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};

use crate::load::{
    distribution::Distribution,
    locks::LockKind,
    mix::{Mix, ScanRows, Workload},
    transfers::TransferKind,
};

/// Compression to request in STARTUP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum CompressionChoice {
    /// Uncompressed bodies.
    #[default]
    None,
    /// LZ4, all protocol versions.
    Lz4,
    /// Snappy, protocol v3 and v4.
    Snappy,
}

/// `shunt bench load`: the load, its targets, and the processes to watch.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// CQL address; given several times, connections are spread over them
    #[arg(long = "target", value_name = "ADDR", default_value = "127.0.0.1:9042")]
    pub targets: Vec<SocketAddr>,
    /// Connect with TLS, and verify the servers' certificates with those of this authority
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Client certificate for servers that require one (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Never resume a TLS session: each connection makes a full handshake
    #[arg(long, requires = "tls_ca")]
    pub tls_full_handshakes: bool,
    /// Client connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// Queries in flight per connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub outstanding: u32,
    /// Open loop: queries per second over all connections, Poisson arrivals, latency from the
    /// intended time of sending. Without it each answer starts the next query (closed loop)
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Share of SELECTs, 0 to 1; the rest are INSERTs of existing keys
    #[arg(long, default_value_t = 0.5)]
    pub reads: f64,
    /// Shares of operations, for example read=0.9,update=0.05,insert=0.05. read and update are the
    /// operations of --reads; insert writes new keys after the existing ones; rmw reads a key and
    /// then updates it; scan reads rows in token order; multiget reads several keys with IN
    #[arg(long, value_name = "OPERATION=SHARE,..", conflicts_with = "reads")]
    pub mix: Option<Mix>,
    /// Operations and distribution of a core workload of the Yahoo! Cloud Serving Benchmark, on the
    /// table and with the sizes given here (its own rows have --columns 10)
    #[arg(long, value_enum, conflicts_with_all = ["reads", "mix"])]
    pub workload: Option<Workload>,
    /// Keys per multiget, all different. Without --mix all reads are multigets. Default with --mix:
    /// 10
    #[arg(long, value_name = "KEYS", conflicts_with = "workload", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub multiget: Option<u16>,
    /// LIMIT of a scan, or the range to draw it from
    #[arg(long, value_name = "ROWS", default_value = "1-100")]
    pub scan_rows: ScanRows,
    /// Number of distinct keys
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Distribution of operations over keys: uniform; zipf[:EXPONENT], with hot keys spread over
    /// all keys; latest[:EXPONENT], with the latest inserts hot; hotset:SHARE:PROBABILITY, a share
    /// of the keys with a share of the operations; churn:EXPONENT:SECONDS, zipf with new hot keys
    /// after each interval. Default: uniform, or that of --workload
    #[arg(long)]
    pub distribution: Option<Distribution>,
    /// Bytes of a key, at least 8
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=4096))]
    pub key_bytes: u16,
    /// Bytes of a value written
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    pub value_bytes: u32,
    /// Value columns of --value-bytes each. A read returns all of them, an insert writes all, an
    /// update writes one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub columns: u8,
    /// Make writes lightweight transactions (UPDATE .. IF ..) whose condition always holds
    #[arg(long, conflicts_with = "locks")]
    pub conditional: bool,
    /// Send statements as texts, with keys and values in them, instead of prepared ones: as many
    /// different texts as keys
    #[arg(long, conflicts_with_all = ["mix", "workload", "multiget", "conditional", "locks", "transfers"])]
    pub texts: bool,
    /// Native protocol version
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=5))]
    pub protocol: u8,
    /// Compression of the connections
    #[arg(long, value_enum, default_value_t)]
    pub compression: CompressionChoice,
    /// Seconds of load before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warm_up: f64,
    /// Seconds measured per round
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub duration: f64,
    /// Rounds, each measured and reported separately
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Report CPU time per query of this process; repeatable
    #[arg(long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,
    /// Statistics address of `shunt bench stub`, to report queries per frame and per read at the
    /// nodes
    #[arg(long, value_name = "ADDR")]
    pub stub_statistics: Option<SocketAddr>,
    /// Admin address of `shunt proxy`, to report its queries per write
    #[arg(long, value_name = "ADDR")]
    pub proxy_admin: Option<SocketAddr>,
    /// Send each query over a connection to a replica of its (first) key. Every node of the
    /// datacentre must be a --target. In a closed loop a connection draws keys until one belongs to
    /// its node, so all nodes get equally many queries; in an open loop the key is drawn first and
    /// waits for a connection to one of its nodes
    #[arg(long)]
    pub token_aware: bool,
    /// Create keyspace and table first if they are missing
    #[arg(long)]
    pub create: bool,
    /// Replication factor of a created keyspace
    #[arg(long, default_value_t = 1)]
    pub replication: u8,
    /// Take and release locks instead: each stream id takes a lock, waits for the answer, releases
    /// the lock, and continues with another name, which no other stream id uses meanwhile. A lock
    /// that is not granted or not held is counted and makes the exit code 2. fast and durable: the
    /// tables of a proxy with --fleet; lwt: a table of --keyspace, by INSERT .. IF NOT EXISTS and
    /// DELETE .. IF owner = ?; redis: SET NX PX and compare-and-delete by EVALSHA; etcd:
    /// transactions over gRPC. redis and etcd take one lock at a time per connection
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["reads", "mix", "workload", "multiget", "rate",
        "distribution", "token_aware", "populate", "verify", "columns"])]
    pub locks: Option<LockKind>,
    /// TTL of the locks; etcd locks have no lease
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "locks",
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub lock_ttl: u32,
    /// Draw locks from all --keys and wait for each up to this time (fast and durable)
    #[arg(long, value_name = "MS", requires = "locks")]
    pub lock_wait_ms: Option<u32>,
    /// Move amounts instead, in a table of --keyspace with a row for each of --keys from 0 on, each
    /// with a sufficient balance. two-rows: a transaction of a proxy with --fleet from one random
    /// account to another; one-row: a transaction on the stream id's own account (shared if there
    /// are fewer accounts); lwt: the same by UPDATE .. IF balance = ?, with the last known balance,
    /// repeated until it is applied; lock: an account is a lock, free at 0, which the stream id
    /// takes by such an UPDATE and releases by another; guarded: an UPDATE that needs a lock, held
    /// with --fence
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["reads", "mix", "workload", "multiget", "rate",
        "distribution", "token_aware", "populate", "verify", "columns", "conditional", "locks", "create"])]
    pub transfers: Option<TransferKind>,
    /// Fence of the held lock `transfers`, for --transfers guarded
    #[arg(long, value_name = "FENCE", requires = "transfers")]
    pub fence: Option<i64>,
    /// Connect and send no queries, to measure the cost of connections alone
    #[arg(long)]
    pub idle: bool,
    /// Write every key once before the warm-up
    #[arg(long)]
    pub populate: bool,
    /// Check that a SELECT returns the values written under its keys
    #[arg(long)]
    pub verify: bool,
    /// Keyspace of the table
    #[arg(long, default_value = "bench")]
    pub keyspace: String,
    /// Table with columns (k blob primary key, v blob), or v0, v1, .. with --columns. Default: kv,
    /// or kvN with N columns; locks (name text primary key, owner text) with --locks lwt; accounts
    /// (id int primary key, balance int) with --transfers
    #[arg(long)]
    pub table: Option<String>,
    /// Consistency level, as its number in the protocol: 1 ONE, 4 QUORUM, 6 LOCAL_QUORUM, 10
    /// LOCAL_ONE
    #[arg(long, default_value_t = 1)]
    pub consistency: u16,
    /// User for nodes that require a login
    #[arg(long)]
    pub user: Option<String>,
    /// File with the password of --user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Run on this CPU only
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Event loop driver: auto, epoll or uring
    #[arg(long, default_value = "auto")]
    pub io: String,
    /// Seed of keys and arrival times
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object per round instead of the table
    #[arg(long)]
    pub json: bool,
}
