//! Log entries with fields, for the journal's own socket.
//!
//! systemd names the file behind standard error in `JOURNAL_STREAM`. While standard error is that
//! file, `log_format = "text"` becomes entries: `MESSAGE` has the text of the line without time and
//! level, and each field of the event is also a field `SHUNT_NAME`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::logging::Printable;

const SOCKET: &str = "/run/systemd/journal/socket";
/// Most bytes of a value. The journal takes no datagram much larger than 200 KB.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// The journal's socket, reopened after a restart of the journal.
pub(crate) struct Journal(UnixDatagram);

impl Journal {
    /// Opens the journal that standard error leads to; `None` if it leads elsewhere.
    pub(crate) fn of_standard_error() -> Option<Self> {
        let announced = std::env::var("JOURNAL_STREAM").ok()?;
        let own = std::fs::metadata("/proc/self/fd/2").ok()?;
        let is_journal = announced == format!("{}:{}", own.dev(), own.ino());
        is_journal.then(|| Self::open(SOCKET).ok()).flatten()
    }

    fn open(path: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }
}

impl Write for Journal {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        if self.0.send(entry).is_err() {
            self.0.connect(SOCKET)?;
            self.0.send(entry)?;
        }
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats an event as an entry.
pub(crate) struct Entries(pub(crate) Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for Entries
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writeln!(out, "MESSAGE={}", cut(line.trim_end_matches('\n')))?;
        let metadata = event.metadata();
        let priority = match *metadata.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        writeln!(out, "PRIORITY={priority}\nSYSLOG_IDENTIFIER=shunt")?;
        writeln!(out, "SHUNT_TARGET={}", metadata.target())?;
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        out.write_str(&fields.0)
    }
}

/// Lines of the fields of an event.
struct Fields(String);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record(field, value);
    }
}

impl Fields {
    fn record(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let name = field.name().strip_prefix("r#").unwrap_or(field.name());
        if name == "message" {
            return;
        }
        let name: String = name
            .chars()
            .map(|char| if char.is_ascii_alphanumeric() { char.to_ascii_uppercase() } else { '_' })
            .collect();
        let mut text = String::new();
        // After a newline in a value, the rest would count as another field.
        let _ = write!(Printable(&mut text), "{value:?}");
        let _ = writeln!(self.0, "SHUNT_{name}={}", cut(&text));
    }
}

/// A text, cut at the limit.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(VALUE_BYTES_MAX)]
}
