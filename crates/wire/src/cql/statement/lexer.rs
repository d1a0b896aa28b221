//! CQL tokens, after Cassandra's `Lexer.g`.
//!
//! The lexer of `shunt-language` is no substitute on the data path: it reads a text to its end and
//! fails, where this one reads as far as it is asked and never fails.

use super::identifier::Identifier;

/// The kinds of tokens.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum TokenKind {
    /// Keyword or unquoted name.
    Word,
    /// Name in double quotes, which the text includes.
    Quoted,
    /// `'..'` or `$$..$$`; the text includes the quotes.
    String,
    /// Integer, float or duration, with a sign directly in front of it.
    Number,
    /// A UUID.
    Uuid,
    /// `0x..`
    Blob,
    /// Any other character of the grammar.
    Punctuation(u8),
    /// A character that no CQL statement contains, or an unterminated string or comment.
    Bad,
    /// End of the text.
    End,
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Offset of the first byte.
    pub(super) start: usize,
}

impl<'a> Token<'a> {
    pub(super) fn is_word(&self, keyword: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(keyword)
    }

    pub(super) fn is_any_word(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is_word(keyword))
    }

    pub(super) fn is(&self, punctuation: u8) -> bool {
        self.kind == TokenKind::Punctuation(punctuation)
    }

    pub(super) fn identifier(&self) -> Option<Identifier<'a>> {
        match self.kind {
            TokenKind::Word => Some(Identifier::unquoted(self.text)),
            TokenKind::Quoted => Some(Identifier::quoted(&self.text[1..self.text.len() - 1])),
            _ => None,
        }
    }

    /// True for a literal of one token other than the words `true`, `false`, `null`, `nan` and
    /// `infinity`.
    pub(super) fn is_literal(&self) -> bool {
        matches!(
            self.kind,
            TokenKind::String | TokenKind::Number | TokenKind::Uuid | TokenKind::Blob
        )
    }
}

/// Splits text into tokens. Cheap to copy: a copy serves as look-ahead.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, position: 0 }
    }

    /// True if the last token reaches the end of the text.
    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.text.len()
    }

    pub(super) fn peek(&self) -> Token<'a> {
        let mut ahead = *self;
        ahead.next()
    }

    /// The text from offset `start` to offset `end`.
    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Takes the next token; returns `End` forever at the end.
    pub(super) fn next(&mut self) -> Token<'a> {
        let start = match self.skip_blank() {
            Ok(()) => self.position,
            Err(start) => return self.take(TokenKind::Bad, start, self.text.len()),
        };
        let rest = &self.text.as_bytes()[start..];
        let Some(&first) = rest.first() else {
            return self.take(TokenKind::End, start, start);
        };
        let (kind, length) = match first {
            _ if is_uuid(rest) => (TokenKind::Uuid, UUID_CHARS),
            b'a'..=b'z' | b'A'..=b'Z' => (TokenKind::Word, run(rest, is_word_byte)),
            b'0' if matches!(rest.get(1), Some(b'x' | b'X')) => {
                (TokenKind::Blob, 2 + run(&rest[2..], |byte| byte.is_ascii_hexdigit()))
            }
            b'0'..=b'9' => (TokenKind::Number, number(rest)),
            b'-' if rest.get(1).is_some_and(u8::is_ascii_digit) => {
                (TokenKind::Number, 1 + number(&rest[1..]))
            }
            b'\'' => delimited(TokenKind::String, rest, b'\''),
            b'"' => delimited(TokenKind::Quoted, rest, b'"'),
            b'$' if rest.starts_with(b"$$") => match find(&rest[2..], b"$$") {
                Some(length) => (TokenKind::String, length + 4),
                None => (TokenKind::Bad, rest.len()),
            },
            b'!'..=b'~' => (TokenKind::Punctuation(first), 1),
            _ => (TokenKind::Bad, rest.len()),
        };
        self.take(kind, start, start + length)
    }

    fn take(&mut self, kind: TokenKind, start: usize, end: usize) -> Token<'a> {
        self.position = end;
        Token { kind, text: self.slice(start, end), start }
    }

    /// Skips white space and comments; `Err` has the offset of an unterminated comment.
    fn skip_blank(&mut self) -> Result<(), usize> {
        let bytes = self.text.as_bytes();
        loop {
            let rest = &bytes[self.position..];
            match rest {
                [b' ' | b'\t' | b'\n' | b'\r', ..] => self.position += 1,
                [b'-', b'-', ..] | [b'/', b'/', ..] => {
                    self.position += run(rest, |byte| byte != b'\n' && byte != b'\r');
                }
                [b'/', b'*', body @ ..] => match find(body, b"*/") {
                    Some(length) => self.position += length + 4,
                    None => return Err(self.position),
                },
                _ => return Ok(()),
            }
        }
    }
}

const UUID_CHARS: usize = 36;

fn is_uuid(rest: &[u8]) -> bool {
    // Most other tokens fail this first test.
    rest.get(8) == Some(&b'-')
        && rest.len() >= UUID_CHARS
        && rest[..UUID_CHARS].iter().enumerate().all(|(position, &byte)| match position {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn run(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| !belongs(byte)).unwrap_or(bytes.len())
}

fn find(bytes: &[u8], end: &[u8; 2]) -> Option<usize> {
    bytes.windows(2).position(|window| window == end)
}

/// Length of a number without its sign: digits, fraction, exponent, or the units of a duration.
/// Letters that directly follow belong to it, so `1AND` is one (meaningless) token and the
/// statement is not understood.
fn number(rest: &[u8]) -> usize {
    let mut length = run(rest, |byte| byte.is_ascii_digit());
    // `1..2` is a range, not two fractions.
    if rest.get(length) == Some(&b'.') && rest.get(length + 1) != Some(&b'.') {
        length += 1 + run(&rest[length + 1..], |byte| byte.is_ascii_digit());
    }
    if let [b'e' | b'E', b'+' | b'-', digit, ..] = rest[length..]
        && digit.is_ascii_digit()
    {
        length += 2;
    }
    length + run(&rest[length..], is_word_byte)
}

/// A string or name between two `quote` characters; a doubled quote inside stands for one.
fn delimited(kind: TokenKind, rest: &[u8], quote: u8) -> (TokenKind, usize) {
    let mut end = 1;
    loop {
        end += run(&rest[end..], |byte| byte != quote);
        match rest.get(end + 1) {
            Some(&next) if next == quote => end += 2,
            _ if end < rest.len() => return (kind, end + 1),
            _ => return (TokenKind::Bad, rest.len()),
        }
    }
}
