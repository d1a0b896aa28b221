//! A table of JSON objects for a terminal: one line for each object. A column is as wide as its
//! widest value; the widest texts are cut until a line fits.
//!
//! Texts come from clients and nodes. The table prints them without the characters that move a
//! cursor or start a line.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use serde_json::Value;
use shunt_language::ast::NativeType;
use shunt_language::values::plain_text;

use crate::logging::Printable;

/// Narrowest width to which a text is cut.
const TEXT_WIDTH_MIN: usize = 12;
/// Columns between two values.
const GAP: &str = "  ";

/// The form of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Left-aligned, and cut where a line is too long.
    Text,
    /// Left-aligned, and never cut.
    Word,
    /// A whole number, right-aligned; an object of such numbers counts as their sum.
    Number,
    /// An object of whole numbers, as the names of those above 0 with their numbers: left-aligned,
    /// and cut where a line is too long.
    Kinds,
    /// Milliseconds with a decimal.
    Milliseconds,
    /// Microseconds, shown as milliseconds with a decimal.
    Microseconds,
    /// Date and time in UTC, of milliseconds since 1970.
    Time,
}

/// A column: its heading, the path of its value in the object, and the form of the value.
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str, pub(super) Form);

/// The width of the terminal; `None` if the output is none.
pub(super) fn width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Formats the rows. Columns without a value are left out, except the first.
pub(super) fn text(columns: &[Column], rows: &[&Value], width: Option<usize>) -> String {
    let cells = |column: &Column| -> Vec<Option<String>> {
        rows.iter()
            .map(|row| cell(row.pointer(column.1).unwrap_or(&Value::Null), column.2))
            .collect()
    };
    let filled: Vec<(&Column, Vec<Option<String>>)> = columns
        .iter()
        .map(|column| (column, cells(column)))
        .enumerate()
        .filter(|(index, (_, cells))| *index == 0 || cells.iter().any(Option::is_some))
        .map(|(_, filled)| filled)
        .collect();
    let natural = filled.iter().map(|(column, cells)| {
        let of_cells = cells.iter().flatten().map(|cell| cell.chars().count()).max();
        of_cells.unwrap_or(1).max(column.0.chars().count())
    });
    let mut widths: Vec<usize> = natural.collect();
    let forms: Vec<Form> = filled.iter().map(|(column, _)| column.2).collect();
    if let Some(width) = width {
        fit(&mut widths, &forms, width);
    }
    let mut out = String::new();
    line(&mut out, &widths, &forms, filled.iter().map(|(column, _)| column.0));
    for row in 0..rows.len() {
        let values = filled.iter().map(|(_, cells)| cells[row].as_deref().unwrap_or("-"));
        line(&mut out, &widths, &forms, values);
    }
    out
}

/// Narrows the widest texts until a line fits.
fn fit(widths: &mut [usize], forms: &[Form], width: usize) {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    loop {
        let over = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
        let texts = widths
            .iter_mut()
            .zip(forms)
            .filter(|(_, form)| matches!(form, Form::Text | Form::Kinds));
        let widest = texts.map(|(width, _)| width).max();
        match widest {
            Some(widest) if over > 0 && *widest > TEXT_WIDTH_MIN => *widest -= 1,
            _ => return,
        }
    }
}

