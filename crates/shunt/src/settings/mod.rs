//! From flags, file and defaults to one validated [`Config`]. Precedence: flag, then file, then default.

#[cfg(feature = "node")]
mod checked;
mod file;
mod options;
mod values;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use shunt_proxy::config::{Config, Credentials, Problem, Secret};

use crate::logging;
#[cfg(feature = "node")]
pub(crate) use checked::Checked;
use file::File;
use options::Options;
#[cfg(feature = "node")]
pub(crate) use options::{Admin, Format, Listen};
pub(crate) use values::{Bytes, Given, Millis};

/// The options together with the file they may also come from.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Configuration file (TOML); its keys are the options below with `_` for `-`, flags go before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The options of the command line.
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Everything wrong with the configuration, one line each: what, where, what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingsError(Vec<String>);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "error: {problem}"))
    }
}

impl Settings {
    /// Reads the file, puts the flags over it, fills in defaults and checks the outcome. Called again on reload.
    ///
    /// # Errors
    /// Everything that is wrong: first with the file, then with flags, then with what both make together.
    pub(crate) fn load(&self) -> Result<Config, SettingsError> {
        let (file, mut lines) = self.config.as_deref().map_or_else(no_file, read);
        let given = self.options.given();
        let mut faulty: BTreeSet<&str> = BTreeSet::new();
        for (key, message) in self.options.faults() {
            faulty.insert(key);
            lines.push(format!("--{}: {message}", key.replace('_', "-")));
        }
        faulty.extend(file.faulty.iter().map(String::as_str).filter(|key| !given.contains(key)));
        let options = self.options.clone().over(file.options.clone());
        let mut problems = Vec::new();
        let config = resolve(options, &mut problems);
        problems.extend(config.problems());
        problems.extend(logging::filter(&config.log).err().map(|message| Problem { key: "log", message }));
        // Of a key that could not be read nothing is known, and of what was not given only with the whole file.
        let is_known = |key: &str| given.contains(&key) || file.is_whole || file.places.contains_key(key);
        problems.retain(|problem| !faulty.contains(problem.key) && is_known(problem.key));
        lines.extend(problems.iter().map(|problem| self.locate(problem, &given, &file)));
        if lines.is_empty() { Ok(config) } else { Err(SettingsError(lines)) }
    }

    /// Puts in front of a problem where the value came from.
    fn locate(&self, problem: &Problem, flags: &[&str], file: &File) -> String {
        let Problem { key, message } = problem;
        let mut line = String::new();
        let flag = key.replace('_', "-");
        let _ = match (flags.contains(key), file.places.get(*key), &self.config) {
            (true, ..) => write!(line, "--{flag}: "),
            (false, Some(place), Some(path)) => {
                write!(line, "{}:{}:{}: `{key}`: ", path.display(), place.line, place.column)
            }
            _ => write!(line, "`{key}` (--{flag}): "),
        };
        line + message
    }
}

fn no_file() -> (File, Vec<String>) {
    (File { is_whole: true, ..File::default() }, Vec::new())
}

/// Reads and parses the file; with a line for each thing that is wrong with it.
fn read(path: &Path) -> (File, Vec<String>) {
    let name = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let file = file::parse(&text);
            let line = |e: &file::FileError| format!("{name}:{}:{}: {}", e.place.line, e.place.column, e.message);
            let lines = file.errors.iter().map(line).collect();
            (file, lines)
        }
        Err(error) => (File::default(), vec![format!("{name}: cannot be read: {error}")]),
    }
}

