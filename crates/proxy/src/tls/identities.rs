//! The checks of the identities' files, passwords and certificates for nodes: when one is due, and
//! what follows from its result.

use std::sync::Arc;
use std::time::Instant;

use shunt_tls::OptionNames;
use shunt_tls_upkeep::{CHECK_INTERVAL, ReloadResult, TlsMetrics};
use tracing::{error, info, warn};

use crate::config::{Config, Identities, Reading};

/// The checks of the files.
#[derive(Debug)]
pub struct IdentityFiles {
    next: Instant,
    /// Last faults without what changes with time: a line for each check would fill the log.
    last_faults: Vec<String>,
    metrics: Arc<TlsMetrics>,
}

impl IdentityFiles {
    /// Watches the files of a configuration, which have just been read.
    pub fn new(config: &Config, metrics: Arc<TlsMetrics>) -> Self {
        let files = config.identity.certificate_files();
        metrics.set_certificates(OptionNames::IDENTITIES.servers, files);
        Self { next: Instant::now() + CHECK_INTERVAL, last_faults: Vec::new(), metrics }
    }

    /// Makes the next check due now, and has its faults logged even if they are the former ones.
    pub fn advance(&mut self) {
        self.next = Instant::now();
        self.last_faults.clear();
    }

    /// Reads the files if that is due. Returns the identities of this configuration with their new
    /// logins, if any of them has one. Called about once a second.
    pub fn tick(&mut self, config: &Config, now: Instant) -> Option<Identities> {
        if now < self.next {
            return None;
        }
        let Reading { identities: read, faults, is_settled } = config.identity.read_again(config);
        self.next = if is_settled { now + CHECK_INTERVAL } else { now };
        let has_failed = !faults.is_empty();
        let known = faults.iter().map(|why| timeless(why)).collect();
        if std::mem::replace(&mut self.last_faults, known) != self.last_faults {
            for why in &faults {
                error!(why, "the login of an identity stays as it is: its file cannot be used");
            }
        }
        let is_changed = read != config.identity;
        if config.identity.has_certificates() && is_settled {
            self.metrics.reloads.count(match (has_failed, is_changed) {
                (true, _) => ReloadResult::Failed,
                (false, true) => ReloadResult::Changed,
                (false, false) => ReloadResult::Unchanged,
            });
        }
        is_changed.then_some(read)
    }

    /// Notes and logs that cores change from one configuration to another.
    pub fn applied(&self, before: &Config, after: &Config) {
        let files = after.identity.certificate_files();
        self.metrics.set_certificates(OptionNames::IDENTITIES.servers, files);
        for now in &after.identity.0 {
            let identity = now.name.to_string();
            let former = before.identity.0.iter().find(|former| former.name == now.name);
            match former.filter(|former| former.login != now.login) {
                None => {}
                Some(former) if !former.has_rights_of(now) => {
                    warn!(
                        identity,
                        "an identity has another role, or a certificate with other names, so the proxy closes its clients"
                    );
                }
                Some(_) if now.login.certificate().is_some() => {
                    info!(
                        identity,
                        "an identity has a new certificate, with which its links are renewed"
                    );
                }
                Some(_) => {
                    info!(identity, "an identity has a new password, which new clients use");
                }
            }
        }
    }
}

/// A fault without its numbers: `expired 3 hours ago` is no other fault than `expired 2 hours ago`.
fn timeless(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).collect()
}