fn line<'a>(
    out: &mut String,
    widths: &[usize],
    forms: &[Form],
    values: impl Iterator<Item = &'a str>,
) {
    let start = out.len();
    for (index, ((value, width), form)) in values.zip(widths).zip(forms).enumerate() {
        let gap = if index == 0 { "" } else { GAP };
        let value = cut(value, *width);
        let _ = match form {
            Form::Text | Form::Kinds | Form::Word | Form::Time => {
                write!(out, "{gap}{value:<width$}")
            }
            Form::Number | Form::Milliseconds | Form::Microseconds => {
                write!(out, "{gap}{value:>width$}")
            }
        };
    }
    let end = start + out[start..].trim_end().len();
    out.truncate(end);
    out.push('\n');
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A value as text; `None` if there is none.
pub(super) fn cell(value: &Value, form: Form) -> Option<String> {
    let text = match (form, value) {
        (_, Value::Null) => return None,
        (Form::Milliseconds, value) => format!("{:.1}", value.as_f64()?),
        (Form::Microseconds, value) => format!("{:.1}", value.as_f64()? / 1e3),
        (Form::Time, value) => plain_text(NativeType::Timestamp, &value.as_i64()?.to_be_bytes())?,
        (Form::Number, Value::Object(_)) => sum(value)?.to_string(),
        (Form::Kinds, value) => kinds(value)?,
        (_, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    };
    Some(printable(&text))
}

/// The names of an object's numbers above 0, with the numbers; `None` without any.
fn kinds(value: &Value) -> Option<String> {
    let numbers = value.as_object()?.iter();
    let numbers = numbers.filter(|(_, number)| number.as_u64().is_some_and(|number| number > 0));
    let kinds: Vec<String> = numbers.map(|(kind, number)| format!("{kind} {number}")).collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

/// The sum of an object's numbers; `None` for any other value.
pub(super) fn sum(value: &Value) -> Option<u64> {
    Some(value.as_object()?.values().filter_map(Value::as_u64).sum())
}

/// A text of a client, a node or a proxy, without characters that a terminal acts upon.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::new();
    let _ = Printable(&mut shown).write_str(text);
    shown
}

/// One object for programs, in one line, without characters that a terminal acts upon.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    for char in value.to_string().chars() {
        // serde_json escapes control characters of ASCII. All others occur only within texts, where
        // an escape is allowed.
        if char.is_control() || is_bidirectional(char) {
            let _ = write!(out, "\\u{:04x}", u32::from(char));
        } else {
            out.push(char);
        }
    }
    out.push('\n');
    out
}

/// True for a character that changes the direction of what follows, or separates lines.
fn is_bidirectional(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: &[Column] = &[
        Column("role", "/role", Form::Text),
        Column("queries", "/queries", Form::Number),
        Column("p99 ms", "/latency_us/p99", Form::Microseconds),
        Column("absent", "/absent", Form::Word),
        Column("state", "/state", Form::Word),
        Column("text", "/text", Form::Text),
    ];

    #[test]
    fn columns_are_as_wide_as_their_values_and_empty_ones_are_left_out() {
        let one = json!({ "role": "shop", "queries": 12_345_678, "latency_us": { "p99": 1_234.0 }, "state": "up", "text": "SELECT" });
        let two = json!({ "role": null, "queries": 1, "state": "down", "text": "x" });
        let expected = "\
role   queries  p99 ms  state  text
shop  12345678     1.2  up     SELECT
-            1       -  down   x
";
        assert_eq!(text(COLUMNS, &[&one, &two], None), expected);
        assert_eq!(text(COLUMNS, &[], None), "role\n");
    }

    #[test]
    fn the_widest_texts_are_cut_until_a_line_fits() {
        let row = json!({ "role": "r".repeat(30), "queries": 1, "text": "t".repeat(200) });
        for width in [40, 60, 100] {
            let table = text(COLUMNS, &[&row], Some(width));
            assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
            assert_eq!(table.matches('…').count(), if width == 100 { 1 } else { 2 }, "{table}");
        }
    }

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_printed() {
        let row = json!({ "role": "a\u{1b}[2Jb\nc\u{9b}m\u{202e}", "queries": 1 });
        for shown in [text(COLUMNS, &[&row], None), json(&row)] {
            let hidden = |char: char| char.is_control() && char != '\n' || char == '\u{202e}';
            assert!(!shown.contains(hidden), "{shown:?}");
        }
        assert_eq!(text(COLUMNS, &[&row], None).lines().count(), 2);
        assert_eq!(serde_json::from_str::<Value>(&json(&row)).expect("it stays JSON"), row);
    }

    #[test]
    fn kinds_of_which_there_are_none_are_left_out() {
        let shown = cell(&json!({ "timed_out": 3, "invalid": 0, "other": 1 }), Form::Kinds);
        assert_eq!(shown.as_deref(), Some("other 1, timed_out 3"));
        assert_eq!(cell(&json!({ "timed_out": 0 }), Form::Kinds), None);
        assert_eq!(cell(&Value::Null, Form::Kinds), None);
    }

    #[test]
    fn times_have_a_date_and_are_in_utc() {
        let shown = cell(&json!(1_800_000_000_123_u64), Form::Time);
        assert_eq!(shown.as_deref(), Some("2027-01-15T08:00:00.123Z"));
    }
}
