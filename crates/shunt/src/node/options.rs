//! Options of `shunt node`, some of them shared with `shunt up`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use shunt_node::run::NodesOptions;
use shunt_proxy::config::{DAY_MS, LogFormat};
use shunt_reactor::IoChoice;
use shunt_storage::StoreOptions;
use shunt_storage::engine::EngineOptions;
use shunt_storage::row_cache::{RowCacheOptions, SsdOptions};
use tracing::warn;

use crate::exit::{Exit, Failure};
use crate::faults::{Fault, Faults};
use crate::logging;
use crate::relay::AdminTls;
use crate::settings::{Admin, AdminAddress, Bytes, Checked, Given, Listen, Millis, SettingsError};

/// Most event loops.
const CORES_MAX: usize = 1024;
/// Port of the admin pages.
const ADMIN_PORT: u16 = 9180;
/// Most connections.
const CLIENTS_MAX: usize = 10_000_000;

/// `shunt node`: a node, or a task on its data.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeCommand {
    /// A task on the data; without one a node runs on it.
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
    /// Options of the node.
    #[command(flatten)]
    pub(crate) options: NodeOptions,
}

/// A task on the data of a node.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Copy the data to a new directory; nodes may run meanwhile
    #[command(
        after_help = "Example:\n  shunt node snapshot --data /var/lib/shunt /backup/shunt-1\n  \
                            shunt node --data /backup/shunt-1 --listen 127.0.0.1:9142"
    )]
    Snapshot(Snapshot),
    /// Verify every checksum, key and row of the data; no node may run on it
    #[command(after_help = "Example:\n  shunt node check /var/lib/shunt")]
    Check(CheckData),
}

/// `shunt node snapshot`.
#[derive(Args, Debug)]
pub(crate) struct Snapshot {
    /// Data to copy
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Directory to create for the copy; on the same file system, files are linked
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
    /// Directory of the data; created if missing
    #[arg(long, value_name = "DIR", required = true, help_heading = "Data")]
    pub(crate) data: Option<PathBuf>,
    /// Address for clients and proxies
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9042", help_heading = "Addresses")]
    pub(crate) listen: Given<Listen>,
    /// Event loops, one thread each [default: half of the CPUs, 1 to 8]
    #[arg(long, value_name = "N", help_heading = "Event loop")]
    pub(crate) cores: Option<Given<usize>>,
    /// Longest time SIGTERM waits for clients to read their answers
    #[arg(long, value_name = "MS", default_value = "30000", help_heading = "Times")]
    pub(crate) drain_timeout_ms: Given<Millis>,
    /// Most connections; the node refuses more
    #[arg(long, value_name = "N", default_value = "60000", help_heading = "Limits")]
    pub(crate) clients_max: Given<usize>,
    /// Options shared with `shunt up`.
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Options of both `shunt node` and `shunt up`. Each of them has a separate `--listen` with its own
/// help.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonOptions {
    /// Address of metrics, health and status, with accepted host names and `unix:PATH` after
    /// commas, or `off` [default: 127.0.0.1:9180; for `up`: port 9180 at the address of --listen]
    #[arg(long, value_name = "ADDR", help_heading = "Addresses")]
    pub(crate) admin: Option<Given<Admin>>,
    /// Allow an address that other machines reach. The node has no logins: each client may do
    /// everything
    #[arg(long, help_heading = "Addresses")]
    pub(crate) insecure: bool,
    /// TLS of the admin pages, and their tokens.
    #[command(flatten)]
    pub(crate) admin_tls: AdminTls,
    /// Options of the store.
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
    /// Logs.
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// Settings of both `shunt node` and `shunt up`.
#[derive(Debug)]
pub(crate) struct CommonSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<AdminAddress>,
    pub(crate) admin_tls: AdminTls,
    pub(crate) store: StoreOptions,
    insecure: bool,
    log: (String, LogFormat),
}

