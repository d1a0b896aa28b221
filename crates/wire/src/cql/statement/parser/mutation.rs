//! `INSERT`, `UPDATE`, `DELETE` and batches of them, and whether each may be executed twice.

use super::{Parser, Shape};
use crate::cql::statement::lexer::TokenKind;
use crate::cql::statement::terms::{Term, TermSource};
use crate::cql::statement::{Kind, Statement};

impl<'a> Parser<'a> {
    pub(super) fn insert(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.expect_word("INTO")?;
        self.table(statement)?;
        if self.eat_word("JSON") {
            // The key is inside the document: not looked into.
            if self.marker()?.is_none() && self.bump().kind != TokenKind::String {
                return None;
            }
            if self.eat_word("DEFAULT") && !self.eat_word("NULL") {
                self.expect_word("UNSET")?;
            }
        } else {
            self.columns_and_values(statement)?;
        }
        if self.eat_word("IF") {
            statement.conditional = true;
            self.expect_word("NOT")?;
            self.expect_word("EXISTS")?;
        }
        self.using()
    }

    /// `(a, b) VALUES (1, ?)`
    fn columns_and_values(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.expect(b'(')?;
        let columns_start = self.token.start;
        let mut columns = 0u32;
        loop {
            self.identifier()?;
            columns += 1;
            if !self.eat(b',') {
                break;
            }
        }
        let columns_text = self.lexer.slice(columns_start, self.token.start);
        self.expect(b')')?;
        self.expect_word("VALUES")?;
        self.expect(b'(')?;
        let (values_start, marker) = (self.token.start, self.markers);
        let mut values = 0u32;
        loop {
            self.repeatable &= self.term()?.fixed;
            values += 1;
            if !self.eat(b',') {
                break;
            }
        }
        let values_text = self.lexer.slice(values_start, self.token.start);
        self.expect(b')')?;
        if columns != values {
            return None;
        }
        statement.plain_where = true;
        statement.terms = TermSource::Insert { columns: columns_text, values: values_text, marker };
        Some(())
    }

    pub(super) fn update(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.table(statement)?;
        self.using()?;
        self.expect_word("SET")?;
        loop {
            self.repeatable &= self.assignment()?;
            if !self.eat(b',') {
                break;
            }
        }
        self.expect_word("WHERE")?;
        self.where_clause(statement)?;
        self.condition(statement)
    }

    /// One assignment of `SET`; whether executing it twice is the same as once.
    fn assignment(&mut self) -> Option<bool> {
        let column = self.identifier()?;
        let mut subscript = None;
        if self.eat(b'[') {
            subscript = Some(self.term()?);
            self.expect(b']')?;
        } else if self.eat(b'.') {
            self.identifier()?;
        }
        if self.token.is(b'+') || self.token.is(b'-') {
            // `c += 1`
            self.bump();
            self.expect(b'=')?;
            return self.addend();
        }
        self.expect(b'=')?;
        let ahead = self.lexer.peek();
        if self.token.identifier() == Some(column) && (ahead.is(b'+') || ahead.is(b'-')) {
            // `c = c + 1`
            self.bump();
            self.bump();
            return self.addend();
        }
        let value = self.term()?;
        let repeatable = value.fixed && subscript.is_none_or(|subscript| is_safe_element(&subscript, &value));
        Some(repeatable)
    }

    /// What is added to or taken from a column. A counter, and a list that grows, differ after a second execution; a
    /// set or a map does not, and only these are written with braces. A marker may be anything.
    fn addend(&mut self) -> Option<bool> {
        let shape = self.term()?;
        Some(shape.fixed && shape.braces)
    }

    pub(super) fn delete(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        while !self.token.is_word("FROM") {
            self.identifier()?;
            if self.eat(b'[') {
                // Deleting an element of a list moves the later ones up, so a second time deletes another.
                let subscript = self.term()?;
                self.repeatable &= is_map_key(&subscript);
                self.expect(b']')?;
            } else if self.eat(b'.') {
                self.identifier()?;
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect_word("FROM")?;
        self.table(statement)?;
        self.using()?;
        self.expect_word("WHERE")?;
        self.where_clause(statement)?;
        self.condition(statement)
    }

    /// Statements up to `APPLY BATCH`, with or without semicolons. The first one's table and terms stand for all.
    pub(super) fn batch(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.using()?;
        loop {
            while self.eat(b';') {}
            if self.eat_word("APPLY") {
                return self.expect_word("BATCH");
            }
            let mut child = Statement::unknown(Kind::Other);
            let word = self.bump();
            if word.is_word("INSERT") {
                self.insert(&mut child)?;
            } else if word.is_word("UPDATE") {
                self.update(&mut child)?;
            } else if word.is_word("DELETE") {
                self.delete(&mut child)?;
            } else {
                return None;
            }
            if statement.table.is_none() {
                (statement.keyspace, statement.table) = (child.keyspace, child.table);
                (statement.terms, statement.plain_where) = (child.terms, child.plain_where);
            }
            statement.conditional |= child.conditional;
        }
    }
}

/// A subscript that can only be the key of a map: the index of a list is an integer.
fn is_map_key(subscript: &Shape<'_>) -> bool {
    matches!(subscript.term, Some(Term::Literal(text)) if text.starts_with(['\'', '$']))
}

/// `l[1] = 'x'` can be repeated; `l[1] = null` deletes an element, and the next one moves up. A marker may be null, and
/// so may what is calculated.
fn is_safe_element(subscript: &Shape<'_>, value: &Shape<'_>) -> bool {
    let not_null = matches!(value.term, Some(Term::Literal(text)) if !text.eq_ignore_ascii_case("null"));
    subscript.fixed && (is_map_key(subscript) || not_null)
}
