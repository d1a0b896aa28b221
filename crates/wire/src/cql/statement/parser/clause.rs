//! Clauses shared by several statements: the table, `WHERE`, `USING`, `IF`.

use super::Parser;
use crate::cql::statement::classification::Statement;
use crate::cql::statement::identifier::Identifier;
use crate::cql::statement::lexer::TokenKind;
use crate::cql::statement::terms::{Bind, KeyTerm, Term, TermSource};

/// The contents of `USING`.
#[derive(Copy, Clone, Debug)]
pub(super) struct Using {
    /// The write has an explicit timestamp.
    pub(super) stamped: bool,
    /// Whether `TTL` gives a time to live (false for 0); `None` leaves it to the table.
    pub(super) lives: Option<bool>,
}

/// Words that end a list of relations or conditions. `GROUP` and `PER` are not reserved, but can
/// only be columns at the start of a relation, where the parser does not look for them. The others
/// are reserved.
const CLAUSE_ENDS: [&str; 12] = [
    "ORDER", "GROUP", "LIMIT", "PER", "ALLOW", "IF", "WITH", "USING", "INSERT", "UPDATE", "DELETE",
    "APPLY",
];

impl<'a> Parser<'a> {
    fn at_clause_end(&self) -> bool {
        self.at_end() || self.token.is_any_word(&CLAUSE_ENDS)
    }

    /// `[keyspace.]table`
    pub(super) fn table(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let mut table = self.identifier()?;
        let mut keyspace = None;
        if self.eat(b'.') {
            keyspace = Some(std::mem::replace(&mut table, self.identifier()?));
        }
        if self.is_cut && self.lexer.is_at_end() {
            // The name may continue, or may be a keyspace: the text behind it is unknown, and may
            // be half of a comment's opening.
            return None;
        }
        (statement.keyspace, statement.table) = (keyspace, Some(table));
        Some(())
    }

    /// Reads the text behind `WHERE`, up to the next clause.
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
        statement.terms =
            TermSource::Where { text: self.lexer.slice(start, self.token.start), marker };
        Some(())
    }

    /// One relation of `WHERE` or condition of `IF`, up to `AND` or the next clause; the inner
    /// option is its term if it is `column = literal or marker`.
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

    /// `a IN (..)`, `a > ?`, `(a, b) <= (..)`, `token(a) > ..`, `a['x'] = ..`, `a CONTAINS KEY ..`,
    /// `EXISTS`, ..
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
                TokenKind::End
                | TokenKind::Bad
                | TokenKind::Punctuation(b';' | b')' | b']' | b'}' | b',') => {
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
    pub(super) fn using(&mut self) -> Option<Using> {
        let mut using = Using { stamped: false, lives: None };
        if !self.eat_word("USING") {
            return Some(using);
        }
        loop {
            if !self.token.is_any_word(&["TIMESTAMP", "TTL", "TIMEOUT"]) {
                return None;
            }
            let what = self.bump();
            let marker = self.marker()?;
            let literal = if marker.is_none() { self.bump() } else { what };
            if marker.is_none() && literal.kind != TokenKind::Number {
                return None;
            }
            if what.is_word("TIMESTAMP") {
                // With an unset marker the statement has the message's timestamp or none; nodes
                // refuse null.
                using.stamped = marker.is_none_or(|marker| self.has_value(&marker));
            } else if what.is_word("TTL") {
                using.lives = Some(marker.is_some() || literal.text != "0");
            }
            if !self.eat_word("AND") {
                return Some(using);
            }
        }
    }

    /// True if the marker of `USING TIMESTAMP` has a value. The marker's name is Cassandra's.
    fn has_value(&self, marker: &Term<'a>) -> bool {
        let bind = match *marker {
            Term::Literal(_) => return true,
            Term::Marker(index) => Bind { index, name: Identifier::exact("[timestamp]") },
            Term::NamedMarker { name, index } => Bind { index, name },
        };
        self.setting.is_some_and(|setting| setting.has_value(&bind))
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
