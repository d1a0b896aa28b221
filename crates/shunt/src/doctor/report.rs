//! The findings, one line each.

use std::fmt::Write as _;

use crate::logging::Printable;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    Warning,
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// The findings of a run.
pub(super) struct Report {
    json: bool,
    lines: Vec<(Level, &'static str, String, String, String)>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, lines: Vec::new() }
    }

    /// Adds a check that passed, for the node or table `of`.
    pub(super) fn ok(&mut self, check: &'static str, of: &str, what: &str) {
        self.put(Level::Ok, check, of, what, "");
    }

    /// Adds a finding about something that works, but has a cost or does not survive a fault.
    pub(super) fn warning(&mut self, check: &'static str, of: &str, what: &str, advice: &str) {
        self.put(Level::Warning, check, of, what, advice);
    }

    /// Adds a finding that makes locks fail or unsafe.
    pub(super) fn error(&mut self, check: &'static str, of: &str, what: &str, advice: &str) {
        self.put(Level::Error, check, of, what, advice);
    }

    fn put(&mut self, level: Level, check: &'static str, of: &str, what: &str, advice: &str) {
        self.lines.push((level, check, of.to_owned(), what.to_owned(), advice.to_owned()));
    }

    /// Returns the worst severity of all findings.
    pub(super) fn worst(&self) -> Level {
        self.lines.iter().map(|line| line.0).max().unwrap_or(Level::Ok)
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for (level, check, of, what, advice) in &self.lines {
            let level = level.name();
            if self.json {
                let texts = [level, *check, of, what, advice].map(json);
                let [level, check, of, what, advice] = &texts;
                let _ = writeln!(
                    out,
                    "{{\"level\":{level},\"check\":{check},\"of\":{of},\"what\":{what},\"advice\":{advice}}}"
                );
                continue;
            }
            let of = if of.is_empty() { String::new() } else { format!("{of}: ") };
            let to_do = if advice.is_empty() { "" } else { ". To do: " };
            // Much of the text comes from nodes.
            let _ = write!(Printable(&mut out), "{level:<8} {check:<12} {of}{what}{to_do}{advice}");
            out.push('\n');
        }
        out
    }
}

/// Encodes a text as a JSON string (RFC 8259, section 7).
fn json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_json_is_json() {
        for is_json in [false, true] {
            let mut report = Report::new(is_json);
            assert_eq!(report.worst(), Level::Ok);
            report.ok("one", "", "fine");
            report.error("two", "a\"b", "line\nbreak", "mend");
            report.warning("three", "n", "so", "so");
            assert_eq!(report.worst(), Level::Error);
            let text = report.text();
            if is_json {
                let lines: Vec<serde_json::Value> =
                    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
                assert_eq!(
                    (&lines[1]["of"], &lines[1]["what"]),
                    (&"a\"b".into(), &"line\nbreak".into())
                );
            } else {
                assert!(
                    text.lines().count() == 3
                        && text.contains("error    two          a\"b: line\\nbreak. To do: mend\n")
                );
                assert!(
                    text.contains("ok       one          fine\n")
                        && text.contains("warning  three        n: so. To do: so\n"),
                    "{text}"
                );
            }
        }
    }
}
