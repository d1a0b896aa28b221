//! The parts of `shunt proxy` for hand-over.

use shunt_handover::session::{Instance, SharedKey};
use shunt_proxy::config::{Config, Handover};
use shunt_proxy::handover::{Clients, HandoverOptions, Steer};
use tracing::warn;

use super::secret;
use super::steering::Kernel;
use crate::exit::Failure;

/// The part that all cores share.
#[derive(Clone)]
pub(crate) struct HandsOver {
    key: SharedKey,
    instance: Instance,
    clients: Clients,
}

impl HandsOver {
    /// Reads the configuration; `None` if hand-over is off.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, Failure> {
        let path =
            config.handover_key_file.as_deref().filter(|_| config.handover == Handover::Auto);
        let Some(path) = path else { return Ok(None) };
        let key = secret::key("handover-key-file", path)?;
        Ok(Some(Self { key, instance: secret::instance(), clients: Clients::default() }))
    }

    /// Returns the options of one core; `None` if this host cannot hand over, which the log
    /// explains.
    pub(crate) fn of_core(&self, config: &Config, core: usize) -> Option<HandoverOptions> {
        let listen = config.listen.tcp.first().copied()?;
        let steer: Box<dyn Steer> = match Kernel::open(&config.handover_pins) {
            Ok(kernel) => Box::new(kernel),
            Err(error) => {
                warn!(%error, core, "large answers are relayed");
                return None;
            }
        };
        let owner = secret::owner(config.handover_name.as_deref(), listen, core);
        let (key, instance, random) = (self.key.clone(), self.instance, Box::new(secret::random));
        Some(HandoverOptions { key, owner, instance, clients: self.clients.clone(), steer, random })
    }
}

/// Checks the key; returns a warning if this host cannot hand over.
pub(crate) fn check(config: &Config) -> Result<Option<String>, Failure> {
    if HandsOver::new(config)?.is_none() {
        return Ok(None);
    }
    let error = Kernel::open(&config.handover_pins).err();
    Ok(error.map(|error| format!("large answers are relayed: {error}")))
}
