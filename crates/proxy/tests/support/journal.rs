//! Keeps the log lines of a test as text, one a line: level, message, `field=value`.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The lines of this thread at `info` and above, from now until it is dropped.
pub struct Journal {
    lines: Arc<Mutex<Vec<String>>>,
    _until: DefaultGuard,
}

impl Journal {
    pub fn open() -> Journal {
        // Tracing asks once for each place in the code whether anybody wants its lines. While there
        // is a single subscriber, it asks the subscriber of the thread that passes the place first.
        // The thread of another test has none, and its "no" would also hold for this thread.
        static OTHERS: Once = Once::new();
        OTHERS.call_once(|| _ = tracing::subscriber::set_global_default(Writer(None)));
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let writer = Writer(Some(Arc::clone(&lines)));
        Journal { lines, _until: tracing::subscriber::set_default(writer) }
    }

    /// Lines up to now that hold every one of these texts.
    pub fn with(&self, texts: &[&str]) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| texts.iter().all(|text| line.contains(text))).cloned().collect()
    }

    /// The only line with every one of these texts.
    pub fn only(&self, texts: &[&str]) -> String {
        let found = self.with(texts);
        assert_eq!(found.len(), 1, "one line with {texts:?} in {:#?}", self.lines.lock().unwrap());
        found[0].clone()
    }

    /// Checks that no line contains this.
    pub fn never(&self, text: &str) {
        assert_eq!(self.with(&[text]), Vec::<String>::new());
    }

    /// Sum of the numbers in this field over these lines.
    pub fn sum(lines: &[String], field: &str) -> u64 {
        let number = |line: &String| {
            let rest = line.split_once(&format!(" {field}="))?.1;
            rest.split(' ').next()?.parse::<u64>().ok()
        };
        lines.iter().filter_map(number).sum()
    }
}

/// Keeps lines. The subscriber of threads without a journal keeps none. Tracing asks about each
/// line anew, because another thread's answer does not hold for this one.
struct Writer(Option<Arc<Mutex<Vec<String>>>>);

/// Writes the message and the fields of one event as text.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, " {}={value}", field.name());
    }
}

impl Subscriber for Writer {
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.is_some() && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let Some(lines) = &self.0 else { return };
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{} {}{}", event.metadata().level(), line.message, line.fields);
        lines.lock().unwrap().push(text);
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}
    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

#[test]
fn a_journal_has_lines_of_places_that_another_thread_passed_first() {
    let journal = Journal::open();
    let say = || tracing::info!("said");
    std::thread::spawn(say).join().unwrap();
    say();
    journal.only(&["said"]);
}
