//! Changes that an operator asks for at the admin address, and the main thread makes: a reload, and
//! the value of an option, such as the level of the log.

use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use shunt_admin::{Change, Json};
use tokio::sync::oneshot;
use tracing::info;

/// Names of the changes.
pub(super) const RELOAD: &str = "reload";
pub(super) const LOG_LEVEL: &str = "log_level";
pub(super) const SET_OPTION: &str = "set_option";

/// Longest time that the main thread may take. It reads files, and joins no other thread meanwhile.
const PATIENCE: Duration = Duration::from_secs(8);

/// The outcome of a change: an object for the answer. A refusal has the reason in `error`.
pub type ChangeResult = Result<Json, Json>;

/// A change for the main thread, with the channel for its outcome.
#[derive(Debug)]
pub enum ConfigChange {
    /// Read the configuration again.
    Reload(oneshot::Sender<ChangeResult>),
    /// Log at this level, until the configuration is read again.
    LogLevel(String, oneshot::Sender<ChangeResult>),
    /// Give an option a value, until the configuration is read again. Without one, give it the
    /// value of flags and file.
    SetOption {
        /// Key of the option.
        name: String,
        /// The value, as a flag gives it.
        value: Option<String>,
        /// The channel for the outcome.
        answer: oneshot::Sender<ChangeResult>,
    },
}

impl ConfigChange {
    /// True if nobody waits for the outcome any more: the operator has gone away, or has heard that
    /// the main thread did not answer in time.
    pub fn is_abandoned(&self) -> bool {
        match self {
            ConfigChange::Reload(answer)
            | ConfigChange::LogLevel(_, answer)
            | ConfigChange::SetOption { answer, .. } => answer.is_closed(),
        }
    }
}

/// Hands a change to the main thread.
type Sender = Box<dyn Fn(ConfigChange) + Send + Sync>;

/// The main thread's end of the channel, once it is connected.
#[derive(Default)]
pub(super) struct ConfigChanges(OnceLock<Sender>);

impl fmt::Debug for ConfigChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigChanges")
    }
}

impl ConfigChanges {
    pub(super) fn connect(&self, sender: Sender) {
        let _ = self.0.set(sender);
    }

    /// Hands a change to the main thread, and waits for its outcome.
    pub(super) fn change(
        &self,
        name: &str,
        parameters: &Value,
        from: IpAddr,
    ) -> Option<Change<'_>> {
        let (sender, verdict) = oneshot::channel();
        let change = match name {
            RELOAD => ConfigChange::Reload(sender),
            LOG_LEVEL => match parameters.get("level").and_then(Value::as_str) {
                Some(level) => ConfigChange::LogLevel(level.to_owned(), sender),
                None => return Some(refused("`level` is missing")),
            },
            SET_OPTION => match option(parameters) {
                Ok((name, value)) => ConfigChange::SetOption { name, value, answer: sender },
                Err(why) => return Some(refused(why)),
            },
            _ => return None,
        };
        let Some(send) = self.0.get() else {
            return Some(refused("this process has no configuration to change"));
        };
        info!(change = name, %from, "an operator asks for a change");
        send(change);
        Some(Box::pin(async {
            match tokio::time::timeout(PATIENCE, verdict).await {
                Ok(Ok(verdict)) => verdict,
                Ok(Err(_)) => Err(json!({ "error": "the proxy is ending" })),
                Err(_) => Err(json!({ "error": "the main thread has not answered in time" })),
            }
        }))
    }
}

/// The name and the value of an option in a request.
fn option(parameters: &Value) -> Result<(String, Option<String>), &'static str> {
    let name = parameters.get("name").and_then(Value::as_str).ok_or("`name` is missing")?;
    let value = match parameters.get("value") {
        Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        _ => return Err("`value` is missing: a text, or null for the value from flags and file"),
    };
    Ok((name.to_owned(), value))
}

/// A change that is refused at once.
pub(super) fn refused(why: impl Into<String>) -> Change<'static> {
    let why = why.into();
    Box::pin(std::future::ready(Err(json!({ "error": why }))))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_change_is_abandoned_with_the_wait_for_its_outcome() {
        let (sender, taken) = mpsc::channel();
        let changes = ConfigChanges::default();
        changes.connect(Box::new(move |change| sender.send(change).expect("the test goes on")));
        let here = IpAddr::from([127, 0, 0, 1]);
        let outcome =
            changes.change(LOG_LEVEL, &json!({ "level": "debug" }), here).expect("an outcome");
        let change = taken.try_recv().expect("the change");
        assert!(!change.is_abandoned());
        drop(outcome);
        assert!(change.is_abandoned());
    }
}
