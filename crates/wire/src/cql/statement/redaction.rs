//! Texts without the values in them: what a log may show, and what alike statements have in common.

use super::lexer::{Lexer, Token, TokenKind};

/// Bytes of a text that are read at most; the rest shows as `…`.
const READ_BYTES_MAX: usize = 64 << 10;
/// Length of the longest token that a cut in its middle would turn into others, which are shown: a
/// UUID.
const CUT_BYTES: usize = 36;

/// Words that end a value behind an operator.
const AFTER_VALUES: [&str; 27] = [
    "ALLOW",
    "AND",
    "APPLY",
    "AS",
    "BEGIN",
    "BETWEEN",
    "CONTAINS",
    "DELETE",
    "FROM",
    "GROUP",
    "IF",
    "IN",
    "INSERT",
    "IS",
    "LIKE",
    "LIMIT",
    "NOSUPERUSER",
    "NOT",
    "ORDER",
    "PER",
    "SELECT",
    "SET",
    "SUPERUSER",
    "UPDATE",
    "USING",
    "WHERE",
    "WITH",
];
/// Words behind which a value stands, as behind `=`.
const BEFORE_VALUES: [&str; 4] = ["BETWEEN", "CONTAINS", "LIKE", "PASSWORD"];
/// Words that are values and show nothing.
const PLAIN_VALUES: [&str; 3] = ["TRUE", "FALSE", "NULL"];

/// The statement with `?` in place of each value, so that it shows none, and with lists of values
/// cut to their first: `IN (1, 2, 3)` becomes `IN (?, …)`. Comments go, and blanks become one each.
/// A text that is longer than `bytes_max` in this form ends in `…`, and so does one that is no CQL
/// from some place on, because a value may begin there.
///
/// A literal is a value wherever it stands. Names are values too, but for functions, behind `=`,
/// `<`, `>`, `LIKE`, `CONTAINS`, `BETWEEN` and `PASSWORD`, in collections, and in the lists of
/// `VALUES` and `IN`: an ISO duration is a word, and so is a text in no quotes or the wrong ones.
#[must_use]
pub fn redact(text: &str, bytes_max: usize) -> String {
    let is_cut = text.len() > READ_BYTES_MAX;
    let text = if is_cut { &text[..text.floor_char_boundary(READ_BYTES_MAX)] } else { text };
    let (mut lexer, mut writer) = (Lexer::new(text), Writer::default());
    let mut place = Place::default();
    // The end of the last token, and whether that was a value.
    let (mut end, mut follows_value) = (0, false);
    loop {
        let token = lexer.next();
        let is_first_cut = is_cut && token.start + CUT_BYTES > READ_BYTES_MAX;
        let is_value = token.is_literal() || place.is_value(&token, &lexer);
        // What touches a value may be a part of it: a quote in it was not doubled.
        let touches = follows_value && token.start == end && !is_punctuation(&token);
        match token.kind {
            TokenKind::End if !is_cut => return writer.shown,
            TokenKind::Bad | TokenKind::End => return writer.cut(token.start > end, bytes_max),
            _ if is_first_cut || touches => return writer.cut(token.start > end, bytes_max),
            _ => {}
        }
        let text = if is_value { "?" } else { token.text };
        if !writer.write(token.start > end, text, is_value, bytes_max) {
            return writer.shown;
        }
        place.pass(&token, &lexer);
        (end, follows_value) = (token.start + token.text.len(), is_value);
    }
}

fn is_punctuation(token: &Token<'_>) -> bool {
    matches!(token.kind, TokenKind::Punctuation(_) | TokenKind::End)
}

/// The place in a statement: where values stand, and where names do.
#[derive(Default)]
struct Place {
    /// For each open bracket: whether values stand in it. Beyond some depth all do.
    brackets: Vec<bool>,
    depth: usize,
    /// True behind an operator, until a word ends the value.
    is_behind_operator: bool,
    /// True if the last token is `CONTAINS`, of which `KEY` may be a part.
    is_behind_contains: bool,
    /// True behind `BETWEEN`, until its `AND`.
    is_in_range: bool,
    /// True if the last token opens a list of values if a bracket follows: `VALUES`, `IN`.
    opens_values: bool,
}

/// Brackets within brackets of which the place is known.
const DEPTH_MAX: usize = 64;

