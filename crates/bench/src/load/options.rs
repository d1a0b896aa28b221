//! Options of the load, independent of sockets.

use std::{fmt, net::SocketAddr, sync::Arc};

use shunt_wire::cql::compression::Algorithm;

use crate::load::{
    args::{CompressionChoice, LoadArgs},
    distribution::Distribution,
    locks::{LockOptions, NAME_BYTES, OWNER_BYTES},
    mix::{Mix, Operation, ScanRows, Workload},
    template::{Layout, Shape},
    transfers::TransferKind,
};

/// TLS of the load's connections.
#[derive(Clone)]
pub struct LoadTls {
    client: Arc<shunt_tls::Client>,
    /// True if no connection may resume a session of another one.
    is_never_resumed: bool,
}

impl LoadTls {
    /// TLS to servers whose certificates come from the authority of `--tls-ca`, under any name.
    fn open(args: &LoadArgs) -> Result<Option<Self>, String> {
        if args.tls_ca.is_none() {
            return Ok(None);
        }
        let options = shunt_tls::ClientOptions {
            names: shunt_tls::OptionNames::COMMAND,
            ca: args.tls_ca.clone(),
            certificate: args.tls_certificate.clone(),
            key: args.tls_key.clone(),
            verify: shunt_tls::Verify::Ca,
            name: None,
        };
        let client = shunt_tls::Client::open(options).map_err(|error| error.to_string())?;
        let is_never_resumed = args.tls_full_handshakes;
        Ok(Some(Self { client: Arc::new(client), is_never_resumed }))
    }

    /// A session of the load's connection number `index` with a server.
    pub(super) fn session(
        &self,
        target: SocketAddr,
        index: usize,
    ) -> Box<dyn shunt_reactor::Session> {
        if self.is_never_resumed {
            // Sessions are kept by the server's name, which nobody verifies.
            self.client.session(&format!("connection-{index}.bench"))
        } else {
            self.client.session(&target.ip().to_string())
        }
    }
}

impl fmt::Debug for LoadTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadTls").finish_non_exhaustive()
    }
}

/// Options of a [`Load`](super::Load).
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Servers; connections are spread over them in turn.
    pub targets: Vec<SocketAddr>,
    /// TLS of the connections, if any.
    pub tls: Option<LoadTls>,
    /// Number of connections.
    pub connections: u32,
    /// Queries in flight per connection.
    pub outstanding: u32,
    /// Open loop: queries per second.
    pub rate: Option<f64>,
    /// Share of SELECTs; the rest are updates.
    pub reads: f64,
    /// Other operations in place of reads and updates.
    pub mix: Option<Mix>,
    /// Keys per multiget.
    pub multiget: u16,
    /// LIMIT of scans.
    pub scan_rows: ScanRows,
    /// Distinct keys.
    pub keys: u64,
    /// Distribution of operations over keys.
    pub distribution: Distribution,
    /// Version, consistency level, and sizes.
    pub layout: Layout,
    /// Number of value columns.
    pub columns: u8,
    /// True if writes are lightweight transactions.
    pub conditional: bool,
    /// True if statements are sent as texts with their keys and values.
    pub texts: bool,
    /// Take and release locks instead of other operations.
    pub locks: Option<LockOptions>,
    /// Move amounts between accounts instead of other operations.
    pub transfers: Option<TransferKind>,
    /// Fence of the lock that guarded transfers need.
    pub fence: i64,
    /// Send each query to a replica of its key.
    pub token_aware: bool,
    /// Compression of the connections.
    pub compression: Option<Algorithm>,
    /// Duration of the load before the first round, nanoseconds.
    pub warm_up_ns: u64,
    /// Length of a round, nanoseconds.
    pub duration_ns: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// Connect and prepare only; a round is then a time without queries.
    pub idle: bool,
    /// Create the keyspace (with this replication factor) and the table first.
    pub create: Option<u8>,
    /// Write all keys before the warm-up.
    pub populate: bool,
    /// Check the values that are found.
    pub verify: bool,
    /// Keyspace of the table.
    pub keyspace: String,
    /// Name of the table.
    pub table: String,
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// Seed of keys and arrivals.
    pub seed: u64,
    /// True if the event loop ends with the run.
    pub stops_loop: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            targets: vec![([127, 0, 0, 1], 9042).into()],
            tls: None,
            connections: 64,
            outstanding: 1,
            rate: None,
            reads: 0.5,
            mix: None,
            multiget: MULTIGET_KEYS,
            scan_rows: ScanRows::YCSB,
            keys: 1_000_000,
            distribution: Distribution::Uniform,
            layout: Layout { version: 4, consistency: 1, key_bytes: 16, value_bytes: 100 },
            columns: 1,
            conditional: false,
            texts: false,
            locks: None,
            transfers: None,
            fence: 0,
            token_aware: false,
            compression: None,
            warm_up_ns: 1_000_000_000,
            duration_ns: 5_000_000_000,
            rounds: 1,
            idle: false,
            create: None,
            populate: false,
            verify: false,
            keyspace: "bench".into(),
            table: "kv".into(),
            credentials: None,
            seed: 1,
            stops_loop: true,
        }
    }
}

