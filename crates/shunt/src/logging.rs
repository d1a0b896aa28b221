//! Logs to standard error, as text or JSON, or to the journal, with a level that can change while
//! the program runs.

use std::fmt::{Debug, Write};
use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shunt_proxy::config::LogFormat;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::log_queue::{LogQueue, QueueWriter};
use crate::systemd::journal::{Entries, Journal};

/// Changes the filter of the running program.
pub(crate) struct FilterHandle(reload::Handle<Targets, Registry>);

impl FilterHandle {
    /// Sets the filter. An invalid one changes nothing; callers have checked it before.
    pub(crate) fn set(&self, text: &str) {
        let _ = self.change(text);
    }

    /// Sets the filter.
    ///
    /// # Errors
    /// See [`filter`].
    pub(crate) fn change(&self, text: &str) -> Result<(), String> {
        self.0.reload(filter(text)?).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
impl FilterHandle {
    /// A handle to which no logs belong.
    pub(crate) fn detached() -> Self {
        Self(reload::Layer::new(Targets::default()).1)
    }
}

/// Parses a filter from the `log` setting: a level, or directives such as `info,module=debug`.
/// Directives about spans and values would need an engine for regular expressions.
///
/// # Errors
/// The text is no valid filter; the message says why.
pub(crate) fn filter(text: &str) -> Result<Targets, String> {
    // Otherwise `tracing` would read a lone word as a target, and `inof` would switch off all logs.
    if text.is_empty() || !text.contains(['=', ',']) && text.parse::<LevelFilter>().is_err() {
        return Err(format!(
            "`{text}` is no level; the levels are error, warn, info, debug, trace and off"
        ));
    }
    // An empty target would stand for all of them.
    let parts = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let directives = parts.collect::<Vec<_>>();
    if directives.is_empty() {
        return Err(format!("`{text}` has no directive"));
    }
    let is_wrong = |part: &&&str| part.contains('[') || part.starts_with('=');
    if let Some(directive) = directives.iter().find(is_wrong) {
        return Err(format!(
            "`{directive}` names no module; a directive is LEVEL or MODULE=LEVEL, without spans"
        ));
    }
    directives.join(",").parse().map_err(|error| format!("`{text}`: {error}"))
}

/// The queue of the process.
static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();

/// Time that the end of the program leaves standard error for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// Has the last lines written, before the program ends.
pub(crate) fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH);
    }
}

/// Starts logging; call it once.
///
/// # Errors
/// See [`filter`].
pub(crate) fn start(log: &str, format: LogFormat) -> Result<FilterHandle, String> {
    let (filter, handle) = reload::Layer::new(filter(log)?);
    let ansi = std::io::stderr().is_terminal();
    let journal = Journal::of_standard_error().filter(|_| format == LogFormat::Text);
    let shape = if journal.is_some() { Shape::Entries } else { Shape::Lines(format, ansi) };
    let queue = match journal {
        Some(journal) => LogQueue::start(journal),
        None => LogQueue::start(std::io::stderr()),
    };
    let queue = queue.map_err(|error| error.to_string())?;
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(layer(shape, QueueWriter(Arc::clone(&queue))))
        .try_init();
    let _ = QUEUE.set(queue);
    started.map_err(|error| error.to_string())?;
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "internal error")));
    Ok(FilterHandle(handle))
}

/// The form of the log.
#[derive(Clone, Copy)]
enum Shape {
    /// Lines of a format, with or without colours.
    Lines(LogFormat, bool),
    /// Entries of the journal.
    Entries,
}

/// Builds the layer that writes events.
fn layer<S, W>(shape: Shape, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    match shape {
        Shape::Entries => {
            let fields = format::debug_fn(|out, field, value| {
                field_as_text(out, false, field.name(), value)
            });
            let line = format::format().without_time().with_level(false).with_ansi(false);
            fmt::layer()
                .with_writer(writer)
                .fmt_fields(fields.delimited(" "))
                .event_format(Entries(line))
                .boxed()
        }
        Shape::Lines(LogFormat::Text, ansi) => {
            let fields = format::debug_fn(move |out, field, value| {
                field_as_text(out, ansi, field.name(), value)
            });
            fmt::layer()
                .with_writer(writer)
                .with_ansi(ansi)
                .fmt_fields(fields.delimited(" "))
                .boxed()
        }
        Shape::Lines(LogFormat::Json, _) => {
            let events = JsonEvents(format::format().json().flatten_event(true));
            fmt::layer().json().event_format(events).with_writer(writer).boxed()
        }
    }
}

/// Writes a field as `name=value`, and the message alone.
fn field_as_text(
    out: &mut Writer<'_>,
    ansi: bool,
    name: &str,
    value: &dyn Debug,
) -> std::fmt::Result {
    match (name.strip_prefix("r#").unwrap_or(name), ansi) {
        ("message", _) => {}
        // The name in italics, and the sign dimmed.
        (name, true) => write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
        (name, false) => write!(out, "{name}=")?,
    }
    write!(Printable(out), "{value:?}")
}

/// A writer that escapes unprintable characters of foreign text: a node or a client must not start
/// a log line or move a terminal's cursor.
pub(crate) struct Printable<'a, W>(pub(crate) &'a mut W);

impl<W: Write> Write for Printable<'_, W> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        text.chars().try_for_each(|char| match char {
            // Printable as they are; escaped elsewhere where needed.
            '"' | '\'' | '\\' => self.0.write_char(char),
            _ => char.escape_debug().try_for_each(|char| self.0.write_char(char)),
        })
    }
}

/// Fields that hold lists of option names.
const LISTS: [&str; 2] = ["keys", "needs_restart"];

