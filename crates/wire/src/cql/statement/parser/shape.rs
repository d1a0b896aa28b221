//! Terms: literals, markers, collections, casts, function calls and arithmetic on them.

use super::Parser;
use crate::cql::statement::lexer::{Token, TokenKind};
use crate::cql::statement::terms::Term;

/// The composition of a term.
#[derive(Copy, Clone, Debug)]
pub(in crate::cql::statement) struct Shape<'a> {
    /// The term, if it is one literal or one marker.
    pub(in crate::cql::statement) term: Option<Term<'a>>,
    /// Only literals and markers: a second execution gives the same value.
    pub(super) fixed: bool,
}

impl<'a> Shape<'a> {
    fn simple(term: Term<'a>) -> Shape<'a> {
        Shape { term: Some(term), fixed: true }
    }

    fn compound(fixed: bool) -> Shape<'a> {
        Shape { term: None, fixed }
    }
}

/// Terms seen between brackets.
pub(super) struct Nested {
    pub(super) function: bool,
    /// Words that are neither constants nor field names of a UDT: possibly columns, possibly a
    /// type.
    words: bool,
}

impl<'a> Parser<'a> {
    /// `primary (operator primary)*`
    pub(in crate::cql::statement) fn term(&mut self) -> Option<Shape<'a>> {
        let mut shape = self.primary()?;
        loop {
            match self.token.kind {
                TokenKind::Punctuation(b'+' | b'-' | b'*' | b'/' | b'%') => {
                    self.bump();
                }
                // Cassandra's lexer also splits `c -1` into two tokens, a name and a number.
                TokenKind::Number if self.token.text.starts_with('-') => {}
                _ => return Some(shape),
            }
            let right = self.primary()?;
            shape = Shape::compound(shape.fixed && right.fixed);
        }
    }

    fn primary(&mut self) -> Option<Shape<'a>> {
        // Signs and casts before the value.
        let mut prefixed = false;
        let mut fixed = true;
        loop {
            if let Some(term) = self.marker()? {
                return Some(if prefixed { Shape::compound(fixed) } else { Shape::simple(term) });
            }
            let token = self.bump();
            let shape = match token.kind {
                _ if token.is_literal() => Shape::simple(Term::Literal(token.text)),
                TokenKind::Word | TokenKind::Quoted => self.named_term(token)?,
                TokenKind::Punctuation(b'-') => {
                    prefixed = true;
                    continue;
                }
                TokenKind::Punctuation(b'(') => {
                    let nested = self.nested()?;
                    fixed &= !nested.function;
                    if self.at_cast_value() {
                        prefixed = true;
                        continue;
                    }
                    Shape::compound(!nested.words)
                }
                TokenKind::Punctuation(b'[' | b'{') => {
                    let nested = self.nested()?;
                    Shape::compound(!nested.function && !nested.words)
                }
                _ => return None,
            };
            return Some(if prefixed || !fixed {
                Shape::compound(fixed && shape.fixed)
            } else {
                shape
            });
        }
    }

    /// After `(..)`: returns whether a value follows, so that the bracket was a cast. A negative
    /// number counts as subtraction instead, which is the cautious reading; a word too does not
    /// count, since it may start the next clause.
    fn at_cast_value(&self) -> bool {
        let negative = self.token.kind == TokenKind::Number && self.token.text.starts_with('-');
        (self.token.is_literal() && !negative)
            || matches!(self.token.kind, TokenKind::Punctuation(b'?' | b':' | b'(' | b'[' | b'{'))
    }

    /// Reads a term that starts with a name: a constant, a function call or a column.
    fn named_term(&mut self, first: Token<'a>) -> Option<Shape<'a>> {
        let mut qualified = false;
        while self.eat(b'.') {
            self.identifier()?;
            qualified = true;
        }
        if self.eat(b'(') {
            self.nested()?;
            return Some(Shape::compound(false));
        }
        if !qualified && is_constant(&first) {
            return Some(Shape::simple(Term::Literal(first.text)));
        }
        Some(Shape::compound(false))
    }

    /// Skips to the bracket that closes the one just taken, counting markers. Kinds of brackets
    /// need no distinction: every server refuses text that mixes them.
    pub(super) fn nested(&mut self) -> Option<Nested> {
        let mut nested = Nested { function: false, words: false };
        let mut depth = 1u32;
        // In `{'k': :v}` the first colon separates and the second begins a marker, because a value
        // is due there.
        let mut value_due = true;
        while depth > 0 {
            if self.token.is(b'?') || (value_due && self.token.is(b':')) {
                self.marker()?;
                value_due = false;
                continue;
            }
            let token = self.bump();
            if token.is(b')') && self.token.is(b':') {
                // A cast of a marker, `(int) :x`, or a tuple as the key of a map, `(1, 2): x`.
                return None;
            }
            // A word where no value is due is an operator, as in `(a IN :x)`.
            let operator = !value_due;
            value_due = false;
            match token.kind {
                TokenKind::End | TokenKind::Bad | TokenKind::Punctuation(b';') => return None,
                TokenKind::Punctuation(b'(' | b'[' | b'{') => {
                    depth = depth.checked_add(1)?;
                    value_due = true;
                }
                TokenKind::Punctuation(b')' | b']' | b'}') => depth -= 1,
                TokenKind::Punctuation(_) => value_due = true,
                TokenKind::Word | TokenKind::Quoted => {
                    value_due = operator && !is_constant(&token);
                    nested.function |= self.token.is(b'(');
                    nested.words |= !is_constant(&token) && !self.token.is(b':');
                }
                TokenKind::String | TokenKind::Number | TokenKind::Uuid | TokenKind::Blob => {}
            }
        }
        Some(nested)
    }
}

fn is_constant(token: &Token<'_>) -> bool {
    token.is_any_word(&["true", "false", "null", "nan", "infinity"])
}
