//! Reads the configuration file: TOML, one value per key. A table's name is a prefix of its keys:
//! `format = "json"` in `[log]` is `log_format = "json"`. An unknown key is an error that names the
//! most similar known key.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use shunt_proxy::config::{Config, OPTIONS, Written};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Least similarity (Jaro-Winkler, 0 to 1) at which another key is suggested.
const LIKENESS_MIN: f64 = 0.75;

/// The content of a file, as far as it could be read.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// The place of each key.
    pub(crate) places: BTreeMap<&'static str, Place>,
    /// Faults in the file's order.
    pub(crate) errors: Vec<FileError>,
    /// Keys with a fault, whose values are unknown.
    pub(crate) faulty: BTreeSet<&'static str>,
    /// True if the whole file is valid TOML, so that a missing key was not given.
    pub(crate) is_whole: bool,
}

/// A place in the file. Both numbers count from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Line.
    pub(crate) line: usize,
    /// Column.
    pub(crate) column: usize,
}

/// A fault in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    /// The place of the fault.
    pub(crate) place: Place,
    /// The fault.
    pub(crate) message: String,
}

/// Parses a file as far as possible, puts its values into `config` and gathers all faults.
pub(crate) fn parse(text: &str, config: &mut Config) -> File {
    let (table, broken) = DeTable::parse_recoverable(text);
    let mut reader = Reader { text, config, file: File::default() };
    for error in &broken {
        let span = error.span().unwrap_or(0..0);
        let message = match (error.message(), text.get(span.clone())) {
            ("duplicate key", Some(key)) => format!("`{key}` is given twice"),
            (message, _) => one_line(message),
        };
        reader.error(span, message);
    }
    let broken_lines: BTreeSet<usize> =
        reader.file.errors.iter().map(|error| error.place.line).collect();
    let syntax = reader.file.errors.len();
    reader.table("", table.into_inner());
    let mut file = reader.file;
    file.is_whole = broken.is_empty();
    // Further errors in a broken line follow from the first.
    let others = file.errors.split_off(syntax);
    file.errors
        .extend(others.into_iter().filter(|error| !broken_lines.contains(&error.place.line)));
    file.errors.sort_by_key(|error| error.place);
    file
}

/// Walks the document and gathers values and errors.
struct Reader<'t, 'c> {
    text: &'t str,
    config: &'c mut Config,
    file: File,
}

impl<'t> Reader<'t, '_> {
    fn table(&mut self, prefix: &str, table: DeTable<'t>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let is_prefix =
                OPTIONS.iter().any(|option| option.key.starts_with(&format!("{name}_")));
            if let (DeValue::Table(_), true) = (value.get_ref(), is_prefix) {
                if let DeValue::Table(inner) = value.into_inner() {
                    self.table(&format!("{name}_"), inner);
                }
            } else {
                self.value(name, key.span(), value);
            }
        }
    }

    fn value(&mut self, name: String, key: Range<usize>, value: Spanned<DeValue<'t>>) {
        let Some(option) = OPTIONS.iter().find(|option| option.key == name) else {
            let nearest = nearest(&name);
            let message = unknown(&name, nearest);
            // The user meant this key, so it does not count as missing.
            self.file.faulty.extend(nearest);
            return self.error(key, message);
        };
        let place = place_of(self.text, key.clone());
        if let Some(before) = self.file.places.insert(option.key, place) {
            let message =
                format!("`{name}` is given twice, first in line {}", before.line.min(place.line));
            return self.error(key, message);
        }
        for message in option.read(self.config, &written(value.get_ref())) {
            self.file.faulty.insert(option.key);
            self.error(span_of(&value, &message), format!("`{name}`: {message}"));
        }
    }

    fn error(&mut self, span: Range<usize>, message: String) {
        self.file.errors.push(FileError { place: place_of(self.text, span), message });
    }
}

/// The place of a fault: the table whose number the message says, or the value.
fn span_of(value: &Spanned<DeValue<'_>>, message: &str) -> Range<usize> {
    let behind = message.strip_prefix("[[").and_then(|rest| rest.split_once("]] number "));
    let number = behind.and_then(|(_, rest)| rest.split([' ', ':']).next()?.parse::<usize>().ok());
    let DeValue::Array(items) = value.get_ref() else { return value.span() };
    let item = number.and_then(|number| items.get(number.checked_sub(1)?));
    item.map_or(value.span(), Spanned::span)
}

/// Converts a value of the document to the form that options read.
fn written(value: &DeValue<'_>) -> Written {
    let fraction = |digits: &str| Written::Fraction(digits.parse().unwrap_or(f64::INFINITY));
    match value {
        DeValue::String(text) => Written::Text(text.clone().into_owned()),
        DeValue::Integer(number) => {
            let (digits, radix) = (number.as_str(), number.radix());
            i128::from_str_radix(digits, radix).map_or_else(|_| fraction(digits), Written::Number)
        }
        DeValue::Float(number) => fraction(number.as_str()),
        DeValue::Boolean(truth) => Written::Truth(*truth),
        DeValue::Array(items) => {
            Written::List(items.iter().map(|item| written(item.get_ref())).collect())
        }
        DeValue::Table(entries) => {
            let entry = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                (key.get_ref().clone().into_owned(), written(value.get_ref()))
            };
            Written::Table(entries.iter().map(entry).collect())
        }
        DeValue::Datetime(_) => Written::Table(Vec::new()),
    }
}

