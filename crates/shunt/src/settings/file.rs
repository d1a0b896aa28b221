//! Reads the configuration file: TOML, one value per key, a table's name being a prefix of its keys
//! (`[log]` `format = "json"` is `log_format = "json"`). An unknown key is an error that names the nearest known one.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::MapDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::options::Options;

/// Least likeness (Jaro-Winkler, 0 to 1) at which another key is suggested.
const LIKENESS_MIN: f64 = 0.75;

/// What a file said.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Its values.
    pub(crate) options: Options,
    /// Where each key stands.
    pub(crate) places: BTreeMap<String, Place>,
}

/// A place in the file, both counted from 1; the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Line.
    pub(crate) line: usize,
    /// Column.
    pub(crate) column: usize,
}

/// Something wrong in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    /// Where.
    pub(crate) place: Place,
    /// What.
    pub(crate) message: String,
}

/// Parses the text of a file; returns everything that is wrong with it, not only the first.
pub(crate) fn parse(text: &str) -> Result<File, Vec<FileError>> {
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let place = place_of(text, error.span().unwrap_or(0..0));
            return Err(vec![FileError { place, message: one_line(error.message()) }]);
        }
    };
    let mut reader = Reader { text, known: Options::keys(), file: File::default(), errors: Vec::new() };
    reader.table("", table);
    if reader.errors.is_empty() {
        Ok(reader.file)
    } else {
        reader.errors.sort_by_key(|error| error.place);
        Err(reader.errors)
    }
}

/// Walks the document and gathers values and errors.
struct Reader<'t> {
    text: &'t str,
    known: Vec<String>,
    file: File,
    errors: Vec<FileError>,
}

impl<'t> Reader<'t> {
    fn table(&mut self, prefix: &str, table: DeTable<'t>) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let is_prefix = self.known.iter().any(|known| known.starts_with(&format!("{name}_")));
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
        if !self.known.contains(&name) {
            return self.error(key, unknown(&name, &self.known));
        }
        let place = place_of(self.text, key.clone());
        if let Some(before) = self.file.places.insert(name.clone(), place) {
            let message = format!("`{name}` is given twice, first in line {}", before.line.min(place.line));
            return self.error(key, message);
        }
        let span = value.span();
        let one = MapDeserializer::new(std::iter::once((name.as_str(), ValueDeserializer::from(value))));
        match Options::deserialize(one) {
            Ok(options) => self.file.options = options.over(std::mem::take(&mut self.file.options)),
            Err(error) => {
                let error: toml::de::Error = error;
                let message = match name.as_str() {
                    // The library's message quotes what it found.
                    "password" => "`password`: must be text in quotes".to_owned(),
                    _ => format!("`{name}`: {}", one_line(error.message())),
                };
                self.error(error.span().unwrap_or(span), message);
            }
        }
    }

    fn error(&mut self, span: Range<usize>, message: String) {
        self.errors.push(FileError { place: place_of(self.text, span), message });
    }
}

/// The message for a key that does not exist.
fn unknown(name: &str, known: &[String]) -> String {
    let likeness = |key: &String| strsim::jaro_winkler(name, key);
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|key| likeness(key) >= LIKENESS_MIN) {
        Some(nearest) => format!("unknown key `{name}`; did you mean `{nearest}`?"),
        None => format!("unknown key `{name}`; `shunt proxy --help` lists all"),
    }
}

/// Line and column of a byte offset.
fn place_of(text: &str, span: Range<usize>) -> Place {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
}

/// A parser's message without its line breaks.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use shunt_proxy::config::{LogFormat, Window};

    use super::super::options::{Format, WindowUs};
    use super::*;

    fn error_of(text: &str) -> (usize, usize, String) {
        let mut errors = parse(text).expect_err("must be refused");
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
        assert_eq!((line, message.as_str()), (2, "unknown key `log_formt`; did you mean `log_format`?"));
    }

    #[test]
    fn a_wrong_value_names_the_key_and_the_place() {
        let (line, column, message) = error_of("cores = \"two\"");
        assert_eq!((line, column), (1, 9));
        assert!(message.starts_with("`cores`: invalid type: string \"two\""), "{message}");
        let (_, _, message) = error_of("io = \"kqueue\"");
        assert!(message.starts_with("`io`: "), "{message}");
        let (_, _, message) = error_of("window_us = -1");
        assert!(message.contains("number of microseconds"), "{message}");
    }

    #[test]
    fn all_errors_are_told_at_once_in_order() {
        let errors = parse("x1 = 1\ncores = true\ny1 = 2").expect_err("must be refused");
        let lines: Vec<_> = errors.iter().map(|error| error.place.line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }

    #[test]
    fn broken_toml_has_a_place() {
        let (line, ..) = error_of("cores = 1\nlisten = [\n");
        assert!(line >= 2);
    }

    #[test]
    fn a_table_is_a_prefix() {
        let file = parse("window_us = \"auto\"\n[log]\nformat = \"json\"").expect("valid");
        assert_eq!(file.options.window_us, Some(WindowUs(Window::Auto)));
        assert_eq!(file.options.log_format, Some(Format(LogFormat::Json)));
        assert_eq!(file.places.get("log_format"), Some(&Place { line: 3, column: 1 }));
        let (_, _, message) = error_of("log_format = \"text\"\n[log]\nformat = \"json\"");
        assert!(message.contains("given twice, first in line 1"), "{message}");
    }
}
