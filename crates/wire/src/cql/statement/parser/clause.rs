//! Clauses that several statements have: the table, `WHERE`, `USING`, `IF`.

use super::Parser;
use crate::cql::statement::Statement;
use crate::cql::statement::lexer::TokenKind;
use crate::cql::statement::terms::{KeyTerm, TermSource};

/// Words that end a list of relations or conditions. All but `GROUP` and `PER` are reserved, and these two can only be
/// columns at the start of a relation, where they are not looked for.
const CLAUSE_ENDS: [&str; 12] =
    ["ORDER", "GROUP", "LIMIT", "PER", "ALLOW", "IF", "WITH", "USING", "INSERT", "UPDATE", "DELETE", "APPLY"];

impl<'a> Parser<'a> {
    fn at_clause_end(&self) -> bool {
        self.at_end() || self.token.is_any_word(&CLAUSE_ENDS)
    }

    /// `[keyspace.]table`
    pub(super) fn table(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let first = self.identifier()?;
        if self.eat(b'.') {
            statement.table = Some(self.identifier()?);
            statement.keyspace = Some(first);
        } else {
            statement.table = Some(first);
        }
        Some(())
    }

    /// What follows `WHERE`, up to the next clause.
    pub(super) fn where_clause(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let (start, marker) = (self.token.start, self.markers);
        let mut plain = true;
        loop {
            plain &= self.relation()?.is_some();
            if !self.eat_word("AND") {
                break;
            }
        }
        statement.plain_where = plain;
        statement.terms = TermSource::Where { text: self.lexer.slice(start, self.token.start), marker };
        Some(())
    }

    /// One relation of `WHERE` or condition of `IF`, up to `AND` or the next clause; the inner option is its term if
    /// it is `column = literal or marker`.
    pub(in crate::cql::statement) fn relation(&mut self) -> Option<Option<KeyTerm<'a>>> {
        let key_term = match self.token.identifier() {
            Some(column) if self.lexer.peek().is(b'=') => {
                self.bump();
                self.bump();
                let shape = self.term()?;
                self.repeatable &= shape.fixed;
                shape.term.map(|term| KeyTerm { column, term })
            }
            _ => {
                self.other_relation()?;
                None
            }
        };
        (self.at_clause_end() || self.token.is_word("AND")).then_some(key_term)
    }

    /// `a IN (..)`, `a > ?`, `(a, b) <= (..)`, `token(a) > ..`, `a['x'] = ..`, `a CONTAINS KEY ..`, `EXISTS`, ..
    fn other_relation(&mut self) -> Option<()> {
        let mut between = false;
        let mut first = true;
        while first || !self.at_clause_end() {
            if self.token.is_word("AND") && !std::mem::take(&mut between) {
                return (!first).then_some(());
            }
            if self.marker()?.is_some() {
                first = false;
                continue;
            }
            let token = self.bump();
            match token.kind {
                TokenKind::End | TokenKind::Bad | TokenKind::Punctuation(b';' | b')' | b']' | b'}' | b',') => {
                    return None;
                }
                TokenKind::Punctuation(b'(' | b'[' | b'{') => {
                    let nested = self.nested()?;
                    self.repeatable &= !nested.function;
                }
                TokenKind::Word if token.is_word("BETWEEN") => between = true,
                TokenKind::Word if token.is_word("IN") => {}
                TokenKind::Word | TokenKind::Quoted => self.repeatable &= !self.token.is(b'('),
                _ => {}
            }
            first = false;
        }
        Some(())
    }

    /// `USING TTL 10 AND TIMESTAMP ?`, if it is next.
    pub(super) fn using(&mut self) -> Option<()> {
        if !self.eat_word("USING") {
            return Some(());
        }
        loop {
            if !self.token.is_any_word(&["TIMESTAMP", "TTL", "TIMEOUT"]) {
                return None;
            }
            self.bump();
            if self.marker()?.is_none() && self.bump().kind != TokenKind::Number {
                return None;
            }
            if !self.eat_word("AND") {
                return Some(());
            }
        }
    }

    /// `IF ..`, if it is next.
    pub(super) fn condition(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        if !self.eat_word("IF") {
            return Some(());
        }
        statement.conditional = true;
        loop {
            self.relation()?;
            if !self.eat_word("AND") {
                return Some(());
            }
        }
    }
}
