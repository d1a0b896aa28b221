//! The checks of the identities' password files: when one is due, and what follows from its result.

use std::time::Instant;

use shunt_tls_upkeep::CHECK_INTERVAL;
use tracing::error;

use crate::config::{Config, Identities};

/// The checks of the password files.
#[derive(Debug)]
pub struct IdentityFiles {
    next: Instant,
    /// Last faults: a line for each check would fill the log.
    last_faults: Vec<String>,
}

impl Default for IdentityFiles {
    fn default() -> Self {
        Self { next: Instant::now() + CHECK_INTERVAL, last_faults: Vec::new() }
    }
}

impl IdentityFiles {
    /// Makes the next check due now, and has its faults logged even if they are the former ones.
    pub fn advance(&mut self) {
        self.next = Instant::now();
        self.last_faults.clear();
    }

    /// Reads the files if that is due. Returns the identities of this configuration with their new
    /// passwords, if any of them has one. Called about once a second.
    pub fn tick(&mut self, config: &Config, now: Instant) -> Option<Identities> {
        if now < self.next {
            return None;
        }
        self.next = now + CHECK_INTERVAL;
        let (read, faults) = config.identity.read_again();
        if faults != self.last_faults {
            for why in &faults {
                error!(why, "the password of an identity stays as it is: its file cannot be used");
            }
        }
        self.last_faults = faults;
        (read != config.identity).then_some(read)
    }
}
