//! From flags, file and defaults to one validated [`Config`]. Precedence: flag, then file, then default.

mod file;
mod options;

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use shunt_proxy::config::{Config, Credentials, Problem, Secret};

use crate::logging;
use file::File;
pub(crate) use options::{Admin, Format, Listen, Options};

/// The options together with the file they may also come from.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Configuration file (TOML); its keys are the options below with `_` for `-`, flags go before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What the command line says.
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
    pub(crate) fn load(&self) -> Result<Config, SettingsError> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let flags = self.options.given();
        let options = self.options.clone().over(file.options.clone());
        let mut problems = Vec::new();
        let config = resolve(options, &mut problems);
        problems.extend(config.problems());
        problems.extend(logging::filter(&config.log).err().map(|message| Problem { key: "log", message }));
        if problems.is_empty() {
            return Ok(config);
        }
        let line = |problem: &Problem| self.locate(problem, &flags, &file);
        Err(SettingsError(problems.iter().map(line).collect()))
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

/// Reads and parses the file.
fn read(path: &Path) -> Result<File, SettingsError> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| SettingsError(vec![format!("{name}: cannot be read: {error}")]))?;
    file::parse(&text).map_err(|errors| {
        let line = |e: &file::FileError| format!("{name}:{}:{}: {}", e.place.line, e.place.column, e.message);
        SettingsError(errors.iter().map(line).collect())
    })
}

/// Fills in defaults.
fn resolve(options: Options, problems: &mut Vec<Problem>) -> Config {
    let default = Config { cores: default_cores(), ..Config::default() };
    let credentials = credentials(&options, problems);
    Config {
        listen: options.listen.map_or(default.listen, |list| list.iter().map(|listen| listen.0).collect()),
        contact_points: options.contact_points.unwrap_or(default.contact_points),
        local_datacentre: options.local_datacentre.or(default.local_datacentre),
        cores: options.cores.unwrap_or(default.cores),
        io: options.io.unwrap_or(default.io),
        admin: options.admin.map_or(default.admin, |admin| admin.0),
        window: options.window_us.map_or(default.window, |window| window.0),
        gather_us: options.gather_us.unwrap_or(default.gather_us),
        credentials,
        query_timeout_ms: options.query_timeout_ms.unwrap_or(default.query_timeout_ms),
        connect_timeout_ms: options.connect_timeout_ms.unwrap_or(default.connect_timeout_ms),
        drain_timeout_ms: options.drain_timeout_ms.unwrap_or(default.drain_timeout_ms),
        handshake_timeout_ms: options.handshake_timeout_ms.unwrap_or(default.handshake_timeout_ms),
        clients_max: options.clients_max.unwrap_or(default.clients_max),
        links_per_node: options.links_per_node.unwrap_or(default.links_per_node),
        in_flight_max: options.in_flight_max.unwrap_or(default.in_flight_max),
        frame_bytes_max: options.frame_bytes_max.unwrap_or(default.frame_bytes_max),
        client_backlog_bytes: options.client_backlog_bytes.unwrap_or(default.client_backlog_bytes),
        clients_bytes_max: options.clients_bytes_max.unwrap_or(default.clients_bytes_max),
        heartbeat_interval_ms: options.heartbeat_interval_ms.unwrap_or(default.heartbeat_interval_ms),
        node_port: options.node_port.or(default.node_port),
        advertise: options.advertise.map_or(default.advertise, |advertise| Some(advertise.0)),
        auth_cache_ms: options.auth_cache_ms.unwrap_or(default.auth_cache_ms),
        aggregate: options.aggregate.map_or(default.aggregate, |aggregate| aggregate.0),
        refresh_interval_ms: options.refresh_interval_ms.unwrap_or(default.refresh_interval_ms),
        require_ring_ms: options.require_ring_ms.unwrap_or(default.require_ring_ms),
        log: options.log.unwrap_or(default.log),
        log_format: options.log_format.map_or(default.log_format, |format| format.0),
    }
}

/// Fewer, busier loops aggregate better, and the nodes need CPUs as well.
pub(crate) fn default_cores() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 8)
}

/// The login of the control connection, from two or three keys.
fn credentials(options: &Options, problems: &mut Vec<Problem>) -> Option<Credentials> {
    let mut problem = |key, message: String| problems.push(Problem { key, message });
    let password = match (&options.password, &options.password_file) {
        (Some(_), Some(_)) => {
            problem("password_file", "give either this or `password`, not both".to_owned());
            return None;
        }
        (Some(password), None) => Some(password.clone()),
        (None, Some(path)) => match std::fs::read_to_string(path) {
            Ok(text) => Some(text.lines().next().unwrap_or_default().to_owned()),
            Err(error) => {
                problem("password_file", format!("{} cannot be read: {error}", path.display()));
                return None;
            }
        },
        (None, None) => None,
    };
    match (options.username.clone(), password) {
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