impl LoadOptions {
    /// Returns the shares of all operations.
    pub fn mix(&self) -> Mix {
        self.mix.unwrap_or_else(|| Mix::reads(self.reads))
    }

    /// Replaces all operations by locks; names and owners have fixed lengths.
    #[must_use]
    pub fn with_locks(self, locks: LockOptions) -> Self {
        let layout = Layout { key_bytes: NAME_BYTES, value_bytes: OWNER_BYTES, ..self.layout };
        Self { locks: Some(locks), layout, ..self }
    }

    /// Returns the shape of the statements.
    pub fn shape(&self) -> Shape {
        let table = format!("{}.{}", self.keyspace, self.table);
        Shape {
            table,
            columns: self.columns,
            multiget: self.multiget,
            conditional: self.conditional,
        }
    }

    /// Reads the options of the command line.
    ///
    /// # Errors
    /// The password file cannot be read, or arguments contradict each other.
    pub fn from_args(args: &LoadArgs) -> Result<Self, String> {
        let compression = match args.compression {
            CompressionChoice::None => None,
            CompressionChoice::Lz4 => Some(Algorithm::Lz4),
            CompressionChoice::Snappy if args.protocol == 5 => {
                return Err("protocol v5 has no snappy".into());
            }
            CompressionChoice::Snappy => Some(Algorithm::Snappy),
        };
        if !(0.0..=1.0).contains(&args.reads) {
            return Err(format!("--reads {} is not a share from 0 to 1", args.reads));
        }
        if args.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err("--rate must be above 0".into());
        }
        let table = args.table.clone().unwrap_or_else(|| match (args.locks, args.transfers) {
            (Some(_), _) => "locks".into(),
            (None, Some(_)) => "accounts".into(),
            (None, None) => default_table(args.columns),
        });
        for name in [&args.keyspace, &table] {
            if name.is_empty()
                || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            {
                return Err(format!("'{name}' is not a plain name"));
            }
        }
        let mix = mix_of(args)?;
        let options = Self {
            targets: args.targets.clone(),
            tls: LoadTls::open(args)?,
            connections: args.connections,
            outstanding: args.outstanding,
            rate: args.rate,
            reads: args.reads,
            mix,
            multiget: args.multiget.unwrap_or(MULTIGET_KEYS),
            scan_rows: args.scan_rows,
            keys: args.keys,
            distribution: args
                .distribution
                .or(args.workload.map(Workload::distribution))
                .unwrap_or(Distribution::Uniform),
            layout: Layout {
                version: args.protocol,
                consistency: args.consistency,
                key_bytes: usize::from(args.key_bytes),
                value_bytes: args.value_bytes as usize,
            },
            columns: args.columns,
            conditional: args.conditional,
            texts: args.texts,
            locks: None,
            transfers: TransferKind::from_args(args)?,
            fence: args.fence.unwrap_or_default(),
            token_aware: args.token_aware,
            compression,
            warm_up_ns: nanoseconds(args.warm_up)?,
            duration_ns: nanoseconds(args.duration)?,
            rounds: args.rounds,
            idle: args.idle,
            create: args.create.then_some(args.replication),
            populate: args.populate,
            verify: args.verify,
            keyspace: args.keyspace.clone(),
            table,
            credentials: credentials_of(args)?,
            seed: args.seed,
            stops_loop: true,
        };
        match LockOptions::from_args(args)? {
            Some(locks) => Ok(options.with_locks(locks)),
            None => Ok(options),
        }
    }
}

/// Reads user and password from the command line.
fn credentials_of(args: &LoadArgs) -> Result<Option<(String, String)>, String> {
    match (&args.user, &args.password_file) {
        (Some(user), Some(file)) => {
            let password = std::fs::read_to_string(file)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(Some((user.clone(), password.trim_end_matches(['\r', '\n']).to_owned())))
        }
        (Some(user), None) => Ok(Some((user.clone(), String::new()))),
        _ => Ok(None),
    }
}

/// Default number of keys per multiget.
const MULTIGET_KEYS: u16 = 10;

/// Default name of the table: one name per shape.
fn default_table(columns: u8) -> String {
    if columns == 1 { "kv".into() } else { format!("kv{columns}") }
}

/// Returns the requested operations, if they are not only reads and updates.
fn mix_of(args: &LoadArgs) -> Result<Option<Mix>, String> {
    let of_multigets = args.multiget.map(|_| Mix::multigets(args.reads));
    let mix = args.mix.or(args.workload.map(Workload::mix)).or(of_multigets);
    let keys = args.multiget.unwrap_or(MULTIGET_KEYS);
    if mix.is_some_and(|mix| mix.share(Operation::Multiget) > 0.0) && args.keys < u64::from(keys) {
        return Err(format!(
            "a multiget of {keys} different keys needs more --keys than {}",
            args.keys
        ));
    }
    Ok(mix)
}