impl CommonOptions {
    /// Reads all of them, and `--listen`. Without options for these, the log is at `level`, and the
    /// admin pages are on the host that `admin` names for that address.
    pub(crate) fn check(
        &self,
        listen: &Given<Listen>,
        level: &str,
        admin: fn(SocketAddr) -> IpAddr,
        checked: &mut Checked,
    ) -> CommonSettings {
        let listen = checked.take("listen", listen, Listen::default()).0;
        let default = Admin(Some(SocketAddr::new(admin(listen), ADMIN_PORT).into()));
        let admin = self.admin.as_ref();
        let admin = admin.map_or(default, |given| checked.take("admin", given, Admin(None))).0;
        let mut faults = Faults::default();
        self.admin_tls.check(admin.as_ref(), &mut faults);
        for Fault { flag, message } in faults.into_list() {
            checked.add(flag, message);
        }
        CommonSettings {
            listen,
            admin,
            admin_tls: self.admin_tls.clone(),
            store: self.storage.store(checked),
            insecure: self.insecure,
            log: self.log.with_default(level, checked),
        }
    }
}

/// Begins a process: starts its log, and refuses an address that strangers could reach. If any
/// setting is wrong, reports the faults and returns the status to end with.
pub(crate) fn begin<S>(
    checked: Result<S, SettingsError>,
    common: fn(&S) -> &CommonSettings,
) -> Result<S, Exit> {
    let settings = checked.map_err(|problems| {
        eprint!("{problems}");
        Exit::Configuration
    })?;
    let CommonSettings { log: (level, format), .. } = common(&settings);
    if let Err(why) = logging::start(level, *format) {
        eprintln!("logging could not be started: {why}");
        return Err(Exit::Internal);
    }
    common(&settings).refuse_strangers().map_err(Failure::report)?;
    Ok(settings)
}

impl CommonSettings {
    /// Warns of admin pages that other machines can read, and of certificates that expire soon.
    pub(super) fn warn_of_pages(&self) {
        let warnings = self.admin.as_ref().map(|admin| self.admin_tls.warnings(admin));
        warnings.unwrap_or_default().iter().for_each(|warning| warn!("{warning}"));
    }

