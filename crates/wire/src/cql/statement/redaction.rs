//! Texts without the values in them: what a log may show, and what alike statements have in common.

use super::lexer::{Lexer, TokenKind};

/// Bytes of a text that are read at most; the rest shows as `…`.
const READ_BYTES_MAX: usize = 64 << 10;

/// The statement with `?` in place of each literal, so that it shows no value, and with lists of
/// values cut to their first: `IN (1, 2, 3)` becomes `IN (?, …)`. Comments go, and blanks become
/// one each. A text that is longer than `bytes_max` in this form ends in `…`, and so does one that
/// is no CQL from some place on, because a value may begin there.
///
/// Names, keywords, `true`, `false` and `null` stay.
#[must_use]
pub fn redact(text: &str, bytes_max: usize) -> String {
    let is_cut = text.len() > READ_BYTES_MAX;
    let text = if is_cut { &text[..text.floor_char_boundary(READ_BYTES_MAX)] } else { text };
    let (mut shown, mut lexer) = (String::new(), Lexer::new(text));
    // Bytes that `shown` had before the comma that follows a value, if the last tokens were these.
    let (mut value_ends, mut comma): (Option<usize>, Option<usize>) = (None, None);
    let mut end = 0;
    loop {
        let token = lexer.next();
        if token.kind == TokenKind::End && !is_cut {
            return shown;
        }
        let is_value = token.is_literal();
        let is_last = match token.kind {
            TokenKind::Bad | TokenKind::End => true,
            // The cut may be in the middle of it.
            _ => is_cut && lexer.is_at_end(),
        };
        if !is_last && is_value && comma.is_some() {
            // One more value of a list: `…` stands for it and for all that follow.
            shown.truncate(comma.take().unwrap_or_default());
            if !shown.ends_with('…') {
                shown.push_str(", …");
            }
            (value_ends, end) = (Some(shown.len()), token.start + token.text.len());
            continue;
        }
        let length = shown.len();
        if token.start > end && !shown.is_empty() {
            shown.push(' ');
        }
        match token.kind {
            _ if is_last => shown.push('…'),
            _ if is_value => shown.push('?'),
            _ => shown.push_str(token.text),
        }
        if shown.len() > bytes_max {
            shown.truncate(length.min(bytes_max));
            shown.truncate(shown.floor_char_boundary(shown.len()));
            shown.push('…');
            return shown;
        }
        if is_last {
            return shown;
        }
        comma = value_ends.filter(|_| token.is(b','));
        value_ends = is_value.then_some(shown.len());
        end = token.start + token.text.len();
    }
}
