//! What is wrong with the options of `shunt dispatch`, `shunt agent` and `shunt multiget`: all of
//! it, each with the place in the configuration file that it came from.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use crate::exit::{Exit, Failure};
use crate::settings::Place;

/// One thing wrong with an option.
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

/// Where the options of a command came from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The configuration file.
    pub(crate) file: PathBuf,
    /// Where in it the options stand that the command line does not have, too.
    pub(crate) places: BTreeMap<String, Place>,
    /// What could not be read, in the file or on the command line; the command has its defaults
    /// instead.
    pub(crate) unread: Vec<String>,
}

impl Sources {
    /// A line about an option, with where it came from.
    fn line(&self, fault: &Fault) -> String {
        let Fault { flag, message } = fault;
        match self.places.get(*flag) {
            None => format!("--{flag}: {message}"),
            Some(place) => self.at(*place, &format!("`{}`: {message}", flag.replace('-', "_"))),
        }
    }

    /// A line about a place in the file.
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

    /// What was read, or nothing, which is noted.
    pub(crate) fn take<T>(&mut self, read: Result<T, Fault>) -> Option<T> {
        read.map_err(|fault| self.0.push(fault)).ok()
    }

    /// An option does nothing, and whoever gave it believes that it does: refuses all values but
    /// the default.
    pub(crate) fn refuse_idle(&mut self, flag: &'static str, is_default: bool, without: &str) {
        if !is_default {
            self.add(
                flag,
                format!("it does nothing without {without}: leave it out, or give that"),
            );
        }
    }

    /// Fails with a line for each of them, and for what was not read before.
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