    /// Refuses an address that other machines may reach without `--insecure`. Call this before
    /// anything is opened or bound: a node must not be exposed for even a moment.
    fn refuse_strangers(&self) -> Result<(), Failure> {
        let listen = self.listen;
        if listen.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        if self.insecure {
            warn!(address = %listen, "other machines may reach this address, and every client may \
            do everything");
            return Ok(());
        }
        let message = format!(
            "--listen {listen}: other machines may reach that address, and the node has no \
            logins: every client can read and write everything. Listen on a loopback address such \
            as 127.0.0.1:{port}, or give --insecure if the \
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
    #[arg(long, value_name = "BYTES", default_value = "128MiB", help_heading = "Data")]
    pub(crate) block_cache_bytes: Given<Bytes>,
    /// Size of one memtable, per node; a node has up to three
    #[arg(long, value_name = "BYTES", default_value = "64MiB", help_heading = "Data")]
    pub(crate) memtable_bytes: Given<Bytes>,
    /// Memory of the row cache, per node; 0 disables it
    #[arg(long, value_name = "BYTES", default_value = "64MiB", help_heading = "Data")]
    pub(crate) row_cache_bytes: Given<Bytes>,
    /// Directory on an SSD for rows that leave the row cache, where the data is on slower disks
    #[arg(long, value_name = "DIR", requires = "row_cache_ssd_bytes", help_heading = "Data")]
    pub(crate) row_cache_ssd: Option<PathBuf>,
    /// Space for these rows, per node
    #[arg(long, value_name = "BYTES", requires = "row_cache_ssd", help_heading = "Data")]
    pub(crate) row_cache_ssd_bytes: Option<Given<Bytes>>,
    /// Free disk space below which a node refuses writes
    #[arg(long, value_name = "BYTES", default_value = "256MiB", help_heading = "Data")]
    pub(crate) reserve_bytes: Given<Bytes>,
    /// Open a store whose log is damaged before its end, and lose the writes after the damage
    #[arg(long, help_heading = "Data")]
    pub(crate) accept_damaged_log: bool,
}

/// Options of the log.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogOptions {
    /// Level: error, warn, info, debug or trace; or directives, as for `proxy` [default: info; for
    /// `up`: warn]
    #[arg(long, value_name = "LEVEL", help_heading = "Logs")]
    pub(crate) log: Option<String>,
    /// Format: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Logs")]
    pub(crate) log_format: Given<LogFormat>,
}

impl StorageOptions {
    /// Options for opening the stores.
    fn store(&self, checked: &mut Checked) -> StoreOptions {
        let mut size = |flag, given: &Given<Bytes>| checked.take(flag, given, Bytes(0)).0;
        let mut memory = |flag, given| usize::try_from(size(flag, given)).unwrap_or(usize::MAX);
        let engine = EngineOptions {
            block_cache_bytes: memory("block-cache-bytes", &self.block_cache_bytes),
            memtable_bytes: memory("memtable-bytes", &self.memtable_bytes),
            accept_damaged_log: self.accept_damaged_log,
            ..EngineOptions::default()
        };
        let row_cache_bytes = memory("row-cache-bytes", &self.row_cache_bytes);
        let ssd_bytes =
            self.row_cache_ssd_bytes.as_ref().map(|given| size("row-cache-ssd-bytes", given));
        let ssd = self.row_cache_ssd.clone().zip(ssd_bytes);
        let is_idle = ssd.is_some() && row_cache_bytes == 0 && self.row_cache_bytes.0.is_ok();
        let row_cache = (row_cache_bytes > 0).then(|| RowCacheOptions {
            memory_bytes: row_cache_bytes,
            ssd: ssd.map(|(directory, bytes)| SsdOptions::new(directory, bytes)),
            ..RowCacheOptions::default()
        });
        let reserve_bytes = size("reserve-bytes", &self.reserve_bytes);
        if is_idle {
            let why = "has no effect without a row cache in memory: set --row-cache-bytes \
            above 0, or remove --row-cache-ssd";
            checked.add("row-cache-ssd", why);
        }
        StoreOptions { engine, row_cache, reserve_bytes, ..StoreOptions::default() }
    }
}

impl LogOptions {
    /// Level and format of the log.
    fn with_default(&self, level: &str, checked: &mut Checked) -> (String, LogFormat) {
        let level = self.log.clone().unwrap_or_else(|| level.to_owned());
        if let Err(why) = logging::filter(&level) {
            checked.add("log", why);
        }
        (level, checked.take("log-format", &self.log_format, LogFormat::Text))
    }
}

/// The settings of a node: its options, read and checked.
#[derive(Debug)]
pub(crate) struct NodeSettings {
    pub(crate) common: CommonSettings,
    pub(crate) drain_timeout: Duration,
    pub(crate) clients_max: usize,
    cores: usize,
    data: PathBuf,
}

impl NodeOptions {
    /// Reads all of them.
    ///
    /// # Errors
    /// Every fault.
    pub(crate) fn check(&self) -> Result<NodeSettings, SettingsError> {
        let mut checked = Checked::default();
        let default_cores = crate::settings::default_cores();
        let cores = self
            .cores
            .as_ref()
            .map_or(default_cores, |given| checked.take("cores", given, default_cores));
        let drain_ms = checked.take("drain-timeout-ms", &self.drain_timeout_ms, Millis(0)).0;
        let clients_max = checked.take("clients-max", &self.clients_max, 1);
        let settings = NodeSettings {
            common: self.common.check(
                &self.listen,
                "info",
                |_| Ipv4Addr::LOCALHOST.into(),
                &mut checked,
            ),
            drain_timeout: Duration::from_millis(checked.within(
                "drain-timeout-ms",
                drain_ms,
                0..=DAY_MS,
            )),
            clients_max: checked.within("clients-max", clients_max, 1..=CLIENTS_MAX),
            cores: checked.within("cores", cores, 1..=CORES_MAX),
            data: self.data.clone().unwrap_or_default(),
        };
        checked.finish(settings)
    }
}

impl NodeSettings {
    /// Options for starting the node.
    pub(crate) fn nodes(&self) -> NodesOptions {
        NodesOptions {
            store: self.common.store.clone(),
            io: IoChoice::Auto,
            loops_per_node: self.cores,
            connections_max: self.clients_max.div_ceil(self.cores),
            ..NodesOptions::new(self.data.clone(), vec![self.common.listen])
        }
    }
}