/// Writes events as JSON with true lists: `tracing` has no list values and passes them as text.
struct JsonEvents(format::Format<format::Json>);

impl<S, N> FormatEvent<S, N> for JsonEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    format::Format<format::Json>: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        if !event.fields().any(|field| LISTS.contains(&field.name())) {
            return self.0.format_event(context, out, event);
        }
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_str(&line) else {
            return out.write_str(&line);
        };
        for name in LISTS {
            if let Some(field) = fields.get_mut(name)
                && let Some(list) = field.as_str().and_then(|text| serde_json::from_str(text).ok())
            {
                *field = list;
            }
        }
        writeln!(out, "{}", serde_json::Value::Object(fields))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
pub(crate) mod tests {
    use std::sync::Mutex;

    use tracing::Level;

    use super::*;

    /// A buffer that a test's log is written into.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log output of some events.
    fn written(shape: Shape, events: impl FnOnce()) -> String {
        let written = Written::default();
        let copy = written.clone();
        let subscriber = tracing_subscriber::registry().with(layer(shape, move || copy.clone()));
        tracing::subscriber::with_default(subscriber, events);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// Returns the log output of some events as text.
    pub(crate) fn text_of(events: impl FnOnce()) -> String {
        written(Shape::Lines(LogFormat::Text, false), events)
    }

    /// A node can give its datacentre any name.
    #[test]
    fn no_name_makes_a_line_of_its_own_or_moves_the_cursor() {
        const NAME: &str =
            "dc\n2026-01-01 ERROR shunt: forged\r\t\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\0";
        let event = || {
            let _entered = tracing::error_span!("proxy", address = %NAME).entered();
            tracing::info!(datacentre = %NAME, again = NAME, "connected to {NAME} \"Größe\" 'ü'");
        };
        for ansi in [false, true] {
            let text = written(Shape::Lines(LogFormat::Text, ansi), event);
            let own = |text: &str| text.replace("\u{1b}[", "");
            let line = if ansi { own(&text) } else { text.clone() };
            let line = line.strip_suffix('\n').unwrap();
            assert!(
                line.chars().all(|char| !char.is_control() && !"\u{202e}\u{2028}".contains(char)),
                "{line:?}"
            );
            let plain =
                r"dc\n2026-01-01 ERROR shunt: forged\r\t\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\0";
            assert_eq!(text.matches(plain).count(), 4, "{text:?}");
            assert!(text.contains("\"Größe\" 'ü'"), "{text:?}");
            assert!(
                ansi || text.contains(&format!("'ü' datacentre={plain} again=\"{plain}\"")),
                "{text:?}"
            );
        }
    }

    #[test]
    fn keys_are_a_list_in_json() {
        let line = written(
            Shape::Lines(LogFormat::Json, false),
            || tracing::info!(keys = ?["cores", "io"], "configuration applied"),
        );
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["keys"], serde_json::json!(["cores", "io"]), "{line}");
        assert_eq!(
            (&event["message"], &event["level"]),
            (&"configuration applied".into(), &"INFO".into())
        );
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
    }

    /// The journal reads `NAME=value` up to the end of the line: a name with a line end would forge
    /// fields.
    #[test]
    fn entries_of_the_journal_have_fields_and_no_forged_ones() {
        const NAME: &str = "dc\nPRIORITY=0\0\u{9b}31m";
        let entry = written(Shape::Entries, || {
            let _entered = tracing::error_span!("proxy", address = %NAME).entered();
            tracing::warn!(datacentre = %NAME, nodes = 3, again = NAME, "connected to {NAME}");
        });
        let lines: Vec<&str> = entry.lines().collect();
        let names: Vec<&str> =
            lines.iter().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        let expected = "MESSAGE PRIORITY SYSLOG_IDENTIFIER SHUNT_TARGET SHUNT_DATACENTRE SHUNT_NODES SHUNT_AGAIN";
        assert_eq!(names.join(" "), expected, "{entry}");
        assert_eq!(names.len(), lines.len(), "{entry}");
        assert!(lines.contains(&"PRIORITY=4") && lines.contains(&"SHUNT_NODES=3"), "{entry}");
        assert!(lines[0].contains(r"proxy{address=dc\nPRIORITY=0\0\u{9b}31m}"), "{entry}");
        assert!(lines[0].contains(r"connected to dc\n") && lines[0].contains("nodes=3"), "{entry}");
        assert!(entry.ends_with('\n') && !entry.contains("WARN"), "{entry}");
    }

    #[test]
    fn a_long_value_is_cut() {
        let entry = written(Shape::Entries, || tracing::info!(text = "ü".repeat(1 << 20), "long"));
        assert!(entry.len() < 64 << 10 && entry.contains("SHUNT_TEXT=ü"), "{}", entry.len());
    }

    #[test]
    fn levels_and_directives_are_told_from_typing_errors() {
        for good in ["info", "WARN", "off", "info,shunt_proxy::control=debug"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["inof", "", "info,shunt=loud", "info,shunt[proxy]=debug", ",", "=info,"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn directives_choose_targets_and_the_rest_has_its_level() {
        let chosen = filter("info, shunt_proxy::control=debug,,hyper=off,").expect("valid");
        for (target, level, is_logged) in [
            ("shunt_proxy::control::follow", Level::DEBUG, true),
            ("shunt_proxy::control", Level::TRACE, false),
            ("shunt_proxy", Level::INFO, true),
            ("shunt_proxy", Level::DEBUG, false),
            ("hyper::client", Level::ERROR, false),
        ] {
            assert_eq!(chosen.would_enable(target, &level), is_logged, "{target} {level}");
        }
        let lone = filter("shunt_proxy=warn").expect("valid");
        assert!(!lone.would_enable("other", &Level::ERROR), "{lone}");
    }
}
