//! Names as written in a statement.

use std::cmp::Ordering;
use std::fmt::{self, Write};

/// A keyspace, table, column or marker name as written in a statement. An unquoted name means its
/// lower-case form; a quoted one is taken as is, with `""` for `"`. Callers compare it to stored
/// names; the data path never turns it into a `String`.
#[derive(Copy, Clone, Debug)]
pub struct Identifier<'a> {
    raw: &'a str,
    form: Form,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Form {
    /// Unquoted: letter case does not matter.
    Folded,
    /// Between double quotes (which `raw` excludes).
    Quoted,
    /// A stored name.
    Exact,
}

impl<'a> Identifier<'a> {
    /// A stored name in the place of a written one, such as the keyspace of a session.
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

    /// Byte offset of the name, including its quotes, in the text it was read from; `None` for
    /// another text.
    #[must_use]
    pub fn place_in(&self, text: &str) -> Option<usize> {
        let start = (self.raw.as_ptr().addr()).checked_sub(text.as_ptr().addr())?;
        let end = start.checked_add(self.raw.len()).filter(|end| *end <= text.len())?;
        let start = if self.form == Form::Quoted { start.checked_sub(1)? } else { start };
        text.is_char_boundary(start).then_some(start).filter(|start| *start <= end)
    }

    /// True if the identifier means this stored name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.compare(name) == Ordering::Equal
    }

    /// Compares the name with a stored name in the order of `str`, for binary search.
    #[must_use]
    pub fn compare(&self, name: &str) -> Ordering {
        self.bytes().cmp(name.bytes())
    }

    /// Appends the name.
    pub fn write_to(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{self}");
    }

    /// The name's bytes. Folding and un-doubling affect ASCII only, so they work on UTF-8 bytes.
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

/// Two identifiers are equal if they mean the same name.
impl PartialEq for Identifier<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

impl Eq for Identifier<'_> {}

/// Shows the name without quotes, folded if unquoted.
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
