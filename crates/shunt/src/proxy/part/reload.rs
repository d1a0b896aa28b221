//! The reload of the proxy's configuration, and of the files that it names.
//!
//! A new configuration comes into force as a whole or not at all: options that need a restart keep
//! their values, and the rest must be valid together with them. The cores get it by mail, and the
//! control plane by a channel.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::json;
use shunt_proxy::admin::{ChangeResult, SourceMap};
use shunt_proxy::config::{Config, OPTIONS, Problem, Reloaded};
use shunt_proxy::tls::client_options;
use tracing::{error, info, warn};

use super::{Files, ProxyPart};
use crate::logging::FilterHandle;
use crate::settings::SettingsError;

/// The means to reload the configuration.
pub(crate) struct Reload {
    /// Reads the configuration.
    pub(crate) load: Box<dyn Fn() -> Result<(Config, SourceMap), SettingsError>>,
    /// The sources of the options with which the proxy has started.
    pub(crate) sources: SourceMap,
    /// Filter of the logs, whose level may change.
    pub(crate) filter: FilterHandle,
}

impl ProxyPart {
    /// Reloads as SIGHUP does, and returns the outcome.
    pub(super) fn reload_for_operator(&mut self) -> ChangeResult {
        let Some(reload) = self.reload.take() else {
            return Err(json!({ "error": "this process has no configuration to read again" }));
        };
        let outcome = self.reload_configuration(&reload);
        self.reload = Some(reload);
        let faults = self.reload_files();
        match outcome {
            Ok(Reloaded { changed, waiting, .. }) if faults.is_empty() => {
                Ok(json!({ "applied": changed, "needs_restart": waiting }))
            }
            Ok(Reloaded { changed, waiting, .. }) => Err(json!({
                "error": "the options are in force, but a file cannot be used: its former content \
                stays in use",
                "problems": faults,
                "applied": changed,
                "needs_restart": waiting,
            })),
            Err(problems) => Err(json!({
                "error": "the configuration stays as it is",
                "problems": problems,
            })),
        }
    }

    /// Reloads after SIGHUP. The log and the page of options have the faults.
    pub(super) fn reload_on_signal(&mut self) {
        if let Some(reload) = self.reload.take() {
            let _ = self.reload_configuration(&reload);
            self.reload = Some(reload);
        }
        self.reload_files();
    }

    /// Reads certificates, tokens and passwords again. Returns the faults of certificates and
    /// tokens that cannot be used. The next poll reads passwords.
    fn reload_files(&mut self) -> Vec<String> {
        let faults = self.listeners.reload().into_iter().chain(self.outgoing.reload());
        let mut faults: Vec<String> = faults.map(|fault| fault.to_string()).collect();
        // Clients and other proxies may have the same files.
        faults.sort_unstable();
        faults.dedup();
        self.identity_files.advance();
        faults
    }

    /// Reads the configuration again and applies what can change while the proxy runs. Returns the
    /// faults of one that is refused.
    fn reload_configuration(&mut self, reload: &Reload) -> Result<Reloaded, Vec<String>> {
        let outcome = self.prepare_and_apply(reload);
        if let Err(problems) = &outcome {
            self.pages.refuse_settings(problems.clone());
        }
        outcome
    }

    fn prepare_and_apply(&mut self, reload: &Reload) -> Result<Reloaded, Vec<String>> {
        let (new, sources) = (reload.load)().map_err(|problems| {
            error!("the configuration stays as it is, because the new one is not valid");
            for problem in problems.lines() {
                error!(%problem, "a fault of the new configuration");
            }
            problems.lines().to_vec()
        })?;
        let before = Arc::clone(&self.config.borrow());
        let mut reloaded = before.reloaded(&new);
        // Options of `node_tls` that wait for a restart hold for the identities' certificates too.
        reloaded.config.identity.adopt_logins(&before.identity);
        let unreadable = reloaded.config.read_identities();
        // The new configuration is valid as a whole. The part of it that can change now may not fit
        // the options that need a restart.
        let problems = [unreadable, reloaded.config.problems()].concat();
        for Problem { key, message: why } in &problems {
            error!(key, why, needs_restart = ?reloaded.waiting, "the configuration stays as it is: the new one is valid only after a restart");
        }
        if !problems.is_empty() {
            let told = problems.iter().map(|Problem { key, message }| {
                format!("`{key}`: {message}; the new configuration is valid only after a restart")
            });
            return Err(told.collect());
        }
        let files = self.check_surroundings(&reloaded.config)?;
        self.tell_changes(&reloaded, &new);
        self.pages.set_settings(Arc::new(new), sources);
        if !reloaded.changed.is_empty() {
            self.put_into_force(&reload.filter, files, reloaded.config.clone());
        }
        Ok(reloaded)
    }

    /// Checks a configuration against the ring, and reads the files that it names.
    fn check_surroundings(&self, config: &Config) -> Result<Files, Vec<String>> {
        if let Err(why) = self.pages.has_datacentre(config.local_datacentre.as_deref()) {
            error!(%why, "the configuration stays as it is, because the new one does not match \
            the ring");
            return Err(vec![why]);
        }
        self.prepare_files(config)
    }

    /// Reads the files of TLS for which a configuration names other paths than the one in force.
    pub(super) fn prepare_files(&self, config: &Config) -> Result<Files, Vec<String>> {
        let listeners = self.listeners.prepare(client_options(config));
        let outgoing = self.outgoing.prepare(config);
        listeners.and_then(|listeners| Ok(Files { listeners, outgoing: outgoing? })).map_err(
            |why| {
                error!(%why, "the configuration stays as it is, because a file of the new one \
                cannot be used");
                vec![why.to_string()]
            },
        )
    }

    /// Puts a configuration into force that was checked, with its files.
    pub(super) fn put_into_force(&mut self, filter: &FilterHandle, files: Files, config: Config) {
        filter.set(&config.log);
        self.listeners.apply(files.listeners);
        self.outgoing.apply(files.outgoing);
        self.apply(config);
    }

    /// Logs the options that a reload changes, with their old and new values.
    fn tell_changes(&self, reloaded: &Reloaded, new: &Config) {
        if !reloaded.waiting.is_empty() {
            warn!(keys = ?reloaded.waiting, "these keys have changed and need a restart");
        }
        if reloaded.changed.is_empty() {
            info!("configuration read again, no options have changed");
            return;
        }
        info!(keys = ?reloaded.changed, "configuration applied");
        let old = self.config.borrow().clone();
        for option in OPTIONS.iter().filter(|option| reloaded.changed.contains(&option.key)) {
            let value = |config: &Config| (option.text)(config).unwrap_or_default();
            info!(key = option.key, old = value(&old), new = value(new), "an option has changed");
        }
    }

    /// Passes new passwords and certificates of identities on.
    pub(super) fn reload_identities(&mut self) {
        let config = Arc::clone(&self.config.borrow());
        let (now, clock) = (Instant::now(), SystemTime::now());
        let Some(identity) = self.identity_files.tick(&config, now, clock) else { return };
        self.apply(Config { identity, ..(*config).clone() });
    }
}
