//! `CREATE ..` and `DROP ..` of the schema.

use super::{ELEMENTS_MAX, Parser};
use crate::ast::{
    CreateIndex, CreateView, Drop, DropKind, IndexTarget, QualifiedName, SchemaStatement, TypeName,
};
use crate::error::SyntaxError;
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<SchemaStatement, SyntaxError> {
        self.expect_word("create")?;
        match () {
            () if self.eat_keyspace() => {
                let if_not_exists = self.if_not_exists()?;
                let name = self.name("keyspace")?;
                self.expect_word("with")?;
                Ok(SchemaStatement::CreateKeyspace {
                    name,
                    if_not_exists,
                    properties: self.properties()?,
                })
            }
            () if self.eat_table() => self.create_table().map(SchemaStatement::CreateTable),
            () if self.eat_word("type") => self.create_type(),
            () if self.is_word("index") || self.is_word("custom") => {
                self.create_index().map(SchemaStatement::CreateIndex)
            }
            () if self.eat_word("materialized") => {
                self.create_view().map(|view| SchemaStatement::CreateView(Box::new(view)))
            }
            () if self.eat_word("trigger") => self.create_trigger(),
            () if self.is_word("or") || self.is_word("function") || self.is_word("aggregate") => {
                self.create_routine()
            }
            () => Err(self.no_alternative()),
        }
    }

    fn create_type(&mut self) -> Result<SchemaStatement, SyntaxError> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.type_identifier()?;
        self.expect("(")?;
        let mut fields = vec![(self.identifier()?, self.type_name()?)];
        while self.eat(",") {
            if fields.len() >= ELEMENTS_MAX {
                return Err(self.problem(&format!("a type has at most {ELEMENTS_MAX} fields")));
            }
            if !self.is(")") && !self.is(",") {
                fields.push((self.identifier()?, self.type_name()?));
            }
        }
        self.expect(")")?;
        Ok(SchemaStatement::CreateType { name, if_not_exists, fields })
    }

    fn create_index(&mut self) -> Result<CreateIndex, SyntaxError> {
        let custom = self.eat_word("custom");
        self.expect_word("index")?;
        let if_not_exists = self.if_not_exists()?;
        let name = if self.is_word("on") { None } else { Some(self.name("index")?) };
        self.expect_word("on")?;
        let table = self.qualified_name("table")?;
        self.expect("(")?;
        let targets = if self.is(")") { Vec::new() } else { self.list(Parser::index_target)? };
        self.expect(")")?;
        let class = if self.eat_word("using") { Some(self.string()?) } else { None };
        let properties = self.with_properties()?;
        Ok(CreateIndex { custom, if_not_exists, name, table, targets, class, properties })
    }

    fn index_target(&mut self) -> Result<(IndexTarget, String), SyntaxError> {
        let kinds = [
            ("values", IndexTarget::Values),
            ("keys", IndexTarget::Keys),
            ("entries", IndexTarget::Entries),
            ("full", IndexTarget::Full),
        ];
        let kind = kinds.iter().find(|(word, _)| self.is_word(word) && self.is_ahead(1, "("));
        let Some((_, kind)) = kind else {
            return Ok((IndexTarget::Simple, self.column()?));
        };
        self.at += 2;
        let column = self.column()?;
        self.expect(")")?;
        Ok((*kind, column))
    }

    fn create_view(&mut self) -> Result<CreateView, SyntaxError> {
        self.expect_word("view")?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified_name("table")?;
        self.expect_words(&["as", "select"])?;
        let clause = self.select_clause()?;
        self.expect_word("from")?;
        let table = self.qualified_name("table")?;
        let relations = if self.eat_word("where") { self.relations()? } else { Vec::new() };
        let primary_key = self.primary_key()?;
        let options = self.table_options()?;
        if options.compact_storage {
            let message = "COMPACT STORAGE tables are not allowed starting with version 4.0";
            return Err(SyntaxError::unplaced(message));
        }
        Ok(CreateView { name, if_not_exists, clause, table, relations, primary_key, options })
    }

    fn create_trigger(&mut self) -> Result<SchemaStatement, SyntaxError> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.identifier()?;
        self.expect_word("on")?;
        let table = self.qualified_name("table")?;
        self.expect_word("using")?;
        Ok(SchemaStatement::CreateTrigger { name, table, if_not_exists, class: self.string()? })
    }

    pub(super) fn drop_statement(&mut self) -> Result<SchemaStatement, SyntaxError> {
        self.expect_word("drop")?;
        let kind = match () {
            () if self.eat_keyspace() => DropKind::Keyspace,
            () if self.eat_table() => DropKind::Table,
            () if self.eat_word("type") => DropKind::Type,
            () if self.eat_word("index") => DropKind::Index,
            () if self.eat_word("materialized") => {
                self.expect_word("view")?;
                DropKind::View
            }
            () if self.eat_word("function") => DropKind::Function,
            () if self.eat_word("aggregate") => DropKind::Aggregate,
            () if self.eat_word("trigger") => DropKind::Trigger,
            () => return Err(self.no_alternative()),
        };
        let if_exists = self.if_exists()?;
        let mut arguments = None;
        let mut table = None;
        let name = match kind {
            DropKind::Keyspace => QualifiedName::local(self.name("keyspace")?),
            DropKind::Type => self.type_identifier()?,
            DropKind::Index => self.qualified_name("index")?,
            DropKind::Table | DropKind::View => self.qualified_name("table")?,
            DropKind::Trigger => {
                let name = self.identifier()?;
                self.expect_word("on")?;
                table = Some(self.qualified_name("table")?);
                QualifiedName::local(name)
            }
            DropKind::Function | DropKind::Aggregate => {
                let name = self.function_name()?;
                arguments = if self.is("(") { Some(self.argument_types()?) } else { None };
                name
            }
        };
        Ok(SchemaStatement::Drop(Drop { kind, if_exists, name, arguments, table }))
    }

    /// `(int, text)`
    pub(super) fn argument_types(&mut self) -> Result<Vec<TypeName>, SyntaxError> {
        self.expect("(")?;
        let types = if self.is(")") { Vec::new() } else { self.list(Parser::type_name)? };
        self.expect(")")?;
        Ok(types)
    }

    /// A word that is not a keyword, in lower case.
    pub(super) fn plain_word(&mut self) -> Result<String, SyntaxError> {
        let word = self.lower();
        if self.peek().kind != Kind::Word || crate::keyword::is_reserved(&word) {
            return Err(self.mismatch("IDENT"));
        }
        self.advance();
        Ok(word)
    }
}
