//! Options of `shunt node`, and those that it shares with `shunt up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use shunt_node::run::NodesOptions;
use shunt_proxy::config::LogFormat;
use shunt_reactor::IoChoice;
use shunt_storage::StoreOptions;
use shunt_storage::engine::EngineOptions;
use shunt_storage::row_cache::{RowCacheOptions, SsdOptions};
use tracing::warn;

use crate::exit::{Exit, Failure};
use crate::settings::{Admin, Format, Listen};

/// `shunt node`: a node, or something done with its data.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeCommand {
    /// What to do with the data, if not to run a node on it.
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
    /// Of the node.
    #[command(flatten)]
    pub(crate) options: NodeOptions,
}

/// What can be done with the data of a node.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Copy the data to a new directory, also while nodes run on it
    #[command(after_help = "Example:\n  shunt node snapshot --data /var/lib/shunt /backup/shunt-1\n  \
                            shunt node --data /backup/shunt-1 --listen 127.0.0.1:9142")]
    Snapshot(Snapshot),
    /// Verify the data: every checksum, every key, every row; no node may run on it
    #[command(after_help = "Example:\n  shunt node check /var/lib/shunt")]
    Check(CheckData),
}

/// `shunt node snapshot`.
#[derive(Args, Debug)]
pub(crate) struct Snapshot {
    /// Data to copy
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Where to, a directory that does not exist; on the same file system files are linked, not copied
    #[arg(value_name = "NEW_DIR")]
    pub(crate) to: PathBuf,
}

/// `shunt node check`.
#[derive(Args, Debug)]
pub(crate) struct CheckData {
    /// Data to verify
    #[arg(value_name = "DIR")]
    pub(crate) data: PathBuf,
}

/// Options of a node.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeOptions {
    /// Where the data is kept; made if it does not exist
    #[arg(long, value_name = "DIR", required = true, help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// Address for clients and proxies
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9042", help_heading = "Addresses")]
    pub(crate) listen: Listen,
    /// Address of metrics, health and status, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9180", help_heading = "Addresses")]
    pub(crate) admin: Admin,
    /// Event loops, one thread each [default: half of the CPUs, 1 to 8]
    #[arg(long, value_name = "N", help_heading = "Event loop")]
    pub(crate) cores: Option<usize>,
    /// How long SIGTERM waits for answers that clients do not take
    #[arg(long, value_name = "MS", default_value_t = 30_000, help_heading = "Times",
          value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub(crate) drain_timeout_ms: u64,
    /// Connections; more are refused
    #[arg(long, value_name = "N", default_value_t = 60_000, help_heading = "Limits")]
    pub(crate) clients_max: usize,
    /// How the data is kept.
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
    /// Who may connect.
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
    /// Logs.
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// Who may reach the data.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReachOptions {
    /// Listen on an address that other machines reach: there are no logins, so whoever connects may do everything
    #[arg(long, help_heading = "Addresses")]
    pub(crate) insecure: bool,
}

impl ReachOptions {
    /// Refuses an address that other machines may reach, unless that was asked for. To be asked before anything is opened
    /// or bound: a node that nobody meant to show must not be seen for a moment.
    pub(crate) fn check(&self, listen: SocketAddr) -> Result<(), Failure> {
        if listen.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        if self.insecure {
            warn!(address = %listen, "other machines may reach this address, and whoever connects may do everything");
            return Ok(());
        }
        let message = format!(
            "--listen {listen}: other machines may reach that address, and the node has no logins: whoever connects may \
             read and write everything. Listen on a loopback address such as 127.0.0.1:{port}, or give --insecure if the \
             network keeps others away",
            port = listen.port()
        );
        Err(Failure { exit: Exit::Configuration, message })
    }
}

/// Options of each node's store.
#[derive(Args, Clone, Debug)]
pub(crate) struct StorageOptions {
    /// Memory for blocks of files, per node
    #[arg(long, value_name = "BYTES", default_value_t = 128 << 20, help_heading = "Data")]
    pub(crate) block_cache_bytes: usize,
    /// Memory for what is not in files yet, per node; up to three of these
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, help_heading = "Data")]
    pub(crate) memtable_bytes: usize,
    /// Memory for whole rows that were read, per node; 0 for no row cache
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, help_heading = "Data")]
    pub(crate) row_cache_bytes: usize,
    /// Directory on an SSD for rows that leave that memory, when the data is on slower disks
    #[arg(long, value_name = "DIR", requires = "row_cache_ssd_bytes", help_heading = "Data")]
    pub(crate) row_cache_ssd: Option<PathBuf>,
    /// Room for them, per node
    #[arg(long, value_name = "BYTES", requires = "row_cache_ssd", help_heading = "Data")]
    pub(crate) row_cache_ssd_bytes: Option<u64>,
    /// Room on the disk below which writes are refused
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, help_heading = "Data")]
    pub(crate) reserve_bytes: u64,
    /// Open although the log is damaged before its end, and lose what comes after the damage
    #[arg(long, help_heading = "Data")]
    pub(crate) accept_damaged_log: bool,
}

/// Options of the log.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogOptions {
    /// error, warn, info, debug, trace, or `tracing` directives [default: info; for `up`: warn]
    #[arg(long, value_name = "LEVEL", help_heading = "Logs")]
    pub(crate) log: Option<String>,
    /// text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Logs")]
    pub(crate) log_format: Format,
}

impl StorageOptions {
    pub(crate) fn store(&self) -> StoreOptions {
        let engine = EngineOptions {
            block_cache_bytes: self.block_cache_bytes,
            memtable_bytes: self.memtable_bytes,
            accept_damaged_log: self.accept_damaged_log,
            ..EngineOptions::default()
        };
        let ssd = self.row_cache_ssd.clone().zip(self.row_cache_ssd_bytes);
        let row_cache = (self.row_cache_bytes > 0).then(|| RowCacheOptions {
            memory_bytes: self.row_cache_bytes,
            ssd: ssd.map(|(directory, bytes)| SsdOptions::new(directory, bytes)),
            ..RowCacheOptions::default()
        });
        StoreOptions { engine, row_cache, reserve_bytes: self.reserve_bytes, ..StoreOptions::default() }
    }
}

impl LogOptions {
    /// Level and format.
    pub(crate) fn with_default(&self, level: &str) -> (String, LogFormat) {
        (self.log.clone().unwrap_or_else(|| level.to_owned()), self.log_format.0)
    }
}

impl NodeOptions {
    /// What the node is started from.
    pub(crate) fn nodes(&self) -> NodesOptions {
        let cores = self.cores.unwrap_or_else(crate::settings::default_cores).max(1);
        let directory = self.data.clone().unwrap_or_default();
        NodesOptions {
            store: self.storage.store(),
            io: IoChoice::Auto,
            loops_per_node: cores,
            connections_max: self.clients_max.div_ceil(cores),
            ..NodesOptions::new(directory, vec![self.listen.0])
        }
    }
}