/// Fills in defaults, also where a value could not be read.
fn resolve(options: Options, problems: &mut Vec<Problem>) -> Config {
    let default = Config { cores: default_cores(), ..Config::default() };
    let credentials = credentials(&options, problems);
    // A size that does not fit its type is beyond every bound there.
    let size = |given, default| value(given).map_or(default, |Bytes(size)| usize::try_from(size).unwrap_or(usize::MAX));
    let frame = |Bytes(size)| u32::try_from(size).unwrap_or(u32::MAX);
    let time = |given, default| value(given).map_or(default, |Millis(ms)| ms);
    Config {
        listen: options.listen.map_or(default.listen, |list| values(list).map(|listen| listen.0).collect()),
        contact_points: options.contact_points.map_or(default.contact_points, |list| values(list).collect()),
        local_datacentre: value(options.local_datacentre).or(default.local_datacentre),
        cores: value(options.cores).unwrap_or(default.cores),
        io: value(options.io).unwrap_or(default.io),
        admin: value(options.admin).map_or(default.admin, |admin| admin.0),
        window: value(options.window_us).map_or(default.window, |window| window.0),
        gather_us: value(options.gather_us).map_or(default.gather_us, |gather| gather.0),
        credentials,
        query_timeout_ms: time(options.query_timeout_ms, default.query_timeout_ms),
        connect_timeout_ms: time(options.connect_timeout_ms, default.connect_timeout_ms),
        drain_timeout_ms: time(options.drain_timeout_ms, default.drain_timeout_ms),
        handshake_timeout_ms: time(options.handshake_timeout_ms, default.handshake_timeout_ms),
        clients_max: value(options.clients_max).unwrap_or(default.clients_max),
        links_per_node: value(options.links_per_node).unwrap_or(default.links_per_node),
        in_flight_max: value(options.in_flight_max).unwrap_or(default.in_flight_max),
        frame_bytes_max: value(options.frame_bytes_max).map_or(default.frame_bytes_max, frame),
        client_backlog_bytes: size(options.client_backlog_bytes, default.client_backlog_bytes),
        clients_bytes_max: size(options.clients_bytes_max, default.clients_bytes_max),
        heartbeat_interval_ms: time(options.heartbeat_interval_ms, default.heartbeat_interval_ms),
        node_port: value(options.node_port).or(default.node_port),
        advertise: value(options.advertise).map_or(default.advertise, |advertise| Some(advertise.0)),
        auth_cache_ms: time(options.auth_cache_ms, default.auth_cache_ms),
        aggregate: value(options.aggregate).map_or(default.aggregate, |aggregate| aggregate.0),
        refresh_interval_ms: time(options.refresh_interval_ms, default.refresh_interval_ms),
        require_ring_ms: time(options.require_ring_ms, default.require_ring_ms),
        log: value(options.log).unwrap_or(default.log),
        log_format: value(options.log_format).map_or(default.log_format, |format| format.0),
    }
}

/// The value that was given, if it could be read.
fn value<T>(given: Option<Given<T>>) -> Option<T> {
    given.and_then(Given::value)
}

fn values<T>(list: Vec<Given<T>>) -> impl Iterator<Item = T> {
    list.into_iter().filter_map(Given::value)
}

/// Fewer, busier loops aggregate better, and the nodes need CPUs as well.
pub(crate) fn default_cores() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 8)
}

/// The login of the control connection, from two or three keys.
fn credentials(options: &Options, problems: &mut Vec<Problem>) -> Option<Credentials> {
    let mut problem = |key, message: String| problems.push(Problem { key, message });
    let password = match (value(options.password.clone()), value(options.password_file.clone())) {
        (Some(_), Some(_)) => {
            problem("password_file", "give either this or `password`, not both".to_owned());
            return None;
        }
        (Some(password), None) => Some(password.0),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.lines().next().unwrap_or_default().to_owned()),
            Err(error) => {
                problem("password_file", format!("{} cannot be read: {error}", path.display()));
                return None;
            }
        },
        (None, None) => None,
    };
    match (value(options.username.clone()), password) {
        (Some(username), Some(password)) => Some(Credentials { username, password: Secret::new(password) }),
        (Some(_), None) => {
            problem("username", "has no password; give `password_file`".to_owned());
            None
        }
        (None, Some(_)) => {
            problem("password", "has no role; give `username`".to_owned());
            None
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
