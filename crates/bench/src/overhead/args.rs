//! Arguments of `shunt bench overhead`.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};

/// Connections times queries in flight on each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// Client connections.
    pub connections: u32,
    /// Queries in flight per connection.
    pub outstanding: u32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('x')
            .and_then(|(left, right)| Some(Self { connections: left.parse().ok()?, outstanding: right.parse().ok()? }));
        match parsed {
            Some(shape) if (1..=20_000).contains(&shape.connections) && (1..=32_768).contains(&shape.outstanding) => {
                Ok(shape)
            }
            _ => Err(format!("'{text}' is not CONNECTIONSxOUTSTANDING, such as 64x1")),
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}x{}", self.connections, self.outstanding)
    }
}

/// A way from the load generator to an answer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
pub enum Arm {
    /// The floor: a process in the proxy's place that answers by itself, so that only the client side's sockets work.
    Echo,
    /// The load generator on the nodes themselves.
    Direct,
    /// `shunt proxy`.
    Proxy,
    /// HAProxy in TCP mode.
    Haproxy,
    /// `shunt proxy` in front of nodes that take aggregated frames.
    Aggregate,
}

impl Arm {
    /// The name as it is given on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Direct => "direct",
            Self::Proxy => "proxy",
            Self::Haproxy => "haproxy",
            Self::Aggregate => "aggregate",
        }
    }
}

/// `shunt bench overhead`: which ways, at which shapes, how often.
#[derive(Args, Clone, Debug)]
pub struct OverheadArgs {
    /// Shapes to measure
    #[arg(long, value_delimiter = ',', default_value = "64x1,256x1,1024x1,8x128,50x1,1x128")]
    pub shapes: Vec<Shape>,
    /// Ways to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "echo,direct,proxy,haproxy")]
    pub arms: Vec<Arm>,
    /// Rounds; in each, shape after shape, all ways in a new random order
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds measured per way, shape and round
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub duration: f64,
    /// Seconds of load before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 0.7)]
    pub warm_up: f64,
    /// Share of SELECTs, 0 to 1
    #[arg(long, default_value_t = 0.0)]
    pub reads: f64,
    /// Bytes of a value written; 14 makes an INSERT of protocol v4 70 bytes long
    #[arg(long, default_value_t = 14)]
    pub value_bytes: u32,
    /// Native protocol version of the clients
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=5))]
    pub protocol: u8,
    /// CPU of what is measured
    #[arg(long, default_value_t = 0)]
    pub cpu: usize,
    /// CPU of load generator and nodes
    #[arg(long, default_value_t = 1)]
    pub load_cpu: usize,
    /// The shunt binary; this one if not given
    #[arg(long, value_name = "FILE")]
    pub shunt: Option<PathBuf>,
    /// The HAProxy binary
    #[arg(long, value_name = "FILE", default_value = "haproxy")]
    pub haproxy: PathBuf,
    /// Further arguments of `shunt proxy`, such as --proxy-argument=--io=uring; repeatable
    #[arg(long = "proxy-argument", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub proxy_arguments: Vec<String>,
    /// First port of the nodes; the following ones are used too
    #[arg(long, default_value_t = 20_142)]
    pub port: u16,
    /// Event loop driver of load generator and nodes: auto, epoll or uring
    #[arg(long, default_value = "epoll")]
    pub io: String,
    /// Instead: memory of the proxy per idle client, with this many clients
    #[arg(long, value_name = "CLIENTS")]
    pub idle: Option<u32>,
    /// Record `perf` samples of what is measured into this directory (last round)
    #[arg(long, value_name = "DIRECTORY")]
    pub perf: Option<PathBuf>,
    /// Seed of the order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object per measurement in place of the table
    #[arg(long)]
    pub json: bool,
}
