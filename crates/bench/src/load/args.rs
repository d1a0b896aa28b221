//! Arguments of `shunt bench load`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};

use crate::load::keys::Distribution;

/// Compression asked for in STARTUP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum CompressionChoice {
    /// Bodies as they are.
    #[default]
    None,
    /// LZ4, all protocol versions.
    Lz4,
    /// Snappy, protocol v3 and v4.
    Snappy,
}

/// `shunt bench load`: what to send, where, and what to watch meanwhile.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// CQL address; given several times, connections are spread over them
    #[arg(long = "target", value_name = "ADDR", default_value = "127.0.0.1:9042")]
    pub targets: Vec<SocketAddr>,
    /// Client connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: u32,
    /// Queries in flight per connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub outstanding: u32,
    /// Open loop: queries per second over all connections, Poisson arrivals, latency from the intended time of sending.
    /// Without it each answer starts the next query (closed loop)
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Share of SELECTs, 0 to 1; the rest are INSERTs
    #[arg(long, default_value_t = 0.5)]
    pub reads: f64,
    /// Number of distinct keys
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// How often each key is used: uniform, or zipf with an exponent (zipf:0.99)
    #[arg(long, default_value = "uniform")]
    pub distribution: Distribution,
    /// Bytes of a key, at least 8
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=4096))]
    pub key_bytes: u16,
    /// Bytes of a value written
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    pub value_bytes: u32,
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
    /// Rounds, each measured and reported by itself
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Report CPU time per query of this process; repeatable
    #[arg(long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,
    /// Statistics address of `shunt bench stub`, to report queries per frame and per read at the nodes
    #[arg(long, value_name = "ADDR")]
    pub stub_statistics: Option<SocketAddr>,
    /// Admin address of `shunt proxy`, to report its queries per write
    #[arg(long, value_name = "ADDR")]
    pub proxy_admin: Option<SocketAddr>,
    /// Create keyspace and table first if they are missing
    #[arg(long)]
    pub create: bool,
    /// Replication factor of a created keyspace
    #[arg(long, default_value_t = 1)]
    pub replication: u8,
    /// Write every key once before the warm-up
    #[arg(long)]
    pub populate: bool,
    /// Check that what a SELECT finds is what is written under that key
    #[arg(long)]
    pub verify: bool,
    /// Keyspace of the table
    #[arg(long, default_value = "bench")]
    pub keyspace: String,
    /// Table with columns (k blob primary key, v blob)
    #[arg(long, default_value = "kv")]
    pub table: String,
    /// Consistency level by its number in the protocol: 1 ONE, 4 QUORUM, 6 LOCAL_QUORUM, 10 LOCAL_ONE
    #[arg(long, default_value_t = 1)]
    pub consistency: u16,
    /// User for nodes that ask for a login
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
    /// One JSON object per round instead of the table
    #[arg(long)]
    pub json: bool,
}
