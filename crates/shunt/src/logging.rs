//! Logs: to standard error, as text or JSON, with a level that can change while running.

use std::io::IsTerminal;

use shunt_proxy::config::LogFormat;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes the filter of the running program.
pub(crate) struct FilterHandle(reload::Handle<EnvFilter, Registry>);

impl FilterHandle {
    /// Takes the filter over; one that is not valid changes nothing (it has been checked before).
    pub(crate) fn set(&self, text: &str) {
        if let Ok(filter) = filter(text) {
            let _ = self.0.reload(filter);
        }
    }
}

/// A filter from the `log` setting: a level, or `tracing` directives.
///
/// # Errors
/// Says what is wrong with the text.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    // A lone word would be taken for a target, so that `inof` would switch all logs off.
    if text.is_empty() || !text.contains(['=', ',']) && text.parse::<LevelFilter>().is_err() {
        return Err(format!("`{text}` is no level; there are error, warn, info, debug, trace and off"));
    }
    EnvFilter::try_new(text).map_err(|error| format!("`{text}`: {error}"))
}

/// Starts logging. Called once.
///
/// # Errors
/// See [`filter`].
pub(crate) fn start(log: &str, format: LogFormat) -> Result<FilterHandle, String> {
    let (filter, handle) = reload::Layer::new(filter(log)?);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(ansi)).try_init()
        }
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
        }
    };
    started.map_err(|error| error.to_string())?;
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "internal error")));
    Ok(FilterHandle(handle))
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn levels_and_directives_are_told_from_typing_errors() {
        for good in ["info", "WARN", "off", "info,shunt_proxy::control=debug"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["inof", "", "info,shunt=loud"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }
}
