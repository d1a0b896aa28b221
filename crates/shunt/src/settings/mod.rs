//! Builds one validated [`Config`] from flags, file and defaults. A flag overrides the file, and
//! the file overrides the default.

#[cfg(feature = "node")]
mod flag_reader;
pub(crate) mod example;
mod file;
mod flags;
#[cfg(feature = "node")]
mod flag_value;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use shunt_proxy::admin::{Source, SourceMap};
#[cfg(feature = "node")]
pub(crate) use shunt_proxy::config::{
    Admin, AdminAddress, Bytes, HttpAddress, Listen, LocksHttp, Millis, default_cores,
};
use shunt_proxy::config::{Config, Handover, Multiget, OPTIONS, Problem, Secret};

use crate::logging;
use file::File;
pub(crate) use file::{Place, one_line, place_of};
#[cfg(feature = "node")]
pub(crate) use flag_reader::Checked;
#[cfg(feature = "node")]
pub(crate) use flag_value::Given;
use flags::{Flags, flag};

/// The proxy's flags, and the path of its configuration file.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Configuration file (TOML); its keys are the options below with `_` for `-`, and flags
    /// override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The options of the command line.
    #[command(flatten)]
    flags: Flags,
}

/// Faults of the configuration, one line each: what, where, what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingsError(Vec<String>);

impl SettingsError {
    /// Returns the lines.
    pub(crate) fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "error: {problem}"))
    }
}

impl Settings {
    /// Reads the file, applies the flags and defaults, and checks the result. Called again on
    /// reload.
    ///
    /// # Errors
    /// Every fault: those of the file, then of the flags, then of both together.
    pub(crate) fn load(&self) -> Result<Config, SettingsError> {
        self.load_with_sources().map(|(config, _)| config)
    }

    /// The same, with the sources of the options that are given.
    ///
    /// # Errors
    /// See [`Settings::load`].
    pub(crate) fn load_with_sources(&self) -> Result<(Config, SourceMap), SettingsError> {
        let mut config = Config::default();
        let (file, mut lines) =
            self.config.as_deref().map_or_else(no_file, |path| read(path, &mut config));
        let given = self.flags.keys();
        let mut faulty: BTreeSet<&str> =
            file.faulty.iter().copied().filter(|key| !given.contains(key)).collect();
        for (option, written) in &self.flags.0 {
            for message in option.read(&mut config, written) {
                faulty.insert(option.key);
                lines.push(format!("--{}: {message}", flag(option.key)));
            }
        }
        if config.fleet.is_none() && (faulty.contains("fleet") || !file.is_whole) {
            // The fleet may exist; options of its locks then cause no further fault.
            config.fleet = Some(String::new());
        }
        if faulty.contains("handover") || !file.is_whole && !file.places.contains_key("handover") {
            // The same for hand-over.
            config.handover = Handover::Auto;
        }
        if faulty.contains("multiget") || !file.is_whole && !file.places.contains_key("multiget") {
            config.multiget = Multiget::Split;
        }
        let mut problems = complete_login(&mut config);
        problems.extend(config.read_identities());
        problems.extend(config.problems());
        problems.extend(
            logging::filter(&config.log).err().map(|message| Problem { key: "log", message }),
        );
        // A key that could not be read has an unknown value. A key that was not given is known to
        // be missing only if the whole file was read.
        let is_known =
            |key: &str| given.contains(&key) || file.is_whole || file.places.contains_key(key);
        problems.retain(|problem| !faulty.contains(problem.key) && is_known(problem.key));
        lines.extend(problems.iter().map(|problem| self.locate(problem, &given, &file)));
        if !lines.is_empty() {
            return Err(SettingsError(lines));
        }
        let of_file = file.places.keys().map(|key| (*key, Source::File));
        let sources = of_file.chain(given.iter().map(|key| (*key, Source::Flag)));
        Ok((config, sources.collect()))
    }

    /// Prepends the place of the value to a problem.
    fn locate(&self, problem: &Problem, flags: &[&str], file: &File) -> String {
        let Problem { key, message } = problem;
        let mut line = String::new();
        let flag = flag(key);
        let _ = match (flags.contains(key), file.places.get(key), &self.config) {
            (true, ..) => write!(line, "--{flag}: "),
            (false, Some(place), Some(path)) => {
                write!(line, "{}:{}:{}: `{key}`: ", path.display(), place.line, place.column)
            }
            _ if !OPTIONS.iter().any(|option| option.key == *key && option.is_flag()) => {
                write!(line, "`{key}`: ")
            }
            _ => write!(line, "`{key}` (--{flag}): "),
        };
        line + message
    }
}

fn no_file() -> (File, Vec<String>) {
    (File { is_whole: true, ..File::default() }, Vec::new())
}

/// Reads the file into `config`; returns a line for each fault.
fn read(path: &Path, config: &mut Config) -> (File, Vec<String>) {
    let name = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let file = file::parse(&text, config);
            let line = |e: &file::FileError| {
                format!("{name}:{}:{}: {}", e.place.line, e.place.column, e.message)
            };
            let lines = file.errors.iter().map(line).collect();
            (file, lines)
        }
        Err(error) => (File::default(), vec![format!("{name}: cannot be read: {error}")]),
    }
}

/// Reads the password file, and checks the options of the login together.
fn complete_login(config: &mut Config) -> Vec<Problem> {
    let problem = |key, message: String| vec![Problem { key, message }];
    if let Some(path) = &config.password_file {
        if config.password.is_some() {
            return problem("password_file", "give either this or `password`, not both".to_owned());
        }
        match std::fs::read_to_string(path) {
            Ok(text) => {
                config.password = Some(Secret::new(text.lines().next().unwrap_or_default()))
            }
            Err(error) => {
                return problem(
                    "password_file",
                    format!("{} cannot be read: {error}", path.display()),
                );
            }
        }
    }
    match (&config.username, &config.password) {
        (Some(_), None) => problem("username", "has no password; give `password_file`".to_owned()),
        (None, Some(_)) => problem("password", "has no role; give `username`".to_owned()),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