impl Place {
    fn has_values(&self) -> bool {
        match self.brackets.last() {
            Some(_) if self.depth > self.brackets.len() => true,
            Some(has_values) => *has_values,
            None => self.is_behind_operator,
        }
    }

    /// True if a word or a quoted name is a value here. `ahead` is behind it.
    fn is_value(&self, token: &Token<'_>, ahead: &Lexer<'_>) -> bool {
        let is_name = matches!(token.kind, TokenKind::Word | TokenKind::Quoted);
        is_name
            && self.has_values()
            && !token.is_any_word(&PLAIN_VALUES)
            && !(self.is_behind_contains && token.is_word("KEY"))
            && !(self.brackets.is_empty() && token.is_any_word(&AFTER_VALUES))
            && !ahead.peek().is(b'(')
    }

    /// Moves behind a token. `ahead` is behind it.
    fn pass(&mut self, token: &Token<'_>, ahead: &Lexer<'_>) {
        let has_values = self.has_values();
        match token.kind {
            TokenKind::Punctuation(b'(' | b'[' | b'{') => {
                let is_list = self.opens_values || has_values || !token.is(b'(');
                self.depth += 1;
                if self.brackets.len() < DEPTH_MAX {
                    self.brackets.push(is_list);
                }
            }
            TokenKind::Punctuation(b')' | b']' | b'}') => {
                self.depth = self.depth.saturating_sub(1);
                self.brackets.truncate(self.depth);
            }
            TokenKind::Punctuation(b'=' | b'<' | b'>') => self.is_behind_operator = true,
            TokenKind::Punctuation(b',' | b';') if self.brackets.is_empty() => {
                self.is_behind_operator = false;
            }
            TokenKind::Word if self.brackets.is_empty() => self.pass_word(token, ahead),
            _ => {}
        }
        self.opens_values = token.is_any_word(&["VALUES", "IN"]);
        self.is_behind_contains = token.is_word("CONTAINS");
    }

    /// Moves behind a word outside brackets.
    fn pass_word(&mut self, token: &Token<'_>, ahead: &Lexer<'_>) {
        let ends_range = self.is_in_range && token.is_word("AND");
        // A table may have the name, and a list of columns behind it.
        let opens_value = token.is_any_word(&BEFORE_VALUES) && !ahead.peek().is(b'(');
        if opens_value || ends_range {
            self.is_behind_operator = true;
        } else if token.is_any_word(&AFTER_VALUES) {
            self.is_behind_operator = false;
        }
        self.is_in_range = !ends_range && (self.is_in_range || token.is_word("BETWEEN"));
    }
}

/// The text so far.
#[derive(Default)]
struct Writer {
    shown: String,
    /// Bytes of it up to the end of the last token, if that was a value.
    value_ends: Option<usize>,
    /// Bytes of it before the comma behind a value, if that was the last token.
    comma: Option<usize>,
}

impl Writer {
    /// Adds a token; false if that is too much.
    fn write(&mut self, has_blank: bool, text: &str, is_value: bool, bytes_max: usize) -> bool {
        if let Some(comma) = self.comma.take().filter(|_| is_value) {
            // One more value of a list: `…` stands for it and for all that follow.
            self.shown.truncate(comma);
            if !self.shown.ends_with('…') {
                self.shown.push_str(", …");
            }
            self.value_ends = Some(self.shown.len());
            return self.shown.len() <= bytes_max || self.cut_to(comma, bytes_max);
        }
        let length = self.shown.len();
        if has_blank && length > 0 {
            self.shown.push(' ');
        }
        self.shown.push_str(text);
        if self.shown.len() > bytes_max {
            return self.cut_to(length, bytes_max);
        }
        self.comma = self.value_ends.filter(|_| text == ",");
        self.value_ends = is_value.then_some(self.shown.len());
        true
    }

    /// The text, with `…` for the rest.
    fn cut(mut self, has_blank: bool, bytes_max: usize) -> String {
        let length = self.shown.len();
        if has_blank && length > 0 {
            self.shown.push(' ');
        }
        if self.shown.len() > bytes_max {
            self.shown.truncate(length);
        }
        if !self.shown.ends_with('…') {
            self.shown.push('…');
        }
        self.shown
    }

    /// Ends the text at a length, or before it; false.
    fn cut_to(&mut self, length: usize, bytes_max: usize) -> bool {
        self.shown.truncate(length);
        self.shown.truncate(self.shown.floor_char_boundary(bytes_max));
        self.shown.push('…');
        false
    }
}
