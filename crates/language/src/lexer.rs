//! Splits text into tokens, after Cassandra's `Lexer.g`.
//!
//! The lexer of `shunt-wire` cannot serve here: it has no errors with a place, and takes numbers
//! and durations for one kind.
//!
//! The whole statement is tokenised before parsing, so that the parser can look ahead and back up
//! freely. A token has its kind and place; its text is read when needed.

mod number;
#[cfg(test)]
mod tests;

use crate::error::SyntaxError;

/// The kind of a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A keyword or a name without quotes.
    Word,
    /// A name in double quotes.
    QuotedName,
    /// `""`
    EmptyName,
    /// `'..'` or `$$..$$`
    String,
    /// Digits, optionally with a minus directly in front.
    Integer,
    /// A number with a point or an exponent; `-NaN` and `-Infinity`.
    Float,
    /// `1h30m`, `PT1H`, `P0001-02-03T04:05:06`
    Duration,
    /// A UUID.
    Uuid,
    /// `0x..`
    Hex,
    /// One or two characters of punctuation.
    Punctuation,
    /// The end of the text.
    End,
}

/// A token: bytes `start..end` of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Line from 1 and characters before `offset` in it.
pub(crate) fn place(text: &str, offset: usize) -> (u32, i32) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    (u32::try_from(line).unwrap_or(u32::MAX), i32::try_from(column).unwrap_or(i32::MAX))
}

/// Splits `text` into tokens; the last one is [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, SyntaxError> {
    let mut tokens = Vec::with_capacity(text.len() / 4);
    each(text, |token| tokens.push(token))?;
    Ok(tokens)
}

/// Passes the tokens of `text` one by one; the last one is [`Kind::End`].
pub(crate) fn each(text: &str, mut take: impl FnMut(Token)) -> Result<(), SyntaxError> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), position: 0 };
    loop {
        lexer.skip_blanks()?;
        let start = lexer.position;
        let kind = lexer.next()?;
        take(Token { kind, start, end: lexer.position });
        if kind == Kind::End {
            return Ok(());
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    position: usize,
}

impl Lexer<'_> {
    fn at(&self, ahead: usize) -> u8 {
        self.bytes.get(self.position + ahead).copied().unwrap_or(0)
    }

    fn starts_with(&self, text: &[u8]) -> bool {
        self.bytes.get(self.position..).is_some_and(|rest| rest.starts_with(text))
    }

    fn error(&self, offset: usize, problem: &str) -> SyntaxError {
        let (line, column) = place(self.text, offset);
        SyntaxError::at(line, column, problem)
    }

    fn unterminated(&self, expected: &str) -> SyntaxError {
        self.error(self.text.len(), &format!("mismatched character '<EOF>' expecting {expected}"))
    }

    /// Skips white space and comments. A line comment must end with a line break, not with the
    /// text, as in Cassandra.
    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.at(0) {
                b' ' | b'\t' | b'\n' | b'\r' => self.position += 1,
                b'-' | b'/' if self.at(1) == self.at(0) => {
                    let rest = &self.bytes[self.position..];
                    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    self.position += end.ok_or_else(|| self.unterminated("set null"))? + 1;
                }
                b'/' if self.at(1) == b'*' => {
                    let rest = &self.text[self.position + 2..];
                    self.position += rest.find("*/").ok_or_else(|| self.unterminated("'*'"))? + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    fn next(&mut self) -> Result<Kind, SyntaxError> {
        if self.position >= self.bytes.len() {
            return Ok(Kind::End);
        }
        if let Some((kind, length)) = number::scan(&self.bytes[self.position..]) {
            self.position += length;
            return Ok(kind);
        }
        match self.at(0) {
            b'\'' => self.quoted(b'\'', Kind::String),
            b'"' if self.at(1) == b'"' && self.at(2) != b'"' => self.take(2, Kind::EmptyName),
            b'"' => self.quoted(b'"', Kind::QuotedName),
            b'$' if self.at(1) == b'$' => {
                let length = self.text[self.position + 2..].find("$$");
                self.take(length.ok_or_else(|| self.unterminated("'$'"))? + 4, Kind::String)
            }
            first if first.is_ascii_alphabetic() => {
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length =
                    self.bytes[self.position..].iter().take_while(|byte| word(byte)).count();
                self.take(length, Kind::Word)
            }
            _ => self.punctuation(),
        }
    }

    fn take(&mut self, length: usize, kind: Kind) -> Result<Kind, SyntaxError> {
        self.position += length;
        Ok(kind)
    }

    fn punctuation(&mut self) -> Result<Kind, SyntaxError> {
        let pairs: [&[u8]; 6] = [b"+=", b"-=", b"<=", b">=", b"!=", b".."];
        if pairs.iter().any(|pair| self.starts_with(pair)) {
            return self.take(2, Kind::Punctuation);
        }
        if b"(){}[],;:.?=<>+-*/%".contains(&self.at(0)) {
            return self.take(1, Kind::Punctuation);
        }
        let found = self.text[self.position..].chars().next().unwrap_or_default();
        Err(self.error(self.position, &format!("no viable alternative at character '{found}'")))
    }

    /// Text between quotes, which are doubled inside.
    fn quoted(&mut self, quote: u8, kind: Kind) -> Result<Kind, SyntaxError> {
        let mut at = self.position + 1;
        while let Some(length) =
            self.bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == quote))
        {
            at += length + 1;
            if self.bytes.get(at) != Some(&quote) {
                self.position = at;
                return Ok(kind);
            }
            at += 1;
        }
        Err(self.unterminated(if quote == b'"' { "'\"'" } else { "'''" }))
    }
}
