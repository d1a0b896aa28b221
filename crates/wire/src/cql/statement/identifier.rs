//! Names as written in a statement.

use std::cmp::Ordering;
use std::fmt::{self, Write};

/// A keyspace, table, column or marker name as it stands in a statement. Unquoted names mean their
/// lower-case form, quoted ones are taken as they are with `""` for `"`. Compare it to stored
/// names; it is never turned into a `String` on the data path.
#[derive(Copy, Clone, Debug)]
pub struct Identifier<'a> {
    raw: &'a str,
    form: Form,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Form {
    /// Unquoted: case does not matter.
    Folded,
    /// Between double quotes (which `raw` does not include).
    Quoted,
    /// A stored name, standing for itself.
    Exact,
}

impl<'a> Identifier<'a> {
    /// A stored name in the place of a written one, for example the keyspace of a session.
    #[must_use]
    pub fn exact(name: &'a str) -> Identifier<'a> {
        Identifier { raw: name, form: Form::Exact }
    }

    pub(super) fn unquoted(raw: &'a str) -> Identifier<'a> {
        Identifier { raw, form: Form::Folded }
    }

    /// `raw` without its outer quotes.
    pub(super) fn quoted(raw: &'a str) -> Identifier<'a> {
        Identifier { raw, form: Form::Quoted }
    }

    /// Where it begins in the text that it was read from, in bytes; its quotes are part of it.
    /// None: it is of another text.
    #[must_use]
    pub fn place_in(&self, text: &str) -> Option<usize> {
        let start = (self.raw.as_ptr().addr()).checked_sub(text.as_ptr().addr())?;
        let end = start.checked_add(self.raw.len()).filter(|end| *end <= text.len())?;
        let start = if self.form == Form::Quoted { start.checked_sub(1)? } else { start };
        text.is_char_boundary(start).then_some(start).filter(|start| *start <= end)
    }

    /// True if it means this stored name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.compare(name) == Ordering::Equal
    }

    /// Order of the name it means relative to a stored name, as `str` orders them: for binary
    /// search.
    #[must_use]
    pub fn compare(&self, name: &str) -> Ordering {
        self.bytes().cmp(name.bytes())
    }

    /// Appends the name it means.
    pub fn write_to(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{self}");
    }

    /// The name's bytes: folding and un-doubling touch ASCII alone, so they work on UTF-8 bytes.
    fn bytes(&self) -> impl Iterator<Item = u8> {
        let form = self.form;
        let mut after_quote = false;
        self.raw.bytes().filter_map(move |byte| match form {
            Form::Folded => Some(byte.to_ascii_lowercase()),
            Form::Quoted if byte == b'"' && !after_quote => {
                after_quote = true;
                None
            }
            Form::Quoted | Form::Exact => {
                after_quote = false;
                Some(byte)
            }
        })
    }
}

/// Two names are equal when they mean the same.
impl PartialEq for Identifier<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

impl Eq for Identifier<'_> {}

/// The name it means.
impl fmt::Display for Identifier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Exact => f.write_str(self.raw),
            Form::Folded => self.raw.chars().try_for_each(|c| f.write_char(c.to_ascii_lowercase())),
            Form::Quoted => {
                let mut parts = self.raw.split("\"\"");
                f.write_str(parts.next().unwrap_or_default())?;
                parts.try_for_each(|part| {
                    f.write_char('"')?;
                    f.write_str(part)
                })
            }
        }
    }
}