/// Returns the most similar key, if it is similar enough.
fn nearest(name: &str) -> Option<&'static str> {
    let likeness = |key: &&str| strsim::jaro_winkler(name, key);
    let nearest =
        OPTIONS.iter().map(|option| option.key).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest.filter(|key| likeness(key) >= LIKENESS_MIN)
}

/// Builds the message for an unknown key.
fn unknown(name: &str, nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("unknown key `{name}`; did you mean `{nearest}`?"),
        None => format!("unknown key `{name}`; `shunt proxy --help` lists all"),
    }
}

/// Returns line and column of a byte offset.
pub(crate) fn place_of(text: &str, span: Range<usize>) -> Place {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

/// Joins a parser's message into one line.
pub(crate) fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use shunt_proxy::config::{LogFormat, Window};

    use super::*;

    fn parse(text: &str) -> File {
        super::parse(text, &mut Config::default())
    }

    fn error_of(text: &str) -> (usize, usize, String) {
        let mut errors = parse(text).errors;
        assert_eq!(errors.len(), 1, "{errors:?}");
        let error = errors.remove(0);
        (error.place.line, error.place.column, error.message)
    }

    #[test]
    fn an_unknown_key_names_the_nearest_and_the_place() {
        let (line, column, message) = error_of("cores = 2\n  contact_point = [\"a\"]\n");
        assert_eq!((line, column), (2, 3));
        assert_eq!(message, "unknown key `contact_point`; did you mean `contact_points`?");
        let (.., message) = error_of("zzz = 1");
        assert_eq!(message, "unknown key `zzz`; `shunt proxy --help` lists all");
        let (line, _, message) = error_of("[log]\nformt = \"json\"");
        assert_eq!(
            (line, message.as_str()),
            (2, "unknown key `log_formt`; did you mean `log_format`?")
        );
    }

    #[test]
    fn a_wrong_value_names_the_key_and_the_place() {
        let (line, column, message) = error_of("cores = \"two\"");
        assert_eq!((line, column), (1, 9));
        assert!(message == "`cores`: expected a whole number from 1, found `two`", "{message}");
        let (_, _, message) = error_of("io = \"kqueue\"");
        assert!(
            message.ends_with("expected \"auto\", \"epoll\" or \"uring\", found `kqueue`"),
            "{message}"
        );
        let (_, column, message) = error_of("listen = \"127.0.0.1\"");
        assert!(
            column == 10
                && message.contains("expected a list in square brackets")
                && message.ends_with("found `127.0.0.1`"),
            "{message}"
        );
        let (_, _, message) = error_of("listen = [true]");
        assert!(
            message.contains("such as \"127.0.0.1:9042\"") && message.ends_with("found `true`"),
            "{message}"
        );
        let (_, _, message) = error_of("window_us = -1");
        assert!(message.contains("number of microseconds"), "{message}");
    }

    #[test]
    fn all_errors_are_told_at_once_in_order() {
        let lines =
            |text| parse(text).errors.iter().map(|error| error.place.line).collect::<Vec<_>>();
        assert_eq!(lines("x1 = 1\ncores = true\ny1 = 2"), [1, 2, 3]);
        // A broken line does not hide the others.
        assert_eq!(lines("x1 = 1\nquery_timeout_ms = 12s\ncores = true\nlog = \n"), [1, 2, 3, 4]);
    }

    #[test]
    fn broken_toml_has_a_place() {
        let file = parse("cores = 1\nlisten = [\n");
        assert!(!file.is_whole && file.errors[0].place.line >= 2, "{:?}", file.errors);
    }

    #[test]
    fn tables_in_double_brackets_are_one_value() {
        let identity = "[[identity]]\nmatch = \"CN=a\"\nusername = \"a\"\npassword_file = \"f\"\n";
        let mut config = Config::default();
        let file = super::parse(&format!("cores = 2\n{identity}{identity}"), &mut config);
        assert!(file.errors.is_empty() && file.is_whole, "{:?}", file.errors);
        assert_eq!((config.cores, config.identity.0.len()), (2, 2));
        assert_eq!(file.places.get("identity").map(|place| place.line), Some(2));
        let (.., message) = error_of("[[identity]]\nmatch = 7");
        assert!(message.contains("number 1: `match`: expected text in quotes"), "{message}");
        let rule = "[[rule]]\nname = \"a\"\nrefuse = false\n";
        let (line, _, message) = error_of(&format!("{rule}\n[[rule]]\nname = \"b\"\n"));
        assert_eq!(line, 5, "{message}");
        let (.., message) = error_of(&format!("{identity}cores = 2\n"));
        assert!(message.contains("before the first [[identity]]"), "{message}");
        let (.., message) = error_of("[identity]\nmatch = \"CN=a\"");
        assert!(message.contains("below a line [[identity]]"), "{message}");
    }

    #[test]
    fn a_key_that_is_given_twice_is_named() {
        let (line, column, message) = error_of("cores = 2\nio = \"auto\"\ncores = 3\n");
        assert_eq!((line, column, message.as_str()), (3, 1, "`cores` is given twice"));
    }

    #[test]
    fn a_table_is_a_prefix() {
        let mut config = Config::default();
        let file = super::parse("window_us = \"auto\"\n[log]\nformat = \"json\"", &mut config);
        assert!(file.errors.is_empty() && file.is_whole);
        assert_eq!((config.window_us, config.log_format), (Window::Auto, LogFormat::Json));
        assert_eq!(file.places.get("log_format"), Some(&Place { line: 3, column: 1 }));
        let (_, _, message) = error_of("log_format = \"text\"\n[log]\nformat = \"json\"");
        assert!(message.contains("given twice, first in line 1"), "{message}");
    }
}
