//! `INSERT`, `UPDATE`, `DELETE` and batches of them, and whether each may be executed twice.

use super::Parser;
use super::clause::Using;
use crate::cql::statement::classification::{Kind, Statement};
use crate::cql::statement::identifier::Identifier;
use crate::cql::statement::lexer::TokenKind;
use crate::cql::statement::setting::ColumnKind;
use crate::cql::statement::terms::TermSource;

impl<'a> Parser<'a> {
    /// Judges a second execution of a complete INSERT, UPDATE or DELETE, except for the columns
    /// that it writes.
    fn conclude(&mut self, statement: &Statement<'a>, using: Using, gives_values: bool) {
        self.unstamped |= !using.stamped;
        let cells = self.cells(statement);
        self.repeatable &= cells.is_some_and(|cells| !cells.has_counters());
        if gives_values {
            self.repeatable &= cells.is_some_and(|cells| !using.lives.unwrap_or(cells.expire()));
        }
    }

    /// The kind of the written column, if the verdict is wanted and the column is known.
    fn column_kind(
        &self,
        statement: &Statement<'a>,
        column: &Identifier<'a>,
    ) -> Option<ColumnKind> {
        self.cells(statement)?.kind(column)
    }

    pub(super) fn insert(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.expect_word("INTO")?;
        self.table(statement)?;
        if self.eat_word("JSON") {
            // The JSON document contains key and columns, and is not parsed.
            self.repeatable = false;
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
        let using = self.using()?;
        self.conclude(statement, using, true);
        Some(())
    }

    /// `(a, b) VALUES (1, ?)`
    fn columns_and_values(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        self.expect(b'(')?;
        let columns_start = self.token.start;
        let mut columns = 0u32;
        loop {
            let column = self.identifier()?;
            self.repeatable &= is_replaced(self.column_kind(statement, &column));
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
        let using = self.using()?;
        self.expect_word("SET")?;
        loop {
            self.repeatable &= self.assignment(statement)?;
            if !self.eat(b',') {
                break;
            }
        }
        self.expect_word("WHERE")?;
        self.where_clause(statement)?;
        self.conclude(statement, using, true);
        self.condition(statement)
    }

    /// Reads one assignment of `SET` and returns whether executing it twice equals executing it
    /// once.
    fn assignment(&mut self, statement: &Statement<'a>) -> Option<bool> {
        let column = self.identifier()?;
        let kind = self.column_kind(statement, &column);
        let mut fixed = true;
        if self.eat(b'[') {
            fixed = self.term()?.fixed && kind == Some(ColumnKind::Keyed);
            self.expect(b']')?;
        } else if self.eat(b'.') {
            self.identifier()?;
        }
        if self.token.is(b'+') || self.token.is(b'-') {
            // `c += 1`
            self.bump();
            self.expect(b'=')?;
            return self.addend(kind);
        }
        self.expect(b'=')?;
        let ahead = self.lexer.peek();
        if self.token.identifier() == Some(column) && (ahead.is(b'+') || ahead.is(b'-')) {
            // `c = c + 1`
            self.bump();
            self.bump();
            return self.addend(kind);
        }
        Some(self.term()?.fixed && fixed && is_replaced(kind))
    }

    /// Reads the term that is added to or taken from a column. A second execution changes a counter
    /// or a growing list again, but not a set or a map.
    fn addend(&mut self, kind: Option<ColumnKind>) -> Option<bool> {
        Some(self.term()?.fixed && kind == Some(ColumnKind::Keyed))
    }

    pub(super) fn delete(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let columns = self.setting.is_some().then(|| self.clone());
        self.deleted(None)?;
        self.expect_word("FROM")?;
        self.table(statement)?;
        // Second pass, now that the table is known.
        if let Some(mut columns) = columns {
            columns.deleted(Some(statement))?;
            self.repeatable &= columns.repeatable;
        }
        let using = self.using()?;
        self.expect_word("WHERE")?;
        self.where_clause(statement)?;
        self.conclude(statement, using, false);
        self.condition(statement)
    }

    /// The columns and elements between `DELETE` and `FROM`, of this table.
    fn deleted(&mut self, table: Option<&Statement<'a>>) -> Option<()> {
        while !self.token.is_word("FROM") {
            let column = self.identifier()?;
            if self.eat(b'[') {
                // Deleting an element of a list moves the later ones up, so a second execution
                // deletes another element.
                let keyed = table.is_none_or(|table| {
                    self.column_kind(table, &column) == Some(ColumnKind::Keyed)
                });
                self.repeatable &= self.term()?.fixed && keyed;
                self.expect(b']')?;
            } else if self.eat(b'.') {
                self.identifier()?;
            }
            if !self.eat(b',') {
                break;
            }
        }
        Some(())
    }

    /// Reads statements up to `APPLY BATCH`, with or without semicolons. The batch takes the table
    /// and terms of the first.
    pub(super) fn batch(&mut self, statement: &mut Statement<'a>) -> Option<()> {
        let using = self.using()?;
        self.stamped = using.stamped;
        self.repeatable &= using.lives.is_none();
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

/// True if assigning a value to such a column twice equals assigning it once.
fn is_replaced(kind: Option<ColumnKind>) -> bool {
    matches!(kind, Some(ColumnKind::Single | ColumnKind::Keyed))
}