fn nanoseconds(seconds: f64) -> Result<u64, String> {
    if (0.0..=1e6).contains(&seconds) {
        Ok((seconds * 1e9) as u64)
    } else {
        Err(format!("{seconds} seconds are out of range"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::LoadOptions;
    use crate::load::{Distribution, LoadArgs, TransferKind, mix::Operation};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn options(arguments: &str) -> Result<LoadOptions, String> {
        let words = ["load"].into_iter().chain(arguments.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        LoadOptions::from_args(&command.load)
    }

    #[test]
    fn a_named_workload_sets_operations_and_distribution() {
        let latest = options("--workload ycsb-d").expect("valid");
        assert_eq!(latest.distribution, Distribution::Latest { exponent: 0.99 });
        assert!((latest.mix().share(Operation::Insert) - 0.05).abs() < 1e-9);
        let other = options("--workload ycsb-d --distribution uniform").expect("valid");
        assert_eq!(other.distribution, Distribution::Uniform);
    }

    #[test]
    fn the_default_mix_reads_and_updates_one_column() {
        let plain = options("--reads 0.7").expect("valid");
        assert!(plain.mix().is_plain() && (plain.mix().share(Operation::Read) - 0.7).abs() < 1e-9);
        assert_eq!((plain.table.as_str(), plain.distribution), ("kv", Distribution::Uniform));
    }

    #[test]
    fn tables_of_other_shapes_have_other_names() {
        assert_eq!(options("--columns 10").expect("valid").table, "kv10");
        assert_eq!(options("--columns 10 --table mine").expect("valid").table, "mine");
    }

    #[test]
    fn multigets_take_the_place_of_reads() {
        let multigets = options("--multiget 5 --reads 0.9").expect("valid");
        assert_eq!((multigets.multiget, multigets.mix().share(Operation::Read)), (5, 0.0));
        assert!((multigets.mix().share(Operation::Multiget) - 0.9).abs() < 1e-9);
        let problem = options("--multiget 5 --keys 4").expect_err("too few keys");
        assert!(problem.contains("5 different keys"), "{problem}");
    }

    #[test]
    fn locks_have_names_enough_and_a_table_of_their_own() {
        let lwt = options("--locks lwt --create --keys 64").expect("valid");
        assert_eq!((lwt.table.as_str(), lwt.create), ("locks", Some(1)));
        assert!(lwt.locks.is_some_and(|locks| locks.wait_ms.is_none() && locks.ttl_seconds == 30));
        assert!(options("--locks fast --keys 1 --lock-wait-ms 1500").is_ok());
        for (arguments, said) in [
            ("--locks fast --keys 63", "64 stream ids need as many --keys"),
            ("--locks lwt --lock-wait-ms 5", "is for --locks fast and durable"),
            ("--locks durable --lock-wait-ms 1500 --lock-ttl 2", "--lock-ttl must be more than"),
            ("--locks redis --outstanding 2", "--outstanding 1"),
            ("--locks fast --create", "--create is for"),
            ("--locks fast --keys 10000000001", "10000000000 names"),
        ] {
            let problem = options(arguments).expect_err(arguments);
            assert!(problem.contains(said), "{arguments}: {problem}");
        }
    }

    #[test]
    fn transfers_are_between_accounts() {
        let between = options("--transfers two-rows --keys 1000").expect("valid");
        assert_eq!(
            (between.table.as_str(), between.transfers),
            ("accounts", Some(TransferKind::TwoRows))
        );
        assert!(
            options("--transfers one-row --keys 1").is_ok()
                && options("--transfers lwt --protocol 3").is_ok()
        );
        for (arguments, said) in [
            ("--transfers two-rows --keys 1", "--keys must be 2 or more"),
            ("--transfers one-row --protocol 3", "needs --protocol 4"),
            ("--transfers lwt --keys 3000000000", "2147483647 accounts"),
            ("--transfers guarded", "go together"),
            ("--transfers lwt --fence 5", "go together"),
        ] {
            let problem = options(arguments).expect_err(arguments);
            assert!(problem.contains(said), "{arguments}: {problem}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for arguments in [
            "--mix read=1 --reads 1",
            "--workload ycsb-a --mix read=1",
            "--workload ycsb-a --multiget 3",
            "--mix x=1",
            "--locks fast --reads 1",
            "--locks fast --rate 5",
            "--lock-ttl 5",
            "--transfers lwt --locks lwt",
            "--transfers lwt --create",
            "--transfers two-rows --rate 5",
            "--mix acquire=1",
        ] {
            assert!(options(arguments).is_err(), "{arguments}");
        }
    }
}
