//! `INSERT`, `UPDATE`, `DELETE` and `BATCH`.

use std::collections::HashMap;

use super::{ELEMENTS_MAX, Parser};
use crate::ast::{
    Assignment, Attributes, Batch, BatchKind, Delete, Deletion, Insert, InsertJson, Literal,
    LiteralKind, Mutation, Operation, QualifiedName, Term, Update,
};
use crate::error::SyntaxError;
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn mutation(&mut self) -> Result<Mutation, SyntaxError> {
        match self.lower().as_str() {
            "insert" => self.insert(),
            "update" => self.update().map(Mutation::Update),
            "delete" => self.delete().map(Mutation::Delete),
            _ => Err(self.no_alternative()),
        }
    }

    fn insert(&mut self) -> Result<Mutation, SyntaxError> {
        self.expect_words(&["insert", "into"])?;
        let table = self.qualified_name("table")?;
        if self.eat_word("json") {
            return self.insert_json(table).map(Mutation::InsertJson);
        }
        if !self.is("(") {
            return Err(self.no_alternative());
        }
        self.advance();
        let columns = self.list(Parser::column)?;
        self.expect(")")?;
        self.expect_word("values")?;
        self.expect("(")?;
        let values = self.list(Parser::value)?;
        self.expect(")")?;
        let start = self.peek().start;
        let if_not_exists = self.if_not_exists()?;
        self.note_condition(start);
        let attributes = self.attributes(true)?;
        Ok(Mutation::Insert(Insert { table, columns, values, if_not_exists, attributes }))
    }

    fn insert_json(&mut self, table: QualifiedName) -> Result<InsertJson, SyntaxError> {
        let json = match self.peek().kind {
            Kind::String => {
                Term::Literal(Literal { kind: LiteralKind::String, text: self.string()? })
            }
            _ => Term::Marker(self.marker()?),
        };
        let mut default_unset = false;
        if self.eat_word("default") {
            default_unset = self.eat_word("unset");
            if !default_unset && !self.eat_word("null") {
                return Err(self.no_alternative());
            }
        }
        let if_not_exists = self.if_not_exists()?;
        let attributes = self.attributes(true)?;
        Ok(InsertJson { table, json, default_unset, if_not_exists, attributes })
    }

    /// `USING ..`, if present; a `DELETE` takes only a timestamp.
    fn attributes(&mut self, full: bool) -> Result<Attributes, SyntaxError> {
        let mut attributes = Attributes::default();
        if !self.eat_word("using") {
            return Ok(attributes);
        }
        loop {
            if self.eat_word("timestamp") {
                attributes.timestamp = Some(self.integer_or_marker()?);
            } else if full && self.eat_word("ttl") {
                attributes.time_to_live = Some(self.integer_or_marker()?);
            } else {
                return Err(if full {
                    self.no_alternative()
                } else {
                    self.mismatch("K_TIMESTAMP")
                });
            }
            if !full || !self.eat_word("and") {
                return Ok(attributes);
            }
        }
    }

    fn update(&mut self) -> Result<Update, SyntaxError> {
        self.expect_word("update")?;
        let table = self.qualified_name("table")?;
        let attributes = self.attributes(true)?;
        self.expect_word("set")?;
        let assignments = self.list(Parser::assignment)?;
        check_assignments(&assignments)?;
        self.expect_word("where")?;
        let relations = self.relations()?;
        let start = self.peek().start;
        let conditions = self.conditions()?;
        self.note_condition(start);
        Ok(Update { table, attributes, assignments, relations, conditions })
    }

    fn assignment(&mut self) -> Result<Assignment, SyntaxError> {
        let column = self.column()?;
        let start = self.peek().start;
        let operation = match () {
            () if self.eat("=") => self.assigned(&column)?,
            () if self.eat("+=") => Operation::Add(self.value()?),
            () if self.eat("-=") => Operation::Subtract(self.value()?),
            () if self.eat("[") => {
                let key = self.term()?;
                self.expect("]")?;
                self.expect("=")?;
                Operation::SetElement(key, self.value()?)
            }
            () if self.eat(".") => {
                let field = self.identifier()?;
                self.expect("=")?;
                Operation::SetField(field, self.value()?)
            }
            () => return Err(self.no_alternative()),
        };
        let assignment = Assignment { column, operation };
        self.note_assignment(start, &assignment);
        Ok(assignment)
    }

    /// Parses the part behind `column =`.
    fn assigned(&mut self, column: &str) -> Result<Operation, SyntaxError> {
        let only = |form: String| {
            Err(SyntaxError::unplaced(format!(
                "Only expressions of the form X = {form} are supported."
            )))
        };
        let names_column =
            self.identifier_ahead(0).is_some() || self.peek().kind == Kind::EmptyName;
        if names_column && (self.is_ahead(1, "+") || self.is_ahead(1, "-")) {
            let other = self.column()?;
            let subtract = self.is("-");
            self.advance();
            let value = self.noted_term()?;
            if other != column {
                return only(format!("X {}<value>", if subtract { '-' } else { '+' }));
            }
            return Ok(if subtract { Operation::Subtract(value) } else { Operation::Add(value) });
        }
        // `a = a -3`: the lexer has combined the minus and its number into one token.
        if names_column && self.ahead(1).kind == Kind::Integer {
            let other = self.column()?;
            let text = self.text_of(self.peek()).to_owned();
            self.advance();
            if other != column {
                return only(format!(
                    "X {} <value>",
                    if text.starts_with('-') { '-' } else { '+' }
                ));
            }
            return Ok(Operation::Add(Term::Literal(Literal { kind: LiteralKind::Integer, text })));
        }
        let is_reference = self.is_reference();
        let value = self.value()?;
        if is_reference || !self.is("+") {
            return Ok(Operation::Set(value));
        }
        self.advance();
        if self.column()? != column {
            return only("<value> + X".to_owned());
        }
        Ok(Operation::Prepend(value))
    }

    fn delete(&mut self) -> Result<Delete, SyntaxError> {
        self.expect_word("delete")?;
        let deletions =
            if self.is_word("from") { Vec::new() } else { self.list(Parser::deletion)? };
        self.expect_word("from")?;
        let table = self.qualified_name("table")?;
        let attributes = self.attributes(false)?;
        self.expect_word("where")?;
        let relations = self.relations()?;
        let start = self.peek().start;
        let conditions = self.conditions()?;
        self.note_condition(start);
        Ok(Delete { table, attributes, deletions, relations, conditions })
    }

    fn deletion(&mut self) -> Result<Deletion, SyntaxError> {
        let column = self.column()?;
        if self.eat("[") {
            let key = self.term()?;
            self.expect("]")?;
            return Ok(Deletion::Element(column, key));
        }
        if self.eat(".") {
            return Ok(Deletion::Field(column, self.identifier()?));
        }
        Ok(Deletion::Column(column))
    }

    pub(super) fn batch(&mut self) -> Result<Batch, SyntaxError> {
        self.expect_word("begin")?;
        let kind = match () {
            () if self.eat_word("unlogged") => BatchKind::Unlogged,
            () if self.eat_word("counter") => BatchKind::Counter,
            () => BatchKind::Logged,
        };
        self.expect_word("batch")?;
        let attributes = self.attributes(true)?;
        let mut mutations = Vec::new();
        while self.is_word("insert") || self.is_word("update") || self.is_word("delete") {
            if mutations.len() >= ELEMENTS_MAX {
                return Err(self.problem(&format!("a batch has at most {ELEMENTS_MAX} statements")));
            }
            mutations.push(self.mutation()?);
            let _ = self.eat(";");
        }
        self.expect_words(&["apply", "batch"])?;
        Ok(Batch { kind, attributes, mutations })
    }
}

/// Several assignments of one column must each set a part of it, or add or subtract.
fn check_assignments(assignments: &[Assignment]) -> Result<(), SyntaxError> {
    let mut seen: HashMap<&str, bool> = HashMap::new();
    for Assignment { column, operation } in assignments {
        let whole = matches!(operation, Operation::Set(_));
        if let Some(whole_before) = seen.insert(column, whole)
            && (whole || whole_before)
        {
            return Err(SyntaxError::unplaced(format!(
                "Multiple incompatible setting of column {column}"
            )));
        }
    }
    Ok(())
}
