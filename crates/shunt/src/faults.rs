//! Gathers all faults in the options of `shunt dispatch`, `shunt agent` and `shunt multiget`, each
//! with its place in the configuration file.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use crate::exit::{Exit, Failure};
use crate::settings::Place;

/// A fault in an option.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The option, without `--`.
    pub(crate) flag: &'static str,
    /// The fault, and what to do about it.
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(flag: &'static str, message: impl Display) -> Self {
        Self { flag, message: message.to_string() }
    }
}

impl From<Fault> for Failure {
    fn from(Fault { flag, message }: Fault) -> Self {
        Self { exit: Exit::Configuration, message: format!("--{flag}: {message}") }
    }
}

/// The sources of a command's options.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The configuration file.
    pub(crate) file: PathBuf,
    /// Places in the file of the options that the command line does not override.
    pub(crate) places: BTreeMap<String, Place>,
    /// Faults of values that could not be read, in the file or on the command line; the command has
    /// their defaults instead.
    pub(crate) unread: Vec<String>,
}

impl Sources {
    /// Formats a fault in an option, with the place that the option came from.
    fn line(&self, fault: &Fault) -> String {
        let Fault { flag, message } = fault;
        match self.places.get(*flag) {
            None => format!("--{flag}: {message}"),
            Some(place) => self.at(*place, &format!("`{}`: {message}", flag.replace('-', "_"))),
        }
    }

    /// Formats a message about a place in the file.
    pub(crate) fn at(&self, place: Place, message: &str) -> String {
        format!("{}:{}:{}: {message}", self.file.display(), place.line, place.column)
    }
}

/// The faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, flag: &'static str, message: impl Display) {
        self.0.push(Fault::new(flag, message));
    }

    /// Returns the value that was read; notes the fault otherwise.
    pub(crate) fn take<T>(&mut self, read: Result<T, Fault>) -> Option<T> {
        read.map_err(|fault| self.0.push(fault)).ok()
    }

    /// Returns the faults, for a command that lists its own.
    #[cfg(feature = "node")]
    pub(crate) fn into_list(self) -> Vec<Fault> {
        self.0
    }

    /// Refuses every value but the default of an option that has no effect here: the user who gave
    /// it expects an effect.
    pub(crate) fn refuse_idle(&mut self, flag: &'static str, is_default: bool, without: &str) {
        if !is_default {
            self.add(
                flag,
                format!("has no effect without {without}: set {without}, or remove --{flag}"),
            );
        }
    }

    /// Fails if any fault was found, with a line for each, values that could not be read first.
    pub(crate) fn finish(self, sources: &Sources) -> Result<(), Failure> {
        let lines: Vec<String> = sources
            .unread
            .iter()
            .cloned()
            .chain(self.0.iter().map(|fault| sources.line(fault)))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        Err(Failure { exit: Exit::Configuration, message: lines.join("\nerror: ") })
    }
}
