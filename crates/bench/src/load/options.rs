//! What the load is, apart from where it runs.

use std::net::SocketAddr;

use shunt_wire::cql::compression::Algorithm;

use crate::load::{args::CompressionChoice, args::LoadArgs, keys::Distribution, template::Layout};

/// Everything a [`Load`](super::Load) has to know.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where connections go, in turn.
    pub targets: Vec<SocketAddr>,
    /// Number of connections.
    pub connections: u32,
    /// Queries in flight on each.
    pub outstanding: u32,
    /// Open loop: queries per second.
    pub rate: Option<f64>,
    /// Share of SELECTs.
    pub reads: f64,
    /// Distinct keys.
    pub keys: u64,
    /// How often each is used.
    pub distribution: Distribution,
    /// Version, consistency, sizes.
    pub layout: Layout,
    /// Compression of the connections.
    pub compression: Option<Algorithm>,
    /// Load before the first round, nanoseconds.
    pub warm_up_ns: u64,
    /// Length of a round, nanoseconds.
    pub duration_ns: u64,
    /// Rounds.
    pub rounds: u32,
    /// Connect and prepare only; a round is then time without queries.
    pub idle: bool,
    /// Create keyspace (with this replication factor) and table first.
    pub create: Option<u8>,
    /// Write all keys before the warm-up.
    pub populate: bool,
    /// Check values found.
    pub verify: bool,
    /// Keyspace of the table.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// Seed of keys and arrivals.
    pub seed: u64,
    /// Whether the end of the run ends the event loop.
    pub stops_loop: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            targets: vec![([127, 0, 0, 1], 9042).into()],
            connections: 64,
            outstanding: 1,
            rate: None,
            reads: 0.5,
            keys: 1_000_000,
            distribution: Distribution::Uniform,
            layout: Layout { version: 4, consistency: 1, key_bytes: 16, value_bytes: 100 },
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
    /// What the command line says.
    ///
    /// # Errors
    /// The password file cannot be read, or arguments contradict each other.
    pub fn from_args(args: &LoadArgs) -> Result<Self, String> {
        let compression = match args.compression {
            CompressionChoice::None => None,
            CompressionChoice::Lz4 => Some(Algorithm::Lz4),
            CompressionChoice::Snappy if args.protocol == 5 => return Err("protocol v5 has no snappy".into()),
            CompressionChoice::Snappy => Some(Algorithm::Snappy),
        };
        if !(0.0..=1.0).contains(&args.reads) {
            return Err(format!("--reads {} is not a share from 0 to 1", args.reads));
        }
        if args.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err("--rate must be above 0".into());
        }
        for name in [&args.keyspace, &args.table] {
            if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
                return Err(format!("'{name}' is not a plain name"));
            }
        }
        let credentials = match (&args.user, &args.password_file) {
            (Some(user), Some(file)) => {
                let password = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                Some((user.clone(), password.trim_end_matches(['\r', '\n']).to_owned()))
            }
            (Some(user), None) => Some((user.clone(), String::new())),
            _ => None,
        };
        Ok(Self {
            targets: args.targets.clone(),
            connections: args.connections,
            outstanding: args.outstanding,
            rate: args.rate,
            reads: args.reads,
            keys: args.keys,
            distribution: args.distribution,
            layout: Layout {
                version: args.protocol,
                consistency: args.consistency,
                key_bytes: usize::from(args.key_bytes),
                value_bytes: args.value_bytes as usize,
            },
            compression,
            warm_up_ns: nanoseconds(args.warm_up)?,
            duration_ns: nanoseconds(args.duration)?,
            rounds: args.rounds,
            idle: false,
            create: args.create.then_some(args.replication),
            populate: args.populate,
            verify: args.verify,
            keyspace: args.keyspace.clone(),
            table: args.table.clone(),
            credentials,
            seed: args.seed,
            stops_loop: true,
        })
    }
}

fn nanoseconds(seconds: f64) -> Result<u64, String> {
    if (0.0..=1e6).contains(&seconds) {
        Ok((seconds * 1e9) as u64)
    } else {
        Err(format!("{seconds} seconds are out of range"))
    }
}
