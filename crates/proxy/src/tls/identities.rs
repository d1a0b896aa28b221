//! The checks of the identities' files, passwords and certificates for nodes: when one is due, and
//! what follows from its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use shunt_tls::OptionNames;
use shunt_tls_upkeep::{CHECK_INTERVAL, ReloadResult, TlsMetrics};
use tracing::{error, info, warn};

use crate::config::{Candidates, Config, Identities, Reading};

/// Time after which a line of the log says that a file changes again and again.
const UNSETTLED_LINE_AFTER: Duration = Duration::from_secs(10);

/// The checks of the files.
#[derive(Debug)]
pub struct IdentityFiles {
    next: Instant,
    /// Last faults without their digits, so that a fault is logged once and not at each check.
    last_faults: Vec<String>,
    /// Passwords that do not count yet.
    candidates: Candidates,
    /// Messages about files that somebody is perhaps still writing, and since when each is true.
    unsettled: BTreeMap<String, Instant>,
    metrics: Arc<TlsMetrics>,
}

impl IdentityFiles {
    /// Watches the files of a configuration, which have just been read.
    pub fn new(config: &Config, metrics: Arc<TlsMetrics>) -> Self {
        let files = config.identity.certificate_files();
        metrics.set_certificates(OptionNames::IDENTITIES.servers, files);
        Self {
            next: Instant::now() + CHECK_INTERVAL,
            last_faults: Vec::new(),
            candidates: Candidates::default(),
            unsettled: BTreeMap::new(),
            metrics,
        }
    }

    /// Makes the next check due now, and has its faults logged even if they are the former ones.
    pub fn advance(&mut self) {
        self.next = Instant::now();
        self.last_faults.clear();
    }

    /// Reads the files if that is due. Returns the identities of this configuration with their new
    /// logins, if any of them has one. Called about once a second. `clock` is the time by which the
    /// age of files counts. Somebody is perhaps still writing a younger one: the next call reads
    /// it again.
    pub fn tick(&mut self, config: &Config, now: Instant, clock: SystemTime) -> Option<Identities> {
        if now < self.next {
            return None;
        }
        let reading = config.identity.read_again(config, clock, &mut self.candidates);
        let Reading { identities: read, mut faults, unsettled } = reading;
        let is_settled = unsettled.is_empty();
        self.next = if is_settled { now + CHECK_INTERVAL } else { now };
        let has_failed = !faults.is_empty();
        faults.extend(self.note_unsettled(unsettled, now));
        let known = faults.iter().map(|why| without_digits(why)).collect();
        if std::mem::replace(&mut self.last_faults, known) != self.last_faults {
            for why in &faults {
                error!(
                    why,
                    "the login of an identity stays as it is: one of its files cannot be used"
                );
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

    /// Notes the messages about unsettled files. Returns those that have been true for long.
    fn note_unsettled(&mut self, messages: Vec<String>, now: Instant) -> Vec<String> {
        let former = std::mem::take(&mut self.unsettled);
        let known = messages.into_iter().map(|why| {
            let since = former.get(&why).copied().unwrap_or(now);
            (why, since)
        });
        self.unsettled = known.collect();
        let is_due =
            |since: &Instant| now.saturating_duration_since(*since) >= UNSETTLED_LINE_AFTER;
        let due = self.unsettled.iter().filter(|(_, since)| is_due(since));
        due.map(|(why, _)| why.clone()).collect()
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
                        "the login of an identity has changed to another role or certificate; the proxy closes its clients"
                    );
                }
                Some(_) if now.login.certificate().is_some() => {
                    info!(
                        identity,
                        "an identity has a new certificate; the proxy renews its links"
                    );
                }
                Some(_) => {
                    info!(identity, "an identity has a new password; new clients use it");
                }
            }
        }
    }
}

/// A fault without its numbers: `expired 3 hours ago` is the same fault as `expired 2 hours ago`.
fn without_digits(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_settles_has_a_line_after_ten_seconds() {
        let mut files = IdentityFiles::new(&Config::default(), Arc::default());
        let start = Instant::now();
        for (seconds, messages, due) in [
            (0, vec!["a"], vec![]),
            (9, vec!["a", "b"], vec![]),
            (10, vec!["a", "b"], vec!["a"]),
            (19, vec!["b"], vec!["b"]),
            (20, vec!["a"], vec![]),
            (30, vec!["a"], vec!["a"]),
        ] {
            let messages = messages.into_iter().map(str::to_owned).collect();
            let now = start + Duration::from_secs(seconds);
            assert_eq!(files.note_unsettled(messages, now), due, "after {seconds} seconds");
        }
    }
}
