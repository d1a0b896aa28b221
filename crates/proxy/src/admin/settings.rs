//! The page of options: the value in force, its source, and the value that waits for a restart; and
//! the outcome of the last reload.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use shunt_admin::{Encoder, Unit, plain};

use crate::config::{Change, Config, ConfigOption, DefaultText, OPTIONS};

/// Name of the page.
pub(super) const PAGE: &str = "config";

/// The place that an option's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag of the command line.
    Flag,
    /// The configuration file.
    File,
}

/// The sources of the options that were given.
pub type SourceMap = BTreeMap<&'static str, Source>;

/// The outcome of reading the configuration.
#[derive(Clone, Debug)]
struct Outcome {
    at_ms: u64,
    problems: Vec<String>,
}

#[derive(Debug)]
struct Known {
    /// The configuration as it was last read; `None`: it has no file and no flags.
    wanted: Option<Arc<Config>>,
    sources: SourceMap,
    /// Options that a request has set since then.
    by_request: BTreeSet<&'static str>,
    last: Outcome,
    /// Time of the last reading without a fault.
    succeeded_ms: u64,
}

/// The state of the main thread that the page shows.
#[derive(Debug)]
pub(super) struct Settings(Mutex<Known>);

impl Settings {
    pub(super) fn new() -> Self {
        let last = Outcome { at_ms: now_ms(), problems: Vec::new() };
        let succeeded_ms = last.at_ms;
        Self(Mutex::new(Known {
            wanted: None,
            sources: SourceMap::new(),
            by_request: BTreeSet::new(),
            last,
            succeeded_ms,
        }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a configuration that has been read. Options that need no restart are in force, and
    /// values that requests have set are gone.
    pub(super) fn set(&self, wanted: Arc<Config>, sources: SourceMap) {
        let at_ms = now_ms();
        let last = Outcome { at_ms, problems: Vec::new() };
        let (wanted, by_request) = (Some(wanted), BTreeSet::new());
        *self.known() = Known { wanted, sources, by_request, last, succeeded_ms: at_ms };
    }

    /// Notes a configuration that was refused.
    pub(super) fn refuse(&self, problems: Vec<String>) {
        self.known().last = Outcome { at_ms: now_ms(), problems };
    }

    /// Notes whether the value of an option comes from a request.
    pub(super) fn set_by_request(&self, key: &'static str, is_by_request: bool) {
        let by_request = &mut self.known().by_request;
        if is_by_request {
            by_request.insert(key);
        } else {
            by_request.remove(key);
        }
    }

    /// The configuration as it was last read.
    pub(super) fn wanted(&self) -> Option<Arc<Config>> {
        self.known().wanted.clone()
    }

    /// The faults for which the configuration was refused when it was last read, and that time.
    pub(super) fn problems(&self) -> (Vec<String>, u64) {
        let last = &self.known().last;
        (last.problems.clone(), last.at_ms)
    }

    /// The options whose values wait for a restart. `config` is in force.
    pub(super) fn waiting(&self, config: &Config) -> Vec<&'static str> {
        let known = self.known();
        let Some(wanted) = known.wanted.as_deref() else { return Vec::new() };
        let waits = |option: &&ConfigOption| {
            !known.by_request.contains(option.key) && (option.text)(config) != (option.text)(wanted)
        };
        OPTIONS.iter().filter(waits).map(|option| option.key).collect()
    }

    pub(super) fn metrics(&self, encoder: &mut Encoder<'_>) -> fmt::Result {
        let known = self.known();
        let success = f64::from(u8::from(known.last.problems.is_empty()));
        let help = "1 if the configuration was valid when it was last read.";
        encoder.gauge("shunt_config_reload_success", help, None, &[plain(success)])?;
        let help = "Time at which a valid configuration was last read, since 1970.";
        let at = [plain((known.succeeded_ms / 1_000) as f64)];
        encoder.gauge("shunt_config_reload_timestamp", help, Some(&Unit::Seconds), &at)
    }

    /// The page. `config` is in force.
    pub(super) fn page(&self, config: &Config) -> Value {
        let known = self.known();
        let default = Config::default();
        let options = OPTIONS.iter().map(|option| {
            let source = match known.sources.get(option.key) {
                _ if known.by_request.contains(option.key) => "admin",
                Some(Source::Flag) => "flag",
                Some(Source::File) => "file",
                None if known.wanted.is_none() && option.is_changed(config, &default) => "program",
                None => "default",
            };
            let wanted = known.wanted.as_deref().filter(|_| source != "admin");
            let waits = wanted.filter(|wanted| (option.text)(config) != (option.text)(wanted));
            let default = match option.default {
                DefaultText::Value(text) | DefaultText::Words(text) => text,
            };
            json!({
                "key": option.key,
                "value": (option.text)(config),
                "file_value": known.wanted.as_deref().and_then(option.text),
                "default": Some(default).filter(|text| !text.is_empty()),
                "source": source,
                "restart_needed": waits.is_some(),
                "value_after_restart": waits.and_then(option.text),
                "reloadable": option.change == Change::OnReload,
            })
        });
        json!({
            "options": options.collect::<Vec<_>>(),
            "reload": {
                "success": known.last.problems.is_empty(),
                "unix_ms": known.last.at_ms,
                "problems": known.last.problems,
            },
        })
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn row(page: &Value, key: &str) -> Value {
        let rows = page["options"].as_array().expect("a list");
        rows.iter().find(|row| row["key"] == key).expect("the option").clone()
    }

    #[test]
    fn an_option_has_its_value_its_source_and_what_waits_for_a_restart() {
        let settings = Settings::new();
        let in_force = Config { clients_max: 7, ..Config::default() };
        let wanted = Config { cores: in_force.cores + 1, ..in_force.clone() };
        let sources = [("clients_max", Source::File), ("cores", Source::Flag)].into();
        settings.set(Arc::new(wanted), sources);
        let page = settings.page(&in_force);
        let clients = row(&page, "clients_max");
        assert_eq!(
            (&clients["value"], &clients["source"], &clients["restart_needed"]),
            (&json!("7"), &json!("file"), &json!(false))
        );
        let cores = row(&page, "cores");
        assert_eq!(
            (&cores["restart_needed"], &cores["value_after_restart"]),
            (&json!(true), &json!((in_force.cores + 1).to_string()))
        );
        assert_eq!(row(&page, "log")["source"], "default");
    }

    #[test]
    fn a_value_by_a_request_waits_for_nothing_and_a_fault_is_shown() {
        let settings = Settings::new();
        settings.set(Arc::new(Config::default()), SourceMap::new());
        settings.set_by_request("log", true);
        settings.refuse(vec!["shunt.toml:1:1: no".to_owned()]);
        let page = settings.page(&Config { log: "debug".to_owned(), ..Config::default() });
        let log = row(&page, "log");
        assert_eq!((&log["value"], &log["source"]), (&json!("debug"), &json!("admin")));
        assert_eq!(log["file_value"], "info");
        assert_eq!(log["restart_needed"], false);
        settings.set_by_request("log", false);
        assert_eq!(row(&settings.page(&Config::default()), "log")["source"], "default");
        settings.set_by_request("log", true);
        assert_eq!(page["reload"]["success"], false);
        assert_eq!(page["reload"]["problems"][0], "shunt.toml:1:1: no");
        settings.set(Arc::new(Config::default()), SourceMap::new());
        let page = settings.page(&Config::default());
        assert_eq!(row(&page, "log")["source"], "default", "a reload replaces the value");
    }

    #[test]
    fn no_secret_is_on_the_page() {
        let config = Config { password: Some(Secret::new("hunter2")), ..Config::default() };
        let page = Settings::new().page(&config);
        assert!(!page.to_string().contains("hunter2"));
        assert_eq!(row(&page, "password")["value"], "***");
    }
}
